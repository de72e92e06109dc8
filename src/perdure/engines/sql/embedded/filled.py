"""Runs transactions of known kinds on a connection: planned statements, with arguments from one list.

The caller begins the transaction, and rolls it back when `Conflict` is raised, as with `write.Session`, which says why
an operation was refused.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from perdure import limits
from perdure.clock import system_clock
from perdure.engines.sql.embedded.kinds import TIME, AppendStep, KindPlan, plan_kind
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sql.embedded.statements import Statements
from perdure.engines.sql.embedded.write import Session
from perdure.errors import CorruptError
from perdure.kernel.engine import Conflict
from perdure.kernel.kinds import Filled, Kind
from perdure.kernel.ops import Applied

_MOST_PLANS = 4_096
"""Kinds are few in practice; the bound is against abuse."""


class FilledSession(Session):
    """A session that also applies filled kinds."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements, queries: Queries) -> None:
        super().__init__(connection, statements, queries)
        self._statements = statements
        self._plans: dict[Kind, KindPlan | None] = {}

    def _plan(self, kind: Kind) -> KindPlan | None:
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = self._plans[kind] = plan_kind(kind, self.queries.schema, self._statements)
        return plan

    def apply_filled(self, scope: str, rev: int, filled: Filled) -> Applied:
        """Apply all; raises `Conflict` with the position of an operation that could not be applied."""
        kind = filled.kind
        plan = self._plans[kind] if kind in self._plans else self._plan(kind)
        if plan is None:
            return self.apply(scope, rev, self.now(), filled.operations())
        append = plan.append
        arguments: list[Any] = [scope, rev, 0, None, *filled.values]
        last = 0
        if append is None:
            arguments[TIME] = self.now()
        else:
            last = self._begin_append(append, arguments) + len(filled.entries)
            for number in plan.seqs:
                arguments[number] = last - arguments[number]
        for number in plan.times:
            arguments[number] += arguments[TIME]
        position = self._run(plan, arguments, filled, last)
        seqs = {} if append is None else {(append.log, arguments[append.partition]): last}
        applied = Applied(rev, seqs, arguments[TIME])
        if position is not None:
            self.scope = scope
            self.write_again(applied, position, filled.operations()[position])
            raise CorruptError("a statement met no row, and its operation does", where=f"operation {position}")
        return applied

    def _run(self, plan: KindPlan, arguments: list[Any], filled: Filled, last: int) -> int | None:
        """Run every statement; the position of an operation that was refused, if there is one."""
        cursor, position = self.cursor, 0
        execute = cursor.execute
        try:
            for position, sql, pick, reads in plan.steps:
                execute(sql, pick(arguments))
                if (cursor.fetchone() is None) if reads else cursor.rowcount != 1:
                    return position
            if plan.append is not None:
                position = plan.append.position
                scope, rev, now, *_ = arguments
                partition, (before, after) = arguments[plan.append.partition], plan.append.around_time
                rows = [
                    (scope, partition, seq, rev, *entry[:before], now, *entry[after:-1], entry[-1].decode())
                    for seq, entry in enumerate(filled.entries, last - len(filled.entries) + 1)
                ]
                cursor.executemany(plan.append.sql, rows)
        except sqlite3.IntegrityError:
            return position
        return None

    def _begin_append(self, append: AppendStep, arguments: list[Any]) -> int:
        """The length of the partition, and the time, read with one statement."""
        queries, partition = self.queries, arguments[append.partition]
        clock = queries.clock
        sql = append.head_and_time if clock is system_clock else append.head
        row = self.cursor.execute(sql, (arguments[0], partition)).fetchone()
        length = 0 if row[0] is None else row[0]
        arguments[TIME] = row[1] if clock is system_clock else clock()
        if type(length) is not int or not 0 <= length <= limits.INTEGER_MAX:
            raise CorruptError(f"its last seq is {length!r:.80}", where=f"{append.log} {partition!r}")
        expected = 0 if append.expect is None else arguments[append.expect]
        if (append.expect is not None or append.is_empty) and expected != length:
            raise Conflict(append.position, "length", expected, length)
        return length
