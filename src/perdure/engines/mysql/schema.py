"""The tables inside a MySQL database, derived from the declarations: real tables that any report can read.

Text columns are VARBINARY: the only type that compares as bytes, trailing spaces included, on MariaDB and MySQL alike
(their byte-exact collations have different names), and whose index entries are as long as the text: with utf8mb4 four
bytes a character are reserved, and three ids and a scope would not fit the 3,072 bytes of a key. Bodies are LONGTEXT.
A log is clustered by (scope, partition, seq) and has a table of *heads* with the last seq of every partition: locking
its row serialises appends. NULLs are distinct in a unique index, so no index needs a condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from perdure import limits
from perdure.engines.shared.migrations import Additions
from perdure.engines.shared.schema_record import META
from perdure.engines.sql.ddl import heads_name, index_columns, index_name, unique_name
from perdure.engines.sql.dialect import Dialect
from perdure.kernel.schema import Column, Log, Schema, Table

HINTS = "perdure_hints"
INDEXED_BYTES = max(limits.ID_BYTES, limits.NAME_BYTES)
PLAIN_BYTES = limits.TITLE_BYTES
_SCOPE = f"`scope` VARBINARY({limits.SCOPE_BYTES}) NOT NULL"
_ENGINE = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

CREATE_META = (
    f"CREATE TABLE IF NOT EXISTS `{META}` (`name` VARBINARY(64) NOT NULL, `value` LONGTEXT NOT NULL,"
    f" PRIMARY KEY (`name`)) {_ENGINE}"
)
CREATE_HINTS = (
    f"CREATE TABLE IF NOT EXISTS `{HINTS}` (`id` BIGINT NOT NULL AUTO_INCREMENT, `origin` BIGINT NOT NULL, {_SCOPE},"
    f" `topic` VARBINARY({2 * INDEXED_BYTES}) NOT NULL, PRIMARY KEY (`id`)) {_ENGINE}"
)


DIALECT = Dialect(
    mark=lambda _: "%s",
    within="{0} IN {1}",
    pack=tuple,
    quotes="`",
    hint=" FORCE INDEX ({0})",
    primary="PRIMARY",
    compares_rows=False,
)
quote, names = DIALECT.quote, DIALECT.names


def table_names(schema: Schema) -> list[str]:
    """Every table of the engine."""
    return [*schema.stored.values(), *[heads_name(log) for log in schema.log], META, HINTS]


def create_all(schema: Schema) -> Iterator[str]:
    """The statements that fill an empty database; each may run again."""
    yield CREATE_META
    yield CREATE_HINTS
    for table in schema.tables:
        yield create_table(table)
    for log in schema.logs:
        yield from create_log(log)


class Step(NamedTuple):
    """One statement of a migration; not needed if `table` already has the column or index `name` that it adds, or, for
    a `name`, if there is no `table` any more.

    An index counts if it has these `columns`. One with other columns was declared by an older version, and is replaced.
    A `width` makes a text column as narrow as an index needs it: one that no index named before was made wider.
    """

    sql: str
    table: str
    adds: Literal["column", "index", "width", "name"] | None = None
    name: str = ""
    columns: tuple[str, ...] = ()


ONLINE = "ALGORITHM=INPLACE, LOCK=NONE"
"""The server builds an index while others write, or refuses the statement; it never locks the table instead."""


def addition_steps(additions: Additions) -> Iterator[Step]:
    """The statements that bring an older database up to date."""
    for before, after in additions.renamed:
        yield Step(f"RENAME TABLE {quote(before)} TO {quote(after)}", before, "name")
    for table in additions.tables:
        yield Step(create_table(table), table.stored)
    for log in additions.logs:
        for sql in create_log(log):
            yield Step(sql, log.stored)
    for shape, column in additions.columns:
        kind = _type(column, column.name in _indexed(shape))
        sql = f"ALTER TABLE {quote(shape.stored)} ADD COLUMN {quote(column.name)} {kind} NULL"
        yield Step(sql, shape.stored, "column", column.name)
    for table, index in additions.indexes:
        for column in table.columns:
            if column.type == "text" and column.name in (*index.by, *index.order):
                sql = f"ALTER TABLE {quote(table.stored)} MODIFY COLUMN {quote(column.name)} {_type(column, True)} NULL"
                yield Step(sql, table.stored, "width", column.name)
        name = index_name(table.name, index.name)
        columns = index_columns(table, index)
        sql = f"ALTER TABLE {quote(table.stored)} ADD INDEX {quote(name)} ({names(columns)}), {ONLINE}"
        yield Step(sql, table.stored, "index", name, columns)


def create_table(table: Table) -> str:
    """A table with its indexes, in one statement: DDL is not transactional, so it exists whole or not at all."""
    indexed = _indexed(table)
    parts = [_SCOPE, *[f"{quote(c.name)} {_type(c, True)} NOT NULL" for c in table.key]]
    parts += [f"{quote(c.name)} {_type(c, c.name in indexed)} NULL" for c in table.columns]
    parts += ["`rev` BIGINT NOT NULL", "`body` LONGTEXT NULL", f"PRIMARY KEY ({names(('scope', *table.key_names))})"]
    for index in table.indexes:
        name = quote(index_name(table.name, index.name))
        parts.append(f"KEY {name} ({names(index_columns(table, index))})")
    for group in table.unique:
        parts.append(f"UNIQUE KEY {quote(unique_name(table.name, group))} ({names(('scope', *group))})")
    return f"CREATE TABLE IF NOT EXISTS {quote(table.stored)} ({', '.join(parts)}) {_ENGINE}"


def create_log(log: Log) -> Iterator[str]:
    """A log and the table of its heads."""
    partition = f"{quote(log.partition)} VARBINARY({INDEXED_BYTES}) NOT NULL"
    parts = [_SCOPE, partition, "`seq` BIGINT NOT NULL", "`rev` BIGINT NOT NULL"]
    parts += [f"{quote(c.name)} {_type(c, c.name in log.unique)} NULL" for c in log.columns]
    parts += ["`body` LONGTEXT NOT NULL", f"PRIMARY KEY ({names(('scope', log.partition, 'seq'))})"]
    for column in log.unique:
        name = quote(index_name(log.name, column))
        parts.append(f"UNIQUE KEY {name} ({names(('scope', column, log.partition))})")
    yield f"CREATE TABLE IF NOT EXISTS {quote(log.stored)} ({', '.join(parts)}) {_ENGINE}"
    yield (
        f"CREATE TABLE IF NOT EXISTS {quote(heads_name(log.name))} ({_SCOPE}, {partition}, `last` BIGINT NOT NULL,"
        f" PRIMARY KEY ({names(('scope', log.partition))})) {_ENGINE}"
    )


def _indexed(shape: Table | Log) -> set[str]:
    if isinstance(shape, Log):
        return set(shape.unique)
    return {name for index in shape.indexes for name in (*index.by, *index.order)}.union(*shape.unique)


def _type(column: Column, indexed: bool) -> str:
    if column.type == "int":
        return "BIGINT"
    return f"VARBINARY({INDEXED_BYTES if indexed else PLAIN_BYTES})"
