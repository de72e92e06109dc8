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
from perdure.kernel.ops import Append, Check, Patch, Put, Swap
from perdure.kernel.schema import Schema
from perdure.kernel.shapes import BODY, NOW, NULL, Columns, LogShape, RowShape, SeqOf

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
    seq of the append."""

    steps: list[Step]
    append: AppendStep | None
    seqs: list[int]


def plan_kind(kind: Kind, schema: Schema, statements: Statements) -> KindPlan | None:
    """The plan of a kind; None if it has an operation that is not worth one."""
    steps: list[Step] = []
    append: AppendStep | None = None
    seqs: list[int] = []
    for position, (op, shape) in enumerate(zip(kind.template, kind.shapes, strict=True)):
        numbers = iter(range(FIRST_VALUE + kind.starts[position], FIRST_VALUE + kind.starts[position + 1]))
        if isinstance(op, Append) and isinstance(shape, LogShape) and shape.kinds.count(NOW) == 1:
            append = _append(position, shape, statements, numbers)
        elif isinstance(op, (Check, Put, Patch)) and isinstance(shape, RowShape) and shape.default is None:
            steps.append(_step(position, op, shape, schema, statements, numbers, seqs))
        else:
            return None
    return KindPlan(steps, append, seqs)


def _append(position: int, shape: LogShape, statements: Statements, numbers: Iterator[int]) -> AppendStep:
    partition, _ = next(numbers), next(numbers)
    log = statements.logs[shape.owner]
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


def _step(
    position: int,
    op: Check | Put | Patch,
    shape: RowShape,
    schema: Schema,
    statements: Statements,
    numbers: Iterator[int],
    seqs: list[int],
) -> Step:
    table, known = schema.table[op.table], statements.tables[op.table]
    key = [next(numbers) for _ in table.key]
    columns = _column_numbers(shape.columns, numbers, seqs)
    condition = list(_condition_numbers(shape.condition, numbers))
    if isinstance(op, Check):
        return _made(position, known.conditional("SELECT 1", op.if_), [SCOPE, *key, *condition], reads=True)
    if isinstance(op, Put):
        row = [columns.get(name, [NOTHING])[0] for name in table.column_names]
        arguments = [SCOPE, *key, *row, REV, *columns.get(BODY, [NOTHING]), *condition]
        return _made(position, known.put(op.if_), arguments)
    body = columns.pop(BODY, [])
    first = [each[0] for each in columns.values()]
    second = [each[1] for each in columns.values() if len(each) > 1]
    arguments = [*first, *second, *body, REV, SCOPE, *key, *condition]
    return _made(position, known.patch(op).sql, arguments)


def _made(position: int, sql: str, arguments: list[int], *, reads: bool = False) -> Step:
    return Step(position, sql, itemgetter(*arguments), reads)


def _column_numbers(columns: Columns, numbers: Iterator[int], seqs: list[int]) -> dict[str, list[int]]:
    """For each assigned column the positions of its arguments."""
    positions: dict[str, list[int]] = {}
    for name, kind in zip(*columns, strict=True):
        if kind is NOW:
            positions[name] = [TIME]
            continue
        positions[name] = [next(numbers), next(numbers)] if kind is Swap else [next(numbers)]
        if isinstance(kind, SeqOf):
            seqs += positions[name]
    return positions


def _condition_numbers(condition: Any, numbers: Iterator[int]) -> Iterator[int]:
    if condition is int:
        yield next(numbers)
    elif isinstance(condition, Columns):
        for kind in condition.kinds:
            yield NOTHING if kind is NULL else next(numbers)
