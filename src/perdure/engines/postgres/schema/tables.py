"""The tables inside a PostgreSQL schema, derived from the declarations: real tables that any report can read.

Text is `COLLATE "C"`, so that it compares as UTF-8 bytes as in every engine; bodies are `json`, kept byte for byte. A
log has its entries and a table of *heads* with the last seq of every partition: one row per partition that serialises
its appenders, so seqs have no gaps. Tables whose rows are patched leave room in their pages, so that an update that
touches no index stays within its page.

Every name is written with its schema: nothing depends on a session's `search_path`, which a pooler may change.
"""

from __future__ import annotations

from perdure.engines.sql.ddl import Ddl, Style, heads_name, quote
from perdure.kernel.schema import Schema

SQL_TYPES = {"text": "text", "int": "bigint", "body": "json"}
"""The types of declared columns and of bodies; text columns are created with `COLLATE "C"`."""
TABLE_FILL, HEADS_FILL = 80, 70
# Entries of up to a page stay in line as they are: compressing one of 2 KB costs as much as the rest of its insert.
ENTRY_BYTES = 8160


class Layout:
    """Names and DDL of one declared schema inside one PostgreSQL schema."""

    def __init__(self, schema: Schema, pg_schema: str) -> None:
        self.schema = schema
        self.pg_schema = pg_schema
        self.ddl = Ddl(
            Style(
                'text COLLATE "C"',
                "bigint",
                "json",
                self.qualified,
                table_options=f" WITH (fillfactor={TABLE_FILL})",
                log_options=f" WITH (toast_tuple_target={ENTRY_BYTES})",
                heads_options=f" WITH (fillfactor={HEADS_FILL})",
            )
        )

    def qualified(self, name: str) -> str:
        """A name as it is in the database, with its schema, quoted."""
        return f"{quote(self.pg_schema)}.{quote(name)}"

    def table(self, name: str) -> str:
        """A table or log with its schema, quoted: a declared one by the name of its generation."""
        return self.qualified(self.schema.stored.get(name, name))

    def heads(self, log: str) -> str:
        """The heads table of a log with its schema, quoted."""
        return self.table(heads_name(log))

    def tables(self) -> list[str]:
        """The names of all tables."""
        return [*self.schema.stored.values(), *map(heads_name, self.schema.log)]
