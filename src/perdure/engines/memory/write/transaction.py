"""One transaction on memory: decide everything first, then write, so that a conflict leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.engines.memory.schema import Scope, TableData
from perdure.engines.shared.decisions import Moment, new_row, refuse_repeated, refuse_unmet, updated_row
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Append, Check, Delete, Drop, Now, Op, Patch, Put, Row, Trim
from perdure.kernel.schema import Key


class Transaction:
    """Stages the effect of a list of operations on a scope, then applies it."""

    def __init__(self, scope: Scope, rev: int, now: int) -> None:
        self.scope = scope
        self.rev = rev
        self.now = now
        self.seqs: dict[tuple[str, str], int] = {}
        self._last: dict[str, int] = {}
        self._moment = Moment(now, self._last)
        self._rows: list[tuple[int, TableData, Key, Row | None, bool]] = []
        self._appends: list[tuple[Append, list[tuple[Any, ...]]]] = []
        self._drops: list[Drop | Trim] = []

    def run(self, ops: Sequence[Op]) -> None:
        """Check every operation, then apply them all; raises `Conflict` before anything is written."""
        row_ops = []
        for position, op in enumerate(ops):
            if isinstance(op, Append):
                self._stage_append(position, op)
            elif isinstance(op, (Drop, Trim)):
                self._drops.append(op)
            else:
                row_ops.append((position, op))
        for position, op in row_ops:  # after the appends, because columns may hold their seqs
            self._stage_row(position, op)
        self._check_unique()
        self._apply()

    def _stage_append(self, position: int, op: Append) -> None:
        log, now = self.scope.logs[op.log], self.now
        partition = log.partition(op.partition)
        head = partition.last
        if op.start is not None and not head:
            head = op.start - 1
        elif op.before is not None and op.before != head:
            raise Conflict(position, "length", op.before, head)
        refuse_repeated(position, log.log, op.entries, partition.owners)
        entries = [
            (seq, self.rev, *[now + value.plus if type(value) is Now else value for value in entry])
            for seq, entry in enumerate(op.entries, head + 1)
        ]
        self.seqs[op.log, op.partition] = head + len(entries)
        self._last.setdefault(op.log, head + len(entries))
        self._appends.append((op, entries))

    def _stage_row(self, position: int, op: Check | Put | Patch | Delete) -> None:
        data = self.scope.tables[op.table]
        row = data.rows.get(op.key)
        refuse_unmet(position, op, row, self.now)
        unique = bool(data.owners)
        if isinstance(op, Patch) and row is not None:
            new: Row | None = updated_row(row, op.set, self.rev, self._moment, op.body)
            unique = unique and not data.unique_columns.isdisjoint(op.set)
        elif isinstance(op, (Put, Patch)):
            new = new_row(data.table, op, self.rev, self._moment)
        elif isinstance(op, Delete):
            new = None
        else:
            return
        self._rows.append((position, data, op.key, new, unique))

    def _check_unique(self) -> None:
        # Validation refuses a transaction that could release a value and take it again, so the present owners count.
        new_owners: dict[tuple[Any, ...], Key] = {}
        for position, data, key, row, unique in self._rows:
            for group, owners in data.owners.items() if unique else ():
                values = data.owned(row, group)
                if values is None:
                    continue
                owner = owners.get(values) or new_owners.setdefault((data.table.name, group, values), key)
                if owner != key:
                    raise Conflict(position, "unique", None, dict(zip(group, values, strict=True)))

    def _apply(self) -> None:
        for drop in self._drops:
            log = self.scope.logs[drop.log]
            if isinstance(drop, Trim):
                log.partition(drop.partition).trim(drop.upto)
            else:
                log.drop(drop.partition, drop.keep)
        for op, entries in self._appends:
            self.scope.logs[op.log].extend(op.partition, entries)
        for _, data, key, row, unique in self._rows:
            data.replace(key, row, unique=unique)
