"""Writes on one connection: each operation of a transaction is a statement or two.

The caller begins the transaction, and rolls it back when `Conflict` is raised. Log lengths are read first, so that
every `Seq` is known before anything is written and a stale `expect` needs no rollback; entries are inserted last. What
a conflict reports as actual is read inside the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from perdure import limits
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sql.embedded.statements import ARITHMETIC, Statements, TableStatements
from perdure.engines.sql.expressions import condition_values
from perdure.errors import CorruptError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    PRESENT,
    Append,
    Applied,
    Check,
    Condition,
    Default,
    Delete,
    Drop,
    Now,
    Op,
    Patch,
    Put,
    Row,
    Scan,
    Swap,
    Taken,
    Trim,
)
from perdure.kernel.schema import Table
from perdure.kernel.semantics import evaluate, observed, scan_at


class _PendingAppend(NamedTuple):
    """An `Append` that was checked; `length` is that of its partition before it."""

    position: int
    op: Append
    length: int


class Session:
    """Applies operations, one transaction after another; `scope`, `rev` and `moment` are those of the current one."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements, queries: Queries) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.tables = statements.tables
        self.logs = statements.logs
        self.queries = queries
        self.moment = statements.moment
        self.scope = ""
        self.rev = 0

    def now(self) -> int:
        """The engine's time."""
        return self.queries.now(self.cursor)

    def apply(self, scope: str, rev: int, now: int, ops: Sequence[Op]) -> Applied:
        """Apply all; raises `Conflict` with the position of an operation that could not be applied."""
        self.scope, self.rev = scope, rev
        seqs: dict[tuple[str, str], int] = {}
        self.moment.now, self.moment.last = now, {}
        appends: list[_PendingAppend] = []
        for position, op in enumerate(ops):
            if type(op) is Append:
                length = self._length(position, op)
                appends.append(_PendingAppend(position, op, length))
                seqs[op.log, op.partition] = last = length + len(op.entries)
                self.moment.last.setdefault(op.log, last)
        for position, op in enumerate(ops):
            write = _WRITE.get(type(op))
            if write is not None:
                write(self, position, op)
        for append in appends:
            self._append(*append)
        return Applied(rev, seqs, now)

    def take(self, scope: str, rev: int, scan: Scan, changes: dict[str, Any]) -> Taken:
        """Select the first rows of an index and update them; one write transaction, so no row is taken twice."""
        now = self.now()
        table = self.queries.tables[scan.table]
        keys = [row.key for row in table.scan(self.cursor, scope, scan_at(scan, now), scan.eq)]
        if not keys:
            return Taken([], now)
        self.apply(scope, rev, now, [Patch(scan.table, key, changes) for key in keys])
        return Taken(table.existing(self.cursor, scope, keys), now)

    def write_again(self, applied: Applied, position: int, op: Op) -> None:
        """Raise what stopped an operation of a transaction in which other ones were applied already."""
        self.rev, self.moment.now = applied.rev, applied.now
        self.moment.last = {log: last for (log, _), last in applied.seqs.items()}
        if isinstance(op, Append):
            raise Conflict(position, "unique", None, self._repeated_value(op))
        _WRITE[type(op)](self, position, op)

    def _length(self, position: int, op: Append) -> int:
        length = self.queries.logs[op.log].last(self.cursor, self.scope, op.partition)
        if op.start is not None and not length:
            return op.start - 1
        if op.before is not None and op.before != length:
            raise Conflict(position, "length", op.before, length)
        if length > limits.INTEGER_MAX:
            raise CorruptError(f"an entry has seq {length}", where=f"{op.log} of {op.partition!r}")
        return length

    def _append(self, position: int, op: Append, length: int) -> None:
        scope, partition, rev, now = self.scope, op.partition, self.rev, self.moment.now
        rows = [
            (scope, partition, seq, rev, *[now if type(v) is Now else v for v in columns], body.decode())
            for seq, (*columns, body) in enumerate(op.entries, length + 1)
        ]
        try:
            self.cursor.executemany(self.logs[op.log].append, rows)
        except sqlite3.IntegrityError:
            raise Conflict(position, "unique", None, self._repeated_value(op)) from None

    def _repeated_value(self, op: Append) -> dict[str, Any] | None:
        """The first unique value of the entries that another entry already has."""
        for column in self.logs[op.log].unique:
            values: set[Any] = set()
            for entry in op.entries:
                value = entry[column.position]
                owner = self.cursor.execute(column.owner, (self.scope, op.partition, self.rev, value)).fetchone()
                if value is not None and (owner or value in values):
                    return {column.name: value}
                values.add(value)
        return None

    def drop(self, _position: int, op: Drop) -> None:
        """Remove a partition, or everything after its first entries."""
        self.cursor.execute(self.logs[op.log].drop, (self.scope, op.partition, op.keep))

    def trim(self, _position: int, op: Trim) -> None:
        """Remove the oldest entries, a limited number, but never the newest."""
        log, partition = self.logs[op.log], (self.scope, op.partition)
        last = self.queries.logs[op.log].last(self.cursor, *partition)
        if last:
            (first,) = self.cursor.execute(log.first, partition).fetchone()
            self.cursor.execute(log.trim, (*partition, min(op.upto, last - 1, first + limits.TRIM_ENTRIES - 1)))

    def check(self, position: int, op: Check) -> None:
        """Refuse unless the row is as expected."""
        sql = self.tables[op.table].conditional("SELECT 1", op.if_)
        arguments = (self.scope, *op.key, *condition_values(op.if_, self.moment.now))
        if self.cursor.execute(sql, arguments).fetchone() is None:
            raise self._condition_conflict(position, op, op.if_)

    def put(self, position: int, op: Put) -> None:
        """Write a whole row."""
        statements = self.tables[op.table]
        sql = statements.put(op.if_)
        arguments = self._row_arguments(statements, op, op) + condition_values(op.if_, self.moment.now)
        if not self._write_row(position, op, sql, arguments):
            raise self._condition_conflict(position, op, op.if_)

    def patch(self, position: int, op: Patch) -> None:
        """Change some columns of a row, or insert its default."""
        assigned, condition, body = op.set, op.if_, op.body
        plan = self.tables[op.table].patch(op)
        arguments = [*assigned.values()]
        for index, get in plan.getters:
            arguments[index] = get(arguments[index])
        if plan.swaps:
            arguments += [value.new for value in assigned.values() if type(value) is Swap]
        if body is not None:
            arguments.append(body.decode())
        arguments += (self.rev, self.scope, *op.key)
        if condition is not ANY:
            arguments += condition_values(condition, self.moment.now)
        if not self._write_row(position, op, plan.sql, arguments):
            self._not_patched(position, op)

    def _not_patched(self, position: int, op: Patch) -> None:
        row = self._row(op)
        if row is not None:
            _refuse_damage(op, row)
        if row is not None or op.default is None:
            raise self._condition_conflict(position, op, PRESENT if op.if_ is ANY else op.if_)
        statements = self.tables[op.table]
        self._write_row(position, op, statements.insert, self._row_arguments(statements, op, op.default))

    def delete(self, position: int, op: Delete) -> None:
        """Remove a row."""
        if op.if_ is ABSENT:
            if self._row(op) is not None:
                raise self._condition_conflict(position, op, ABSENT)
            return
        sql = self.tables[op.table].conditional("DELETE", op.if_)
        removed = self.cursor.execute(sql, (self.scope, *op.key, *condition_values(op.if_, self.moment.now))).rowcount
        if op.if_ is not ANY and not removed:
            raise self._condition_conflict(position, op, op.if_)

    def _row_arguments(self, statements: TableStatements, op: Put | Patch, values: Put | Default) -> list[Any]:
        assigned, resolve = values.columns, self.moment.resolve
        columns = [resolve(assigned.get(name)) for name in statements.columns]
        body = None if values.body is None else values.body.decode()
        return [self.scope, *op.key, *columns, self.rev, body]

    def _write_row(self, position: int, op: Put | Patch, sql: str, arguments: list[Any]) -> bool:
        try:
            return self.cursor.execute(sql, arguments).rowcount == 1
        except sqlite3.IntegrityError as error:
            raise self._unique_conflict(position, op, error) from None

    def _row(self, op: Check | Put | Patch | Delete) -> Row | None:
        return self.queries.tables[op.table].get(self.cursor, self.scope, (op.key,))[0]

    def _condition_conflict(self, position: int, op: Check | Put | Patch | Delete, expected: Condition) -> Conflict:
        return Conflict(position, "condition", expected, observed(self._row(op), expected))

    def _unique_conflict(self, position: int, op: Put | Patch, error: sqlite3.IntegrityError) -> Conflict:
        """Names the unique group that SQLite reports, with the values that the statement would have written."""
        values = self._intended(self.tables[op.table].table, op)
        # UNIQUE constraint failed: items.scope, items.name
        columns = [name.rpartition(".")[2] for name in str(error).partition(": ")[2].split(", ")]
        return Conflict(position, "unique", None, {name: values[name] for name in columns if name in values})

    def _intended(self, table: Table, op: Put | Patch) -> dict[str, Any]:
        """Key and columns of the row as the operation would leave it."""
        key = dict(zip(table.key_names, op.key, strict=True))
        row = self._row(op) if isinstance(op, Patch) else None
        if isinstance(op, Patch) and row is not None:
            moment, old = self.moment, row.columns
            return key | old | {name: evaluate(v, old[name], moment.now, moment.last) for name, v in op.set.items()}
        columns = op.columns if isinstance(op, Put) else op.default.columns if op.default is not None else {}
        return key | {name: self.moment.resolve(value) for name, value in columns.items()}


def _refuse_damage(op: Patch, row: Row) -> None:
    """Raise `CorruptError` if the row holds something else where an expression computes with an integer."""
    for name, value in op.set.items():
        if type(value) in ARITHMETIC and row[name] is not None and type(row[name]) is not int:
            raise CorruptError(
                f"{op.table}.{name} is {row[name]!r:.80}, which is not an integer", where=f"{op.table} {op.key}"
            )


_WRITE: dict[type, Callable[[Session, int, Any], None]] = {
    Check: Session.check,
    Put: Session.put,
    Patch: Session.patch,
    Delete: Session.delete,
    Drop: Session.drop,
    Trim: Session.trim,
}
