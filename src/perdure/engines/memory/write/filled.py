"""Transactions of known kinds on memory: what a kind does to its rows is worked out once, not with every transaction.

A plan covers the ordinary case: every row is as the transaction expects it. In any other case it writes nothing, and
`transaction.Transaction` applies the operations, or says which one is in conflict. So the rules are in one place.

The columns of a new row are picked, in one call, from one tuple: the old row, the values of the transaction (after a
NULL and the time), and what depends on the old row (`Inc`, `Swap` and the like).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from perdure.engines.memory.schema import Partition, Scope, TableData
from perdure.kernel.kinds import Filled, Kind
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Append, AtMost, Check, Inc, Patch, Put, Row, Swap
from perdure.kernel.schema import Key, Log, Schema, Table
from perdure.kernel.semantics import evaluate
from perdure.kernel.shapes import BODY, NOW, NULL, PLAIN, Clocked, Columns, LogShape, RowShape, SeqOf

_MOST_PLANS = 4_096
"""Kinds are few in practice; the bound is against abuse."""
NOTHING, TIME, FIRST_VALUE = range(3)
"""Positions in the list of values."""

Pick = Callable[[Sequence[Any]], Any]
Changes = list[tuple[TableData, Key, Row]]


class _Unplanned(Exception):
    """The kind has something that is left to `transaction.Transaction`."""


class RowStep(NamedTuple):
    """An operation on a row. Numbers are positions in the list of values, columns are positions in a row."""

    table: str
    key: Pick
    presence: bool | None
    """Whether the row must exist; None if both will do."""
    rev: int | None
    """The number of the rev that the row must have."""
    actual: Pick | None
    expected: Pick | None
    """Some columns, and the values that they must have."""
    limits: tuple[tuple[int, int], ...]
    """Columns and the numbers of what they may have at most."""
    computed: tuple[tuple[Any, int, int], ...]
    """Expressions: class, column, and the number of the first value."""
    pick: Pick | None
    """The columns of the new row; None if nothing is written."""
    updates: bool
    """Whether the new row is made from the old one."""
    body: int | None
    positions: dict[str, int]


class AppendStep(NamedTuple):
    """The append of a kind. `time` is the column of the time, `unique` are the columns whose values are unique."""

    log: str
    partition: int
    expect: int | None
    is_empty: bool
    time: int
    unique: tuple[tuple[str, int], ...]


class KindPlan(NamedTuple):
    """How to apply a kind. `seqs` are the numbers of values that count back from the last seq of the append, `times`
    those of offsets from the time."""

    append: AppendStep | None
    seqs: tuple[int, ...]
    times: tuple[int, ...]
    rows: tuple[RowStep, ...]


class _Offsets(NamedTuple):
    """The numbers of values that are relative: to the last seq, and to the time."""

    seqs: list[int]
    times: list[int]


class Plans:
    """The plans of the kinds in use."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._plans: dict[Kind, KindPlan | None] = {}

    def get(self, kind: Kind) -> KindPlan | None:
        """The plan of a kind; None if its transactions are applied as operations."""
        try:
            return self._plans[kind]
        except KeyError:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[kind] = _plan(kind, self._schema)
            return plan


def _plan(kind: Kind, schema: Schema) -> KindPlan | None:
    append, rows, offsets = None, [], _Offsets([], [])
    try:
        for position, shape in enumerate(kind.shapes):
            numbers = range(FIRST_VALUE + kind.starts[position], FIRST_VALUE + kind.starts[position + 1])
            if isinstance(shape, LogShape):
                append = _append_step(shape, schema.log[shape.owner], numbers)
            else:
                rows.append(_RowPlanner(kind, schema.table[shape.owner], shape, numbers, offsets).step())
    except _Unplanned:
        return None
    if offsets.seqs and append is None:
        return None
    return KindPlan(append, tuple(offsets.seqs), tuple(offsets.times), tuple(rows))


def _append_step(shape: LogShape, log: Log, numbers: range) -> AppendStep:
    one_time = shape.kinds.count(NOW) == 1 and shape.kinds.count(PLAIN) == len(shape.kinds) - 1
    if shape.op is not Append or shape.starts or not one_time:
        raise _Unplanned
    expect = numbers[2] if shape.expect else None
    unique = tuple((column, log.positions[column]) for column in log.unique)
    return AppendStep(log.name, numbers[0], expect, shape.expect is False, shape.kinds.index(NOW), unique)


class _RowPlanner:
    """Plans one operation on a row; takes the numbers of its values in their order: key, columns, condition."""

    def __init__(self, kind: Kind, table: Table, shape: RowShape, numbers: range, offsets: _Offsets) -> None:
        if shape.op not in (Check, Put, Patch) or shape.default is not None:
            raise _Unplanned
        if shape.op is not Check and not _keeps_unique(table, shape):
            raise _Unplanned
        self._table = table
        self._shape = shape
        self._numbers = iter(numbers)
        self._seqs, self._times = offsets
        self._updates = shape.op is Patch
        self._old = len(table.columns) if self._updates else 0
        self._after_values = self._old + FIRST_VALUE + kind.starts[-1]
        self._computed: list[tuple[Any, int, int]] = []
        self._body: int | None = None

    def step(self) -> RowStep:
        """The plan of the operation."""
        key = _picker([next(self._numbers) for _ in self._table.key])
        pick = None if self._shape.op is Check else _picker(self._sources(self._shape.columns))
        presence, rev, actual, expected, limits = self._condition()
        return RowStep(
            self._table.name,
            key,
            presence,
            rev,
            _picker(actual) if actual else None,
            _picker(expected) if expected else None,
            limits,
            tuple(self._computed),
            pick,
            self._updates,
            self._body,
            self._table.positions,
        )

    def _sources(self, columns: Columns) -> list[int]:
        """Where each column of the new row comes from: as it was (or NULL), unless the operation sets it."""
        table, old = self._table, self._old
        sources = list(range(old)) if self._updates else [NOTHING] * len(table.columns)
        for name, kind in zip(columns.names, columns.kinds, strict=True):
            if name == BODY:
                self._body = next(self._numbers)
            elif kind is NOW:
                sources[table.positions[name]] = old + TIME
            else:
                sources[table.positions[name]] = self._source(table.positions[name], kind)
        return sources

    def _source(self, column: int, kind: Any) -> int:
        number = next(self._numbers)
        if kind is PLAIN:
            return self._old + number
        if isinstance(kind, SeqOf):
            self._seqs.append(number)
            return self._old + number
        if not self._updates:
            raise _Unplanned
        if kind is Swap:
            next(self._numbers)
        if isinstance(kind, Clocked):
            self._times.append(number)
            kind = kind.bound
        self._computed.append((kind, column, number))
        return self._after_values + len(self._computed) - 1

    def _condition(self) -> tuple[bool | None, int | None, list[int], list[int], tuple[tuple[int, int], ...]]:
        condition = self._shape.condition
        presence = True if self._updates else None
        if condition is ANY:
            return presence, None, [], [], ()
        if condition is ABSENT or condition is PRESENT:
            if self._updates and condition is ABSENT:
                raise _Unplanned
            return condition is PRESENT, None, [], [], ()
        if condition is int:
            return True, next(self._numbers), [], [], ()
        actual, expected, limits = [], [], []
        for name, kind in zip(condition.names, condition.kinds, strict=True):
            column = self._table.positions[name]
            if kind is AtMost or isinstance(kind, Clocked):
                number = next(self._numbers)
                limits.append((column, number))
                self._times += [number] if kind is not AtMost else []
            else:
                actual.append(column)
                expected.append(NOTHING if kind is NULL else next(self._numbers))
        return True, None, actual, expected, tuple(limits)


def _keeps_unique(table: Table, shape: RowShape) -> bool:
    """Whether no value of a unique group can change."""
    if shape.op is Put:
        return not table.unique
    return all(name not in group for group in table.unique for name in shape.columns.names)


def _picker(positions: list[int]) -> Pick:
    """Picks a tuple, even of one value."""
    if len(positions) > 1:
        return itemgetter(*positions)
    (position,) = positions
    return lambda values: (values[position],)


def apply_filled(plan: KindPlan, scope: Scope, rev: int, now: int, filled: Filled) -> dict[tuple[str, str], int] | None:
    """Apply all; returns the last seq of the partition that was appended to. None, and nothing is written, if anything
    is not as expected."""
    values = [None, now, *filled.values]
    for number in plan.times:
        values[number] += now
    step, partition, last = plan.append, None, 0
    if step is not None:
        partition = scope.logs[step.log].partitions.get(values[step.partition])
        if partition is None or not _may_append(step, partition, values, filled):
            return None
        last = partition.base + len(partition.entries) + len(filled.entries)
        for number in plan.seqs:
            values[number] = last - values[number]
    changes = _changes(plan.rows, scope.tables, values, rev)
    if changes is None:
        return None
    if step is None or partition is None:
        seqs = {}
    else:
        seqs = {(step.log, values[step.partition]): last}
        time, first = step.time, last - len(filled.entries) + 1
        partition.extend(
            [(seq, rev, *entry[:time], now, *entry[time + 1 :]) for seq, entry in enumerate(filled.entries, first)]
        )
    for data, key, row in changes:
        data.replace(key, row, unique=False)
    return seqs


def _may_append(step: AppendStep, partition: Partition, values: list[Any], filled: Filled) -> bool:
    if step.is_empty or (step.expect is not None and values[step.expect] != partition.base + len(partition.entries)):
        return False
    for column, position in step.unique:
        new = [entry[position] for entry in filled.entries]
        if None in new or len(set(new)) < len(new) or not partition.owners[column].keys().isdisjoint(new):
            return False
    return True


def _changes(steps: Sequence[RowStep], tables: dict[str, TableData], values: list[Any], rev: int) -> Changes | None:
    """The new rows; None if a row is not as expected."""
    changes: Changes = []
    for step in steps:
        data, key, pick = tables[step.table], step.key(values), step.pick
        row = data.rows.get(key)
        if not _is_expected(step, row, values):
            return None
        if pick is None:
            continue
        body, sources = None, tuple(values)
        if step.updates and row is not None:
            old, body = row.values, row.body
            sources = (*old, *values, *_computed(step.computed, old, values)) if step.computed else (*old, *values)
        if step.body is not None:
            body = values[step.body].encode()
        changes.append((data, key, Row(key, pick(sources), rev, body, step.positions)))
    return changes


def _is_expected(step: RowStep, row: Row | None, values: list[Any]) -> bool:
    if row is None:
        return not step.presence
    if step.presence is False or (step.rev is not None and row.rev != values[step.rev]):
        return False
    old, actual, expected = row.values, step.actual, step.expected
    if actual is not None and expected is not None and actual(old) != expected(values):
        return False
    return not any(old[column] is not None and old[column] > values[number] for column, number in step.limits)


def _computed(computed: Sequence[tuple[Any, int, int]], old: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    """What depends on the old row."""
    results = []
    for kind, column, number in computed:
        before = old[column]
        if kind is Inc:
            results.append((before or 0) + values[number])
        elif kind is Swap:
            results.append(values[number + 1] if before == values[number] else before)
        else:
            results.append(evaluate(kind(values[number]), before, values[TIME], {}))
    return tuple(results)
