"""The difference between two versions of the declarations, as far as a database can follow it by itself.

An older file is brought up to date by adding: tables, logs, nullable columns, indexes. An index may also be *refined*:
grouped by more columns than before, under the same name, over the same rows. A process of the older version that is
still at work then reads what it always read, only slower. Where rows get another meaning, it must not go on: the
declaration raises the *generation* of the table or log, which renames it in an SQL database, so that every statement of
the older process fails. (Redis refuses the writes of every older version.) Anything else (a removed column, another
type, a new uniqueness rule on rows that already exist) might lose or refuse data, so it is refused here with the list
of what changed; such a step is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.errors import CorruptError, UnsupportedError
from perdure.kernel.schema import Column, Index, Log, Schema, Table


class Additions(msgspec.Struct, frozen=True):
    """What a newer declaration has that an older one has not; `refined` are those of `indexes` to be made anew, and
    `renamed` the names in an SQL database, before and after, of what is of a newer generation."""

    tables: tuple[Table, ...]
    logs: tuple[Log, ...]
    columns: tuple[tuple[Table | Log, Column], ...]
    indexes: tuple[tuple[Table, Index], ...]
    refined: tuple[tuple[Table, Index], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


def parse_declaration(text: str, where: str) -> Schema:
    """The schema that a database recorded about itself."""
    try:
        return msgspec.json.decode(text, type=Schema)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptError(f"the recorded schema cannot be read: {error}", where=where) from None


def additions(old: Schema, new: Schema) -> Additions:
    """What to add to get from `old` to `new`; `UnsupportedError` when adding is not enough."""
    losses = list(_losses(old, new))
    if losses:
        raise UnsupportedError(
            f"schema {old.version} cannot become {new.version} by adding alone: {'; '.join(losses)}",
            hint="export with the older release and import with this one",
        )
    return Additions(
        tuple(table for table in new.tables if table.name not in old.table),
        tuple(log for log in new.logs if log.name not in old.log),
        tuple(
            (shape, column)
            for shape, known in _pairs(old, new)
            for column in shape.columns
            if column.name not in known.types
        ),
        tuple(
            (table, index)
            for table, known in _table_pairs(old, new)
            for index in table.indexes
            if known.index_by_name.get(index.name) != index
        ),
        tuple(
            (table, index)
            for table, known in _table_pairs(old, new)
            for index in table.indexes
            if known.index_by_name.get(index.name, index) != index
        ),
        tuple((known.stored, shape.stored) for shape, known in _pairs(old, new) if known.stored != shape.stored),
    )


def _table_pairs(old: Schema, new: Schema) -> list[tuple[Table, Table]]:
    return [(table, old.table[table.name]) for table in new.tables if table.name in old.table]


def _log_pairs(old: Schema, new: Schema) -> list[tuple[Log, Log]]:
    return [(log, old.log[log.name]) for log in new.logs if log.name in old.log]


def _pairs(old: Schema, new: Schema) -> list[tuple[Table | Log, Table | Log]]:
    return [*_table_pairs(old, new), *_log_pairs(old, new)]


def _losses(old: Schema, new: Schema) -> Iterator[str]:
    for name in [*old.table.keys() - new.table.keys(), *old.log.keys() - new.log.keys()]:
        yield f"{name} is gone"
    for shape, known in _pairs(old, new):
        if shape.generation < known.generation:
            yield f"{shape.name} is of an older generation"
        for column, kind in known.types.items():
            if shape.types.get(column) != kind:
                yield f"{shape.name}.{column} is gone or has another type"
    for table, known_table in _table_pairs(old, new):
        yield from _table_losses(known_table, table)
    for log, known_log in _log_pairs(old, new):
        if (log.partition, log.unique, log.segment) != (known_log.partition, known_log.unique, known_log.segment):
            yield f"{log.name} has another partition, uniqueness or segment"
        if log.trim != known_log.trim:
            yield f"{log.name} is {'now' if log.trim else 'no longer'} trimmed"


def _table_losses(old: Table, new: Table) -> Iterator[str]:
    if old.key != new.key:
        yield f"{new.name} has another key"
    if old.unique != new.unique:
        yield f"{new.name} has other uniqueness"
    for index in old.indexes:
        newer = new.index_by_name.get(index.name)
        if newer != index and not (newer is not None and _is_refined(index, newer)):
            yield f"index {new.name}.{index.name} is gone or changed"


def _is_refined(old: Index, new: Index) -> bool:
    """Does the newer index hold the same rows in the same order, only in smaller groups?"""
    longer = new.by[: len(old.by)] == old.by
    return longer and old.order == new.order and old.by[: old.required] == new.by[: new.required]
