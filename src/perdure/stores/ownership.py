"""Whose rows and log entries these are, and how they are erased: what the declarations say, as reads and operations.

Deleting a thread, exporting it, importing it and auditing it all ask here. Nothing else decides by the name of a column
or of an index that something belongs to a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.kernel.ops import Delete, Op, Patch, Row, Scan
from perdure.kernel.schema import Blank, Key, Log, Schema, Table

BLANK_BODY = b"{}"


def owned_tables(schema: Schema) -> list[Table]:
    """The tables whose rows belong to threads."""
    return [table for table in schema.tables if table.owner is not None]


def owned_logs(schema: Schema) -> list[Log]:
    """The logs whose partitions belong to threads."""
    return [log for log in schema.logs if log.owner is not None]


def is_keyed(table: Table) -> bool:
    """Do the rows of a thread lie side by side, because it leads their key?"""
    return table.owner == table.key_names[0]


def owner_of(table: Table, key: Key, columns: Mapping[str, Any] | Row) -> Any:
    """What a row says about its owner: the id of a thread, or None if it belongs to the scope."""
    if table.owner is None:
        return None
    if table.owner in table.key_names:
        return key[table.key_names.index(table.owner)]
    return columns[table.owner] if isinstance(columns, Row) else columns.get(table.owner)


def scan_of(table: Table, owner: str, limit: int | None = None, last: Row | None = None) -> Scan:
    """The rows of an owner, behind the last one read: by key, or by the index that is grouped by the owner."""
    index = table.owner_index
    if index is None:
        return Scan(table.name, eq=(owner,), after=None if last is None else last.key, limit=limit)
    after = None if last is None else (*(_value(table, last, name) for name in index.order), *last.key)
    return Scan(table.name, index.name, (owner,), after=after, limit=limit)


def erase_op(table: Table, key: Key, owner: str) -> Op:
    """What erases a row: a deletion, or what empties it and leaves it to the scope."""
    if not isinstance(table.erase, Blank) or table.owner is None:
        return Delete(table.name, key)
    empty: dict[str, Any] = dict.fromkeys((table.owner, *table.erase.columns))
    return Patch(table.name, key, {**empty, **dict(table.erase.marks)}, {table.owner: owner}, BLANK_BODY)


def _value(table: Table, row: Row, name: str) -> Any:
    return row.key[table.key_names.index(name)] if name in table.key_names else row[name]
