"""An operation as its *shape* (everything but its values) and its values, always in the same order.

Stores build their operations in a handful of modules, so shapes are few: an engine turns each into a statement once,
and the hot path looks it up. Example:

    Patch("runs", ("r-1",), {"status": "done", "turns": Inc(2)}, {"status": "running"})

has the shape

    RowShape(Patch, "runs", Columns(("status",), (PLAIN,)), Columns(("status", "turns"), (PLAIN, Inc)), None)

and the values `["r-1", "done", 2, "running"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from perdure import limits
from perdure.kernel.ops import (
    Append,
    AtMost,
    Check,
    Condition,
    Delete,
    Drop,
    Inc,
    Max,
    Min,
    Now,
    Patch,
    Presence,
    Put,
    Seq,
    Swap,
    Trim,
)  # fmt: skip

EXPRESSIONS: frozenset[Any] = frozenset((Inc, Max, Min, Now, Swap))
"""The classes that `assigned_values` takes apart; any other value is assigned as it is."""

Values = list[Any]

BODY = "body"
PLAIN, NULL, NOW, NOW_OR_VALUE = "plain", "null", "now", "now or value"
"""How a column gets its value; classes of expressions (`Inc`, `Swap`, `Now` with an offset) are kinds too."""


class Clocked(NamedTuple):
    """The kind of a bound that is the clock plus an offset, which is its value: `Clocked(AtMost)` of
    `AtMost(Now(5))`. The others are `Max` and `Min`."""

    bound: type


_CLOCKED: dict[type, Clocked] = {bound: Clocked(bound) for bound in (AtMost, Max, Min)}
CLOCK_MARK = -limits.INTEGER_MAX - 1
"""Sent for the clock in a column where some entries have it and others a value: no stored integer is this small."""


class SeqOf(NamedTuple):
    """The kind of a column that gets a seq of `log`."""

    log: str


_seq_of = lru_cache(maxsize=64)(SeqOf)


class Columns(NamedTuple):
    """Columns and the kind of each."""

    names: tuple[str, ...]
    kinds: tuple[Any, ...]


NO_COLUMNS = Columns((), ())


class RowShape(NamedTuple):
    """The shape of an operation on a row; `op` is its class. `condition` is a rule, columns, or the class `int` for a
    rev. The body, if there is one, is the last of the `columns`. `default` is the row that a `Patch` inserts."""

    op: type
    owner: str
    condition: Any
    columns: Columns = NO_COLUMNS
    default: Columns | None = None


class LogShape(NamedTuple):
    """The shape of an operation on a log; `op` is its class. `expect`: None for any length, False for an empty
    partition, True for a length that is among the values. `kinds` are those of the columns of entries. With `starts`,
    the last of the values is what the length must be, unless the partition is empty, and `expect` is None."""

    op: type
    owner: str
    expect: bool | None = None
    kinds: tuple[str, ...] = ()
    starts: bool = False


Shape = RowShape | LogShape
"""`owner` is the table or log that the operation is for."""

_MOST_SHAPES = 4_096
_row_shapes: dict[tuple[Any, ...], RowShape] = {}


def _row_shape(*parts: Any) -> RowShape:
    """The shape of these parts, whose columns are plain pairs: a commit looks its shapes up and makes none."""
    shape = _row_shapes.get(parts)
    if shape is None:
        if len(_row_shapes) >= _MOST_SHAPES:
            _row_shapes.clear()
        named: list[Any] = [Columns(*part) if type(part) is tuple else part for part in parts]
        shape = _row_shapes[parts] = RowShape(*named)
    return shape


def _put(op: Put) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    columns = describe_columns(op.columns, op.body, values)
    return _row_shape(Put, op.table, _condition(op.if_, values), columns, None), values


def _patch(op: Patch) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    columns = describe_columns(op.set, op.body, values)
    condition = _condition(op.if_, values)
    default = None if op.default is None else describe_columns(op.default.columns, op.default.body, values)
    return _row_shape(Patch, op.table, condition, columns, default), values


def _guard(op: Check | Delete) -> tuple[Shape, Values]:
    values: Values = [*op.key]
    return _row_shape(type(op), op.table, _condition(op.if_, values), NO_COLUMNS, None), values


def _drop(op: Drop) -> tuple[Shape, Values]:
    return LogShape(Drop, op.log), [op.partition, op.keep]


def _trim(op: Trim) -> tuple[Shape, Values]:
    return LogShape(Trim, op.log), [op.partition, op.upto]


def _append(op: Append) -> tuple[Shape, Values]:
    """Values of the head only: the partition, the number of entries, the expected length. Entries: `entry_columns`."""
    values: Values = [op.partition, len(op.entries)]
    if op.start is not None:
        return LogShape(Append, op.log, None, _entry_kinds(op.entries), starts=True), [*values, op.start - 1]
    if op.expect:
        values.append(op.expect)
    expect = None if op.expect is None else op.expect > 0
    return LogShape(Append, op.log, expect, _entry_kinds(op.entries)), values


def _entry_kinds(entries: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    rows = {_kinds_of(tuple(map(type, entry))) for entry in entries}
    if len(rows) == 1:
        return rows.pop()
    return tuple(kinds[0] if len(set(kinds)) == 1 else NOW_OR_VALUE for kinds in zip(*rows, strict=True))


@lru_cache(maxsize=1024)
def _kinds_of(types: tuple[type, ...]) -> tuple[str, ...]:
    """The kinds of an entry's columns, given the types of its values; the last is the body's."""
    return tuple(NOW if each is Now else PLAIN for each in types[:-1])


def entry_columns(entries: Sequence[tuple[Any, ...]], kinds: tuple[str, ...]) -> list[list[Any]]:
    """Entries column by column, without those that are the clock; the last one holds the bodies."""
    *columns, bodies = zip(*entries, strict=True)
    sent: list[list[Any]] = []
    for kind, values in zip(kinds, columns, strict=True):
        if kind is PLAIN:
            sent.append(list(values))
        elif kind is NOW_OR_VALUE:
            sent.append([CLOCK_MARK if type(value) is Now else value for value in values])
    sent.append([body.decode() for body in bodies])
    return sent


def assigned_values(value: Any) -> Values:
    """The values of an expression."""
    kind = type(value)
    if kind is Swap:
        return [value.old, value.new]
    if kind is Inc:
        return [value.by]
    if kind is Max or kind is Min:
        return [_sent_bound(value.value)]
    return [value.plus] if kind is Now else [value]


def _sent_bound(bound: Any) -> int:
    return int(bound.plus) if type(bound) is Now else bound


def expression_kind(value: Any) -> Any:
    """The kind of an expression, or of any other value that is assigned: its class, or `Clocked`."""
    kind = type(value)
    return _CLOCKED[kind] if (kind is Max or kind is Min) and type(value.value) is Now else kind


def describe_columns(columns: Mapping[str, Any], body: bytes | None, values: Values) -> tuple[tuple[Any, ...], ...]:
    """The names and the kinds of assigned columns, and of the body if there is one; adds their values to `values`."""
    kinds: list[Any] = []
    for value in columns.values():
        kind = type(value)
        if kind is Seq:
            kinds.append(_seq_of(value.log))
            values.append(value.back)
        elif kind is Now and not value.plus:
            kinds.append(NOW)
        elif kind in EXPRESSIONS:
            kinds.append(expression_kind(value))
            values += assigned_values(value)
        else:
            kinds.append(PLAIN)
            values.append(value)
    if body is None:
        return tuple(columns), tuple(kinds)
    values.append(body.decode())
    return (*columns, BODY), (*kinds, PLAIN)


def _condition(condition: Condition, values: Values) -> Any:
    if type(condition) is dict:
        kinds: list[Any] = []
        for value in condition.values():
            if value is None:
                kinds.append(NULL)
            elif type(value) is AtMost:
                kinds.append(_CLOCKED[AtMost] if type(value.limit) is Now else AtMost)
                values.append(_sent_bound(value.limit))
            else:
                kinds.append(PLAIN)
                values.append(value)
        return tuple(condition), tuple(kinds)
    if isinstance(condition, Presence):
        return condition
    values.append(condition)
    return int


DESCRIBE: dict[type, Callable[[Any], tuple[Shape, Values]]] = {
    Put: _put,
    Patch: _patch,
    Check: _guard,
    Delete: _guard,
    Append: _append,
    Drop: _drop,
    Trim: _trim,
}
"""By class of operation: its shape and its values; engines bind the values in the same order."""
