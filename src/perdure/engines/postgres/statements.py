"""What an operation becomes: its *shape* (everything but its values) and its values in the order of their places.

Stores build their operations in a handful of places, so shapes are few; each is turned into SQL once, and the hot path
looks it up. One description of an operation serves three forms of statement: alone with plain parameters (`Alone`),
together with others as rows of arrays (`Together`), and as a step of `carry_out` (`Step`). They differ only in how a
value is written down, which is what a `Places` knows. Values never enter the text of a statement.
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
    Op,
    Patch,
    Put,
    Rule,
    Seq,
    Swap,
)  # fmt: skip

Shape = tuple[Any, ...]
Values = list[Any]
Same = tuple[bool, ...]

PLAIN, NULL, NOW, NOW_PLUS = "plain", "null", "now", "now+"
"""How a column gets its value, beside the expressions, which stand for themselves."""


SENT_AS = {"json": "text"}
"""What travels as something else: the driver would have to ask the server what an array of JSON is, and a connection of
a caller's pool may encode JSON in its own way."""


def cast(kind: str) -> str:
    """What makes a value that was sent the value it stands for."""
    return f"::{kind}" if kind in SENT_AS else ""


class Places:
    """Writes values down in SQL and remembers their types. `source` is where they come from when they are rows (empty:
    they are parameters), `tells` what a write returns when it happened."""

    clock: str
    scope: str
    rev: str
    source = ""
    tells = "1"

    def __init__(self) -> None:
        self.types: list[str] = []

    def take(self, kind: str) -> str:
        """The next value."""
        raise NotImplementedError

    def last(self, log: str) -> str:
        """The last seq that this transaction appends to a log."""
        raise NotImplementedError


class Alone(Places):
    """Plain parameters, numbered through the whole statement."""

    scope, rev = "$1::text", "$2::bigint"

    def __init__(self, used: int, clock: str, lasts: dict[str, str]) -> None:
        super().__init__()
        self.used = used
        self.clock = clock
        self.taken = [self.scope, self.rev]
        self._lasts = lasts

    def take(self, kind: str) -> str:
        """A parameter."""
        self.used += 1
        self.taken.append(f"${self.used}::{SENT_AS.get(kind, kind)}{cast(kind)}")
        return self.taken[-1]

    def last(self, log: str) -> str:
        """From the statement that moved the head."""
        return f'(SELECT "last" FROM {self._lasts[log]})'


class Together(Places):
    """Columns of rows made from array parameters; `v` is the row, and its first columns are scope and rev."""

    scope, rev = "v.scope", "v.rev"

    def __init__(self, clock: str, source: str = "") -> None:
        super().__init__()
        self.clock = clock
        self.source = source
        self.logs: list[str] = []

    def take(self, kind: str) -> str:
        """A column of the row."""
        self.types.append(SENT_AS.get(kind, kind))
        return f"v.c{len(self.types)}{cast(kind)}"

    def last(self, log: str) -> str:
        """The row says which head is its own; `logs` lists what it has to say."""
        if log not in self.logs:
            self.logs.append(log)
        return f'(SELECT s FROM "lasts of {log}")[v.m{self.logs.index(log)}]'


class Step(Places):
    """Elements of the one array of text that `carry_out` is given."""

    scope, rev, clock = "$1", "$2", "$3"

    def __init__(self, used: int, lasts: dict[str, int], tells: str = "1") -> None:
        super().__init__()
        self.used = used
        self.tells = tells
        self._lasts = lasts

    def take(self, kind: str) -> str:
        """An element, as what it is."""
        self.used += 1
        return f"($4)[{self.used}]::{kind}"

    def last(self, log: str) -> str:
        """What an earlier step returned."""
        return f"($5)[{self._lasts[log]}]"


def describe(op: Op) -> tuple[Shape, Values]:
    """The shape of an operation and its values; the statements take places for them in the same order."""
    return _DESCRIBE[type(op)](op)


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
    return (Drop, op.log), [op.partition]


def _append(op: Append) -> tuple[Shape, Values]:
    """Values of the head only: the partition, how many, and the length expected; entries are `entry_columns`."""
    values: Values = [op.partition, len(op.entries)]
    expect = None
    if op.expect is not None:
        expect = op.expect > 0
        if expect:
            values.append(op.expect)
    kinds = tuple([_entry_kind(column) for column in list(zip(*op.entries, strict=True))[:-1]])
    return (Append, op.log, expect, kinds), values


def _entry_kind(column: tuple[Any, ...]) -> str:
    """A column is the clock only if it is so in every entry; where entries differ, each says its own."""
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


def alone_columns(op: Append, kinds: tuple[str, ...], usual: Same) -> tuple[Same, Values]:
    """`entry_columns`, with one plain value in place of a column that is `usual`ly the same in all entries, and is so
    here: a driver takes far longer over an array than over a value. With it comes which columns that are."""
    columns = entry_columns(op, kinds)
    same = find_same(columns, usual)
    return same, shrink(columns, same)


def find_same(columns: Sequence[list[Any]], usual: Same) -> Same:
    """Which of the columns that were the same in all rows so far are so in these as well."""
    return tuple(
        [alike and column.count(column[0]) == len(column) for alike, column in zip(usual, columns, strict=True)]
    )


def shrink(columns: Sequence[list[Any]], same: Same) -> Values:
    """One value in place of each column that is the same in all rows."""
    return [column[0] if alike else column for alike, column in zip(same, columns, strict=True)]


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


_DESCRIBE: dict[type, Callable[[Any], tuple[Shape, Values]]] = {
    Put: _put,
    Patch: _patch,
    Check: _check,
    Delete: _delete,
    Append: _append,
    Drop: _drop,
}


def pairs(shape: Shape) -> list[tuple[str, Any]]:
    """Names and kinds of a shape's columns."""
    half = len(shape) // 2
    return list(zip(shape[:half], shape[half:], strict=True))
