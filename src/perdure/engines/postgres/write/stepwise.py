"""Transactions that one snapshot cannot serve, as steps of the function `run_steps`: still one statement.

Some operations need a fresh snapshot after each wait for a lock. Deleting a row that may be absent first occupies its
key, so that no other session can insert it in between; dropping or trimming a partition first takes its head, then
deletes entries. Steps run in lock order like all writes. `Delete("items", ("a",))`, for example, becomes

    INSERT INTO items (scope, id, rev) VALUES ($1, ($4)[1]::text, $2) ON CONFLICT … DO UPDATE SET rev = excluded.rev …
    DELETE FROM items WHERE scope = $1 AND id = ($4)[1]::text RETURNING 1
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure import limits
from perdure.engines.postgres.schema.clock import SERVER_CLOCK
from perdure.engines.postgres.schema.functions import CONDITION, LENGTH, run_steps
from perdure.engines.postgres.write.binders import Binder
from perdure.engines.postgres.write.operation_sql import EntrySource, OperationSql
from perdure.engines.postgres.write.transaction import Member, Transaction
from perdure.engines.sql.ddl import names, quote
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Append, Delete, Patch, Trim
from perdure.kernel.shapes import NO_COLUMNS, LogShape, RowShape, Values, entry_columns


def stepwise_statement(sql: OperationSql, transaction: Transaction, clock: int | None) -> tuple[str, Values]:
    """The call that runs a transaction as steps, and its arguments. Without `clock` the time is the server's."""
    script = _Script(sql, transaction)
    arguments: Values = [transaction.scope, transaction.rev]
    if clock is not None:
        arguments.append(clock)
    time = SERVER_CLOCK if clock is None else "$3::bigint"
    steps = f"${len(arguments) + 1}::text::jsonb, ${len(arguments) + 2}::text[]"
    arguments += [msgspec.json.encode(script.steps).decode(), script.arguments]
    call = f"{run_steps(sql.layout.pg_schema)}($1::text, $2::bigint, {time}, {steps})"
    return f"SELECT {time}, {call}", arguments


class _Script:
    """Builds the steps of one transaction and collects their arguments."""

    def __init__(self, sql: OperationSql, transaction: Transaction) -> None:
        self.steps: list[dict[str, Any]] = []
        self.arguments: list[str | None] = []
        self._sql = sql
        self._layout = sql.layout
        self._seqs = {position: f"($5)[{n}]" for n, position in enumerate(transaction.form.appends, 1)}
        """By position of an append: the last seq, which its step returned."""
        self._lasts = {log: self._seqs[position] for log, position in transaction.form.lasts.items()}
        for position, member in enumerate(transaction.members):
            shape = member.shape
            if isinstance(shape, RowShape):
                self._row(position, member, shape)
            elif shape.op is Append:
                self._append(position, member, shape)
            elif shape.op is Trim:
                self._trim(position, member, shape)
            else:
                self._drop(position, member, shape)

    def _binder(self) -> Binder:
        return Binder("$1", "$2", "$3", "($4)[{number}]::{type}", self._lasts, used=len(self.arguments))

    def _add_arguments(self, values: list[Any]) -> None:
        self.arguments += [None if value is None else str(value) for value in values]

    def _step(self, position: int, run: str, **options: Any) -> None:
        self.steps.append({"op": position, "run": run, **options})

    def _append(self, position: int, member: Member, shape: LogShape) -> None:
        refusal = {"state": LENGTH, "observe": self._sql.observe(shape), "key": [len(self.arguments) + 1]}
        head, (partition, _) = self._sql.write(shape, self._binder())
        self._add_arguments(member.values)
        self._step(position, f'WITH h AS ({head}) SELECT "last" FROM h', appends=True, **refusal)
        types, count = self._sql.entry_types(shape), len(member.op.entries)
        for number, entry in enumerate(zip(*entry_columns(member.op.entries, shape.kinds), strict=True), 1):
            binder = self._binder()
            values = [binder.bind(sql_type) for sql_type in types]
            self._add_arguments(list(entry))
            source = EntrySource(partition, f"{self._seqs[position]} - {count - number}", values, "(SELECT) AS e")
            self._step(position, self._sql.entries(shape, binder, source) + " RETURNING 1")

    def _drop(self, position: int, member: Member, shape: LogShape) -> None:
        log = self._layout.schema.log[shape.owner]
        heads, key = self._layout.heads(log.name), names(("scope", log.partition))
        binder = self._binder()
        partition, keep = binder.bind("text"), binder.bind("bigint")
        self._add_arguments(member.values)
        where = f'"scope" = $1 AND {quote(log.partition)} = {partition}'
        self._step(
            position,
            f'INSERT INTO {heads} AS h ({key}, "last") VALUES ($1, {partition}, 0)'
            f' ON CONFLICT ({key}) DO UPDATE SET "last" = least(h."last", {keep}) RETURNING 1',
        )
        for table, dropped in ((self._layout.table(log.name), f'"seq" > {keep}'), (heads, '"last" = 0')):
            delete = f"DELETE FROM {table} WHERE {where} AND {dropped} RETURNING 1"
            self._step(position, f"WITH gone AS ({delete}) SELECT count(*) FROM gone")
        if log.trim:
            # All that it would keep may have been trimmed: then the partition is gone.
            left = f"SELECT FROM {self._layout.table(log.name)} WHERE {where}"
            self._step(position, f"DELETE FROM {heads} WHERE {where} AND NOT EXISTS ({left}) RETURNING 1")

    def _trim(self, position: int, member: Member, shape: LogShape) -> None:
        """Takes the head, so that no other session shortens the log; then the oldest entries go, never the last."""
        log = self._layout.schema.log[shape.owner]
        heads, entries = self._layout.heads(log.name), self._layout.table(log.name)
        binder = self._binder()
        partition, upto = binder.bind("text"), binder.bind("bigint")
        self._add_arguments(member.values)
        where = f'"scope" = $1 AND {quote(log.partition)} = {partition}'
        head = f'SELECT "last" FROM {heads} WHERE {where} FOR UPDATE'
        self._step(position, head)
        first = f'SELECT min("seq") FROM {entries} WHERE {where}'
        oldest = f'"seq" <= {upto} AND "seq" < ({first}) + {limits.TRIM_ENTRIES}'
        # The head is locked once more: a partition may have been made since the first step found none.
        delete = f'DELETE FROM {entries} WHERE {where} AND {oldest} AND "seq" < (SELECT "last" FROM h) RETURNING 1'
        self._step(position, f"WITH h AS ({head}), gone AS ({delete}) SELECT count(*) FROM gone")

    def _row(self, position: int, member: Member, shape: RowShape) -> None:
        shapes = [shape]
        if shape.op is Delete and shape.condition in (ANY, ABSENT):
            occupying = RowShape(Patch, shape.owner, shape.condition, default=NO_COLUMNS)
            shapes = [occupying, shape._replace(condition=PRESENT)]
        for each in shapes:
            run, bound_key = self._sql.write(each, self._binder())
            key = [len(self.arguments) + n for n in range(1, len(bound_key) + 1)]
            self._step(position, run, state=CONDITION, observe=self._sql.observe(shape), key=key)
        self._add_arguments(member.values)
