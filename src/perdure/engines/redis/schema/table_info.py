"""Descriptions of tables that are sent to the scripts that read, walk and audit.

So these scripts contain no schema: one text serves every schema and every version of it. (Scripts that commit are
generated for what they do, see `write/transaction_scripts.py`.)
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engines.redis.schema.keys import source
from perdure.kernel.schema import Table

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


def unique_name(table: Table, group: tuple[str, ...]) -> str:
    """The hash of a unique group."""
    return f"u:{table.name}:{','.join(group)}"


def row_info(table: Table) -> msgspec.Raw:
    """For reading rows of a table."""
    return msgspec.Raw(pack((f"t:{table.name}:", ["rev", *table.column_names, "body"], _key_kinds(table))))


def walk_info(table: Table) -> tuple[str, list[bool], msgspec.Raw]:
    """For walking over a table with its indexes and unique groups."""
    return table.name, _key_kinds(table), msgspec.Raw(pack(_whole(table)))


def _key_kinds(table: Table) -> list[bool]:
    """Which of the key columns are integers."""
    return [column.type == "int" for column in table.key]


def _whole(table: Table) -> tuple[Any, ...]:
    """See `write/lua/indexes.lua` for the order of the parts."""
    fields = ["rev", *table.column_names]
    slots = {name: position for position, name in enumerate(fields, 1)}
    indexes = [
        (
            f"i:{table.name}:{index.name}:",
            index.required,
            [source(table, name, slots) for name in index.by],
            [part for name in index.order for part in (source(table, name, slots), table.types[name] == "int")],
        )
        for index in table.indexes
    ]
    unique = [(unique_name(table, group), [source(table, name, slots) for name in group]) for group in table.unique]
    return fields, len(fields), indexes, unique
