"""One transaction: lock and read, decide in Python, write and commit. Two packets.

The first packet begins the transaction and locks every row and partition that the operations name, in the same order
for every transaction (schema position, then key), reading only the columns that conditions and expressions need. The
second writes and commits. At READ COMMITTED a row that exists is held by its lock; a row that does not exist cannot be
locked, so

- an insert is guarded by its primary key: a duplicate means that another transaction was first, and all runs again;
- a duplicate of another unique value is a conflict if the row that was to be inserted is still absent;
- a `Delete` or a `Drop` of an absent row first inserts a placeholder (rev 0), which the transaction removes.

Every lock is held to the end, so the outcome equals the order in which transactions commit. For example,
`[Patch("runs", ("r",), {"n": Inc(1)}, if_={"state": "open"}), Append("messages", "t", [entry])]` becomes

    START TRANSACTION;SELECT `rev`, `n`, `state` FROM `runs` WHERE … FOR UPDATE;
        SELECT `last` FROM `messages__heads` WHERE … FOR UPDATE
    UPDATE `runs` SET `rev` = 7, `n` = 3 WHERE …;UPDATE `messages__heads` SET `last` = 5 WHERE …;
        INSERT INTO `messages` (…) VALUES (…);COMMIT
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from perdure import limits
from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.connections.literals import equal, insert, literal, literals, one_of
from perdure.engines.mysql.schema import names, quote
from perdure.engines.mysql.write.steps import LogOp, LogStep, RowStep, group_steps, plan_steps
from perdure.engines.shared.decisions import Moment, decide, refuse_repeated
from perdure.engines.sql.ddl import heads_name
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Append, Delete, Drop, Now, Op, Patch, Trim
from perdure.kernel.schema import Schema

STATEMENT_CHARACTERS = 1024 * 1024
"""Longer appends are split over statements, so that they can be split over packets."""


class Owner(NamedTuple):
    """A conflict, and the query that returns a row if another owner of the value exists."""

    conflict: Conflict
    sql: str


class Transaction:
    """Builds both packets of one list of operations; may run again from the start."""

    def __init__(self, schema: Schema, scope: str, rev: int, ops: Sequence[Op]) -> None:
        self.scope = scope
        self.rev = rev
        self.now = 0
        self.seqs: dict[tuple[str, str], int] = {}
        self._steps = plan_steps(schema, scope, ops)
        self._groups = group_steps(self._steps)

    def locking(self) -> str:
        """The first packet: one SELECT per group of steps, in order."""
        statements = ["START TRANSACTION"]
        for group in self._groups:
            if isinstance(group, LogStep):
                if isinstance(group.op, Drop):
                    statements.append(self._insert_head(group, 0) + " ON DUPLICATE KEY UPDATE `last` = `last`")
                heads = quote(heads_name(group.log.name))
                statements.append(f"SELECT `last` FROM {heads} WHERE {group.where} FOR UPDATE")
            else:
                if group[0].may_be_absent:
                    statements.append(self._occupy_rows(group))
                statements.append(self._lock_rows(group))
        return ";".join(statements)

    def _lock_rows(self, group: list[RowStep]) -> str:
        step, table = group[0], group[0].table
        chosen = names(("rev", *step.columns))
        if len(group) == 1:
            return f"SELECT {chosen} FROM {quote(table.stored)} WHERE {step.where} FOR UPDATE"
        key = names(table.key_names)
        # Points of the primary key are visited in its order, which is the order of all locks. ORDER BY would not
        # promise more: the planner locks the rows first, and then sorts them.
        return f"SELECT {chosen}, {key} FROM {self._rows_of(group)} FOR UPDATE"

    def _rows_of(self, group: list[RowStep]) -> str:
        """The rows of many steps, as the source of a statement."""
        table, scoped = group[0].table, equal(("scope",), (self.scope,))
        listed = one_of(table.key_names, [step.op.key for step in group])
        return f"{quote(table.stored)} t FORCE INDEX (PRIMARY) WHERE {scoped} AND ({listed})"

    def _occupy_rows(self, group: list[RowStep]) -> str:
        # ON DUPLICATE KEY takes the exclusive lock at once; IGNORE would take a shared one and deadlock on upgrade.
        table, rows = group[0].table, [(self.scope, *step.op.key, 0) for step in group]
        return insert(table.stored, ("scope", *table.key_names, "rev"), rows) + " ON DUPLICATE KEY UPDATE `rev` = `rev`"

    def _insert_head(self, step: LogStep, last: int) -> str:
        columns = ("scope", step.log.partition, "last")
        return insert(heads_name(step.log.name), columns, [(self.scope, step.op.partition, last)])

    def decide(self, results: Sequence[Rows], now: int) -> None:
        """Check every condition against the rows that were read, and compute what to write; raises `Conflict`."""
        self.now, self.seqs = now, {}
        last: dict[str, int] = {}
        for group, rows in zip(self._groups, results, strict=True):
            if isinstance(group, LogStep):
                group.head = rows[0][0] if rows else None
                if isinstance(group.op, Append):
                    last.setdefault(group.op.log, self._decide_append(group, group.op))
            elif len(group) == 1:
                group[0].keep(rows[0] if rows else None)
            else:
                by_key = {row[1 + len(group[0].columns) :]: row for row in rows}
                for member in group:
                    member.keep(by_key.get(member.op.key))
        moment = Moment(now, last)
        for step in self._steps:
            if isinstance(step, RowStep):
                step.new = decide(step.position, step.op, step.table, step.row, moment)

    def _decide_append(self, step: LogStep, op: Append) -> int:
        """The last seq after an append."""
        head = step.head or 0
        if op.start is not None and not head:
            head = op.start - 1
        elif op.before is not None and op.before != head:
            raise Conflict(step.position, "length", op.before, head)
        refuse_repeated(step.position, step.log, op.entries)
        self.seqs[op.log, op.partition] = head + len(op.entries)
        return head + len(op.entries)

    def writing(self) -> Iterator[str]:
        """The statements between the locks and the commit."""
        for group in self._groups:
            if isinstance(group, LogStep):
                yield from self._log(group, group.op)
            elif len(group) > 1:
                yield f"DELETE t FROM {self._rows_of(group)}"
            elif isinstance((step := group[0]).op, Delete):
                yield f"DELETE FROM {quote(step.table.stored)} WHERE {step.where}"
            elif step.new is not None:
                yield self._update(step, step.new) if step.occupied else self._insert(step, step.new)

    def _log(self, step: LogStep, op: LogOp) -> Iterator[str]:
        if isinstance(op, Append):
            return self._append(step, op)
        return self._drop(step, op) if isinstance(op, Drop) else self._trim(step, op)

    def _insert(self, step: RowStep, new: dict[str, Any]) -> str:
        columns = ("scope", *step.table.key_names, "rev", *new)
        return insert(step.table.stored, columns, [(self.scope, *step.op.key, self.rev, *new.values())])

    def _update(self, step: RowStep, new: dict[str, Any]) -> str:
        parts = [f"`rev` = {self.rev}", *[f"{quote(n)} = {literal(v)}" for n, v in new.items()]]
        return f"UPDATE {quote(step.table.stored)} SET {', '.join(parts)} WHERE {step.where}"

    def _append(self, step: LogStep, op: Append) -> Iterator[str]:
        log, heads = step.log, quote(heads_name(step.log.name))
        last = self.seqs[op.log, op.partition]
        fixed = literals((self.scope, op.partition))
        if step.head is None:
            yield self._insert_head(step, last)
        else:
            yield f"UPDATE {heads} SET `last` = {last} WHERE {step.where}"
        columns = ("scope", log.partition, "seq", "rev", *log.column_names, "body")
        beginning = insert(log.stored, columns, [])
        rows: list[str] = []
        size = 0
        for seq, entry in enumerate(op.entries, last - len(op.entries) + 1):
            values = literals([self.now if type(value) is Now else value for value in entry])
            rows.append(f"({fixed}, {seq}, {self.rev}, {values})")
            size += len(values)
            if size > STATEMENT_CHARACTERS:
                yield beginning + ", ".join(rows)
                rows, size = [], 0
        if rows:
            yield beginning + ", ".join(rows)

    def _drop(self, step: LogStep, op: Drop) -> Iterator[str]:
        head, heads = step.head or 0, quote(heads_name(step.log.name))
        if head > op.keep:
            yield f"DELETE FROM {quote(step.log.stored)} WHERE {step.where} AND `seq` > {op.keep}"
        last = min(head, op.keep)
        change = f"UPDATE {heads} SET `last` = {last}" if last else f"DELETE FROM {heads}"
        yield f"{change} WHERE {step.where}"
        if last and step.log.trim:
            # All that it would keep may have been trimmed. The head is locked, so nobody adds an entry meanwhile.
            left = f"SELECT 1 FROM {quote(step.log.stored)} WHERE {step.where}"
            yield f"DELETE FROM {heads} WHERE {step.where} AND NOT EXISTS ({left})"

    def _trim(self, step: LogStep, op: Trim) -> Iterator[str]:
        upto = min(op.upto, (step.head or 0) - 1)
        if upto > 0:
            oldest = f"`seq` <= {upto} ORDER BY `seq` LIMIT {limits.TRIM_ENTRIES}"
            yield f"DELETE FROM {quote(step.log.stored)} WHERE {step.where} AND {oldest}"

    def owners(self) -> list[Owner]:
        """After a duplicate: the possible owners of each unique value that this transaction takes."""
        owners: list[Owner] = []
        for step in self._steps:
            if isinstance(step, RowStep):
                owners += self._row_owners(step)
            elif isinstance(step.op, Append):
                owners += self._entry_owners(step, step.op)
        return owners

    def _row_owners(self, step: RowStep) -> Iterator[Owner]:
        table = step.table
        for group in table.unique if step.new is not None else ():
            values = [step.value_after(name) for name in group]
            if None not in values:
                held = equal(("scope", *group), (self.scope, *values))
                other = f"NOT ({equal(table.key_names, step.op.key)})"
                conflict = Conflict(step.position, "unique", None, dict(zip(group, values, strict=True)))
                sql = f"SELECT 1 FROM {quote(table.stored)} WHERE {held} AND {other}"
                # A default only counts while the row is absent, and nothing has held it absent since it was read.
                if isinstance(step.op, Patch) and not step.occupied:
                    sql += f" AND NOT EXISTS (SELECT 1 FROM {quote(table.stored)} AS own WHERE {step.where})"
                yield Owner(conflict, sql)

    def _entry_owners(self, step: LogStep, op: Append) -> Iterator[Owner]:
        for column in step.log.unique:
            for entry in op.entries:
                value = entry[step.log.positions[column]]
                if value is not None:
                    sql = f"SELECT 1 FROM {quote(step.log.stored)} WHERE {step.where} AND {equal((column,), (value,))}"
                    conflict = Conflict(step.position, "unique", None, {column: value})
                    # Entries that an earlier statement of this packet inserted carry our own rev.
                    yield Owner(conflict, f"{sql} AND `rev` <> {self.rev}")
