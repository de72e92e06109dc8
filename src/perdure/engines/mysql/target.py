"""Where to connect and how: a MySQL URL taken apart.

`mysql://user:password@host:port/database?…`; `mariadb://` is the same. An option that is not known is refused with the
list of those that are. `shown` is what messages may say of the server: never the password.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from perdure.errors import InvalidError
from perdure.kernel.options import count, seconds, yes_or_no

_EXAMPLE = "mysql://user:password@host:3306/database?connections=10"
_ESCAPED = f"{_EXAMPLE}; in a password / ? # @ are written %2F %3F %23 %40"
_SCHEMES = ("mysql", "mariadb")


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
    ssl: bool = False
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None

    @property
    def shown(self) -> str:
        """The server and database in messages."""
        where = f"{self.host}:{self.port}" if self.unix_socket is None else f"[{self.unix_socket}]"
        return f"mysql://{where}/{self.database}"

    def tls(self) -> dict[str, str] | bool:
        """The driver's own form of the TLS options."""
        files = {"ca": self.ssl_ca, "cert": self.ssl_cert, "key": self.ssl_key}
        given = {name: path for name, path in files.items() if path is not None}
        return given or self.ssl


def parse_target(url: str) -> Target:
    """The target that a URL names; `InvalidError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:
        raise InvalidError("the URL of the database cannot be read", hint=_ESCAPED) from None
    if parts.scheme not in _SCHEMES:
        raise InvalidError(f"a MySQL URL begins with mysql://, not {parts.scheme}://", hint=_EXAMPLE)
    if parts.fragment or ("@" in parts.path + parts.query and "@" not in parts.netloc):
        raise InvalidError("the URL of the database cannot be read", hint=_ESCAPED)
    database = unquote(parts.path[1:])
    if not database or "/" in database:
        raise InvalidError("the URL names no database", hint=_ESCAPED)
    return Target(
        host=parts.hostname or "localhost",
        port=port,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
        database=database,
        **_options(parts.query),
    )


def _options(query: str) -> dict[str, Any]:
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InvalidError("the options of the URL cannot be read", hint=_ESCAPED) from None
    unknown = sorted({name for name, _ in given} - _READ.keys())
    if unknown:
        known = ", ".join(sorted(_READ))
        raise InvalidError(f"{', '.join(unknown)}: no such option of a MySQL URL", hint=f"known: {known}")
    names = [name for name, _ in given]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidError(f"{', '.join(twice)} is given twice in the URL")
    if "ssl_key" in names and "ssl_cert" not in names:
        raise InvalidError("ssl_key belongs to a certificate", hint="name its file with ssl_cert")
    return {name: _READ[name](name, value) for name, value in given}


def _path(name: str, value: str) -> str:
    if not value:
        raise InvalidError(f"{name} names a file")
    return value


def _readable(name: str, value: str) -> str:
    if not Path(_path(name, value)).is_file():
        raise InvalidError(f"{name}: there is no file {value!r}")
    if not os.access(value, os.R_OK):
        raise InvalidError(f"{name}: the file {value!r} may not be read")
    return value


_READ: dict[str, Callable[[str, str], Any]] = {
    "connections": count,
    "connect_timeout": seconds,
    "command_timeout": seconds,
    "migrate": yes_or_no,
    "unix_socket": _path,
    "ssl": yes_or_no,
    "ssl_ca": _readable,
    "ssl_cert": _readable,
    "ssl_key": _readable,
}
