"""One transaction on memory: decide everything first, then write, so that a conflict leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.engines.memory.schema import Scope
from perdure.engines.shared.decisions import Moment, decide, refuse_repeated
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Append, Check, Delete, Drop, Now, Op, Patch, Put, Row
from perdure.kernel.schema import Key

Staged = dict[tuple[str, Key], Row | None]


class Transaction:
    """Stages the effect of a list of operations on a scope."""

    def __init__(self, scope: Scope, rev: int, now: int) -> None:
        self.scope = scope
        self.rev = rev
        self.now = now
        self.seqs: dict[tuple[str, str], int] = {}
        self.last: dict[str, int] = {}
        self.rows: Staged = {}
        self.appends: list[tuple[str, str, list[tuple[Any, ...]]]] = []
        self.drops: list[Drop] = []

    def run(self, ops: Sequence[Op]) -> None:
        """Check every operation, then apply them all; raises `Conflict` before anything is written."""
        for position, op in enumerate(ops):
            if isinstance(op, Append):
                self._stage_append(position, op)
            elif isinstance(op, Drop):
                self.drops.append(op)
        for position, op in enumerate(ops):
            if isinstance(op, (Check, Put, Patch, Delete)):
                self._stage_row(position, op)
        self._check_unique(ops)
        self._apply()

    def _stage_append(self, position: int, op: Append) -> None:
        log = self.scope.logs[op.log]
        head = log.head(op.partition)
        if op.expect is not None and op.expect != head:
            raise Conflict(position, "length", op.expect, head)
        values = [[self.now if isinstance(value, Now) else value for value in entry] for entry in op.entries]
        refuse_repeated(position, log.log, values, lambda column: log.owners(column, op.partition))
        entries = [(seq, self.rev, *entry) for seq, entry in enumerate(values, head + 1)]
        self.seqs[op.log, op.partition] = head + len(entries)
        self.last.setdefault(op.log, head + len(entries))
        self.appends.append((op.log, op.partition, entries))

    def _stage_row(self, position: int, op: Check | Put | Patch | Delete) -> None:
        table, row = self.scope.tables[op.table].table, self.scope.tables[op.table].rows.get(op.key)
        new = decide(position, op, table, row, Moment(self.now, self.last))
        if isinstance(op, Delete):
            self.rows[op.table, op.key] = None
        elif new is not None:
            columns = {**(row.columns if row is not None else {}), **new}
            body = columns.pop("body", row.body if row is not None else None)
            self.rows[op.table, op.key] = Row(op.key, tuple(columns.values()), self.rev, body, table.positions)

    def _check_unique(self, ops: Sequence[Op]) -> None:
        # Validation refuses a transaction that could release a value and take it again, so the present owners count.
        new_owners: dict[tuple[Any, ...], Key] = {}
        for position, op in enumerate(ops):
            if not isinstance(op, (Put, Patch)):
                continue
            row, data = self.rows[op.table, op.key], self.scope.tables[op.table]
            for group, owners in data.owners.items():
                values = data.values(row, group) if row is not None else (None,)
                if None in values:
                    continue
                owner = owners.get(values) or new_owners.setdefault((op.table, group, values), op.key)
                if owner != op.key:
                    raise Conflict(position, "unique", None, dict(zip(group, values, strict=True)))

    def _apply(self) -> None:
        for drop in self.drops:
            self.scope.logs[drop.log].drop(drop.partition, drop.keep)
        for log, partition, entries in self.appends:
            self.scope.logs[log].extend(partition, entries)
        for (table, key), row in self.rows.items():
            self.scope.tables[table].replace(key, row)
