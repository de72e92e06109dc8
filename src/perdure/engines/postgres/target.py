"""Where to connect and how: a PostgreSQL URL taken apart into the driver's part and our own options.

Our options are `schema`, `connections`, `connect_timeout`, `command_timeout`, `prepared`, `listen_url`, `migrate` and
`allow_cleartext`; what concerns the way to the server (`sslmode`, `passfile`, `target_session_attrs` and the like) is
passed on. An option that is not known is refused with the list of those that are. `shown` is what messages may say:
never the password.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec

from perdure.engines.shared.options import count, seconds, yes_or_no
from perdure.errors import InvalidError
from perdure.kernel.url import Dialect, Host, ServerUrl, parse_hosts, parse_port, parse_url

_OWN = (
    "schema",
    "connections",
    "connect_timeout",
    "command_timeout",
    "prepared",
    "listen_url",
    "migrate",
    "allow_cleartext",
)
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
_REPLACED = ("host", "port", "user", "password", "database", "dbname", "application_name")
"""Passed on in another form, or decided by ourselves."""
_EXAMPLE = "postgresql://user:password@host:5432/database?schema=perdure"
_DIALECT = Dialect("PostgreSQL", _EXAMPLE, schemes=("postgresql", "postgres"), options=(*_OWN, *_PASSED_ON))
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_SESSIONS = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
_SCHEMA_BYTES = 63


class Target(msgspec.Struct, frozen=True):
    """A database and how it is used. `dsn` is the driver's form of the URL and may hold a password; `shown` never does.
    `database` is the one that the URL names, empty if it leaves that to the server or the environment."""

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
    allow_cleartext: bool = False
    """The password may be sent in clear text to a server that was not verified."""
    password: str = ""
    """The password that the URL holds, to keep it out of messages; the driver may have another from elsewhere."""
    user: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What a server may repeat, even if the password is the same word."""
        return (self.shown, self.user, self.database, self.schema, self.application)

    def __repr__(self) -> str:
        return f"<Target {self.shown}>"


def parse_target(url: str) -> Target:
    """The target that a URL names; `InvalidError` says what is wrong with it."""
    parts = _parsed(url, "the URL of the database")
    given = parts.options
    own: dict[str, Any] = {name: _READ[name](name, value) for name, value in given.items() if name in _READ}
    listen = given.get("listen_url")
    return Target(
        dsn=_driver_dsn(parts),
        shown=msgspec.structs.replace(parts, scheme="postgresql").shown,
        database=_database(parts),
        listen_dsn=None if listen is None else _listen_dsn(listen),
        application=given.get("application_name", "perdure"),
        read_write=given.get("target_session_attrs") == "read-write",
        password=parts.password or given.get("password", ""),
        user=parts.user or given.get("user", ""),
        **own,
    )


def _parsed(url: str, name: str) -> ServerUrl:
    parts = parse_url(url, _DIALECT, name)
    _check_passed_on(parts.options)
    return parts


def _driver_dsn(parts: ServerUrl) -> str:
    """The URL for the driver: everything but the database stands in its options.

    The driver reads URLs with the standard library, which on some Pythons refuses `[::1]` in a list of hosts; in the
    option `host` every Python takes it.
    """
    passed = {name: parts.options[name] for name in _PASSED_ON if name in parts.options and name not in _REPLACED}
    hosts = _hosts(parts)
    named = {
        **(_host_options(hosts) if hosts else {"port": parts.options.get("port", "")}),
        "user": parts.user or parts.options.get("user", ""),
        "password": parts.password or parts.options.get("password", ""),
    }
    options = {**{name: value for name, value in named.items() if value}, **passed}
    return ServerUrl("postgresql", path=_database(parts), options=options).build()


def _database(parts: ServerUrl) -> str:
    return parts.path or parts.options.get("dbname") or parts.options.get("database") or ""


def _hosts(parts: ServerUrl) -> tuple[Host, ...]:
    """The hosts before the path, or else those of the option; the option `port` serves those that name no port."""
    listed = parts.options.get("host")
    hosts = parts.hosts or (parse_hosts(listed, _DIALECT, "the option host") if listed else ())
    given = parts.options.get("port")
    ports = [parse_port(port, _DIALECT, "the option port") for port in given.split(",")] if given else []
    if len(ports) > 1 and hosts and len(ports) != len(hosts):
        raise InvalidError(f"the option port lists {len(ports)} ports for {len(hosts)} hosts", hint=_EXAMPLE)
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return tuple(Host(host.name, host.port or port) for host, port in zip_longest(hosts, ports)) if hosts else ()


def _host_options(hosts: tuple[Host, ...]) -> dict[str, str]:
    if all(host.port for host in hosts):
        names = [str(Host(host.name)) for host in hosts]
        return {"host": ",".join(names), "port": ",".join(str(host.port) for host in hosts)}
    # The driver's own port, which the environment may set, is for those without one; so the others bring theirs along.
    return {"host": ",".join(map(_host_with_port, hosts))}


def _host_with_port(host: Host) -> str:
    # A socket is a file in the folder that the URL names, called after the port.
    return f"{host.name}/.s.PGSQL.{host.port}" if host.is_socket and host.port else str(host)


def _listen_dsn(url: str) -> str:
    parts = _parsed(url, "listen_url")
    own = sorted(set(parts.options) & set(_OWN))
    if own:
        raise InvalidError(
            f"listen_url takes only options of the connection, not {', '.join(own)}",
            hint="put it into the URL of the store",
        )
    return _driver_dsn(parts)


def each_host(dsn: str) -> tuple[str, ...]:
    """The driver's URL for every host that it lists, one by one; itself where the driver has to see them together."""
    parts = parse_url(dsn)
    # Whether there is a standby to prefer only all hosts can tell.
    if "host" not in parts.options or parts.options.get("target_session_attrs") == "prefer-standby":
        return (dsn,)
    hosts, ports = (parts.options.get(name, "").split(",") for name in ("host", "port"))
    pairs = [{"host": host, "port": port} if port else {"host": host} for host, port in zip_longest(hosts, ports)]
    return tuple(msgspec.structs.replace(parts, options={**parts.options, **pair}).build() for pair in pairs)


def _check_passed_on(given: dict[str, str]) -> None:
    """What the driver would take for a server that is not there yet, or complain about less clearly."""
    for name in _FILES:
        if name in given and not os.access(given[name], os.R_OK):
            raise InvalidError(f"{name} names a file that cannot be read: {given[name]:.200}")
    sessions = given.get("target_session_attrs", "any")
    if sessions not in _SESSIONS:
        raise InvalidError(f"target_session_attrs is one of {', '.join(_SESSIONS)}, not {sessions!r:.80}")


def _schema(name: str, value: str) -> str:
    if value.startswith("pg_"):
        raise InvalidError(f"{name} cannot begin with pg_, which PostgreSQL keeps for itself: {value!r:.80}")
    if not value or len(value.encode()) > _SCHEMA_BYTES or not value.isprintable():
        raise InvalidError(f"{name} must be 1 to {_SCHEMA_BYTES} bytes long and printable, not {value!r:.80}")
    return value


_READ: dict[str, Callable[[str, str], Any]] = {
    "schema": _schema,
    "connections": count,
    "connect_timeout": seconds,
    "command_timeout": seconds,
    "prepared": yes_or_no,
    "migrate": yes_or_no,
    "allow_cleartext": yes_or_no,
}
