"""Where to connect and how: a PostgreSQL URL taken apart into the driver's part and our own options.

Our options are `schema`, `connections`, `connect_timeout`, `command_timeout`, `prepared`, `listen_url` and `migrate`;
what concerns the way to the server (`sslmode`, `passfile`, `target_session_attrs` and the like) is passed on. An option
that is not known is refused with the list of those that are. `shown` is what messages may say: never the password.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from perdure.errors import InvalidError
from perdure.kernel.options import count, seconds, yes_or_no

T = TypeVar("T")

_OWN = ("schema", "connections", "connect_timeout", "command_timeout", "prepared", "listen_url", "migrate")
_PASSED_ON = (
    "host",
    "port",
    "user",
    "password",
    "database",
    "dbname",
    "passfile",
    "service",
    "application_name",
    "target_session_attrs",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "krbsrvname",
    "gsslib",
)
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_SESSIONS = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
_SCHEMA_BYTES = 63


class Target(msgspec.Struct, frozen=True):
    """A database and how it is used. `dsn` may hold a password; `shown` never does. `database` is the one that the URL
    names, empty if it leaves that to the server or the environment."""

    dsn: str
    shown: str
    database: str = ""
    schema: str = "perdure"
    connections: int = 10
    connect_timeout: float = 10.0
    command_timeout: float = 60.0
    prepared: bool = True
    migrate: bool = True
    listen_dsn: str | None = None
    application: str = "perdure"
    read_write: bool = False
    """The URL asks for a server that takes writes."""


def parse_target(url: str) -> Target:
    """The target that a URL names; `InvalidError` says what is wrong with it."""
    parts = _split(url)
    given = _options(parts.query)
    own: dict[str, Any] = {name: _READ[name](name, value) for name, value in given.items() if name in _READ}
    listen = given.get("listen_url")
    return Target(
        dsn=_passed_on(parts, given),
        shown=_shown(parts),
        database=unquote(parts.path[1:]) or given.get("dbname") or given.get("database") or "",
        listen_dsn=None if listen is None else _listen_dsn(listen),
        application=given.get("application_name", "perdure"),
        read_write=given.get("target_session_attrs") == "read-write",
        **own,
    )


def _passed_on(parts: SplitResult, given: dict[str, str]) -> str:
    kept = {name: value for name, value in given.items() if name in _PASSED_ON and name != "application_name"}
    return parts._replace(query=urlencode(kept, quote_via=quote), fragment="").geturl()


def _listen_dsn(url: str) -> str:
    parts = _split(url, "listen_url")
    given = _options(parts.query)
    own = sorted(set(given) & set(_OWN))
    if own:
        raise InvalidError(
            f"listen_url leads to the server and nothing else: {', '.join(own)} cannot stand in it",
            hint="put it into the URL of the store",
        )
    return _passed_on(parts, given)


def each_host(dsn: str) -> tuple[str, ...]:
    """The same for every host that it lists, one by one; itself where the driver has to see them together."""
    parts = urlsplit(dsn)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    account, at, hosts = parts.netloc.rpartition("@")
    # Of several ports each belongs to a host; and whether there is a standby to prefer only all hosts can tell.
    if "," in given.get("port", "") or given.get("target_session_attrs") == "prefer-standby":
        return (dsn,)
    if hosts:
        return tuple(parts._replace(netloc=f"{account}{at}{host}").geturl() for host in hosts.split(","))
    listed = given.get("host", "").split(",")
    if len(listed) == 1:
        return (dsn,)
    return tuple(parts._replace(query=urlencode({**given, "host": host}, quote_via=quote)).geturl() for host in listed)


def _split(url: str, name: str = "the URL of the database") -> SplitResult:
    """Take a URL apart. Whatever is wrong with one, nothing of it is repeated: it may be a piece of a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidError(f"{name} cannot be read", hint=_EXAMPLE) from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidError(f"{name} does not begin with postgresql://", hint=_EXAMPLE)
    if parts.netloc.count("@") > 1:
        raise InvalidError(f"{name} has more than one @: percent-encode @ in the password (%40)", hint=_EXAMPLE)
    if parts.fragment or "@" in parts.path or ("@" not in parts.netloc and "@" in parts.query.partition("=")[0]):
        raise _encode_password(name)
    _check_hosts(name, parts.netloc.rpartition("@")[2])
    return parts


def _encode_password(name: str) -> InvalidError:
    return InvalidError(
        f"{name} cannot be read: / ? # and @ in a password have to be percent-encoded (%2F %3F %23 %40)", hint=_EXAMPLE
    )


def _check_hosts(name: str, hosts: str) -> None:
    listed = hosts.split(",")
    if len(listed) > 1 and not all(listed):
        raise InvalidError(f"{name} has an empty place in its list of hosts", hint=_EXAMPLE)
    _check_ports(name, [unquote(host.rpartition("]")[2].partition(":")[2]) for host in listed])


def _check_ports(name: str, ports: Iterable[str]) -> None:
    for port in ports:
        if port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
            raise InvalidError(f"{name}: the port must be a number from 1 to 65535", hint=_EXAMPLE)


def _options(query: str) -> dict[str, str]:
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InvalidError("the options of the URL cannot be read", hint=_EXAMPLE) from None
    unknown = sorted({name for name, _ in given} - {*_OWN, *_PASSED_ON})
    if unknown:
        if "@" in query:
            raise _encode_password("the URL of the database")
        known = ", ".join(sorted((*_OWN, *_PASSED_ON)))
        raise InvalidError(f"{', '.join(unknown)}: no such option of a PostgreSQL URL", hint=f"known: {known}")
    names = [name for name, _ in given]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidError(f"{', '.join(twice)} is given twice in the URL")
    _check_passed_on(dict(given))
    return dict(given)


def _check_passed_on(given: dict[str, str]) -> None:
    """What the driver would take for a server that is not there yet, or complain about less clearly."""
    for name in _FILES:
        if name in given and not os.access(given[name], os.R_OK):
            raise InvalidError(f"{name} names a file that cannot be read: {given[name]:.200}")
    sessions = given.get("target_session_attrs", "any")
    if sessions not in _SESSIONS:
        raise InvalidError(f"target_session_attrs is one of {', '.join(_SESSIONS)}, not {sessions!r:.80}")
    _check_ports("the option port", given.get("port", "").split(","))


def _shown(parts: SplitResult) -> str:
    user, found, host = parts.netloc.rpartition("@")
    name = f"{user.partition(':')[0]}@" if found else ""
    return f"postgresql://{name}{host}{parts.path}"


def _schema(name: str, value: str) -> str:
    if value.startswith("pg_"):
        raise InvalidError(f"{name} cannot begin with pg_, which PostgreSQL keeps for itself: {value!r:.80}")
    if not value or len(value.encode()) > _SCHEMA_BYTES or not value.isprintable():
        raise InvalidError(f"{name} names a schema of at most {_SCHEMA_BYTES} bytes, not {value!r:.80}")
    return value


_READ: dict[str, Callable[[str, str], Any]] = {
    "schema": _schema,
    "connections": count,
    "connect_timeout": seconds,
    "command_timeout": seconds,
    "prepared": yes_or_no,
    "migrate": yes_or_no,
}
_EXAMPLE = "postgresql://user:password@host:5432/database?schema=perdure"
