"""Prepared Redis data: one sound data set, damaged by raw commands and made whole again.

Rows are hashes, so a column is a field; entries of a log are packed lists, so a column is an element of one. Every key
of the data set is also replaced by a key of another type, and by one whose content is rubbish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from redis import Redis
from tests.audit.mutations import SCOPE, Damage
from tests.audit.samples import rich
from tests.prepared.values import REDIS_BODIES, REDIS_INTEGERS, REDIS_TEXTS, SHAPES, columns
from tests.support.servers import fresh_database, server

import perdure
from perdure.copy.engines import copy_engine
from perdure.engines.memory import open_memory
from perdure.engines.redis.schema.keys import base_of, encode_key
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Scan
from perdure.kernel.schema import Log, Table
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store

DEADLINE = 60.0
_VALUES = {"int": REDIS_INTEGERS, "text": REDIS_TEXTS, "body": REDIS_BODIES}
_ENTRY = 4
"""The entry of the log that is damaged, counted from 0: it stands in the middle."""


@dataclass(frozen=True)
class RawDamage(Damage):
    """Damage that a raw command does to a key."""

    key: bytes
    do: Callable[[Redis], object]


class RedisStores:
    """Every damage to a row, an entry, or a key of the data set, done one after the other."""

    engine_name = "redis"

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        url = self.run(fresh_database(server("redis"), "prepared"))
        self._opened: Store = self.run(perdure.open(url, housekeeping=False))
        self.run(rich(self._opened))
        self._client = Redis.from_url(url)
        self._base = base_of("perdure", SCOPE)
        self._sound = {key: self._client.dump(key) for key in self._client.keys("*")}

    @property
    def engine(self) -> Engine:
        return self._opened.engine

    def store(self) -> Store:
        return Store(self.engine, SCOPE, owner=False)

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(asyncio.wait_for(call, DEADLINE))

    def copy(self) -> None:
        """Copy everything to another engine."""

        async def copy() -> None:
            await copy_engine(self.engine, await open_memory(SCHEMA))

        self.run(copy())

    def command(self, *arguments: str) -> None:
        """Commands are tried on files alone: they read through the same calls."""

    def damages(self) -> list[RawDamage]:
        rows = [damage for shape in SHAPES for damage in self._of(shape)]
        return [*rows, *self._keys()]

    def _of(self, shape: Table | Log) -> Iterator[RawDamage]:
        if isinstance(shape, Log):
            yield from self._of_log(shape)
            return
        rows = self.run(self.engine.view(SCOPE, [Scan(shape.name)]))[0]
        row = min(rows, key=lambda row: ("t" not in row.key and row.key != ("running",), "running" not in row.key))
        key = self._base + f"t:{shape.name}:{encode_key(row.key)}".encode()
        for column, kind in columns(shape):
            for name, value in _VALUES[kind].items():
                if value != self._client.hget(key, column):
                    yield RawDamage(
                        shape.name, column, name, "/".join(map(str, row.key)), key, _field(key, column, value)
                    )

    def _of_log(self, log: Log) -> Iterator[RawDamage]:
        key = self._base + f"l:{log.name}:t".encode()
        entry = msgspec.msgpack.decode(self._client.lindex(key, _ENTRY))
        names = ["seq", "rev", *log.column_names, "body"]
        kinds = {"seq": "int", **dict(columns(log))}
        for place, column in enumerate(names):
            for name, value in _packed(kinds[column]).items():
                packed = msgspec.msgpack.encode([*entry[:place], value, *entry[place + 1 :]])
                yield RawDamage(log.name, column, name, f"t/{_ENTRY + 1}", key, _element(key, packed))
        rubbish = {"rubbish": b"\xc1\xff", "short": msgspec.msgpack.encode(entry[:3]), "number": b"\x07", "empty": b""}
        for name, packed in rubbish.items():
            yield RawDamage(log.name, "*", name, f"t/{_ENTRY + 1}", key, _element(key, packed))

    def _keys(self) -> Iterator[RawDamage]:
        """Every kind of key (rows, orders, indexes, logs and what is known of them) as another type, and as rubbish."""
        seen: set[bytes] = set()
        for key in sorted(self._sound):
            if not key.startswith(self._base) or b"dying" in key:
                continue
            rest = key[len(self._base) :]
            kind = b":".join(rest.split(b":")[: 3 if rest[:2] == b"i:" else 2])
            if kind in seen:
                continue
            seen.add(kind)
            name = kind.decode()
            for other in ("string", "list", "hash", "zset"):
                if self._client.type(key).decode() != other:
                    yield RawDamage(name, "*", other, "", key, _another_type(key, other))
            yield RawDamage(name, "*", "gone", "", key, _remove(key))
            yield from self._members(name, key)

    def _members(self, name: str, key: bytes) -> Iterator[RawDamage]:
        kind = self._client.type(key)
        if kind == b"zset":
            for word, member in (("member", b"\xff\xfe"), ("control", b"\x1b[2J"), ("empty", b"")):
                yield RawDamage(name, "*", word, "", key, _member(key, member))
        elif kind == b"hash" and name[0] in "qu":
            for field in sorted(self._client.hkeys(key))[:3]:
                yield RawDamage(name, field.decode(), "type", "", key, _field(key, field.decode(), b"abc"))
                yield RawDamage(name, field.decode(), "huge", "", key, _field(key, field.decode(), b"1" + b"0" * 400))

    def prepare(self, damage: RawDamage) -> bool:
        """Do the damage; False if it changes nothing."""
        damage.do(self._client)
        return bool(self._client.dump(damage.key) != self._sound[damage.key])

    def restore(self) -> None:
        """Make the data set whole again: what is not as it was is put back."""
        for key in set(self._client.keys("*")) | set(self._sound):
            if key not in self._sound:
                self._client.delete(key)
            elif self._client.dump(key) != self._sound[key]:
                self._client.restore(key, 0, self._sound[key], replace=True)

    def close(self) -> None:
        self._client.close()
        self.run(self._opened.close())
        self._runner.close()


def _packed(kind: str) -> dict[str, Any]:
    """What an element of an entry may be instead: an entry keeps types, so there are more of them."""
    if kind == "int":
        return {"type": "abc", "real": 1.5, "null": None, "huge": 2**63 - 1, "bool": True, "list": [1]}
    if kind == "text":
        return {"type": 7, "blob": b"\xff\xfe", "null": None, "huge": "x" * 1_000_000, "control": "\x1b[2J", "map": {}}
    return {**REDIS_BODIES, "number": 7, "list": [1]}


def _field(key: bytes, field: str, value: bytes | None) -> Callable[[Redis], object]:
    if value is None:
        return lambda client: client.hdel(key, field)
    return lambda client: client.hset(key, field, value)


def _element(key: bytes, packed: bytes) -> Callable[[Redis], object]:
    return lambda client: client.lset(key, _ENTRY, packed)


def _member(key: bytes, member: bytes) -> Callable[[Redis], object]:
    return lambda client: client.zadd(key, {member: 0})


def _remove(key: bytes) -> Callable[[Redis], object]:
    return lambda client: client.delete(key)


def _another_type(key: bytes, kind: str) -> Callable[[Redis], object]:
    def do(client: Redis) -> None:
        client.delete(key)
        if kind == "string":
            client.set(key, b"\x1b[2J")
        elif kind == "list":
            client.rpush(key, b"\x1b[2J")
        elif kind == "hash":
            client.hset(key, "\x1b[2J", b"x")
        else:
            client.zadd(key, {b"\x1b[2J": 1})

    return do
