"""Rows that stores rely on: a column that is always there is there, and each has the type it is declared with.

A database keeps what it is given, so a row that was damaged from outside would otherwise surface as a `TypeError`
somewhere in a commit, or as a record with a hole. What is checked is the types of a row's values, and each combination
only once: afterwards a row costs one look into a set.
"""

from __future__ import annotations

from typing import Any

from perdure.errors import CorruptError
from perdure.kernel.ops import LogEntry, Row
from perdure.rules.columns import COLUMNS
from perdure.rules.stored import row_name
from perdure.stores.layout import MESSAGES, SCHEMA

_TYPES = {"text": str, "int": int}
_sound: dict[str, set[tuple[type, ...]]] = {table.name: set() for table in SCHEMA.tables}


def checked(table: str, row: Row) -> Row:
    """The row itself; raises `CorruptError`, naming row and column, if it is not what its table declares."""
    types = (*map(type, row.key), *map(type, row.values))
    if types not in _sound[table]:
        declared = SCHEMA.table[table]
        named = (*zip(declared.key_names, row.key, strict=True), *row.columns.items())
        for name, value in named:
            _check(f"{table}.{name}", declared.types[name], value, row_name(table, row.key))
        _sound[table].add(types)
    return row


def check_place(thread_id: str, entry: LogEntry) -> None:
    """Refuse a log entry that does not say where it stands."""
    if type(entry[0]) is not int or type(entry[4]) is not int:
        raise damaged_entry(thread_id, entry)


def damaged_entry(thread_id: str, entry: LogEntry) -> CorruptError:
    """The refusal of a log entry that lacks a column, or has one of another type."""
    where = f"message {entry[0]} of thread {thread_id!r}"
    if type(entry[0]) is not int:
        return CorruptError("its seq is not a number", where=where)
    for name, value in zip(MESSAGES.column_names, entry[2:], strict=False):
        try:
            _check(f"messages.{name}", MESSAGES.types[name], value, where)
        except CorruptError as error:
            return error
    return CorruptError("its columns are damaged", where=where)


def _check(name: str, kind: str, value: Any, where: str) -> None:
    table, column = name.split(".")
    if value is None:
        if COLUMNS[table][column].always:
            raise CorruptError(f"{name} is missing", where=where)
    elif type(value) is not _TYPES[kind]:
        raise CorruptError(f"{name} is {value!r:.80}, which is not {kind}", where=where)
