"""Transactions as the script gets them: one msgpack record, and beside it the bytes that pass through untouched.

Everything that can be decided without looking at data is decided here: names, encoded keys, packed entries, where a
column stands. Bodies and entries travel as arguments of their own, so that no script takes them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.engines.redis.layout import Layout
from perdure.engines.redis.names import encode_key, stored
from perdure.engines.redis.shapes import Shape, pack
from perdure.errors import InvalidError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    PRESENT,
    Append,
    AtMost,
    Check,
    Delete,
    Drop,
    Inc,
    Max,
    Min,
    Now,
    Op,
    Patch,
    Put,
    Seq,
    Swap,
)  # fmt: skip
from perdure.kernel.schema import Log

_CHECK, _PUT, _PATCH, _DELETE = 1, 2, 3, 4
_ANY, _ABSENT, _PRESENT = (0,), (1,), (2,)
_LITERAL, _INC, _MAX, _MIN, _NOW, _SWAP, _SEQ = range(7)
_NOTHING: list[Any] = []


class Parcel:
    """One transaction under construction: the three lists of operations, and the bytes that go beside them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.appends: list[Any] = []
        self.drops: list[Any] = []
        self.rows: list[Any] = []
        self.bytes: list[bytes] = []
        self.seqs: list[tuple[str, str]] = []

    def add_all(self, ops: Sequence[Op]) -> None:
        """Take the operations in."""
        for position, op in enumerate(ops):
            kind = type(op)
            if kind is Append:
                self._append(position, op)  # type: ignore[arg-type]
            elif kind is Drop:
                self.drops.append((op.log, op.partition))  # type: ignore[union-attr]
            else:
                self.rows.append(self.row(position, op))  # type: ignore[arg-type]

    def row(self, position: int, op: Check | Put | Patch | Delete) -> tuple[Any, ...]:
        """One operation on a row; see `lua/rows.lua` for what stands where."""
        shapes, condition = self.layout.shapes, op.if_
        changes, body = _NOTHING, 0
        default: Any = False
        if type(op) is Patch:
            kind, shape = _PATCH, shapes.patch(op)
            changes, body = _changes(shape, op.set), self._beside(op.body)
            if op.default is not None:
                default = (_changes(shape, op.default.columns), self._beside(op.default.body))
        elif type(op) is Put:
            kind, shape = _PUT, shapes.whole(op.table)
            changes, body = _changes(shape, op.columns), self._beside(op.body)
        else:
            wanted = condition if type(condition) is dict else ()
            if type(op) is Check:
                kind, shape = _CHECK, shapes.look(op.table, wanted)
            else:
                kind, shape = _DELETE, shapes.whole(op.table, wanted)
        key = (encode_key(op.key), [stored(value) for value in op.key] if shape.by_key else _NOTHING)
        return (position, kind, op.table, *key, shape.packed, _condition(shape, condition), changes, body, default)

    def _beside(self, body: bytes | None) -> int:
        """Where the script finds these bytes among its arguments; 0 for none. The record itself is argument 1."""
        if body is None:
            return 0
        self.bytes.append(body)
        return len(self.bytes) + 1

    def _append(self, position: int, op: Append) -> None:
        log = self.layout.schema.log[op.log]
        order = self.layout.order[op.log]
        entries = [self._pieces(entry, order) for entry in op.entries]
        unique = [(name, [stored(entry[log.position[name]]) for entry in op.entries]) for name in log.unique]
        segments: Any = False
        if log.segment is not None:
            at = log.position[log.segment]
            segments = [stored(entry[at]) for entry in op.entries]
        expect = False if op.expect is None else op.expect
        self.appends.append((position, op.log, op.partition, expect, entries, unique, segments, len(log.columns) + 3))
        self.seqs.append((op.log, op.partition))

    def _pieces(self, entry: tuple[Any, ...], order: tuple[int, ...] | None) -> list[Any]:
        """An entry as bytes around its clock values, in the order in which the log keeps its columns."""
        if order is not None:
            entry = (*[entry[at] for at in order], entry[-1])
        pieces: list[Any] = []
        begun = b""
        for value in entry:
            if type(value) is Now:
                if begun:
                    pieces.append(self._beside(begun))
                    begun = b""
                pieces.append((value.plus,))
            else:
                begun += pack(value)
        pieces.append(self._beside(begun))
        return pieces


def _condition(shape: Shape, condition: Any) -> Any:
    if condition is ANY:
        return _ANY
    if condition is ABSENT:
        return _ABSENT
    if condition is PRESENT:
        return _PRESENT
    if type(condition) is int:
        return (3, str(condition))
    packed: list[Any] = [4]
    for name, wanted in condition.items():
        most = type(wanted) is AtMost
        packed += (shape.slots[name], most, wanted.limit if most else stored(wanted))
    return packed


def _changes(shape: Shape, columns: Mapping[str, Any]) -> list[Any]:
    packed: list[Any] = []
    slots = shape.slots
    for name, value in columns.items():
        kind = type(value)
        packed.append(slots[name])
        if kind is Inc:
            packed += (_INC, value.by)
        elif kind is Now:
            packed += (_NOW, value.plus)
        elif kind is Swap:
            packed += (_SWAP, (stored(value.old), stored(value.new)))
        elif kind is Seq:
            packed += (_SEQ, (value.log, value.back))
        elif kind is Max:
            packed += (_MAX, value.value)
        elif kind is Min:
            packed += (_MIN, value.value)
        else:
            packed += (_LITERAL, stored(value))
    return packed


def encode_record(record: Any) -> bytes:
    """A record for a script; text that is not Unicode is refused."""
    try:
        return pack(record)
    except UnicodeEncodeError as error:
        raise InvalidError(f"{error.object!r:.80} is not valid Unicode: {error.reason}") from None


def conflict_of(layout: Layout, ops: Sequence[Op], told: Sequence[Any]) -> Conflict:
    """The conflict that a script reported."""
    position, kind, actual = told[0], told[1], told[2]
    op: Any = ops[position]
    if kind == "length":
        return Conflict(position, "length", op.expect, actual)
    if kind == "unique":
        return Conflict(position, "unique", None, _rival(layout, op, actual, told[3]))
    condition = op.if_
    if actual is False:
        return Conflict(position, "condition", PRESENT if condition is ANY else condition, None)
    if type(condition) is not dict:
        return Conflict(position, "condition", condition, int(actual))
    types = layout.schema.table[op.table].types
    seen = {name: _typed(value, types[name]) for name, value in zip(condition, actual, strict=True)}
    return Conflict(position, "condition", condition, seen)


def _rival(layout: Layout, op: Any, actual: Any, where: str) -> dict[str, Any]:
    if type(op) is Append:
        log: Log = layout.schema.log[op.log]
        return {where: _typed(actual, log.types[where])}
    types = layout.schema.table[op.table].types
    names = where.rpartition(":")[2].split(",")
    return {name: _typed(value, types[name]) for name, value in zip(names, actual, strict=True)}


def _typed(value: Any, kind: str) -> Any:
    if value is False:
        return None
    return int(value) if kind == "int" else value
