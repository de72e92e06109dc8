"""The writing connection and what one transaction does on it: each operation a statement or two.

The caller has begun a transaction and undoes it when `Conflict` is raised. Log lengths are looked up first, so that
every `Seq` is known before anything is written and a stale `expect` costs no undoing; entries are inserted last. What
a conflict reports as actual is read inside the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sql.embedded.statements import (
    COMPUTED,
    Statements,
    TableStatements,
    condition_arguments,
    condition_shape,
)
from perdure.engines.sql.embedded.unique import claims, intended
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
    Swap,
)


class Session:
    """Applies operations, one transaction after another; `scope`, `rev` and the moment are those of the current one."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements, queries: Queries) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.tables = statements.tables
        self.logs = statements.logs
        self.queries = queries
        self.moment = statements.moment
        self.scope = ""
        self.rev = 0
        # Tables on which a value may pass from one row to another within a transaction.
        self._exclusive = frozenset(name for name, table in statements.tables.items() if table.groups)

    def now(self) -> int:
        """The engine's time."""
        return self.queries.now(self.cursor)

    def apply(self, scope: str, rev: int, now: int, ops: Sequence[Op]) -> Applied:
        """Apply all; raises `Conflict` with the position of an operation that could not be."""
        self.scope, self.rev = scope, rev
        seqs: dict[tuple[str, str], int] = {}
        self.moment.now, self.moment.last = now, {}
        appends: list[tuple[int, Append, int]] = []
        rivals = 0
        for position, op in enumerate(ops):
            if type(op) is Append:
                length = self._length(position, op)
                appends.append((position, op, length))
                seqs[op.log, op.partition] = last = length + len(op.entries)
                self.moment.last.setdefault(op.log, last)
            elif type(op) is not Drop and op.table in self._exclusive:  # type: ignore[union-attr]
                rivals += 1
        if rivals > 1:
            self._check_exclusive(ops)
        for position, op in enumerate(ops):
            write = _WRITE.get(type(op))
            if write is not None:
                write(self, position, op)
        for position, append, head in appends:
            self._append(position, append, head)
        return Applied(rev, seqs, now)

    def _length(self, position: int, op: Append) -> int:
        found = self.cursor.execute(self.logs[op.log].head, (self.scope, op.partition)).fetchone()
        length: int = found[0] or 0
        if type(length) is not int:
            raise CorruptError(f"its last seq is {length!r:.80}", where=f"{op.log} {op.partition!r}")
        if op.expect is not None and op.expect != length:
            raise Conflict(position, "length", op.expect, length)
        return length

    def _append(self, position: int, op: Append, head: int) -> None:
        scope, partition, rev, now = self.scope, op.partition, self.rev, self.moment.now
        rows = [
            (
                scope,
                partition,
                seq,
                rev,
                *[now + v.plus if type(v) is Now else v for v in entry[:-1]],
                entry[-1].decode(),
            )
            for seq, entry in enumerate(op.entries, head + 1)
        ]
        try:
            self.cursor.executemany(self.logs[op.log].append, rows)
        except sqlite3.IntegrityError:
            raise Conflict(position, "unique", None, self._repeated(op)) from None

    def _repeated(self, op: Append) -> dict[str, Any] | None:
        for column, place, taken in self.logs[op.log].unique:
            seen: set[Any] = set()
            for entry in op.entries:
                value = entry[place]
                found = self.cursor.execute(taken, (self.scope, value, op.partition, self.rev)).fetchone()
                if value is not None and (found or value in seen):
                    return {column: value}
                seen.add(value)
        return None

    def drop(self, _position: int, op: Drop) -> None:
        """Remove a partition, or what comes after its first entries."""
        self.cursor.execute(self.logs[op.log].drop, (self.scope, op.partition, op.keep))

    def check(self, position: int, op: Check) -> None:
        """Refuse unless the row is as expected."""
        sql = self.tables[op.table].check(op.if_)
        arguments = (self.scope, *op.key, *condition_arguments(op.if_))
        if self.cursor.execute(sql, arguments).fetchone() is None:
            raise self._unmet(position, op, op.if_)

    def put(self, position: int, op: Put) -> None:
        """Write a whole row."""
        statements = self.tables[op.table]
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
        if not self._wrote(position, op, sql, arguments):
            raise self._unmet(position, op, op.if_)

    def patch(self, position: int, op: Patch) -> None:
        """Change some columns of a row, or insert its default."""
        statements = self.tables[op.table]
        assigned, condition, body = op.set, op.if_, op.body
        shape = (body is None, *assigned, *map(type, assigned.values()), *condition_shape(condition))
        plan = statements.patches.get(shape) or statements.plan_patch(shape, assigned, condition, body=body is not None)
        arguments = [*assigned.values()]
        for place, get in plan.getters:
            arguments[place] = get(arguments[place])
        if plan.swaps:
            arguments += [value.new for value in assigned.values() if type(value) is Swap]
        if body is not None:
            arguments.append(body.decode())
        arguments += (self.rev, self.scope, *op.key)
        if condition is not ANY:
            arguments += condition_arguments(condition)
        if not self._wrote(position, op, plan.sql, arguments):
            self._not_patched(position, op)

    def _not_patched(self, position: int, op: Patch) -> None:
        row = self._row(op)
        if row is not None:
            _refuse_damage(op, row)
        if op.default is None:
            raise self._unmet(position, op, PRESENT if op.if_ is ANY else op.if_)
        if row is not None:
            raise self._unmet(position, op, op.if_)
        statements = self.tables[op.table]
        self._wrote(position, op, statements.insert, self._row_arguments(statements, op, op.default))

    def delete(self, position: int, op: Delete) -> None:
        """Remove a row."""
        if op.if_ is ABSENT:
            if self._row(op) is not None:
                raise self._unmet(position, op, ABSENT)
            return
        sql = self.tables[op.table].delete(op.if_)
        removed = self.cursor.execute(sql, (self.scope, *op.key, *condition_arguments(op.if_))).rowcount
        if op.if_ is not ANY and not removed:
            raise self._unmet(position, op, op.if_)

    def _row_arguments(self, statements: TableStatements, op: Put | Patch, values: Put | Default) -> list[Any]:
        given, plain = values.columns, self.moment.plain
        columns = [plain(given.get(name)) for name in statements.columns]
        body = None if values.body is None else values.body.decode()
        return [self.scope, *op.key, *columns, self.rev, body]

    def _wrote(self, position: int, op: Put | Patch, sql: str, arguments: list[Any]) -> bool:
        try:
            return self.cursor.execute(sql, arguments).rowcount == 1
        except sqlite3.IntegrityError as error:
            raise self._taken(position, op, error) from None

    def _row(self, op: Check | Put | Patch | Delete) -> Row | None:
        return self.queries.tables[op.table].get(self.cursor, self.scope, (op.key,))[0]

    def _unmet(self, position: int, op: Check | Put | Patch | Delete, expected: Condition) -> Conflict:
        row = self._row(op)
        actual: Any = None if row is None else row.rev
        if row is not None and isinstance(expected, dict):
            actual = {name: row[name] for name in expected}
        return Conflict(position, "condition", expected, actual)

    def _taken(self, position: int, op: Put | Patch, error: sqlite3.IntegrityError) -> Conflict:
        """The unique group that the failed statement names, with the values it would have written."""
        values = intended(self.tables[op.table].table, op, self._row(op), self.moment)
        listed = str(error).partition(": ")[2].split(", ")
        columns = [name.rpartition(".")[2] for name in listed]
        return Conflict(position, "unique", None, {name: values[name] for name in columns if name in values})

    def _check_exclusive(self, ops: Sequence[Op]) -> None:
        """A value that another row gives up in this transaction still counts as taken, whatever their order."""
        for position, op in enumerate(ops):
            if not isinstance(op, (Put, Patch)) or op.table not in self._exclusive:
                continue
            for values, sql in self._claims(op):
                owner = self.cursor.execute(sql, (self.scope, *values.values())).fetchone()
                if owner is not None and owner != op.key:
                    raise Conflict(position, "unique", None, values)

    def _claims(self, op: Put | Patch) -> Iterator[tuple[dict[str, Any], str]]:
        statements = self.tables[op.table]
        row = intended(statements.table, op, self._row(op), self.moment)
        for group, values in claims(statements.groups, row):
            yield values, statements.owner[group]


def _refuse_damage(op: Patch, row: Row) -> None:
    """Nothing can be computed with a number that is text: raises `CorruptError`."""
    for name, value in op.set.items():
        if type(value) in COMPUTED and row[name] is not None and type(row[name]) is not int:
            raise CorruptError(
                f"{op.table}.{name} is {row[name]!r:.80}, which is no integer", where=f"{op.table} {op.key}"
            )


_WRITE: dict[type, Callable[[Session, int, Any], None]] = {
    Check: Session.check,
    Put: Session.put,
    Patch: Session.patch,
    Delete: Session.delete,
    Drop: Session.drop,
}
