"""`take`: claim the first rows of an index in one statement, skipping rows that other workers are claiming.

`FOR UPDATE SKIP LOCKED` makes competing workers step aside instead of queueing; the server evaluates a row again that
changed before it was locked, but leaves it where it was in the order. The clock comes back even when there was nothing
to take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import DRIVER_ERRORS, code_of, lost, readable, translate, unknown_outcome
from perdure.engines.postgres.read.index_scans import DIALECT, by_several
from perdure.engines.postgres.read.read_sql import Parameters, ReadSql
from perdure.engines.postgres.schema.clock import SERVER_CLOCK
from perdure.engines.postgres.schema.tables import SQL_TYPES
from perdure.engines.postgres.write.conflicts import UNIQUE_VIOLATION
from perdure.engines.postgres.write.operation_sql import OPERATORS
from perdure.engines.sql.ddl import quote
from perdure.engines.sql.dialect import Marks
from perdure.engines.sql.expressions import assignment
from perdure.engines.sql.reads import TableReads
from perdure.engines.sql.terms import ShapeCache
from perdure.ids import new_rev
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Now, Scan, Taken
from perdure.kernel.schema import Table
from perdure.kernel.shapes import assigned_values, expression_kind

_CLOCK = f"coalesce($3::bigint, {SERVER_CLOCK})"


class _Parameters(Parameters):
    """The parameters of a claim; after its scope, its rev and the clock."""

    def bound(self, value: Any) -> str:
        """A bound, which may be the clock plus an offset. It is written out, so that an index can use it."""
        return f"{_CLOCK} + {self.take()}::bigint" if type(value) is Now else self.take()


class Claims:
    """The claiming statements of a schema, by shape."""

    def __init__(self, read_sql: ReadSql) -> None:
        self._tables = read_sql.tables
        self._statements: ShapeCache[str] = ShapeCache()

    async def take(self, pool: Pool, scope: str, scan: Scan, changes: Mapping[str, Any], clock: int | None) -> Taken:
        """Select, update and return the rows, and the clock."""
        table = self._tables[scan.table]
        shape = (scan.table, table.scan_shape(scan, scan.eq), *changes, *map(expression_kind, changes.values()))
        sql = self._statements.get(shape) or self._statements.keep(shape, _statement(table, scan, changes))
        rev = new_rev()
        arguments = [scope, rev, clock, *table.scan_arguments(scan, scan.eq)]
        for value in changes.values():
            arguments += assigned_values(value)
        tuned = by_several(table.table.index_by_name[scan.index or ""], scan.eq)
        try:
            result = await pool.run(sql, arguments, tuned=tuned)
            with readable():
                rows = table.rows(row[1:-1] for row in result if row[1] is not None)
                return Taken(rows, result[0][0])
        except DRIVER_ERRORS as error:
            if code_of(error) == UNIQUE_VIOLATION:
                raise Conflict(0, "unique", None, None) from None
            if lost(error):
                raise unknown_outcome(error, rev) from error
            raise translate(error, pool.where) from error


def _statement(table: TableReads, scan: Scan, changes: Mapping[str, Any]) -> str:
    marks = _Parameters(DIALECT, used=3)
    declared = table.table
    picked = table.sql_scan(scan, scan.eq, marks, tail=" FOR UPDATE OF t SKIP LOCKED")
    width = len(declared.key) + 2 + len(declared.columns)
    columns = ", ".join(f"c{n}" for n in range(width))
    same_key = [f"t.{quote(name)} = numbered.c{n}" for n, name in enumerate(declared.key_names)]
    assigned = [f"{quote(name)} = {_assign(declared, name, value, marks)}" for name, value in changes.items()]
    changed = ", ".join([*assigned, '"rev" = $2'])
    return (
        f"WITH moment(now) AS MATERIALIZED (SELECT {_CLOCK}),"
        f" picked({columns}) AS MATERIALIZED ({picked}),"
        # The scope comes from the picked rows, or the planner might read all rows of that scope.
        f" numbered AS (SELECT *, row_number() OVER () AS number, $1::text AS scope FROM picked),"
        f" claimed AS (UPDATE {table.source} AS t SET {changed} FROM numbered, moment"
        f' WHERE t."scope" = numbered.scope AND {" AND ".join(same_key)} RETURNING {table.chosen}, numbered.number)'
        " SELECT moment.now, claimed.* FROM moment LEFT JOIN claimed ON true ORDER BY claimed.number"
    )


def _assign(table: Table, name: str, value: Any, marks: Marks) -> str:
    sql_type = SQL_TYPES[table.types[name]]
    kind = expression_kind(value)
    return assignment(kind, f"t.{quote(name)}", lambda: f"{marks.take()}::{sql_type}", "moment.now", OPERATORS)
