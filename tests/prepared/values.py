"""What a prepared store holds in the place of a column: another type, nothing, too much, too deep, control characters.

Every table and every log has its columns replaced one by one, on each engine by what that engine can keep: SQLite keeps
any type in any column, Redis keeps bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.kernel.schema import Log, Table
from perdure.stores.schema import SCHEMA

SHAPES: tuple[Table | Log, ...] = (*SCHEMA.tables, *SCHEMA.logs)

ESCAPES = "a\x1b]0;title\x07\x1b[2Jb"
LONG = "x" * 1_000_000
DEEP = "[" * 50_000 + "]" * 50_000
DEEPER_THAN_ALLOWED = '{"a":' * 300 + "1" + "}" * 300
"""Not deep enough to make a decoder give up, but deeper than anybody may write."""
LONG_NUMBER = '{"n":1' + "0" * 4_000 + "}"

BODIES: dict[str, str | None] = {
    "null": None,
    "deep": DEEP,
    "deeper": DEEPER_THAN_ALLOWED,
    "huge": LONG_NUMBER,
    "control": '{"a":"\x1b[2J"}',
    "text": '"x"',
    "not-a-number": '{"a":NaN}',
    "surrogate": '{"a":"\\ud800"}',
    "twice": '{"content":[],"content":7}',
}
SQLITE_INTEGERS: dict[str, Any] = {
    "type": "abc",
    "blob": b"\x01",
    "real": 1.5,
    "null": None,
    "huge": 2**63 - 1,
    "control": ESCAPES,
}
SQLITE_TEXTS: dict[str, Any] = {"type": b"\x01", "null": None, "huge": LONG, "control": ESCAPES}
SQLITE_BODIES: dict[str, Any] = {**BODIES, "type": b"\x01"}

REDIS_INTEGERS: dict[str, Any] = {
    "type": b"abc",
    "real": b"1.5",
    "null": None,
    "huge": b"1" + b"0" * 400,
    "control": ESCAPES.encode(),
}
REDIS_TEXTS: dict[str, Any] = {"type": b"\xff\xfe", "null": None, "huge": LONG.encode(), "control": ESCAPES.encode()}
REDIS_BODIES: dict[str, Any] = {name: None if body is None else body.encode() for name, body in BODIES.items()} | {
    "type": b"\xff\xfe"
}


def columns(shape: Table | Log) -> Iterator[tuple[str, str]]:
    """Every column of a table or log outside of its key, and whether it is `int`, `text` or `body`."""
    yield from ((column.name, column.type) for column in shape.columns)
    yield from (("rev", "int"), ("body", "body"))
