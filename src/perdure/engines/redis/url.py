"""URLs of Redis stores: one server, a master that sentinels name, or a cluster, each plain or with TLS.

`redis://user:password@host:port/db`, `redis+sentinel://host1:port,host2:port/master?db=0`,
`redis+cluster://host1:port,host2:port`, and the same with `rediss`. Options stand in the query; an unknown one is
refused with the list of those that exist. Passwords stay out of everything that is shown: a password with a bare `/` or
`?` in it ends up in the wrong part of the URL and takes the `@` behind it along. Such a URL is refused before any of it
is quoted.
"""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

import msgspec

from perdure.engines.redis.tls import TLS_OPTIONS, tls_options
from perdure.errors import InvalidError
from perdure.kernel.options import count, seconds, yes_or_no

_SCHEME = re.compile(r"(rediss?)(?:\+(sentinel|cluster))?")
_PLAIN = ("allow_eviction", "command_timeout", "connect_timeout", "connections", "db", "migrate", "prefix")
_OPTIONS = (*_PLAIN, *TLS_OPTIONS)
_PREFIX = re.compile(r"[^\s{}%\x00-\x1f]{1,64}")
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

    @property
    def shown(self) -> str:
        """The target without its secrets."""
        scheme = ("rediss" if self.tls else "redis") + ("" if self.kind == "single" else f"+{self.kind}")
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"{scheme}://{hosts}/{self.master or self.db}"


def parse(url: str) -> Target:
    """The target of a URL; `InvalidError` when it is none."""
    scheme, _, rest = url.partition("://")
    found = _SCHEME.fullmatch(scheme)
    if found is None:
        raise InvalidError("this is no URL of a Redis store", hint="redis://host:6379/0")
    kind: Any = found[2] or "single"
    location = re.split(r"[/?]", rest, maxsplit=1)[0]
    if "@" in rest[len(location) :]:
        raise InvalidError(
            "the URL cannot be read: an @ stands behind the host",
            hint="percent-encode / ? # and @ in the password and in options (%2F %3F %23 %40)",
        )
    rest, _, query = rest.partition("?")
    location, _, path = rest.partition("/")
    user, _, hosts = location.rpartition("@")
    username, _, password = user.partition(":")
    options = _options(query, tls=found[1] == "rediss")
    master, db = _place(kind, unquote(path), options)
    addresses = tuple(_address(host, 26379 if kind == "sentinel" else 6379) for host in hosts.split(","))
    if kind == "single" and len(addresses) > 1:
        raise InvalidError("redis:// names one server", hint="redis+cluster:// and redis+sentinel:// take several")
    return Target(
        kind=kind,
        addresses=addresses,
        master=master,
        db=db,
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=found[1] == "rediss",
        ssl=tls_options(options) if found[1] == "rediss" else {},
        prefix=_prefix(options.get("prefix", "perdure")),
        connections=count("connections", options.get("connections", "16")),
        connect_timeout=seconds("connect_timeout", options.get("connect_timeout", "5")),
        command_timeout=seconds("command_timeout", options.get("command_timeout", "60")),
        migrate=yes_or_no("migrate", options.get("migrate", "yes")),
        allow_eviction=yes_or_no("allow_eviction", options.get("allow_eviction", "no")),
    )


def _options(query: str, *, tls: bool) -> dict[str, str]:
    options: dict[str, str] = {}
    given = parse_qsl(query, keep_blank_values=True)
    unknown = sorted({name for name, _ in given} - {*_OPTIONS})
    if unknown:
        raise InvalidError(f"{', '.join(unknown)}: no such option of a Redis URL", hint=f"known: {', '.join(_OPTIONS)}")
    for name, value in given:
        if name in options:
            raise InvalidError(f"the option {name} is given twice")
        if name in TLS_OPTIONS and not tls:
            raise InvalidError(f"{name} needs TLS", hint="use rediss://")
        options[name] = value
    return options


def _place(kind: str, path: str, options: dict[str, str]) -> tuple[str, int]:
    """The name of the master, if sentinels are asked, and the number of the database."""
    if kind == "sentinel":
        if not path or "/" in path:
            raise InvalidError("a sentinel URL names its master", hint="redis+sentinel://host:26379/mymaster")
        return path, _database(options.get("db", "0"))
    if "db" in options:
        raise InvalidError("db= belongs to sentinel URLs", hint="write redis://host:6379/1")
    if path and not path.isdecimal():
        raise InvalidError("the path of the URL is not the number of a database", hint="redis://host:6379/0")
    if kind == "cluster" and path not in ("", "0"):
        raise InvalidError("a cluster has only database 0")
    return "", int(path or 0)


def _address(text: str, port: int) -> Address:
    host, found, number = text.rpartition(":")
    if not found or text.endswith("]"):
        host, number = text, str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not number.isdecimal() or not 0 < int(number) < 65536:
        raise InvalidError("a server in the URL is not host:port", hint="redis://host:6379/0")
    return host, int(number)


def _prefix(text: str) -> str:
    if _PREFIX.fullmatch(text) is None:
        raise InvalidError("prefix is not 1 to 64 characters without spaces, braces and %")
    return text


def _database(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise InvalidError(f"db is the number of a database, not {text!r:.80}", hint="db=0")
    return int(text)
