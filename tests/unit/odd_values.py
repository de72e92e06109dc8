"""Values for `test_same_json`: JSON and everything that looks like it; JSON texts of records, and mutations of them."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import math
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import msgspec


class Number(int):
    """An int that is none."""


class Name(str):
    """A str that is none."""

    __slots__ = ()


class Real(float):
    """A float that is none."""


class Items(list[Any]):
    """A list that is none."""


class Fields(dict[str, Any]):
    """A dict that is none."""


class Grade(enum.IntEnum):
    ONE = 1


class Colour(enum.StrEnum):
    RED = "red"


class Plain(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int = 1


class Hostile:
    """Equal to everything, and no JSON."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


_SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 8, 15, 16, 255, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1),
    *(0.0, -0.0, 1.0, 1e308, 5e-324, 0.1, "", "a", "é", "𝔘", "\x00", '"\\', "\u2028", "x" * 300),
)
_ODD: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, "\ud800", "a\udfff", "é\ud800", b"x", bytearray(b"x"), memoryview(b"x")),
    *((), (1,), {1}, frozenset((1,)), 1j, ..., int, len, object(), Number(3), Name("a"), Real(0.5), Items([1])),
    *(Fields(a=1), OrderedDict(a=1), MappingProxyType({"a": 1}), Grade.ONE, Colour.RED, Plain.RED, Point()),
    *(Hostile(), decimal.Decimal(1), uuid.UUID(int=1), datetime.date(2026, 1, 1), msgspec.Raw(b"1"), msgspec.UNSET),
    *(1 << 4095, 1 << 4096, -(1 << 4095), -(1 << 4096), 1 << 20_000, range(2)),
)
_ODD_KEYS: tuple[Any, ...] = (1, None, True, 0.5, b"a", ("a",), Name("a"), Colour.RED, "\ud800", "é", Hostile())


def value(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value, or nearly one."""
    roll = rng.random()
    if roll < 0.02:
        return rng.choice(_ODD)
    if roll < 0.45 + 0.1 * depth:
        return rng.choice(_SCALARS)
    if roll < 0.75:
        return [value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 5)))]
    return {_key(rng): value(rng, depth + 1) for _ in range(rng.choice((0, 1, 3, 6)))}


def _key(rng: random.Random) -> Any:
    return rng.choice(_ODD_KEYS) if rng.random() < 0.01 else rng.choice(("a", "b", "é", "name", "", "x" * 40))


def wrapped(rng: random.Random) -> Any:
    """A value inside others: at the edge of the depth limit, or shared so often that its JSON is huge."""
    inner = value(rng)
    roll = rng.random()
    if roll < 0.85:
        return inner
    if roll < 0.95:
        for _ in range(rng.randint(58, 75)):
            inner = [inner] if rng.random() < 0.5 else {"a": inner}
        return inner
    for _ in range(rng.randint(1, 12)):
        inner = [inner] * rng.choice((1, 2, 3))
    return inner


_FIELDS: tuple[tuple[str, Any], ...] = (
    *(("type", "text"), ("type", "hologram"), ("type", "(opaque)"), ("type", 5), ("type", None), ("type", ["text"])),
    *(("extra", {"deep": None}), ("extra", 1), ("data", {"a": 1}), ("cache_control", {"type": "ephemeral"})),
    *(("usage", {"input_tokens": 5, "more": [1]}), ("usage", "odd"), ("usage", None), ("usage", {"input_tokens": -1})),
    *(("model", "m"), ("model", 5), ("stop_reason", []), ("metadata", {"a": [1]}), ("metadata", 1), ("content", [])),
    *(("content", None), ("content", "text"), ("content", [{"type": "text", "text": "x", "more": 1}]), ("text", 5)),
    *(("compaction", {"from_seq": 1, "to_seq": 2, "by": "x"}), ("is_error", 1), ("input", [[{}]]), ("title", None)),
    *(("source", {"type": "url", "url": "u", "more": 1}), ("source", {"type": "odd"}), ("source", 1), ("id", "i")),
    *(("tickets", [{"id": "t", "tool_call_id": "c", "more": 1}]), ("waiting", {"more": 1}), ("role", "user")),
    *(("range", {"first": 1, "last": 2, "more": 1}), ("outcome", {"termination": {"kind": "k", "more": 1}})),
)


def record(rng: random.Random, seeds: list[Any]) -> bytes:
    """The JSON text of a record after a few mutations of its tree."""
    tree = [copy.deepcopy(rng.choice(seeds))]
    for _ in range(rng.randint(0, 4)):
        _mutate(rng, tree)
    text = msgspec.json.encode(tree[0])
    return _cut(rng, text) if rng.random() < 0.03 else text


def _mutate(rng: random.Random, tree: list[Any]) -> None:
    holder, key = rng.choice(_places(tree))
    held = holder[key]
    roll = rng.random()
    if roll < 0.6 and isinstance(held, dict):
        name, field = copy.deepcopy(rng.choice(_FIELDS))
        holder[key] = {name: field, **held} if rng.random() < 0.5 else {**held, name: field}
    elif roll < 0.7 and isinstance(held, list):
        holder[key] = [*held, {"type": rng.choice(("text", "thinking", "odd", "tool_result"))}]
    elif roll < 0.8 and holder is not tree:
        del holder[key]
    elif roll < 0.9:
        holder[key] = copy.deepcopy(rng.choice((None, 1, "x", [], {}, 0.5, True, [{}], 2**70)))
    else:
        for _ in range(rng.choice((1, 2, 30, 62, 70))):
            held = {"type": "tool_result", "tool_use_id": "c", "content": [held]}
        holder[key] = held


def _places(tree: Any) -> list[tuple[Any, Any]]:
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(places) < 300:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        places += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], (dict, list))]
    return places


def _cut(rng: random.Random, text: bytes) -> bytes:
    at, to = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    edits: tuple[Callable[[], bytes], ...] = (
        lambda: text[:at] + text[to:],
        lambda: text[:at] + b"\xff" + text[at:],
        lambda: text[:at] + text[at:to] * 2 + text[to:],
    )
    return rng.choice(edits)()
