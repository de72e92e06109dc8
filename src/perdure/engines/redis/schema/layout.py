"""The schema as this engine lays it out: names, shapes, and the order in which logs keep their columns.

Entries of a log are packed by position, so the order of a log's columns is recorded with the schema: a column that a
later version declares, wherever it stands in the declaration, is kept behind the ones that were there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.engines.redis.schema.keys import base_of, utf8
from perdure.engines.redis.schema.table_info import Shapes
from perdure.errors import CorruptError
from perdure.kernel.schema import Schema

Columns = Mapping[str, Sequence[str]]


class Layout:
    """Everything that is derived from a schema once, when a store is opened."""

    def __init__(self, schema: Schema, prefix: str, db: int, kept: Columns | None = None) -> None:
        self.schema = schema
        self.prefix = prefix
        self._hints = b"h%d:" % db
        self.shapes = Shapes(schema)
        self.kept = keep_columns(schema, kept or {}, prefix)
        self.mark = f"{schema.version}:{schema.digest()}"
        self.filling = f"{self.mark}:filling"
        self.order: dict[str, tuple[int, ...] | None] = {}
        for log in schema.logs:
            names = self.kept[log.name]
            same = names == log.column_names
            self.order[log.name] = None if same else tuple(log.position[name] for name in names)
        self._bases: dict[str, bytes] = {}

    def base(self, scope: str) -> bytes:
        """What all keys of a scope begin with."""
        base = self._bases.get(scope)
        if base is None:
            if len(self._bases) > 10_000:
                self._bases.clear()
            base = self._bases[scope] = base_of(self.prefix, scope)
        return base

    def channel(self, scope: str, topic: str) -> bytes:
        """Where hints on a topic are published; channels are shared by all databases of a server."""
        return self.base(scope) + self._hints + utf8(topic)


def keep_columns(schema: Schema, before: Columns, where: str) -> dict[str, tuple[str, ...]]:
    """The order in which each log keeps its columns, given the order until now: new ones come last."""
    kept = {}
    for log in schema.logs:
        old = tuple(before.get(log.name, ()))
        if len(set(old)) != len(old) or not set(old) <= set(log.column_names):
            raise CorruptError(f"the schema record names other columns of {log.name} than it has", where=where)
        kept[log.name] = old + tuple(name for name in log.column_names if name not in old)
    return kept
