"""The schema as this engine stores it: key names, table descriptions, and the order of log columns.

Entries of a log are packed by position, so the order of a log's columns is recorded with the schema: a column that a
later version declares, at whatever position, is stored after the columns that existed before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from perdure.engines.redis.schema.keys import base_of, utf8
from perdure.engines.redis.schema.table_info import row_info, walk_info
from perdure.errors import CorruptError
from perdure.kernel.engine import FIXED_TOPICS
from perdure.kernel.schema import Schema

Columns = Mapping[str, Sequence[str]]
_MOST_BASES = 10_000


class Layout:
    """Everything that is derived from a schema once, when a store is opened."""

    def __init__(self, schema: Schema, prefix: str, db: int, columns: Columns | None = None) -> None:
        self.schema = schema
        self.prefix = prefix
        self._hints = b"h%d:" % db
        self.row_info = {table.name: row_info(table) for table in schema.tables}
        self.walk_info = {table.name: walk_info(table) for table in schema.tables}
        self.columns = log_columns(schema, columns or {}, prefix)
        self.mark = f"{schema.version}:{schema.digest()}"
        self.filling = f"{self.mark}:filling"
        self.order: dict[str, tuple[int, ...] | None] = {}
        for log in schema.logs:
            order = tuple(log.positions[name] for name in self.columns[log.name])
            self.order[log.name] = None if order == tuple(range(len(order))) else order
        self.base = lru_cache(_MOST_BASES)(partial(base_of, prefix))
        """What all keys of a scope begin with."""

    def channel(self, scope: str, topic: str) -> bytes:
        """Where hints on a topic are published; channels are shared by all databases of a server."""
        return self.base(scope) + self._hints + utf8(topic)

    def channel_of_all(self, topic: str) -> bytes:
        """Where hints on a fixed topic of every scope are published as well."""
        return utf8(f"{self.prefix}:") + self._hints + utf8(topic)

    def channels(self, scope: str, topics: Sequence[str]) -> list[bytes]:
        """Where a commit in a scope publishes its hints."""
        base = self.base(scope) + self._hints
        channels = [base + utf8(topic) for topic in topics]
        if not FIXED_TOPICS.isdisjoint(topics):
            channels += [self.channel_of_all(topic) for topic in topics if topic in FIXED_TOPICS]
        return channels


def log_columns(schema: Schema, recorded: Columns, where: str) -> dict[str, tuple[str, ...]]:
    """The order in which each log stores its columns: those recorded so far, then the new ones."""
    columns = {}
    for log in schema.logs:
        old = tuple(recorded.get(log.name, ()))
        if len(set(old)) != len(old) or not set(old) <= set(log.column_names):
            raise CorruptError(f"the schema record names other columns of {log.name} than it has", where=where)
        columns[log.name] = old + tuple(name for name in log.column_names if name not in old)
    return columns
