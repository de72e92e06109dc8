"""Content built to hurt, and plain content of the same size to compare it with.

Plain is what agents carry every day: a tool call whose input is a list of small records. Each hurtful material has one
property that made some check, reader or writer slow or fat, or might: long keys above long lists, deep nesting, many
blocks, many unknown fields, huge integers, objects that are small as JSON and large in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from perdure import Message, Text, ToolUse
from perdure.model.faithful import Extra, Opaque, Untyped

MESSAGE = 128 * 1024
"""Bytes of a message, a state document and a run's metadata: enough that constants vanish."""
CUSTOM = 40 * 1024
"""Bytes of a thread's custom object, which may have 64 KiB."""

Json = Callable[[int], dict[str, Any]]
Blocks = Callable[[int], list[Any]]


def repeated(make: Callable[[int], Any], size: int) -> list[Any]:
    """As many items as weigh `size` bytes as JSON, each made from its number."""
    weight = len(msgspec.json.encode(make(123_456))) + 1
    return [make(n) for n in range(max(1, size // weight))]


def plain(size: int) -> dict[str, Any]:
    """A list of small records, as a tool returns them."""

    def record(n: int) -> dict[str, Any]:
        return {"id": n, "name": f"item {n}", "done": False, "price": n * 1.5, "tags": ["red", "small"], "next": None}

    return {"records": repeated(record, size)}


def nested(depth: int) -> Any:
    """Lists within lists."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@dataclass(frozen=True)
class Material:
    """One kind of content: JSON objects of a size, and the blocks of an assistant's message of a size."""

    name: str
    json: Json = plain
    blocks: Blocks | None = None
    refused: bool = False
    part: int = 1
    """Which part of the usual size it has: tracing memory is slow."""

    def message(self, **fields: Any) -> Message:
        """A message of this content."""
        size = MESSAGE // self.part
        blocks = [ToolUse("c", "f", self.json(size))] if self.blocks is None else self.blocks(size)
        return Message.assistant(blocks, **fields)

    @cached_property
    def value(self) -> dict[str, Any]:
        """A document of this content."""
        return self.json(MESSAGE // self.part)

    @cached_property
    def custom(self) -> dict[str, Any]:
        """A smaller one."""
        return self.json(CUSTOM // self.part)

    @cached_property
    def given(self) -> Message:
        """A message that is built before anything is measured."""
        return self.message()

    @cached_property
    def decoded(self) -> Any:
        """The same message as decoded JSON."""
        return self.given.to_json()


PLAIN = Material("plain")


def unknown_block(**fields: Any) -> Opaque:
    """A block of a type that this build does not know."""
    return Opaque(Untyped({"type": "x", **fields}))


def many_fields(size: int) -> dict[str, Any]:
    """An object of many short fields."""
    return {f"f{n}": n for n in range(size // 13)}


def many_calls(size: int) -> list[Any]:
    """Tool calls, each with an id of its own."""
    return [ToolUse(f"c{n}", "f") for n in range(size // 45)]


def many_texts(size: int) -> list[Any]:
    """Text blocks of one letter."""
    return [Text("x")] * (size // 27)


HURTFUL = (
    Material("long key, many elements", lambda size: {"k" * 2_000: [0] * ((size - 2_000) // 2)}),
    Material("many long keys", lambda size: {f"{n:04}" + "k" * 500: n for n in range(size // 512)}),
    Material("deep nesting", lambda size: {"d": repeated(lambda n: nested(55), size)}),
    Material("many fields", many_fields),
    Material("huge integers", lambda size: {"n": repeated(lambda n: 2**4_090 + n, size)}),
    Material("empty lists", lambda size: {"c": repeated(lambda n: [], size)}),
    Material("small objects", lambda size: {"c": repeated(lambda n: {"a": n}, size)}),
    Material("control characters", lambda size: {"t": "\x00" * (size // 6)}),
    Material("emoji in short strings", lambda size: {"t": repeated(lambda n: "\U0001f600", size)}),
    Material("many text blocks", blocks=many_texts),
    Material("many tool calls", blocks=many_calls),
    Material("many unknown blocks", blocks=lambda size: [unknown_block() for _ in range(min(9_999, size // 13))]),
    Material("unknown fields on blocks", blocks=lambda size: [Text("x", extra=Extra(a=n)) for n in range(size // 36)]),
    Material("an unknown block of many fields", blocks=lambda size: [unknown_block(**many_fields(size))]),
    Material("one unknown block among many", blocks=lambda size: [unknown_block(), *many_texts(size)]),
)

_TAIL: tuple[tuple[str, Any], ...] = (
    ("bytes", b"x"),
    ("a lone surrogate", "\ud800"),
    ("65 levels", nested(65)),
    ("an integer of 5,000 digits", 10**5_000),
)


def _refused(what: str, tail: Any) -> Material:
    def json(size: int) -> dict[str, Any]:
        return {"k" * 2_000: [0] * ((size - 2_000) // 2) + [tail]}

    return Material(f"refused: {what} below a long key", json, refused=True)


REFUSED = (
    *(_refused(what, tail) for what, tail in _TAIL),
    Material(
        "refused: the last call repeats an id",
        blocks=lambda size: [*many_calls(size), many_calls(size)[-1]],
        refused=True,
    ),
    Material("refused: too many blocks", blocks=lambda size: [Text("")] * 10_001, refused=True),
)
"""What no call accepts: refusing it may cost no more than taking in plain content."""
