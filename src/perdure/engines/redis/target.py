"""URLs of Redis stores: one server, a master that sentinels name, or a cluster, each plain or with TLS.

`redis://user:password@host:port/db`, `redis+sentinel://host1:port,host2:port/master?db=0`,
`redis+cluster://host1:port,host2:port`, and the same with `rediss`. Options go in the query string; an unknown one is
rejected with the list of known ones. Passwords never appear in messages: a password with a bare `/` or `?` ends up in
the wrong part of the URL, together with the `@` after it. Such a URL is rejected before any of it is quoted.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from perdure.engines.redis.connections.tls import TLS_OPTIONS, is_verified, tls_options
from perdure.engines.shared.options import count, seconds, yes_or_no
from perdure.errors import InvalidError
from perdure.kernel.url import Dialect, Host, parse_url

_SCHEMES = tuple(security + several for several in ("", "+sentinel", "+cluster") for security in ("redis", "rediss"))
_PLAIN = ("allow_eviction", "command_timeout", "connect_timeout", "connections", "db", "migrate", "prefix")
_OPTIONS = (*_PLAIN, *TLS_OPTIONS)
_EXAMPLE = "redis://host:6379/0"
_ESCAPED = "percent-encode / ? # and @ in the password and in options (%2F %3F %23 %40)"
_DIALECT = Dialect("Redis", _EXAMPLE, schemes=_SCHEMES, options=_OPTIONS, bare_password=True)
_PREFIX = re.compile(r"[^\s{}%\x00-\x1f]{1,64}")
_DATABASE_DIGITS = 6
Address = tuple[str, int]


class Target(msgspec.Struct, frozen=True):
    """Where a store is and how to get there."""

    kind: Literal["single", "sentinel", "cluster"]
    addresses: tuple[Address, ...]
    master: str
    db: int
    username: str | None
    password: str | None
    tls: bool
    ssl: dict[str, Any]
    prefix: str
    connections: int
    connect_timeout: float
    command_timeout: float
    migrate: bool
    allow_eviction: bool
    names_db: bool = False
    """Whether the URL says which database, as opposed to leaving it at 0."""

    def __repr__(self) -> str:
        return f"<Target {self.display_url}>"

    @property
    def verified(self) -> bool:
        """Whether a server must prove that it is the host that was named."""
        return self.tls and is_verified(self.ssl)

    @property
    def display_url(self) -> str:
        """The target without its secrets."""
        scheme = ("rediss" if self.tls else "redis") + ("" if self.kind == "single" else f"+{self.kind}")
        hosts = ",".join(str(Host(*address)) for address in self.addresses)
        return f"{scheme}://{hosts}/{self.master or self.db}"


def parse(url: str) -> Target:
    """The target of a URL; `InvalidError` if it has none."""
    parts = parse_url(url, _DIALECT)
    # No option needs an @, so this is the rest of a password with a bare / or ? in it.
    if any("@" in text for option in parts.options.items() for text in option):
        raise InvalidError("the URL cannot be parsed: there is an @ after the host", hint=_ESCAPED)
    security, _, several = parts.scheme.partition("+")
    kind: Any = several or "single"
    tls = security == "rediss"
    options = _checked(parts.options, tls=tls)
    master, db = _master_and_db(kind, parts.path, options)
    return Target(
        kind=kind,
        addresses=_addresses(kind, parts.hosts),
        master=master,
        db=db,
        username=parts.user or None,
        password=parts.password or None,
        tls=tls,
        ssl=tls_options(options) if tls else {},
        prefix=_prefix(options.get("prefix", "perdure")),
        connections=count("connections", options.get("connections", "16")),
        connect_timeout=seconds("connect_timeout", options.get("connect_timeout", "5")),
        command_timeout=seconds("command_timeout", options.get("command_timeout", "60")),
        migrate=yes_or_no("migrate", options.get("migrate", "yes")),
        allow_eviction=yes_or_no("allow_eviction", options.get("allow_eviction", "no")),
        names_db=bool(parts.path or "db" in options),
    )


def _checked(options: dict[str, str], *, tls: bool) -> dict[str, str]:
    needless = [name for name in options if name in TLS_OPTIONS and not tls]
    if needless:
        raise InvalidError(f"{needless[0]} needs TLS", hint="use rediss://")
    return options


def _addresses(kind: str, hosts: tuple[Host, ...]) -> tuple[Address, ...]:
    if not hosts:
        raise InvalidError("the URL names no server: add host:port", hint=_EXAMPLE)
    if any(host.is_socket for host in hosts):
        raise InvalidError("Unix sockets are not supported: use host:port", hint=_EXAMPLE)
    if kind == "single" and len(hosts) > 1:
        raise InvalidError("redis:// takes one server", hint="redis+cluster:// and redis+sentinel:// take several")
    default = 26379 if kind == "sentinel" else 6379
    return tuple((host.name, host.port or default) for host in hosts)


def _master_and_db(kind: str, path: str, options: dict[str, str]) -> tuple[str, int]:
    """The name of the master, for sentinels, and the number of the database."""
    if kind == "sentinel":
        if not path or "/" in path:
            raise InvalidError("a sentinel URL must name its master", hint="redis+sentinel://host:26379/mymaster")
        return path, _database(options.get("db", "0"))
    if "db" in options:
        raise InvalidError("db= is for sentinel URLs only", hint="write redis://host:6379/1")
    if path and not (path.isascii() and path.isdigit() and len(path) <= _DATABASE_DIGITS):
        raise InvalidError("the path of the URL is not the number of a database", hint="redis://host:6379/0")
    if kind == "cluster" and path not in ("", "0"):
        raise InvalidError("a cluster has only database 0")
    return "", int(path or 0)


def _prefix(text: str) -> str:
    if _PREFIX.fullmatch(text) is None:
        raise InvalidError("prefix must be 1 to 64 characters, without spaces, braces and %")
    return text


def _database(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DATABASE_DIGITS:
        raise InvalidError(f"db must be the number of a database, not {text!r:.80}", hint="db=0")
    return int(text)
