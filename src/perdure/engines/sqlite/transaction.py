"""One transaction's operations on an open connection: each a statement or two, refused by the first unmet
condition.

The caller has begun a transaction and undoes it when `Conflict` is raised. Log lengths are looked up first, so that
every `Seq` is known before anything is written and a stale `expect` costs no undoing; entries are inserted last. What
a conflict reports as actual is read inside the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perdure.engines.sqlite.queries import Queries
from perdure.engines.sqlite.statements import (
    Statements,
    TableStatements,
    assigned_arguments,
    condition_arguments,
    plain,
)  # fmt: skip
from perdure.engines.sqlite.unique import claims, intended
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
)  # fmt: skip


class Session:
    """The writer's connection with everything a transaction needs."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements, queries: Queries) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.statements = statements
        self.queries = queries
        # Tables on which a value may pass from one row to another within a transaction.
        self.exclusive = frozenset(name for name, table in statements.tables.items() if table.groups)


class Transaction:
    """Applies operations and remembers what their result needs."""

    def __init__(self, session: Session, scope: str, rev: int, now: int) -> None:
        self.session = session
        self.scope = scope
        self.rev = rev
        self.now = now
        self.seqs: dict[tuple[str, str], int] = {}

    def run(self, ops: Sequence[Op]) -> Applied:
        """Apply all; raises `Conflict` with the position of an operation that could not be."""
        appends: list[tuple[int, Append, int]] = []
        rivals = 0
        for position, op in enumerate(ops):
            if type(op) is Append:
                appends.append((position, op, self._length(position, op)))
            elif type(op) is not Drop and op.table in self.session.exclusive:  # type: ignore[union-attr]
                rivals += 1
        if rivals > 1:
            self._check_exclusive(ops)
        for position, op in enumerate(ops):
            write = _WRITE.get(type(op))
            if write is not None:
                write(self, position, op)
        for position, append, head in appends:
            self._append(position, append, head)
        return Applied(self.rev, self.seqs, self.now)

    def _length(self, position: int, op: Append) -> int:
        head = self.session.cursor.execute(self.session.statements.logs[op.log].head, (self.scope, op.partition))
        length: int = head.fetchone()[0] or 0
        if op.expect is not None and op.expect != length:
            raise Conflict(position, "length", op.expect, length)
        self.seqs[op.log, op.partition] = length + len(op.entries)
        return length

    def _append(self, position: int, op: Append, head: int) -> None:
        scope, partition, rev, now = self.scope, op.partition, self.rev, self.now
        rows = [
            (scope, partition, seq, rev, *[now + v.plus if type(v) is Now else v for v in entry])
            for seq, entry in enumerate(op.entries, head + 1)
        ]
        log = self.session.statements.logs[op.log]
        try:
            self.session.cursor.executemany(log.append, rows)
        except sqlite3.IntegrityError:
            raise Conflict(position, "unique", None, self._repeated(op)) from None

    def _repeated(self, op: Append) -> dict[str, Any] | None:
        log = self.session.statements.logs[op.log]
        for column, place, taken in log.unique:
            seen: set[Any] = set()
            for entry in op.entries:
                value = entry[place]
                found = self.session.cursor.execute(taken, (self.scope, value, op.partition)).fetchone()
                if value is not None and (found or value in seen):
                    return {column: value}
                seen.add(value)
        return None

    def drop(self, _position: int, op: Drop) -> None:
        """Apply a `Drop`."""
        self.session.cursor.execute(self.session.statements.logs[op.log].drop, (self.scope, op.partition))

    def check(self, position: int, op: Check) -> None:
        """Apply a `Check`."""
        sql = self.session.statements.tables[op.table].check(op.if_)
        arguments = (self.scope, *op.key, *condition_arguments(op.if_))
        if self.session.cursor.execute(sql, arguments).fetchone() is None:
            raise self._unmet(position, op, op.if_)

    def put(self, position: int, op: Put) -> None:
        """Apply a `Put`."""
        statements = self.session.statements.tables[op.table]
        arguments = self._row_arguments(statements, op, op)
        if op.if_ is ANY:
            sql = statements.put_any
        elif op.if_ is ABSENT:
            sql = statements.put_absent
        elif op.if_ is PRESENT:
            sql = statements.put_present
        else:
            sql = statements.put_rev
            arguments.append(op.if_)
        self._write_row(position, op, sql, arguments, op.if_)

    def patch(self, position: int, op: Patch) -> None:
        """Apply a `Patch`."""
        statements = self.session.statements.tables[op.table]
        sql = statements.patch(op.set, op.body is not None, op.if_)
        arguments = assigned_arguments(op.set, self.now, self.seqs)
        if op.body is not None:
            arguments.append(op.body)
        arguments += (self.rev, self.scope, *op.key)
        if op.if_ is not ANY:
            arguments += condition_arguments(op.if_)
        if op.default is None:
            self._write_row(position, op, sql, arguments, PRESENT if op.if_ is ANY else op.if_)
        elif not self._wrote(position, op, sql, arguments):
            self._insert_default(position, op, op.default)

    def _insert_default(self, position: int, op: Patch, default: Default) -> None:
        if self._row(op) is not None:
            raise self._unmet(position, op, op.if_)
        statements = self.session.statements.tables[op.table]
        self._wrote(position, op, statements.insert, self._row_arguments(statements, op, default))

    def delete(self, position: int, op: Delete) -> None:
        """Apply a `Delete`."""
        if op.if_ is ABSENT:
            if self._row(op) is not None:
                raise self._unmet(position, op, ABSENT)
            return
        sql = self.session.statements.tables[op.table].delete(op.if_)
        cursor = self.session.cursor.execute(sql, (self.scope, *op.key, *condition_arguments(op.if_)))
        if op.if_ is not ANY and not cursor.rowcount:
            raise self._unmet(position, op, op.if_)

    def _row_arguments(self, statements: TableStatements, op: Put | Patch, values: Put | Default) -> list[Any]:
        given, now, seqs = values.columns, self.now, self.seqs
        columns = [plain(given.get(name), now, seqs) for name in statements.columns]
        return [self.scope, *op.key, *columns, self.rev, values.body]

    def _write_row(self, position: int, op: Put | Patch, sql: str, arguments: list[Any], expected: Condition) -> None:
        if not self._wrote(position, op, sql, arguments):
            raise self._unmet(position, op, expected)

    def _wrote(self, position: int, op: Put | Patch, sql: str, arguments: list[Any]) -> bool:
        try:
            return self.session.cursor.execute(sql, arguments).rowcount == 1
        except sqlite3.IntegrityError as error:
            raise self._taken(position, op, error) from None

    def _row(self, op: Check | Put | Patch | Delete) -> Row | None:
        return self.session.queries.tables[op.table].get(self.session.cursor, self.scope, (op.key,))[0]

    def _unmet(self, position: int, op: Check | Put | Patch | Delete, expected: Condition) -> Conflict:
        row = self._row(op)
        actual: Any = None if row is None else row.rev
        if row is not None and isinstance(expected, dict):
            actual = {name: row.columns[name] for name in expected}
        return Conflict(position, "condition", expected, actual)

    def _taken(self, position: int, op: Put | Patch, error: sqlite3.IntegrityError) -> Conflict:
        """The unique group that the failed statement names, with the values it would have written."""
        table = self.session.statements.tables[op.table].table
        values = intended(table, op, self._row(op), self.now, self.seqs)
        listed = str(error).partition(": ")[2].split(", ")
        columns = [name.rpartition(".")[2] for name in listed]
        return Conflict(position, "unique", None, {name: values[name] for name in columns if name in values})

    def _check_exclusive(self, ops: Sequence[Op]) -> None:
        """A value that another row gives up in this transaction still counts as taken, in whatever order they come."""
        for position, op in enumerate(ops):
            if not isinstance(op, (Put, Patch)) or op.table not in self.session.exclusive:
                continue
            for values, sql in self._claims(op):
                owner = self.session.cursor.execute(sql, (self.scope, *values.values())).fetchone()
                if owner is not None and owner != op.key:
                    raise Conflict(position, "unique", None, values)

    def _claims(self, op: Put | Patch) -> Iterator[tuple[dict[str, Any], str]]:
        statements = self.session.statements.tables[op.table]
        row = intended(statements.table, op, self._row(op), self.now, self.seqs)
        for group, values in claims(statements.groups, row):
            yield values, statements.owner[group]


_WRITE: dict[type, Callable[[Transaction, int, Any], None]] = {
    Check: Transaction.check,
    Put: Transaction.put,
    Patch: Transaction.patch,
    Delete: Transaction.delete,
    Drop: Transaction.drop,
}
