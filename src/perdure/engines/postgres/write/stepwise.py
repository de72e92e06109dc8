"""Transactions that one snapshot cannot serve, as steps of the function `run_steps`: still one statement.

Two operations need a fresh snapshot after each wait for a lock. Deleting a row that may be absent first occupies its
key, so that no other session can insert it in between; dropping a partition first takes its head, then deletes its
entries. Steps run in lock order like all writes. `Delete("items", ("a",))`, for example, becomes

    INSERT INTO items (scope, id, rev) VALUES ($1, ($4)[1]::text, $2) ON CONFLICT … DO UPDATE SET rev = excluded.rev …
    DELETE FROM items WHERE scope = $1 AND id = ($4)[1]::text RETURNING 1
"""

from __future__ import annotations

from typing import Any

from perdure.engines.postgres.schema.functions import CONDITION, LENGTH
from perdure.engines.postgres.schema.tables import SQL_TYPES
from perdure.engines.postgres.write.binders import StepBinder
from perdure.engines.postgres.write.operation_shapes import LogShape, RowShape, Shape, entry_columns
from perdure.engines.postgres.write.operation_sql import EntrySource, OperationSql
from perdure.engines.postgres.write.transaction import Member, Transaction
from perdure.engines.sql.ddl import names, quote
from perdure.kernel.ops import ABSENT, ANY, Append, Delete
from perdure.kernel.schema import Table


class Script:
    """Builds the steps of one transaction and collects their arguments; `appends` are the positions of its appends."""

    def __init__(self, sql: OperationSql, transaction: Transaction) -> None:
        self.steps: list[dict[str, Any]] = []
        self.arguments: list[str | None] = []
        self.appends: list[int] = []
        self._sql = sql
        self._layout = sql.layout
        self._transaction = transaction
        self._heads: dict[str, int] = {}
        for position, member in enumerate(transaction.members):
            shape = member.shape
            if isinstance(shape, RowShape):
                self._row(position, member, shape)
            elif shape.op is Append:
                self._append(position, member, shape)
            else:
                self._drop(position, member, shape)

    def _binder(self) -> StepBinder:
        return StepBinder(len(self.arguments), self._heads)

    def _add_arguments(self, values: list[Any]) -> None:
        self.arguments += [None if value is None else str(value) for value in values]

    def _step(self, position: int, run: str, **options: Any) -> None:
        self.steps.append({"op": position, "run": run, **options})

    def _refusal(self, shape: Shape, state: str, key: list[int]) -> dict[str, Any]:
        return {"state": state, "observe": self._sql.observe(shape), "key": key}

    def _append(self, position: int, member: Member, shape: LogShape) -> None:
        key = [len(self.arguments) + 1]
        head, (partition, _) = self._sql.head(shape, self._binder())
        self._add_arguments(member.values)
        run = f'WITH h AS ({head}) SELECT "last" FROM h'
        self._step(position, run, appends=True, **self._refusal(shape, LENGTH, key))
        self.appends.append(position)
        if self._transaction.form.lasts[shape.owner] == position:
            self._heads[shape.owner] = len(self.appends)
        last, count = f"($5)[{len(self.appends)}]", len(member.op.entries)
        types = self._sql.entry_types(shape)
        for number, entry in enumerate(zip(*entry_columns(member.op, shape.kinds), strict=True), 1):
            binder = self._binder()
            values = [binder.bind(sql_type) for sql_type in types]
            self._add_arguments(list(entry))
            source = EntrySource(partition, f"{last} - {count - number}", values, "(SELECT) AS e")
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

    def _row(self, position: int, member: Member, shape: RowShape) -> None:
        table = self._layout.schema.table[shape.owner]
        first = len(self.arguments) + 1
        refusal = self._refusal(shape, CONDITION, list(range(first, first + len(table.key))))
        if shape.op is Delete and shape.condition in (ANY, ABSENT):
            insert, delete = self._occupy_and_delete(table)
            if shape.condition is ANY:
                self._step(position, f'{insert} DO UPDATE SET "rev" = excluded."rev" RETURNING 1')
            else:
                self._step(position, f"{insert} DO NOTHING RETURNING 1", **refusal)
            self._step(position, delete)
        else:
            run, _ = self._sql.write(shape, self._binder())
            self._step(position, run, **refusal)
        self._add_arguments(member.values)

    def _occupy_and_delete(self, table: Table) -> tuple[str, str]:
        """The insert that occupies a key, up to what it does on conflict, and the delete of that row."""
        name, columns = self._layout.table(table.name), names(("scope", *table.key_names))
        binder = self._binder()
        key = [binder.bind(SQL_TYPES[column.type]) for column in table.key]
        insert = f'INSERT INTO {name} ({columns}, "rev") VALUES ($1, {", ".join(key)}, $2) ON CONFLICT ({columns})'
        terms = [f"{quote(column)} = {value}" for column, value in zip(table.key_names, key, strict=True)]
        where = " AND ".join(['"scope" = $1', *terms])
        return insert, f"DELETE FROM {name} WHERE {where} RETURNING 1"
