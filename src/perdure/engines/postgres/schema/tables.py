"""The tables inside a PostgreSQL schema, derived from the declarations: real tables that any report can read.

Text is `COLLATE "C"`, so that it compares as UTF-8 bytes like everywhere else; bodies are `json`, kept byte for byte.
A log has its entries and, beside them, a table of *heads* with the last seq of every partition: one row per partition
that serialises its appenders, so seqs have no gaps. Tables whose rows are patched leave room in their pages, so that an
update that touches no index stays within its page.

Every name is written with its schema: nothing depends on a session's `search_path`, which a pooler may not keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.engines.shared.migrations import Additions
from perdure.engines.sql.dialect import index_name
from perdure.kernel.schema import Column, Index, Log, Schema, Table

__all__ = ["HEADS_FILL", "SQL_TYPES", "TABLE_FILL", "Layout", "heads_name", "index_name", "names", "quote"]

SQL_TYPES = {"text": "text", "int": "bigint"}
"""The types of declared columns; text columns are created with `COLLATE "C"`."""
TABLE_FILL, HEADS_FILL = 80, 70
# Entries of up to a page stay in line as they are: compressing one of 2 KB costs as much as the rest of its insert.
ENTRY_BYTES = 8160


def quote(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def names(columns: Iterable[str]) -> str:
    """Declared names as a column list."""
    return ", ".join(map(quote, columns))


def heads_name(log: str) -> str:
    """The name of the table with the last seq of each partition of a log; its columns: scope, partition, last."""
    return f"{log}__heads"


class Layout:
    """Names and DDL of one declared schema inside one PostgreSQL schema."""

    def __init__(self, schema: Schema, pg_schema: str) -> None:
        self.schema = schema
        self.pg_schema = pg_schema

    def table(self, name: str) -> str:
        """A table or log with its schema, quoted."""
        return f"{quote(self.pg_schema)}.{quote(name)}"

    def heads(self, log: str) -> str:
        """The heads table of a log with its schema, quoted."""
        return self.table(heads_name(log))

    def tables(self) -> list[str]:
        """The names of all tables."""
        return [*self.schema.table, *self.schema.log, *map(heads_name, self.schema.log)]

    def indexes(self) -> list[str]:
        """The names of all declared indexes, without primary keys."""
        declared = [index_name(table.name, index.name) for table in self.schema.tables for index in table.indexes]
        declared += [_unique_name(table, group) for table in self.schema.tables for group in table.unique]
        return declared + [index_name(log.name, column) for log in self.schema.logs for column in log.unique]

    def create_all(self) -> Iterator[str]:
        """The statements that fill an empty schema."""
        for table in self.schema.tables:
            yield from self._create_table(table)
        for log in self.schema.logs:
            yield from self._create_log(log)

    def create_additions(self, additions: Additions) -> Iterator[str]:
        """The statements that bring older tables up to date."""
        for table in additions.tables:
            yield from self._create_table(table)
        for log in additions.logs:
            yield from self._create_log(log)
        for owner, column in additions.columns:
            yield f"ALTER TABLE {self.table(owner)} ADD COLUMN {_column(column)}"
        for table, index in additions.indexes:
            yield self._create_index(table, index)

    def _create_table(self, table: Table) -> Iterator[str]:
        parts = ['"scope" text COLLATE "C" NOT NULL']
        parts += [f"{_column(c)} NOT NULL" for c in table.key]
        parts += [_column(c) for c in table.columns]
        parts += ['"rev" bigint NOT NULL', '"body" json', f"PRIMARY KEY ({names(('scope', *table.key_names))})"]
        yield f"CREATE TABLE {self.table(table.name)} ({', '.join(parts)}) WITH (fillfactor={TABLE_FILL})"
        for index in table.indexes:
            yield self._create_index(table, index)
        for group in table.unique:
            name = quote(_unique_name(table, group))
            yield (
                f"CREATE UNIQUE INDEX {name} ON {self.table(table.name)} ({names(('scope', *group))})"
                f"{_where_present(c for c in group if c not in table.key_names)}"
            )

    def _create_index(self, table: Table, index: Index) -> str:
        columns = ("scope", *index.by, *index.order)
        tail = tuple(name for name in table.key_names if name not in columns)
        present = (*index.by, *index.order) if index.sparse else index.order
        name = quote(index_name(table.name, index.name))
        return (
            f"CREATE INDEX {name} ON {self.table(table.name)} ({names(columns + tail)})"
            f"{_where_present(c for c in present if c not in table.key_names)}"
        )

    def _create_log(self, log: Log) -> Iterator[str]:
        partition = f'{quote(log.partition)} text COLLATE "C" NOT NULL'
        parts = ['"scope" text COLLATE "C" NOT NULL', partition, '"seq" bigint NOT NULL', '"rev" bigint NOT NULL']
        parts += [_column(c) for c in log.columns]
        parts += ['"body" json NOT NULL', f"PRIMARY KEY ({names(('scope', log.partition, 'seq'))})"]
        yield f"CREATE TABLE {self.table(log.name)} ({', '.join(parts)}) WITH (toast_tuple_target={ENTRY_BYTES})"
        for column in log.unique:
            name = quote(index_name(log.name, column))
            yield f"CREATE UNIQUE INDEX {name} ON {self.table(log.name)} ({names(('scope', column, log.partition))})"
        yield (
            f'CREATE TABLE {self.heads(log.name)} ("scope" text COLLATE "C" NOT NULL, {partition},'
            f' "last" bigint NOT NULL, PRIMARY KEY ({names(("scope", log.partition))})) WITH (fillfactor={HEADS_FILL})'
        )


def _unique_name(table: Table, group: tuple[str, ...]) -> str:
    return index_name(table.name, "unique_" + "_".join(group))


def _column(column: Column) -> str:
    collation = ' COLLATE "C"' if column.type == "text" else ""
    return f"{quote(column.name)} {SQL_TYPES[column.type]}{collation}"


def _where_present(columns: Iterable[str]) -> str:
    present = " AND ".join(f"{quote(c)} IS NOT NULL" for c in columns)
    return f" WHERE {present}" if present else ""
