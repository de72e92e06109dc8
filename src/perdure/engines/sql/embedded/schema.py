"""The tables of an embedded database, derived from the declarations: what a person meets in any SQLite browser.

A table becomes a real table, `WITHOUT ROWID` because its rows are small and found by key. A log keeps its rowid,
because 2 KB entries would overflow the pages of an index tree (0.83–0.87 × the speed). The index over (scope,
partition, seq) also holds the segment column, so that reading one branch skips the entries of others inside the
index.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.engines.sql.ddl import Ddl, Style, index_name, quote
from perdure.kernel.schema import Log


class EmbeddedDdl(Ddl):
    """The shared DDL with logs that keep their rowid and need no table of heads."""

    def create_log(self, log: Log) -> Iterator[str]:
        """A log with its order and its unique columns."""
        yield f"CREATE TABLE {quote(log.stored)} ({', '.join(self.log_columns(log))})"
        segment = () if log.segment is None else (log.segment,)
        yield self.create_unique(log.stored, seq_index(log), ("scope", log.partition, "seq", *segment))
        yield from self.create_log_unique(log)


DDL = EmbeddedDdl(Style("TEXT", "INTEGER", "TEXT", table=quote, table_options=" WITHOUT ROWID"))


def seq_index(log: Log) -> str:
    """The index that carries a log's order."""
    return index_name(log.name, "seq")
