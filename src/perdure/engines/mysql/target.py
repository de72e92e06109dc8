"""Where to connect and how: the parts of a MySQL URL.

`mysql://user:password@host:port/database?…`; `mariadb://` means the same. An unknown option is rejected with the list
of known ones. `display_url` names the server in messages, without the password.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from perdure.engines.shared.options import SQL_SERVER_OPTIONS, OptionReader
from perdure.engines.shared.server_answers import Sense
from perdure.errors import InvalidError
from perdure.kernel.transport import Tls, tls_level, transport_problem
from perdure.kernel.url import Dialect, Host, ServerUrl, parse_url

_EXAMPLE = "mysql://user:password@host:3306/database?connections=10"
_ESCAPED = f"{_EXAMPLE}; in a password, write / ? # @ as %2F %3F %23 %40"
_ADVICE = "use ssl_ca=/path/of/ca.pem, or ssl=verify"


def _ssl(name: str, value: str) -> str:
    if value not in ("no", "yes", "verify"):
        raise InvalidError(f"{name} must be no, yes or verify, not {value!r:.80}")
    return value


def _path(name: str, value: str) -> str:
    if not value:
        raise InvalidError(f"{name} must name a file")
    return value


def _readable(name: str, value: str) -> str:
    if not Path(_path(name, value)).is_file():
        raise InvalidError(f"{name}: there is no file {value!r}")
    if not os.access(value, os.R_OK):
        raise InvalidError(f"{name}: permission denied: cannot read {value!r}")
    return value


_OPTIONS: dict[str, OptionReader] = {
    **SQL_SERVER_OPTIONS,
    "unix_socket": _path,
    "ssl": _ssl,
    "ssl_ca": _readable,
    "ssl_cert": _readable,
    "ssl_key": _readable,
}
_DIALECT = Dialect("MySQL", _ESCAPED, schemes=("mysql", "mariadb"), options=tuple(_OPTIONS))


class Target(msgspec.Struct, frozen=True):
    """A database and how it is used."""

    host: str
    port: int
    user: str | None
    password: str
    database: str
    connections: int = 10
    connect_timeout: float = 10.0
    command_timeout: float = 60.0
    migrate: bool = True
    unix_socket: str | None = None
    ssl: Literal["no", "yes", "verify"] = "no"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    allow_cleartext: bool = False
    """Whether the password itself may be sent to a server that was not verified."""

    def __repr__(self) -> str:
        return f"<Target {self.display_url}>"

    @property
    def display_url(self) -> str:
        """The server and database in messages."""
        where = str(Host(self.host, self.port)) if self.unix_socket is None else f"[{self.unix_socket}]"
        return f"mysql://{where}/{self.database}"

    @property
    def encrypts(self) -> bool:
        """Whether the connection is encrypted."""
        return self.ssl != "no" or self.verifies

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate and host name are checked: with the authorities in `ssl_ca`, else with the
        system's. A client with a certificate always verifies the server's."""
        return self.ssl == "verify" or self.ssl_ca is not None or self.ssl_cert is not None

    @property
    def tls(self) -> Tls | None:
        """How connections are protected; None for a Unix socket."""
        return None if self.unix_socket else tls_level(encrypted=self.encrypts, verified=self.verifies)

    def transport_problem(self) -> str | None:
        """Why connections to the server are not safe, in words; None if they are."""
        host = None if self.unix_socket else self.host
        return transport_problem(host, encrypted=self.encrypts, verified=self.verifies, advice=_ADVICE)

    def sense(self) -> Sense:
        """The `with` block for whatever reads the server's answers."""
        return Sense(self.display_url, self.password, (self.display_url, self.user or "", self.database))


def parse_target(url: str) -> Target:
    """The target that a URL names; raises `InvalidError` if it is not valid."""
    parts = parse_url(url, _DIALECT, "the URL of the database")
    if not parts.path or "/" in parts.path:
        raise InvalidError("the URL names no database", hint=_ESCAPED)
    host = _host(parts)
    return Target(
        host=host.name,
        port=host.port or 3306,
        user=parts.user or None,
        password=parts.password,
        database=parts.path,
        **_options(parts.options),
    )


def _host(parts: ServerUrl) -> Host:
    if len(parts.hosts) > 1:
        raise InvalidError("a MySQL URL names one server, not several", hint=_EXAMPLE)
    host = parts.hosts[0] if parts.hosts else Host("localhost")
    if host.is_socket:
        raise InvalidError("the host cannot be a socket path", hint="use ?unix_socket=/path/of/socket")
    return host


def _options(options: dict[str, str]) -> dict[str, Any]:
    if "ssl_key" in options and "ssl_cert" not in options:
        raise InvalidError("ssl_key needs ssl_cert", hint="name the certificate's file with ssl_cert")
    return {name: _OPTIONS[name](name, value) for name, value in options.items()}
