"""What the memory engine holds: rows by key, their sorted indexes, and log partitions as lists.

One `Scope` is one tenant's data. Callers hold the engine's lock and have already decided that a write may happen:
`write` decides, this module only keeps rows and their indexes consistent.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from perdure.kernel.ops import Row
from perdure.kernel.schema import Key, Log, Schema, Table

Sortable = tuple[Any, ...]
Entry = tuple[Sortable, Key]


def sortable(values: tuple[Any, ...]) -> Sortable:
    """Values that compare with each other: NULL sorts first and equals NULL."""
    return tuple([(0, 0) if value is None else (1, value) for value in values])


class TableData:
    """Rows of one table in one scope, with its indexes and unique groups."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._key = {name: position for position, name in enumerate(table.key_names)}
        self.rows: dict[Key, Row] = {}
        self.orders: dict[str | None, list[Entry]] = {None: [], **{index.name: [] for index in table.indexes}}
        self.owners: dict[tuple[str, ...], dict[tuple[Any, ...], Key]] = {group: {} for group in table.unique}
        """By unique group: the row that has each value."""

    def replace(self, key: Key, row: Row | None) -> None:
        """Make `row` the row at `key` (None removes it) and move its index entries."""
        old = self.rows.pop(key, None)
        if old is not None:
            for order, entry in self._entries(old):
                del order[bisect_left(order, entry)]
            for owners, values in self._owned(old):
                del owners[values]
        if row is not None:
            self.rows[key] = row
            for order, entry in self._entries(row):
                insort(order, entry)
            for owners, values in self._owned(row):
                owners[values] = key

    def values(self, row: Row, names: tuple[str, ...]) -> tuple[Any, ...]:
        """The row's values under these names, key columns included."""
        positions = self.table.positions
        return tuple([row.values[positions[n]] if n in positions else row.key[self._key[n]] for n in names])

    def _entries(self, row: Row) -> Iterator[tuple[list[Entry], Entry]]:
        """The entry of a row in each order that it is part of."""
        yield self.orders[None], (sortable(row.key), row.key)
        for index in self.table.indexes:
            by, order = self.values(row, index.by), self.values(row, index.order)
            if None not in order and None not in by[: index.required]:
                yield self.orders[index.name], (sortable(by + order + row.key), row.key)

    def _owned(self, row: Row) -> Iterator[tuple[dict[tuple[Any, ...], Key], tuple[Any, ...]]]:
        """The unique values that a row has, each with the owners of its group."""
        for group, owners in self.owners.items():
            values = self.values(row, group)
            if None not in values:
                yield owners, values

    def walk(self, index: str | None, eq: tuple[Any, ...], after: tuple[Any, ...] | None, *, desc: bool) -> list[Key]:
        """Keys under an `eq` prefix in order, starting after the keyset."""
        order = self.orders[index]
        prefix = sortable(eq)
        low, high = bisect_left(order, (prefix,)), bisect_left(order, _beyond(prefix))
        if after is not None:
            keyset = sortable(eq + after) if index is not None else sortable(after)
            if desc:
                high = min(high, bisect_left(order, (keyset,)))
            else:
                low = max(low, bisect_left(order, _beyond(keyset)))
        keys = [key for _, key in order[low:high]]
        return keys[::-1] if desc else keys


def _beyond(prefix: Sortable) -> tuple[Sortable]:
    """Compares above every entry that begins with these values."""
    return ((*prefix, (2, 0)),)


class LogData:
    """Partitions of one log in one scope: entries as read, and unique values to seqs."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.entries: dict[str, list[tuple[Any, ...]]] = {}
        self._owners: dict[tuple[str, str], dict[Any, int]] = {}

    def position(self, column: str) -> int:
        """Where a column is in an entry: seq and rev come first."""
        return self.log.positions[column] + 2

    def head(self, partition: str) -> int:
        """Last seq of a partition, 0 when empty."""
        return len(self.entries.get(partition, ()))

    def owners(self, column: str, partition: str) -> dict[Any, int]:
        """The unique values of a partition, each with the seq that has it."""
        return self._owners.get((column, partition), {})

    def extend(self, partition: str, entries: list[tuple[Any, ...]]) -> None:
        """Append finished entries."""
        self.entries.setdefault(partition, []).extend(entries)
        for column in self.log.unique:
            position = self.position(column)
            owners = self._owners.setdefault((column, partition), {})
            owners.update({entry[position]: entry[0] for entry in entries if entry[position] is not None})

    def drop(self, partition: str, keep: int) -> None:
        """Remove a partition, or what comes after its first `keep` entries."""
        if not keep:
            self.entries.pop(partition, None)
            for column in self.log.unique:
                self._owners.pop((column, partition), None)
            return
        entries = self.entries.get(partition, [])
        for column in self.log.unique:
            position, owners = self.position(column), self.owners(column, partition)
            for entry in entries[keep:]:
                owners.pop(entry[position], None)
        del entries[keep:]


class Scope:
    """All tables and logs of one tenant."""

    def __init__(self, schema: Schema) -> None:
        self.tables = {table.name: TableData(table) for table in schema.tables}
        self.logs = {log.name: LogData(log) for log in schema.logs}

    def empty(self) -> bool:
        """True when nothing is stored."""
        return not any(t.rows for t in self.tables.values()) and not any(log.entries for log in self.logs.values())
