"""The SQL of one operation on a table or log; a binder decides the form of its values.

Rows are looked up by their whole primary key, and conditions are terms of `WHERE`: after a wait for a lock PostgreSQL
evaluates them again on the newest version of the row. An operation that did not happen returns no row; the statement
around it turns that into a refusal. `ON CONFLICT` also meets a row that was committed during the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.engines.postgres.schema.clock import SERVER_CLOCK
from perdure.engines.postgres.schema.functions import CONDITION, LENGTH, refuse
from perdure.engines.postgres.schema.tables import SQL_TYPES, Layout
from perdure.engines.postgres.write.binders import Binder
from perdure.engines.sql.ddl import names, quote
from perdure.engines.sql.expressions import Operators, assignment
from perdure.kernel.ops import ABSENT, ANY, AtMost, Check, Delete, Presence, Put
from perdure.kernel.schema import Table
from perdure.kernel.shapes import (
    BODY,
    CLOCK_MARK,
    NO_COLUMNS,
    NOW,
    NOW_OR_VALUE,
    NULL,
    Clocked,
    Columns,
    LogShape,
    RowShape,
    SeqOf,
    Shape,
)

OPERATORS = Operators()


class EntrySource(NamedTuple):
    """Where a statement has the values of entries: in rows of `source`, each with its seq."""

    partition: str
    seq: str
    values: Sequence[str]
    source: str


class OperationSql:
    """Writes the SQL of operations on one schema."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.schema = layout.schema

    def write(self, shape: Shape, binder: Binder) -> tuple[str, list[str]]:
        """The statement of an operation, and its bound key: always an operation's first values.

        That of an append moves a partition's head, and so takes its lock; it returns the new last seq. Its key is the
        partition, and the number of entries.
        """
        return self._head(shape, binder) if isinstance(shape, LogShape) else self._row(shape, binder)

    def _row(self, shape: RowShape, binder: Binder) -> tuple[str, list[str]]:
        table = self.schema.table[shape.owner]
        name = f"{self.layout.table(table.name)} AS t"
        key = [binder.bind(SQL_TYPES[column.type]) for column in table.key]
        changes = _assignments(table, shape.columns, binder) | {"rev": binder.rev}
        terms = _condition(table, shape.condition, binder)
        same_key = [f"t.{quote(column)} = {value}" for column, value in zip(table.key_names, key, strict=True)]
        where = _all([f't."scope" = {binder.scope}', *same_key, *terms])
        if shape.op is Check:
            rows = f"{binder.source}, " if binder.source else ""
            return f"SELECT 1 FROM {rows}{name} WHERE {where} FOR SHARE OF t", key
        if shape.op is Delete:
            using = f" USING {binder.source}" if binder.source else ""
            return f"DELETE FROM {name}{using} WHERE {where} RETURNING 1", key
        row = None if shape.default is None else _assignments(table, shape.default, binder) | {"rev": binder.rev}
        if shape.op is Put:
            changes = dict.fromkeys((*table.column_names, BODY), "NULL") | changes
            if shape.condition is ANY or shape.condition is ABSENT:
                row, changes = changes, {column: f"excluded.{quote(column)}" for column in changes}
        if row is None:
            return f"UPDATE {name} SET {_set(changes)}{_from(binder)} WHERE {where} RETURNING 1", key
        unique = ("scope", *table.key_names)
        values = ", ".join([binder.scope, *key, *row.values()])
        insert = f"INSERT INTO {name} ({names((*unique, *row))}) SELECT {values}{_from(binder)}"
        return f"{insert} ON CONFLICT ({names(unique)}) {_on_conflict(shape.condition, changes, terms)}", key

    def _head(self, shape: LogShape, binder: Binder) -> tuple[str, list[str]]:
        log = self.schema.log[shape.owner]
        partition, count = binder.bind("text"), binder.bind("bigint")
        heads, key = f"{self.layout.heads(log.name)} AS t", ("scope", log.partition)
        returning = f'RETURNING t."scope", t.{quote(log.partition)}, t."last"'
        if shape.expect:
            where = f't."scope" = {binder.scope} AND t.{quote(log.partition)} = {partition}'
            sql = (
                f'UPDATE {heads} SET "last" = t."last" + {count}{_from(binder)}'
                f' WHERE {where} AND t."last" = {binder.bind("bigint")} {returning}'
            )
            return sql, [partition, count]
        if shape.starts:
            before = binder.bind("bigint")
            sql = (
                f"INSERT INTO {heads} ({names((*key, 'last'))}) SELECT {binder.scope}, {partition}, {before} + {count}"
                f' ON CONFLICT ({names(key)}) DO UPDATE SET "last" = excluded."last" WHERE t."last" = {before}'
                f" {returning}"
            )
            return sql, [partition, count]
        only = ' WHERE t."last" = 0' if shape.expect is False else ""
        sql = (
            f"INSERT INTO {heads} ({names((*key, 'last'))}) SELECT {binder.scope}, {partition}, {count}{_from(binder)}"
            f' ON CONFLICT ({names(key)}) DO UPDATE SET "last" = t."last" + excluded."last"{only} {returning}'
        )
        return sql, [partition, count]

    def entries(self, shape: LogShape, binder: Binder, entries: EntrySource) -> str:
        """The insert of the entries of an append."""
        log = self.schema.log[shape.owner]
        columns = names(("scope", log.partition, "seq", "rev", *log.column_names, "body"))
        values = [binder.scope, entries.partition, entries.seq, binder.rev]
        sent = iter(entries.values)
        for kind in shape.kinds:
            value = binder.clock if kind is NOW else next(sent)
            if kind is NOW_OR_VALUE:
                value = f"CASE {value} WHEN {CLOCK_MARK} THEN {binder.clock} ELSE {value} END"
            values.append(value)
        values.append(next(sent))
        return f"INSERT INTO {self.layout.table(log.name)} ({columns}) SELECT {', '.join(values)} FROM {entries.source}"

    def entry_types(self, shape: LogShape) -> list[str]:
        """The SQL types of `entry_columns`."""
        kinds = zip(self.schema.log[shape.owner].kinds, shape.kinds, strict=True)
        return [*[SQL_TYPES[declared] for declared, kind in kinds if kind is not NOW], SQL_TYPES[BODY]]

    def observe(self, shape: Shape) -> str:
        """The query that reads what a refused operation met, by scope and key: a JSON array of the rev and the columns
        that its condition names, or of the length of a log. A condition on the clock adds the server's time."""
        if isinstance(shape, LogShape):
            log = self.schema.log[shape.owner]
            where = f'"scope" = $1 AND {quote(log.partition)} = ($2)[1]'
            return f'SELECT json_build_array("last") FROM {self.layout.heads(log.name)} WHERE {where}'
        table = self.schema.table[shape.owner]
        condition = shape.condition if isinstance(shape.condition, Columns) else NO_COLUMNS
        observed = names(("rev", *condition.names))
        if any(isinstance(kind, Clocked) for kind in condition.kinds):
            observed += f", {SERVER_CLOCK}"
        terms = ['"scope" = $1']
        for number, column in enumerate(table.key, 1):
            terms.append(f"{quote(column.name)} = ($2)[{number}]::{SQL_TYPES[column.type]}")
        return f"SELECT json_build_array({observed}) FROM {self.layout.table(table.name)} WHERE {_all(terms)}"

    def refusal(self, shape: Shape, position: int, key: str, observe: str) -> str:
        """The call that refuses the member at `position`."""
        state = LENGTH if isinstance(shape, LogShape) else CONDITION
        return f"{refuse(self.layout.pg_schema)}('{state}', {position}, {observe}, {key})"


def _on_conflict(condition: Any, changes: dict[str, str], terms: list[str]) -> str:
    if condition is ABSENT:
        return "DO NOTHING RETURNING 1"
    where = f" WHERE {_all(terms)}" if terms else ""
    return f"DO UPDATE SET {_set(changes)}{where} RETURNING 1"


def _from(binder: Binder) -> str:
    return f" FROM {binder.source}" if binder.source else ""


def _all(terms: list[str]) -> str:
    return " AND ".join(terms)


def _set(changes: dict[str, str]) -> str:
    return ", ".join(f"{quote(name)} = {value}" for name, value in changes.items())


def _assignments(table: Table, columns: Columns, binder: Binder) -> dict[str, str]:
    types, pairs = {**table.types, BODY: BODY}, zip(*columns, strict=True)
    return {name: _assign(f"t.{quote(name)}", SQL_TYPES[types[name]], kind, binder) for name, kind in pairs}


def _assign(column: str, sql_type: str, kind: Any, binder: Binder) -> str:
    if kind is NOW:
        return binder.clock
    if isinstance(kind, SeqOf):
        return f"{binder.lasts[kind.log]} - {binder.bind('bigint')}"
    return assignment(kind, column, lambda: binder.bind(sql_type), binder.clock, OPERATORS)


def _condition(table: Table, condition: Any, binder: Binder) -> list[str]:
    if isinstance(condition, Presence):
        return ["false"] if condition is ABSENT else []
    if condition is int:
        return [f't."rev" = {binder.bind("bigint")}']
    terms = []
    for name, kind in zip(*condition, strict=True):
        column = f"t.{quote(name)}"
        if kind is NULL:
            terms.append(f"{column} IS NULL")
        elif kind is AtMost:
            terms.append(f"({column} IS NULL OR {column} <= {binder.bind('bigint')})")
        elif isinstance(kind, Clocked):
            terms.append(f"({column} IS NULL OR {column} <= {binder.clock} + {binder.bind('bigint')})")
        else:
            terms.append(f"{column} = {binder.bind(SQL_TYPES[table.types[name]])}")
    return terms
