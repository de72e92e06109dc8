"""What an operation becomes: its *shape* (everything but its values) and its values in the order of their places.

Stores build their operations in a handful of places, so shapes are few; each is turned into SQL once, and the hot path
looks it up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perdure.kernel.ops import (
    Append,
    AtMost,
    Check,
    Condition,
    Default,
    Delete,
    Drop,
    Inc,
    Max,
    Min,
    Now,
    Patch,
    Put,
    Rule,
    Seq,
    Swap,
)  # fmt: skip

Shape = tuple[Any, ...]
Values = list[Any]

PLAIN, NULL, NOW, NOW_PLUS = "plain", "null", "now", "now+"
"""How a column gets its value, beside the expressions, which stand for themselves."""


def _put(op: Put) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    columns = _columns(op.columns, values)
    if op.body is not None:
        values.append(op.body.decode())
    if type(op.if_) is int:
        values.append(op.if_)
        return (Put, op.table, columns, op.body is not None, int), values
    return (Put, op.table, columns, op.body is not None, op.if_), values


def _patch(op: Patch) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    columns = _columns(op.set, values)
    if op.body is not None:
        values.append(op.body.decode())
    condition = _condition(op.if_, values)
    default = None if op.default is None else _default(op.default, values)
    return (Patch, op.table, columns, op.body is not None, condition, default), values


def _default(default: Default, values: Values) -> Shape:
    columns = _columns(default.columns, values)
    if default.body is not None:
        values.append(default.body.decode())
    return columns, default.body is not None


def _check(op: Check) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    return (Check, op.table, _condition(op.if_, values)), values


def _delete(op: Delete) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    return (Delete, op.table, _condition(op.if_, values)), values


def _drop(op: Drop) -> tuple[Shape, Values]:
    return (Drop, op.log), [op.partition, op.keep]


def _append(op: Append) -> tuple[Shape, Values]:
    """Values of the head only: the partition, how many, and the length expected; entries are `entry_columns`."""
    values: Values = [op.partition, len(op.entries)]
    expect = None
    if op.expect is not None:
        expect = op.expect > 0
        if expect:
            values.append(op.expect)
    return (Append, op.log, expect, _entry_kinds(op.entries)), values


def _entry_kinds(entries: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    """How each column gets its value: from the clock only if it is so in every entry; where they differ, each says."""
    found: tuple[str, ...] = ()
    for entry in entries:
        types = tuple(map(type, entry))
        known = _stamped.get(types)
        if known is None:
            known = _stamped[types] = _stamps(types)
        kinds, stamped = known
        if (found and kinds != found) or any([entry[place].plus for place in stamped]):  # noqa: C419 - it is quicker
            return tuple([_entry_kind(column) for column in list(zip(*entries, strict=True))[:-1]])
        found = kinds
    return found


_stamped: dict[tuple[type, ...], tuple[tuple[str, ...], list[int]]] = {}


def _stamps(types: tuple[type, ...]) -> tuple[tuple[str, ...], list[int]]:
    """The kinds of the columns of an entry with values of these types, and which of them are the clock."""
    kinds = tuple([NOW if given is Now else PLAIN for given in types[:-1]])
    return kinds, [place for place, kind in enumerate(kinds) if kind is NOW]


def _entry_kind(column: tuple[Any, ...]) -> str:
    if Now not in map(type, column):
        return PLAIN
    return NOW if all(type(value) is Now and not value.plus for value in column) else NOW_PLUS


def entry_columns(op: Append, kinds: tuple[str, ...]) -> list[list[Any]]:
    """The entries by column: the values (for a column that may hold the clock: values, then offsets), the body."""
    columns: list[list[Any]] = []
    given = list(zip(*op.entries, strict=True))
    for kind, values in zip(kinds, given, strict=False):
        if kind is PLAIN:
            columns.append(list(values))
        elif kind is NOW_PLUS:
            columns.append([None if type(value) is Now else value for value in values])
            columns.append([value.plus if type(value) is Now else None for value in values])
    columns.append([body.decode() for body in given[-1]])
    return columns


def _columns(columns: dict[str, Any], values: Values) -> Shape:
    kinds: list[Any] = []
    for value in columns.values():
        kind = type(value)
        if kind is Now:
            kinds.append(NOW_PLUS if value.plus else NOW)
            if value.plus:
                values.append(value.plus)
        elif kind is Inc:
            kinds.append(Inc)
            values.append(value.by)
        elif kind is Seq:
            kinds.append((Seq, value.log))
            values.append(value.back)
        elif kind is Swap:
            kinds.append(Swap)
            values.append(value.old)
            values.append(value.new)
        elif kind is Max or kind is Min:
            kinds.append(kind)
            values.append(value.value)
        else:
            kinds.append(PLAIN)
            values.append(value)
    return (*columns, *kinds)


def _condition(condition: Condition, values: Values) -> Any:
    if type(condition) is dict:
        kinds: list[Any] = []
        for value in condition.values():
            if value is None:
                kinds.append(NULL)
            elif type(value) is AtMost:
                kinds.append(AtMost)
                values.append(value.limit)
            else:
                kinds.append(PLAIN)
                values.append(value)
        return (*condition, *kinds)
    if isinstance(condition, Rule):
        return condition
    values.append(condition)
    return int


DESCRIBE: dict[type, Callable[[Any], tuple[Shape, Values]]] = {
    Put: _put,
    Patch: _patch,
    Check: _check,
    Delete: _delete,
    Append: _append,
    Drop: _drop,
}
"""By kind of operation: its shape and its values; the statements take places for them in the same order."""


def pairs(shape: Shape) -> list[tuple[str, Any]]:
    """Names and kinds of a shape's columns."""
    half = len(shape) // 2
    return list(zip(shape[:half], shape[half:], strict=True))
