"""A kind of transaction as statements: which to run, and where each finds its arguments.

The statements are those of `statements`, so a transaction does the same whether it comes as operations or as a filled
kind. The arguments of each are picked, in one call, from one list: the scope, the rev, the time, a NULL, and then the
values of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from perdure.engines.sql.embedded.statements import Statements
from perdure.kernel.kinds import Kind
from perdure.kernel.ops import Append, Check, Now, Patch, Put, Swap
from perdure.kernel.schema import Schema
from perdure.kernel.shapes import BODY, NOW, NULL, Clocked, Columns, LogShape, RowShape, SeqOf

SCOPE, REV, TIME, NOTHING = range(4)
FIRST_VALUE = 4
"""Positions in the list of arguments."""


class Step(NamedTuple):
    """A statement that must meet one row; `position` is that of its operation."""

    position: int
    sql: str
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]
    reads: bool


class AppendStep(NamedTuple):
    """The append of a kind. `partition` and `expect` are positions of arguments. The clock is in one column of the
    entries; `around_time` are the positions where it begins and ends."""

    position: int
    log: str
    sql: str
    head: str
    head_and_time: str
    partition: int
    expect: int | None
    is_empty: bool
    around_time: tuple[int, int]


class KindPlan(NamedTuple):
    """How to run a kind: its statements in order, then the append. `seqs` are arguments that count back from the last
    seq of the append, `times` are offsets from the time."""

    steps: list[Step]
    append: AppendStep | None
    seqs: list[int]
    times: list[int]


def plan_kind(kind: Kind, schema: Schema, statements: Statements) -> KindPlan | None:
    """The plan of a kind; None if it has an operation that is not worth one."""
    planner = _Planner(kind, schema, statements)
    for position in range(len(kind.template)):
        if not planner.add(position):
            return None
    return KindPlan(planner.steps, planner.append, planner.seqs, planner.times)


class _Planner:
    """Plans one operation after the other; `seqs` collects the arguments that count back from a seq, `times` those that
    are offsets from the time."""

    def __init__(self, kind: Kind, schema: Schema, statements: Statements) -> None:
        self.steps: list[Step] = []
        self.append: AppendStep | None = None
        self.seqs: list[int] = []
        self.times: list[int] = []
        self._kind = kind
        self._schema = schema
        self._statements = statements

    def add(self, position: int) -> bool:
        """Plan the operation at this position; False if it cannot be planned."""
        op, shape, starts = self._kind.template[position], self._kind.shapes[position], self._kind.starts
        numbers = iter(range(FIRST_VALUE + starts[position], FIRST_VALUE + starts[position + 1]))
        if isinstance(shape, LogShape) and shape.op is Append and not shape.starts and shape.kinds.count(NOW) == 1:
            self.append = self._append(position, shape, numbers)
        elif isinstance(op, (Check, Put, Patch)) and isinstance(shape, RowShape) and shape.default is None:
            sql, arguments = self._row(op, shape, numbers)
            self.steps.append(Step(position, sql, itemgetter(*arguments), reads=isinstance(op, Check)))
        else:
            return False
        return True

    def _append(self, position: int, shape: LogShape, numbers: Iterator[int]) -> AppendStep:
        partition, _ = next(numbers), next(numbers)
        log = self._statements.logs[shape.owner]
        time = shape.kinds.index(NOW)
        return AppendStep(
            position,
            shape.owner,
            log.append,
            log.head,
            log.head_and_time,
            partition,
            next(numbers) if shape.expect else None,
            shape.expect is False,
            (time, time + 1),
        )

    def _row(self, op: Check | Put | Patch, shape: RowShape, numbers: Iterator[int]) -> tuple[str, list[int]]:
        """The statement of an operation on a row, and the positions of its arguments."""
        table, known = self._schema.table[op.table], self._statements.tables[op.table]
        key = [next(numbers) for _ in table.key]
        columns = self._columns(shape.columns, numbers)
        condition = list(self._condition(shape.condition, numbers))
        if isinstance(op, Check):
            return known.conditional("SELECT 1", op.if_), [SCOPE, *key, *condition]
        body = columns.pop(BODY, [])
        if isinstance(op, Put):
            row = [columns.get(name, [NOTHING])[0] for name in table.column_names]
            return known.put(op.if_), [SCOPE, *key, *row, REV, *(body or [NOTHING]), *condition]
        first = [numbers[0] for numbers in columns.values()]
        second = [numbers[1] for numbers in columns.values() if len(numbers) > 1]
        return known.patch(op).sql, [*first, *second, *body, REV, SCOPE, *key, *condition]

    def _columns(self, columns: Columns, numbers: Iterator[int]) -> dict[str, list[int]]:
        """For each assigned column the positions of its arguments."""
        positions: dict[str, list[int]] = {}
        for name, kind in zip(*columns, strict=True):
            if kind is NOW:
                positions[name] = [TIME]
                continue
            positions[name] = [next(numbers), next(numbers)] if kind is Swap else [next(numbers)]
            if isinstance(kind, SeqOf):
                self.seqs += positions[name]
            elif kind is Now or isinstance(kind, Clocked):
                self.times += positions[name]
        return positions

    def _condition(self, condition: Any, numbers: Iterator[int]) -> Iterator[int]:
        if condition is int:
            yield next(numbers)
        elif isinstance(condition, Columns):
            for kind in condition.kinds:
                number = NOTHING if kind is NULL else next(numbers)
                self.times += [number] if isinstance(kind, Clocked) else []
                yield number
