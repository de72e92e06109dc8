"""Transactions that one snapshot cannot serve, as steps of the function `carry_out`: still one statement.

Three things need a fresh look after each wait for a lock. Deleting a row that may be absent first occupies its key, so
that nobody can insert it behind our back; dropping a partition first takes its head, then deletes what it holds; and
where a unique value might pass from one row to another, each row's values are noted before it is written and compared
with what the others hold afterwards. Steps run in lock order like everything else.
"""

from __future__ import annotations

from typing import Any

from perdure.engines.postgres.schema.functions import CONDITION, LENGTH
from perdure.engines.postgres.schema.tables import Layout, names, quote
from perdure.engines.postgres.write.binding import Step
from perdure.engines.postgres.write.operation_shapes import entry_columns
from perdure.engines.postgres.write.operation_sql import EntryPlace, Rows
from perdure.engines.postgres.write.transaction import Member, Transaction, passes_on, unique_columns
from perdure.kernel.ops import ABSENT, ANY, Append, Delete, Drop, Patch, Put
from perdure.kernel.schema import Table

_INSERTED_OR_MET = "CASE WHEN t.xmax = 0 THEN 1 ELSE 2 END"
"""What an upsert tells where it matters: 1 for a new row, 2 for one that was there."""


class Script:
    """Builds the steps of one transaction and collects their arguments."""

    def __init__(self, layout: Layout, rows: Rows, transaction: Transaction) -> None:
        self.layout = layout
        self.rows = rows
        self.transaction = transaction
        self.steps: list[dict[str, Any]] = []
        self.given: list[str | None] = []
        self.appended: list[int] = []
        self._lasts: dict[str, int] = {}
        unique = unique_columns(rows.schema)
        self._exclusive = {name for name in unique if passes_on(transaction.members, name, unique[name])}
        for place, member in enumerate(transaction.members):
            self._member(place, member)

    def _places(self) -> Step:
        return Step(len(self.given), self._lasts)

    def _give(self, values: list[Any]) -> None:
        self.given += [None if value is None else str(value) for value in values]

    def _step(self, place: int, run: str, **more: Any) -> None:
        self.steps.append({"op": place, "run": run, **more})

    def _member(self, place: int, member: Member) -> None:
        kind = member.shape[0]
        if kind is Append:
            self._append(place, member)
        elif kind is Drop:
            self._drop(place, member)
        else:
            first = len(self.given) + 1
            table = self.rows.schema.table[member.shape[1]]
            key = list(range(first, first + len(table.key)))
            if table.name in self._exclusive:
                self._tracked(place, member, table, key)
            else:
                self._row(place, member, table, key, tells="1")

    def _append(self, place: int, member: Member) -> None:
        shape, places = member.shape, self._places()
        key = [len(self.given) + 1]
        sql, partition = self.rows.head(shape, places)
        run = f'WITH h AS ({sql}) SELECT "last" FROM h'
        more = {"state": LENGTH, "observe": self.rows.observe(shape), "key": key}
        self._give(member.values)
        self._step(place, run, appends=True, **more)
        self.appended.append(place)
        if self.transaction.form.lasts[shape[1]] == place:
            self._lasts[shape[1]] = len(self.appended)
        last, count = f"($5)[{len(self.appended)}]", len(member.op.entries)
        types = self.rows.entry_types(shape)
        for number, entry in enumerate(zip(*entry_columns(member.op, shape[3]), strict=True), 1):
            places = self._places()
            values = [places.take(kind) for kind in types]
            self._give(list(entry))
            at = EntryPlace(partition[0], f"{last} - {count - number}", values, "(SELECT) AS e")
            self._step(place, self.rows.entries(shape, places, at) + " RETURNING 1")

    def _drop(self, place: int, member: Member) -> None:
        log = self.rows.log(member.shape)
        heads, at = self.layout.heads(log.name), names(("scope", log.partition))
        partition, keep = f"($4)[{len(self.given) + 1}]", f"($4)[{len(self.given) + 2}]::bigint"
        self._give(member.values)
        where = f'"scope" = $1 AND {quote(log.partition)} = {partition}'
        self._step(
            place,
            f'INSERT INTO {heads} AS h ({at}, "last") VALUES ($1, {partition}, 0)'
            f' ON CONFLICT ({at}) DO UPDATE SET "last" = least(h."last", {keep}) RETURNING 1',
        )
        for name, rest in ((self.layout.table(log.name), f'"seq" > {keep}'), (heads, '"last" = 0')):
            gone = f"DELETE FROM {name} WHERE {where} AND {rest} RETURNING 1"
            self._step(place, f"WITH gone AS ({gone}) SELECT count(*) FROM gone")

    def _tracked(self, place: int, member: Member, table: Table, key: list[int]) -> None:
        """Note what the row holds, write it, note what it holds then."""
        claims = ", ".join(_claim(group) for group in table.unique)
        where = _at(table, key)
        look = f"SELECT ARRAY[{claims}] FROM {self.layout.table(table.name)} WHERE {where}"
        held = {"run": f"{look} FOR UPDATE", "claims": "held"}
        if member.shape[0] is Delete and member.shape[2] is ANY:
            self._give(member.values)
            self._occupy(place, table, key)
            self._step(place, **held)
            self._step(place, self._remove(table, key))
            return
        self._step(place, **held)
        self._row(place, member, table, key, tells="2" if _updates(member) else _INSERTED_OR_MET, held=True)
        self._step(place, look, claims="taken")

    def _row(self, place: int, member: Member, table: Table, key: list[int], *, tells: str, **more: Any) -> None:
        shape = member.shape
        refused = {"state": CONDITION, "observe": self.rows.observe(shape), "key": key}
        if shape[0] is Delete and (shape[2] is ANY or shape[2] is ABSENT):
            self._give(member.values)
            if shape[2] is ANY:
                self._occupy(place, table, key)
            else:
                self._step(place, f"{self._placeholder(table, key)} DO NOTHING RETURNING 1", **refused)
            self._step(place, self._remove(table, key))
            return
        run, _ = self.rows.write(shape, Step(len(self.given), self._lasts, tells))
        self._give(member.values)
        self._step(place, run, **refused, **more)

    def _occupy(self, place: int, table: Table, key: list[int]) -> None:
        self._step(place, f'{self._placeholder(table, key)} DO UPDATE SET "rev" = excluded."rev" RETURNING 1')

    def _placeholder(self, table: Table, key: list[int]) -> str:
        at = names(("scope", *table.key_names))
        values = ", ".join(_element(table, key))
        return f'INSERT INTO {self.layout.table(table.name)} ({at}, "rev") VALUES ($1, {values}, $2) ON CONFLICT ({at})'

    def _remove(self, table: Table, key: list[int]) -> str:
        return f"DELETE FROM {self.layout.table(table.name)} WHERE {_at(table, key)} RETURNING 1"


def _element(table: Table, key: list[int]) -> list[str]:
    types = {"text": "text", "int": "bigint"}
    return [f"($4)[{place}]::{types[column.type]}" for column, place in zip(table.key, key, strict=True)]


def _at(table: Table, key: list[int]) -> str:
    terms = [f"{quote(c.name)} = {e}" for c, e in zip(table.key, _element(table, key), strict=True)]
    return " AND ".join(['"scope" = $1', *terms])


def _claim(group: tuple[str, ...]) -> str:
    """What a row holds of a unique group, as text that says which group it is; NULL when it holds nothing."""
    present = " AND ".join(f"{quote(name)} IS NOT NULL" for name in group)
    fields = ", ".join(f"'{name}', {quote(name)}" for name in group)
    return f"CASE WHEN {present} THEN json_build_object({fields})::text END"


def _updates(member: Member) -> bool:
    """True when the operation can only touch a row that is there."""
    shape = member.shape
    if shape[0] is Put:
        return shape[4] is not ANY and shape[4] is not ABSENT
    return shape[0] is not Patch or shape[5] is None
