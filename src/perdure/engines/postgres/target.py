"""Parses a PostgreSQL URL into a `Target`: the driver's connection options and ours.

Our options are `schema`, `connections`, `connect_timeout`, `command_timeout`, `prepared`, `listen_url`, `migrate` and
`allow_cleartext`; connection options (`sslmode`, `passfile`, `target_session_attrs` and the like) go to the driver.
Unknown options are rejected with the list of known ones. `display_url` is the URL for messages: without the password.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import Any

import msgspec

from perdure.engines.shared.options import SQL_SERVER_OPTIONS, OptionReader, yes_or_no
from perdure.errors import InvalidError
from perdure.kernel.url import Dialect, Host, ServerUrl, parse_hosts, parse_port, parse_url

_SCHEMA_BYTES = 63


def _schema(name: str, value: str) -> str:
    if value.startswith("pg_"):
        raise InvalidError(f"{name} cannot begin with pg_, which PostgreSQL keeps for itself: {value!r:.80}")
    if not value or len(value.encode()) > _SCHEMA_BYTES or not value.isprintable():
        raise InvalidError(f"{name} must be 1 to {_SCHEMA_BYTES} bytes long and printable, not {value!r:.80}")
    return value


_READ: dict[str, OptionReader] = {"schema": _schema, **SQL_SERVER_OPTIONS, "prepared": yes_or_no}
_OWN = (*_READ, "listen_url")
_REPLACED = ("host", "port", "user", "password", "database", "dbname", "application_name")
"""Passed on in another form, or set by us."""
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_PASSED_ON = (
    *_REPLACED,
    *_FILES,
    "passfile",
    "service",
    "target_session_attrs",
    "sslmode",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "krbsrvname",
    "gsslib",
)
_EXAMPLE = "postgresql://user:password@host:5432/database?schema=perdure"
_DIALECT = Dialect("PostgreSQL", _EXAMPLE, schemes=("postgresql", "postgres"), options=(*_OWN, *_PASSED_ON))
_SESSIONS = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")


class Target(msgspec.Struct, frozen=True):
    """A database and how to use it. `dsn` is the URL for the driver and may hold a password; `display_url` never does.
    `database` is the one that the URL names, empty if the server or the environment decides."""

    dsn: str
    display_url: str
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
    """The URL requires a server that accepts writes."""
    allow_cleartext: bool = False
    """The password may be sent in clear text to an unverified server."""
    password: str = ""
    """The URL's password, to keep it out of messages; the driver may get another one from elsewhere."""
    user: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that a server may repeat, even if the password is the same word."""
        return (self.display_url, self.user, self.database, self.schema, self.application)

    def __repr__(self) -> str:
        return f"<Target {self.display_url}>"


def parse_target(url: str) -> Target:
    """The target that a URL names; raises `InvalidError`."""
    parts = _parsed(url, "the URL of the database")
    options = parts.options
    own: dict[str, Any] = {name: _READ[name](name, value) for name, value in options.items() if name in _READ}
    listen = options.get("listen_url")
    return Target(
        dsn=_driver_dsn(parts),
        display_url=msgspec.structs.replace(parts, scheme="postgresql").display_url,
        database=_database(parts),
        listen_dsn=None if listen is None else _listen_dsn(listen),
        application=options.get("application_name", "perdure"),
        read_write=options.get("target_session_attrs") == "read-write",
        password=parts.password or options.get("password", ""),
        user=parts.user or options.get("user", ""),
        **own,
    )


def _parsed(url: str, name: str) -> ServerUrl:
    """The parts of a URL. Rejects what the driver would mistake for a server that is not up yet, or report less
    clearly."""
    parts = parse_url(url, _DIALECT, name)
    for option in _FILES:
        file = parts.options.get(option)
        if file is not None and not os.access(file, os.R_OK):
            raise InvalidError(f"{option} names a file that cannot be read: {file:.200}")
    sessions = parts.options.get("target_session_attrs", "any")
    if sessions not in _SESSIONS:
        raise InvalidError(f"target_session_attrs is one of {', '.join(_SESSIONS)}, not {sessions!r:.80}")
    return parts


def _driver_dsn(parts: ServerUrl) -> str:
    """The URL for the driver, with everything but the database in its options.

    The driver reads URLs with the standard library, which on some Pythons refuses `[::1]` in a list of hosts; in the
    option `host` every Python accepts it.
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
    listed_ports = parts.options.get("port")
    ports = [parse_port(port, _DIALECT, "the option port") for port in listed_ports.split(",")] if listed_ports else []
    if len(ports) > 1 and hosts and len(ports) != len(hosts):
        raise InvalidError(f"the option port lists {len(ports)} ports for {len(hosts)} hosts", hint=_EXAMPLE)
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return tuple(Host(host.name, host.port or port) for host, port in zip_longest(hosts, ports)) if hosts else ()


def _host_options(hosts: tuple[Host, ...]) -> dict[str, str]:
    if all(host.port for host in hosts):
        names = [str(Host(host.name)) for host in hosts]
        return {"host": ",".join(names), "port": ",".join(str(host.port) for host in hosts)}
    # The driver's default port, which the environment may set, is for hosts without one; the others carry theirs.
    # A socket is a file in the directory that the URL names, called after the port.
    names = [f"{host.name}/.s.PGSQL.{host.port}" if host.is_socket and host.port else str(host) for host in hosts]
    return {"host": ",".join(names)}


def _listen_dsn(url: str) -> str:
    parts = _parsed(url, "listen_url")
    own = sorted(set(parts.options) & set(_OWN))
    if own:
        raise InvalidError(
            f"listen_url accepts connection options only; remove {', '.join(own)}",
            hint="put it into the URL of the store",
        )
    return _driver_dsn(parts)


def each_host(dsn: str) -> tuple[str, ...]:
    """One driver URL for every listed host; only itself where the driver has to know all hosts."""
    parts = parse_url(dsn)
    # To prefer a standby, the driver has to try all hosts.
    if "host" not in parts.options or parts.options.get("target_session_attrs") == "prefer-standby":
        return (dsn,)
    hosts, ports = (parts.options.get(name, "").split(",") for name in ("host", "port"))
    pairs = [{"host": host, "port": port} if port else {"host": host} for host, port in zip_longest(hosts, ports)]
    return tuple(msgspec.structs.replace(parts, options={**parts.options, **pair}).build() for pair in pairs)
