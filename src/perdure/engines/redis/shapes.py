"""What a script must know of a table to carry out one kind of operation, packed once and sent with every operation.

A *shape* belongs to a table and the set of columns an operation names: which fields to read, which indexes and unique
groups it may touch. So the scripts themselves know no schema, one text serves every schema and every version of it,
and a commit carries only what its own rows need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.engines.redis.names import source
from perdure.kernel.ops import Inc, Max, Min, Patch, Swap
from perdure.kernel.schema import Schema, Table

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode
_NEEDS_OLD = frozenset((Inc, Max, Min, Swap))


class Shape:
    """`slots` says where each column stands among the fields; `packed` is what the script gets; `by_key` whether it
    needs the values of the key beside."""

    __slots__ = ("by_key", "packed", "slots")

    def __init__(self, table: Table, read: list[str], written: list[str], touched: frozenset[str] | None) -> None:
        fields = ["rev", *read, *[name for name in written if name not in read]]
        self.slots = {name: position for position, name in enumerate(fields, 1)}
        indexes = [
            (
                f"i:{table.name}:{index.name}:",
                index.sparse,
                [source(table, name, self.slots) for name in index.by],
                [
                    part
                    for name in index.order
                    for part in (source(table, name, self.slots), table.types[name] == "int")
                ],
            )
            for index in table.indexes
            if touched is None or touched & {*index.by, *index.order}
        ]
        unique = [
            (unique_name(table, group), [source(table, name, self.slots) for name in group])
            for group in table.unique
            if touched is None or touched & set(group)
        ]
        used = [place for index in indexes for place in (*index[2], *index[3][::2])]
        self.by_key = any(place < 0 for place in (*used, *[place for group in unique for place in group[1]]))
        self.packed = msgspec.Raw(pack((fields, 1 + len(read), indexes, unique)))


def unique_name(table: Table, group: tuple[str, ...]) -> str:
    """The hash of a unique group."""
    return f"u:{table.name}:{','.join(group)}"


def _needed(table: Table, touched: frozenset[str] | None) -> set[str]:
    """Columns outside the key by which the touched indexes and unique groups are kept."""
    groups = [{*index.by, *index.order} for index in table.indexes] + [set(group) for group in table.unique]
    kept = [group for group in groups if touched is None or touched & group]
    return {name for group in kept for name in group if name in table.value_types}


class Shapes:
    """The shapes in use, by table and columns; few, because stores say the same few things."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._made: dict[Any, Shape] = {}
        self.rows: dict[str, msgspec.Raw] = {}
        for table in schema.tables:
            fields = ["rev", *table.column_names, "body"]
            kinds = [column.type == "int" for column in table.key]
            self.rows[table.name] = msgspec.Raw(pack((f"t:{table.name}:", fields, kinds)))

    def whole(self, table: str, looked_at: Iterable[str] = ()) -> Shape:
        """For an operation that replaces or removes a row."""
        return self._make(table, frozenset(looked_at), None)

    def patch(self, op: Patch) -> Shape:
        """For a change of some columns under a condition on some."""
        wanted = tuple(op.if_) if type(op.if_) is dict else ()
        default = None if op.default is None else tuple(op.default.columns)
        asked = (op.table, tuple(op.set), tuple(map(type, op.set.values())), wanted, default)
        made = self._made.get(asked)
        if made is None:
            needed = [name for name, value in op.set.items() if type(value) in _NEEDS_OLD]
            made = self._make(op.table, frozenset((*wanted, *needed)), frozenset((*op.set, *(default or ()))))
            self._made[asked] = made
        return made

    def look(self, table: str, looked_at: Iterable[str]) -> Shape:
        """For an operation that only looks."""
        return self._make(table, frozenset(looked_at), frozenset())

    def _make(self, name: str, looked_at: frozenset[str], touched: frozenset[str] | None) -> Shape:
        made = self._made.get((name, looked_at, touched))
        if made is None:
            table = self._schema.table[name]
            read = sorted(_needed(table, touched) | looked_at)
            written = [name for name in table.column_names if touched is None or name in touched]
            made = Shape(table, read, written, touched)
            self._made[name, looked_at, touched] = made
        return made
