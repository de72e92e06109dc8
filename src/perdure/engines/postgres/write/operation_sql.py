"""The SQL of one operation on a table or log, in any of the three forms.

Rows are found by their whole primary key, and conditions stand in `WHERE`: after a wait for a lock PostgreSQL evaluates
them again on the newest version of the row. An operation that did not happen returns no row; the statement round it
turns that into a refusal. `ON CONFLICT` meets a row that was committed during the statement as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.engines.postgres.schema.functions import CONDITION, LENGTH
from perdure.engines.postgres.schema.tables import Layout, names, quote
from perdure.engines.postgres.write.binding import Places
from perdure.engines.postgres.write.operation_shapes import NOW, NOW_PLUS, NULL, PLAIN, Shape, pairs
from perdure.kernel.ops import ABSENT, PRESENT, Append, AtMost, Check, Inc, Max, Min, Patch, Put, Rule, Swap
from perdure.kernel.schema import Log, Schema, Table

_TYPES = {"text": "text", "int": "bigint"}
BODY = "json"


class EntryPlace(NamedTuple):
    """Where the values of entries stand in a statement: in rows of `source`, each with its seq."""

    partition: str
    seq: str
    values: Sequence[str]
    source: str


class Rows:
    """Writes the statements of one schema."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.schema: Schema = layout.schema

    def key(self, table: Table, places: Places) -> list[str]:
        """Places for the key columns: always an operation's first values."""
        return [places.take(_TYPES[column.type]) for column in table.key]

    def write(self, shape: Shape, places: Places) -> tuple[str, list[str]]:
        """The statement of an operation on a row, and the places of its key."""
        table = self.schema.table[shape[1]]
        key = self.key(table, places)
        kind = shape[0]
        if kind is Put:
            return self._put(table, key, shape, places), key
        if kind is Patch:
            return self._patch(table, key, shape, places), key
        terms = [*_at(table, key, places), *_condition(table, shape[2], places)]
        if kind is Check:
            return self._check(table, terms, places), key
        using = f" USING {places.source}" if places.source else ""
        return f"DELETE FROM {self._name(table)}{using} WHERE {_all(terms)} RETURNING {places.tells}", key

    def _name(self, table: Table) -> str:
        return f"{self.layout.table(table.name)} AS t"

    def _check(self, table: Table, terms: list[str], places: Places) -> str:
        rows = f"{places.source}, " if places.source else ""
        return f"SELECT 1 FROM {rows}{self._name(table)} WHERE {_all(terms)} FOR SHARE OF t"

    def _put(self, table: Table, key: list[str], shape: Shape, places: Places) -> str:
        _, _, columns, has_body, condition = shape
        given = _assignments(table, columns, places)
        body = places.take(BODY) if has_body else "NULL"
        whole = {name: given.get(name, "NULL") for name in table.column_names} | {"rev": places.rev, "body": body}
        if condition is PRESENT or condition is int:
            terms = [*_at(table, key, places), *_condition(table, condition, places)]
            return self._update(table, whole, terms, places)
        insert, target = self._insert(table, key, whole, places)
        if condition is ABSENT:
            return f"{insert} ON CONFLICT {target} DO NOTHING RETURNING {places.tells}"
        replaced = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in whole)
        return f"{insert} ON CONFLICT {target} DO UPDATE SET {replaced} RETURNING {places.tells}"

    def _patch(self, table: Table, key: list[str], shape: Shape, places: Places) -> str:
        _, _, columns, has_body, condition, default = shape
        changes = _assignments(table, columns, places) | {"rev": places.rev}
        if has_body:
            changes["body"] = places.take(BODY)
        terms = _condition(table, condition, places)
        if default is None:
            return self._update(table, changes, [*_at(table, key, places), *terms], places)
        fresh = _assignments(table, default[0], places) | {"rev": places.rev}
        if default[1]:
            fresh["body"] = places.take(BODY)
        insert, target = self._insert(table, key, fresh, places)
        if condition is ABSENT:
            return f"{insert} ON CONFLICT {target} DO NOTHING RETURNING {places.tells}"
        where = f" WHERE {_all(terms)}" if terms else ""
        return f"{insert} ON CONFLICT {target} DO UPDATE SET {_set(changes)}{where} RETURNING {places.tells}"

    def _update(self, table: Table, changes: dict[str, str], terms: list[str], places: Places) -> str:
        rows = _from(places)
        return f"UPDATE {self._name(table)} SET {_set(changes)}{rows} WHERE {_all(terms)} RETURNING {places.tells}"

    def _insert(self, table: Table, key: list[str], fresh: dict[str, str], places: Places) -> tuple[str, str]:
        target = f"({names(('scope', *table.key_names))})"
        rows = _from(places)
        values = ", ".join([places.scope, *key, *fresh.values()])
        columns = names(("scope", *table.key_names, *fresh))
        return f"INSERT INTO {self._name(table)} ({columns}) SELECT {values}{rows}", target

    def head(self, shape: Shape, places: Places) -> tuple[str, list[str]]:
        """The statement that moves a partition's head and so takes its lock; it returns the new last seq. With it come
        the places of the partition and of the number of entries."""
        _, _, expect, _ = shape
        log = self.schema.log[shape[1]]
        partition, count = places.take("text"), places.take("bigint")
        heads, at = f"{self.layout.heads(log.name)} AS t", ("scope", log.partition)
        back = f'RETURNING t."scope", t.{quote(log.partition)}, t."last"'
        if expect:
            rows = _from(places)
            terms = [f't."scope" = {places.scope}', f"t.{quote(log.partition)} = {partition}"]
            terms.append(f't."last" = {places.take("bigint")}')
            return f'UPDATE {heads} SET "last" = t."last" + {count}{rows} WHERE {_all(terms)} {back}', [
                partition,
                count,
            ]
        rows = _from(places)
        only = ' WHERE t."last" = 0' if expect is False else ""
        return (
            f"INSERT INTO {heads} ({names((*at, 'last'))}) SELECT {places.scope}, {partition}, {count}{rows}"
            f' ON CONFLICT ({names(at)}) DO UPDATE SET "last" = t."last" + excluded."last"{only} {back}'
        ), [partition, count]

    def entries(self, shape: Shape, places: Places, at: EntryPlace) -> str:
        """The insert of entries; `at` says where their values stand."""
        log = self.schema.log[shape[1]]
        columns = names(("scope", log.partition, "seq", "rev", *log.column_names, "body"))
        values = [places.scope, at.partition, at.seq, places.rev]
        given = iter(at.values)
        for kind in shape[3]:
            if kind is NOW:
                values.append(places.clock)
            elif kind is NOW_PLUS:
                values.append(f"coalesce({next(given)}, {places.clock} + {next(given)})")
            else:
                values.append(next(given))
        values.append(next(given))
        return f"INSERT INTO {self.layout.table(log.name)} ({columns}) SELECT {', '.join(values)} FROM {at.source}"

    def entry_types(self, shape: Shape) -> list[str]:
        """The types of `entry_columns`."""
        types = self.schema.log[shape[1]].types
        return [*[_TYPES[types[name]] for name in self.entry_names(shape)], BODY]

    def entry_names(self, shape: Shape) -> list[str]:
        """The names of `entry_columns`, without the body."""
        found: list[str] = []
        for name, kind in zip(self.schema.log[shape[1]].column_names, shape[3], strict=True):
            found += [] if kind is NOW else [name] * (2 if kind is NOW_PLUS else 1)
        return found

    def observe(self, shape: Shape) -> str:
        """The query that tells what a refused operation met, given scope and key: a JSON array of rev and the columns
        that its condition names, or of the length of a log."""
        if shape[0] is Append:
            log = self.schema.log[shape[1]]
            where = f'"scope" = $1 AND {quote(log.partition)} = ($2)[1]'
            return f'SELECT json_build_array("last") FROM {self.layout.heads(log.name)} WHERE {where}'
        table = self.schema.table[shape[1]]
        condition = shape[4] if shape[0] in (Put, Patch) else shape[2]
        asked = [name for name, _ in pairs(condition)] if isinstance(condition, tuple) else []
        terms = ['"scope" = $1']
        for place, column in enumerate(table.key, 1):
            terms.append(f"{quote(column.name)} = ($2)[{place}]::{_TYPES[column.type]}")
        seen = names(("rev", *asked))
        return f"SELECT json_build_array({seen}) FROM {self.layout.table(table.name)} WHERE {_all(terms)}"

    def refusal(self, shape: Shape, place: int, key: str, observe: str) -> str:
        """The call that refuses a member."""
        state = LENGTH if shape[0] is Append else CONDITION
        return f"{quote(self.layout.place)}.\"refuse\"('{state}', {place}, {observe}, {key})"

    def log(self, shape: Shape) -> Log:
        """The log of an append or drop."""
        return self.schema.log[shape[1]]


def _at(table: Table, key: list[str], places: Places) -> list[str]:
    found = [f't."scope" = {places.scope}']
    return found + [f"t.{quote(name)} = {place}" for name, place in zip(table.key_names, key, strict=True)]


def _from(places: Places) -> str:
    return f" FROM {places.source}" if places.source else ""


def _all(terms: list[str]) -> str:
    return " AND ".join(terms)


def _set(changes: dict[str, str]) -> str:
    return ", ".join(f"{quote(name)} = {value}" for name, value in changes.items())


def _assignments(table: Table, columns: Shape, places: Places) -> dict[str, str]:
    return {name: _assign(f"t.{quote(name)}", _TYPES[table.types[name]], kind, places) for name, kind in pairs(columns)}


def _assign(column: str, kept_as: str, kind: Any, places: Places) -> str:
    if kind is NOW:
        return places.clock
    if kind is NOW_PLUS:
        return f"{places.clock} + {places.take('bigint')}"
    if isinstance(kind, tuple):
        return f"{places.last(kind[1])} - {places.take('bigint')}"
    first = places.take(kept_as)
    if kind is Inc:
        return f"coalesce({column}, 0) + {first}"
    if kind is Max or kind is Min:
        # Both leave NULLs out of account.
        return f"{'greatest' if kind is Max else 'least'}({column}, {first})"
    if kind is Swap:
        return f"CASE WHEN {column} IS NOT DISTINCT FROM {first} THEN {places.take(kept_as)} ELSE {column} END"
    return first


def _condition(table: Table, condition: Any, places: Places) -> list[str]:
    if isinstance(condition, Rule):
        return ["false"] if condition is ABSENT else []
    if condition is int:
        return [f't."rev" = {places.take("bigint")}']
    terms = []
    for name, kind in pairs(condition):
        column = f"t.{quote(name)}"
        if kind is NULL:
            terms.append(f"{column} IS NULL")
        elif kind is AtMost:
            terms.append(f"({column} IS NULL OR {column} <= {places.take('bigint')})")
        elif kind is PLAIN:
            terms.append(f"{column} = {places.take(_TYPES[table.types[name]])}")
    return terms
