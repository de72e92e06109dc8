"""The steps of a transaction: its operations in the order of their locks, each with the columns it must read.

Every transaction locks in the same order (schema position, then key), so no two wait for each other in a circle.
Deletions of neighbouring rows form a group that one statement locks and another deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.mysql.connections.literals import equal
from perdure.engines.shared.decisions import old_value
from perdure.kernel.ops import ABSENT, ANY, Append, Check, Delete, Drop, Inc, Max, Min, Op, Patch, Put, Row, Swap, Trim
from perdure.kernel.schema import Log, Schema, Table

RowOp = Check | Put | Patch | Delete
LogOp = Append | Drop | Trim
DELETED_AT_ONCE = 500
"""How many rows one statement deletes at most."""
_READS_OLD = frozenset((Inc, Max, Min, Swap))


class RowStep(msgspec.Struct, gc=False):
    """An operation on a row: the columns to read, then the row that was read, then what it becomes.

    A row of rev 0 is a placeholder: the key is `occupied`, although there is no `row`.
    """

    position: int
    op: RowOp
    table: Table
    where: str
    columns: tuple[str, ...]
    occupied: bool = False
    row: Row | None = None
    new: dict[str, Any] | None = None

    @property
    def may_be_absent(self) -> bool:
        """True for a deletion whose row may be absent: it must stay absent until the commit."""
        return isinstance(self.op, Delete) and (self.op.if_ is ANY or self.op.if_ is ABSENT)

    def value_after(self, name: str) -> Any:
        """The value that a column will have; None as well for one that the operation neither reads nor writes."""
        if name in self.table.key_names:
            return self.op.key[self.table.key_names.index(name)]
        if self.new is not None and name in self.new:
            return self.new[name]
        return old_value(self.row, name)

    def keep(self, values: tuple[Any, ...] | None) -> None:
        """Keep what was read of the row: its rev, then `columns`; None if it is absent."""
        self.occupied = values is not None
        if values is None or values[0] == 0:
            self.row = None
        else:
            positions = {name: position for position, name in enumerate(self.columns)}
            self.row = Row(self.op.key, values[1 : 1 + len(positions)], values[0], None, positions)


class LogStep(msgspec.Struct, gc=False):
    """An operation on a partition, and the last seq that was read (None: the partition has no head)."""

    position: int
    op: LogOp
    log: Log
    where: str
    head: int | None = None


Step = RowStep | LogStep
Group = LogStep | list[RowStep]
"""What shares a statement: the step of a partition, that of a row, or deletions of rows of one table."""


def row_of(op: Op) -> tuple[str, tuple[Any, ...]]:
    """The row or partition that an operation names, as the table or log and a key in it."""
    return (op.log, (op.partition,)) if isinstance(op, LogOp) else (op.table, op.key)


def plan_steps(schema: Schema, scope: str, ops: Sequence[Op]) -> list[Step]:
    """The operations as steps, in the order in which every transaction locks."""
    ranks = {name: rank for rank, name in enumerate((*schema.table, *schema.log))}

    def in_order_of_locks(step: Step) -> tuple[int, tuple[Any, ...]]:
        name, key = row_of(step.op)
        return ranks[name], key

    return sorted([_plan(schema, scope, position, op) for position, op in enumerate(ops)], key=in_order_of_locks)


def _plan(schema: Schema, scope: str, position: int, op: Op) -> Step:
    if isinstance(op, LogOp):
        log = schema.log[op.log]
        return LogStep(position, op, log, equal(("scope", log.partition), (scope, op.partition)))
    table = schema.table[op.table]
    where = equal(("scope", *table.key_names), (scope, *op.key))
    return RowStep(position, op, table, where, _columns_to_read(table, op))


def _columns_to_read(table: Table, op: RowOp) -> tuple[str, ...]:
    """The columns whose current values an operation depends on."""
    columns: set[str] = set(op.if_) if isinstance(op.if_, dict) else set()
    if isinstance(op, Patch):
        columns.update(name for name, value in op.set.items() if type(value) in _READS_OLD)
        # A patch of one column of a unique group takes a value together with the others.
        columns.update(
            name
            for group in table.unique
            if not op.set.keys().isdisjoint(group)
            for name in group
            if name not in op.set and name not in table.key_names
        )
    return tuple(sorted(columns))


def group_steps(steps: Sequence[Step]) -> list[Group]:
    """The steps in groups that share a statement."""
    groups: list[Group] = []
    for step in steps:
        last = groups[-1] if groups else None
        if isinstance(step, LogStep):
            groups.append(step)
        elif isinstance(last, list) and len(last) < DELETED_AT_ONCE and _go_together(last[-1], step):
            last.append(step)
        else:
            groups.append([step])
    return groups


def _go_together(one: RowStep, other: RowStep) -> bool:
    same = one.table is other.table and one.columns == other.columns and one.may_be_absent == other.may_be_absent
    return same and isinstance(one.op, Delete) and isinstance(other.op, Delete)
