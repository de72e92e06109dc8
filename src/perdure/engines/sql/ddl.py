"""DDL that the SQL engines share: tables, indexes and logs, derived from the declarations.

Indexes are named after the declared table, whatever its generation: renaming a table leaves them as they are.

A `Ddl` writes the statements of one database; what differs between databases (types, options behind a table, how a
table is named) is data in its `Style`. The text of a statement matters: SQLite compares it with what a file holds.

    CREATE TABLE "threads" ("scope" TEXT NOT NULL, "id" TEXT NOT NULL, …, PRIMARY KEY ("scope", "id")) WITHOUT ROWID
    CREATE INDEX "threads__recent" ON "threads" ("scope", "updated_at", "id") WHERE "updated_at" IS NOT NULL
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from perdure.engines.shared.migrations import Additions
from perdure.kernel.schema import Column, Index, Log, Schema, Table


class Style(NamedTuple):
    """How one database spells its DDL. `table` names a table, with its schema where there is one."""

    text: str
    integer: str
    body: str
    table: Callable[[str], str]
    table_options: str = ""
    log_options: str = ""
    heads_options: str = ""


def quote(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def names(columns: Iterable[str]) -> str:
    """Names as a column list."""
    return ", ".join(map(quote, columns))


def index_name(owner: str, name: str) -> str:
    """The name of a declared index inside the database."""
    return f"{owner}__{name}"


def unique_name(owner: str, group: tuple[str, ...]) -> str:
    """The name of the index over a unique group."""
    return index_name(owner, "unique_" + "_".join(group))


def heads_name(log: str) -> str:
    """The table with the last seq of each partition of a log; its columns: scope, the partition, last."""
    return f"{log}__heads"


def index_columns(table: Table, index: Index) -> tuple[str, ...]:
    """The columns of a declared index, completed by the key so that its order is total."""
    columns = ("scope", *index.by, *index.order)
    return columns + tuple(name for name in table.key_names if name not in columns)


def index_names(schema: Schema) -> list[str]:
    """The names of all declared indexes, without primary keys."""
    listed = [index_name(table.name, index.name) for table in schema.tables for index in table.indexes]
    listed += [unique_name(table.name, group) for table in schema.tables for group in table.unique]
    return listed + [index_name(log.name, column) for log in schema.logs for column in log.unique]


class Ddl:
    """The statements that create and extend the tables of a schema."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self._types = {"text": style.text, "int": style.integer}

    def create_all(self, shapes: Schema | Additions) -> Iterator[str]:
        """The statements that create these tables and logs."""
        for table in shapes.tables:
            yield from self.create_table(table)
        for log in shapes.logs:
            yield from self.create_log(log)

    def create_additions(self, additions: Additions) -> Iterator[str]:
        """The statements that bring an older database up to date."""
        yield from self.create_shapes(additions)
        for table, index in additions.refined:
            yield f"DROP INDEX {self.style.table(index_name(table.name, index.name))}"
        for table, index in additions.indexes:
            yield self.create_index(table, index)

    def create_shapes(self, additions: Additions) -> Iterator[str]:
        """Those of them that take no longer on a large table: all but the indexes of tables that exist."""
        for before, after in additions.renamed:
            yield f"ALTER TABLE {self.style.table(before)} RENAME TO {quote(after)}"
        yield from self.create_all(additions)
        for shape, column in additions.columns:
            yield f"ALTER TABLE {self.style.table(shape.stored)} ADD COLUMN {self.column(column)}"

    def create_table(self, table: Table) -> Iterator[str]:
        """A table with its indexes."""
        style = self.style
        parts = [f'"scope" {style.text} NOT NULL']
        parts += [f"{self.column(column)} NOT NULL" for column in table.key]
        parts += [self.column(column) for column in table.columns]
        key = names(("scope", *table.key_names))
        parts += [f'"rev" {style.integer} NOT NULL', f'"body" {style.body}', f"PRIMARY KEY ({key})"]
        yield f"CREATE TABLE {style.table(table.stored)} ({', '.join(parts)}){style.table_options}"
        for index in table.indexes:
            yield self.create_index(table, index)
        for group in table.unique:
            present = _where_present(name for name in group if name not in table.key_names)
            yield self.create_unique(table.stored, unique_name(table.name, group), ("scope", *group)) + present

    def create_index(self, table: Table, index: Index, options: str = "", *, name: str | None = None) -> str:
        """One declared order; rows that are not in it are not in the index either."""
        present = (*index.by[: index.required], *index.order)
        named = quote(name or index_name(table.name, index.name))
        return (
            f"CREATE INDEX {options}{named} ON {self.style.table(table.stored)} ({names(index_columns(table, index))})"
            f"{_where_present(column for column in present if column not in table.key_names)}"
        )

    def create_unique(self, owner: str, name: str, columns: tuple[str, ...]) -> str:
        """A unique index over these columns."""
        return f"CREATE UNIQUE INDEX {quote(name)} ON {self.style.table(owner)} ({names(columns)})"

    def log_columns(self, log: Log) -> list[str]:
        """The columns of a log's entries, each with its type."""
        text, integer, body, *_ = self.style
        parts = [f'"scope" {text} NOT NULL', f"{quote(log.partition)} {text} NOT NULL"]
        parts += [f'"seq" {integer} NOT NULL', f'"rev" {integer} NOT NULL']
        return [*parts, *[self.column(column) for column in log.columns], f'"body" {body} NOT NULL']

    def create_log(self, log: Log) -> Iterator[str]:
        """A log with its unique columns, and the table of its heads."""
        parts = [*self.log_columns(log), f"PRIMARY KEY ({names(('scope', log.partition, 'seq'))})"]
        yield f"CREATE TABLE {self.style.table(log.stored)} ({', '.join(parts)}){self.style.log_options}"
        yield from self.create_log_unique(log)
        text, integer = self.style.text, self.style.integer
        yield (
            f'CREATE TABLE {self.style.table(heads_name(log.name))} ("scope" {text} NOT NULL,'
            f' {quote(log.partition)} {text} NOT NULL, "last" {integer} NOT NULL,'
            f" PRIMARY KEY ({names(('scope', log.partition))})){self.style.heads_options}"
        )

    def create_log_unique(self, log: Log) -> Iterator[str]:
        """The unique columns of a log. The partition comes last: ids that rise with time append at one end."""
        for column in log.unique:
            yield self.create_unique(log.stored, index_name(log.name, column), ("scope", column, log.partition))

    def column(self, column: Column) -> str:
        """A declared column with its type."""
        return f"{quote(column.name)} {self._types[column.type]}"


def _where_present(columns: Iterable[str]) -> str:
    present = " AND ".join(f"{quote(column)} IS NOT NULL" for column in columns)
    return f" WHERE {present}" if present else ""
