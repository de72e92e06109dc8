"""The file's layout, derived from the declarations: what a person meets in any SQLite browser.

A table becomes a real table, `WITHOUT ROWID` because its rows are small and found by key; a log keeps its rowid,
because 2 KB entries would overflow the pages of an index tree (0.83–0.87 × the speed). The index over (scope,
partition, seq) also holds the segment column, so that reading one branch skips the entries of others inside the
index. Unique log columns are indexed as (scope, column, partition): ids that rise with time then append at one end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.engines.shared.migrations import Additions
from perdure.engines.sql.dialect import index_name
from perdure.kernel.schema import Column, Index, Log, Schema, Table

_TYPES = {"text": "TEXT", "int": "INTEGER"}


def quote(name: str) -> str:
    """A declared name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def names(columns: Iterable[str]) -> str:
    """Declared names as a column list."""
    return ", ".join(map(quote, columns))


def seq_index(log: Log) -> str:
    """The index that carries a log's order."""
    return index_name(log.name, "seq")


def create_all(schema: Schema) -> Iterator[str]:
    """The statements that make an empty file ours."""
    for table in schema.tables:
        yield from create_table(table)
    for log in schema.logs:
        yield from create_log(log)


def create_additions(additions: Additions) -> Iterator[str]:
    """The statements that bring an older file up to date."""
    for table in additions.tables:
        yield from create_table(table)
    for log in additions.logs:
        yield from create_log(log)
    for owner, column in additions.columns:
        yield f"ALTER TABLE {quote(owner)} ADD COLUMN {_column(column)}"
    for table, index in additions.indexes:
        yield create_index(table, index)


def create_table(table: Table) -> Iterator[str]:
    """A table with its indexes."""
    parts = ['"scope" TEXT NOT NULL']
    parts += [f"{_column(c)} NOT NULL" for c in table.key]
    parts += [_column(c) for c in table.columns]
    parts += ['"rev" INTEGER NOT NULL', '"body" TEXT', f"PRIMARY KEY ({names(('scope', *table.key_names))})"]
    yield f"CREATE TABLE {quote(table.name)} ({', '.join(parts)}) WITHOUT ROWID"
    for index in table.indexes:
        yield create_index(table, index)
    for group in table.unique:
        name = index_name(table.name, "unique_" + "_".join(group))
        yield (
            f"CREATE UNIQUE INDEX {quote(name)} ON {quote(table.name)} ({names(('scope', *group))})"
            f"{_where_present(c for c in group if c not in table.key_names)}"
        )


def create_index(table: Table, index: Index) -> str:
    """One declared order; rows that are not in it are not in the index either."""
    columns = ("scope", *index.by, *index.order)
    tail = tuple(name for name in table.key_names if name not in columns)
    present = (*index.by, *index.order) if index.sparse else index.order
    return (
        f"CREATE INDEX {quote(index_name(table.name, index.name))} ON {quote(table.name)} ({names(columns + tail)})"
        f"{_where_present(c for c in present if c not in table.key_names)}"
    )


def create_log(log: Log) -> Iterator[str]:
    """A log with its order and its unique columns."""
    parts = ['"scope" TEXT NOT NULL', f"{quote(log.partition)} TEXT NOT NULL", '"seq" INTEGER NOT NULL']
    parts += ['"rev" INTEGER NOT NULL', *[_column(c) for c in log.columns], '"body" TEXT NOT NULL']
    yield f"CREATE TABLE {quote(log.name)} ({', '.join(parts)})"
    segment = () if log.segment is None else (log.segment,)
    order = names(("scope", log.partition, "seq", *segment))
    yield f"CREATE UNIQUE INDEX {quote(seq_index(log))} ON {quote(log.name)} ({order})"
    for column in log.unique:
        name = quote(index_name(log.name, column))
        yield f"CREATE UNIQUE INDEX {name} ON {quote(log.name)} ({names(('scope', column, log.partition))})"


def _column(column: Column) -> str:
    return f"{quote(column.name)} {_TYPES[column.type]}"


def _where_present(columns: Iterable[str]) -> str:
    present = " AND ".join(f"{quote(c)} IS NOT NULL" for c in columns)
    return f" WHERE {present}" if present else ""
