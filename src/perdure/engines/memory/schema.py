"""What the memory engine holds: rows by key, their sorted indexes, and log partitions as lists.

One `Scope` is one tenant's data. Callers hold the engine's lock and have already decided that a write may happen:
`write` decides, this module only keeps rows and their indexes consistent. Rows and entries are never changed, only
replaced, so what a view returned stays as it was.

An index is brought up to date when it is read, not when a row is written: a commit changes the place of its thread in
the list of threads, and moving an entry in a long list takes longer the longer the list is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from perdure import limits
from perdure.kernel.ops import LogEntry, Row
from perdure.kernel.schema import Index, Key, Log, Schema, Table

Sortable = tuple[Any, ...]
Entry = tuple[Sortable, Key]


def sortable(values: tuple[Any, ...]) -> Sortable:
    """Values that compare with each other: NULL sorts first and equals NULL."""
    return tuple([(0, 0) if value is None else (1, value) for value in values])


class Columns:
    """Picks some columns of a table's rows, key columns included."""

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        everything = table.key_names + table.column_names
        self._positions = [everything.index(name) for name in names]

    def of(self, row: Row) -> tuple[Any, ...]:
        """The row's values in these columns."""
        values = row.key + row.values
        return tuple([values[position] for position in self._positions])


class Order:
    """The rows of an index (None: all rows by key) as sorted entries."""

    def __init__(self, table: Table, index: Index | None) -> None:
        by, order = (index.by, index.order) if index is not None else ((), ())
        self.entries: list[Entry] = []
        self._columns = Columns(table, by + order)
        self._nullable = range(index.required if index is not None else 0, len(by))

    def entry(self, row: Row | None) -> Entry | None:
        """The entry of a row; None if the row is not in the index."""
        if row is None:
            return None
        values = self._columns.of(row)
        if None in values and any(v is None and at not in self._nullable for at, v in enumerate(values)):
            return None
        return sortable(values + row.key), row.key

    def move(self, old: Row | None, new: Row | None) -> None:
        """Replace the entry of an old row by that of the new one. A signal handler may raise in the middle of it, and
        then it is called again: so it looks before it removes or inserts."""
        before, after = self.entry(old), self.entry(new)
        if before == after:
            return
        entries = self.entries
        if before is not None:
            at = bisect_left(entries, before)
            if entries[at : at + 1] == [before]:
                del entries[at]
        if after is not None:
            at = bisect_left(entries, after)
            if entries[at : at + 1] != [after]:
                entries.insert(at, after)


class TableData:
    """Rows of one table in one scope, with its indexes and unique groups."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: dict[Key, Row] = {}
        self.owners: dict[tuple[str, ...], dict[tuple[Any, ...], Key]] = {group: {} for group in table.unique}
        """By unique group: the row that has each value."""
        self.unique_columns = frozenset(name for group in table.unique for name in group)
        self._groups = {group: Columns(table, group) for group in table.unique}
        self._orders: dict[str | None, Order] = {None: Order(table, None)}
        self._orders.update({index.name: Order(table, index) for index in table.indexes})
        self._stale: dict[Key, Row | None] = {}
        """The keys that were written since an index was read last, each with the row that the indexes still have."""

    def replace(self, key: Key, row: Row | None, *, unique: bool = True) -> None:
        """Make `row` the row at `key`; None removes it. Without `unique`, no value of a unique group changes."""
        old = self.rows.get(key)
        indexed = self._stale.setdefault(key, old)
        if unique:
            self._move_owned(old, row)
        if row is not None:
            self.rows[key] = row
            return
        self.rows.pop(key, None)
        if indexed is None:
            del self._stale[key]

    def owned(self, row: Row | None, group: tuple[str, ...]) -> tuple[Any, ...] | None:
        """The values that a row has in a unique group; None if it has a NULL there."""
        values = self._groups[group].of(row) if row is not None else (None,)
        return None if None in values else values

    def _move_owned(self, old: Row | None, new: Row | None) -> None:
        for group, owners in self.owners.items():
            before, after = self.owned(old, group), self.owned(new, group)
            if before is not None:
                del owners[before]
            if after is not None and new is not None:
                owners[after] = new.key

    def walk(
        self, index: str | None, eq: tuple[Any, ...], after: tuple[Any, ...] | None, *, desc: bool
    ) -> Iterator[Key]:
        """Keys under an `eq` prefix in order, starting after the keyset."""
        entries = self.order(index).entries
        prefix = sortable(eq)
        low, high = bisect_left(entries, (prefix,)), bisect_left(entries, _beyond(prefix))
        if after is not None:
            keyset = sortable(eq + after) if index is not None else sortable(after)
            if desc:
                high = min(high, bisect_left(entries, (keyset,)))
            else:
                low = max(low, bisect_left(entries, _beyond(keyset)))
        positions = range(low, high)
        return (entries[position][1] for position in (reversed(positions) if desc else positions))

    def order(self, index: str | None) -> Order:
        """An index, brought up to date."""
        for key, indexed in self._stale.items():
            row = self.rows.get(key)
            for order in self._orders.values():
                order.move(indexed, row)
        self._stale.clear()
        return self._orders[index]


def _beyond(prefix: Sortable) -> tuple[Sortable]:
    """Compares above every entry that begins with these values."""
    return ((*prefix, (2, 0)),)


class Partition:
    """Entries of one partition, the oldest first, and by unique column the seq that has each value. `base` is the seq
    before the first: 0 unless the partition was trimmed, or began with another seq than 1."""

    def __init__(self, log: Log, base: int = 0) -> None:
        self.base = base
        self.entries: list[LogEntry] = []
        self.owners: dict[str, dict[Any, int]] = {column: {} for column in log.unique}
        self._positions = [(position_in_entry(log, column), owners) for column, owners in self.owners.items()]

    def extend(self, entries: list[LogEntry]) -> None:
        """Append finished entries."""
        self.entries.extend(entries)
        for position, owners in self._positions:
            for entry in entries:
                if entry[position] is not None:
                    owners[entry[position]] = entry[0]

    @property
    def last(self) -> int:
        """The last seq, 0 if there are no entries."""
        return self.base + len(self.entries)

    def cut(self, keep: int) -> None:
        """Remove what comes after seq `keep`."""
        self._remove(slice(max(0, keep - self.base), None))

    def trim(self, upto: int) -> None:
        """Remove the oldest entries up to a seq, a limited number, but never the newest."""
        count = min(upto - self.base, len(self.entries) - 1, limits.TRIM_ENTRIES)
        if count > 0:
            self._remove(slice(count))
            self.base += count

    def _remove(self, positions: slice) -> None:
        for position, owners in self._positions:
            for entry in self.entries[positions]:
                owners.pop(entry[position], None)
        del self.entries[positions]


def position_in_entry(log: Log, column: str) -> int:
    """Where a column is in an entry: seq and rev come first."""
    return log.positions[column] + 2


class LogData:
    """Partitions of one log in one scope; those without entries do not exist."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.partitions: dict[str, Partition] = {}
        self._empty = Partition(log)

    def partition(self, name: str) -> Partition:
        """A partition to read, perhaps empty."""
        return self.partitions.get(name, self._empty)

    def extend(self, name: str, entries: list[LogEntry]) -> None:
        """Append finished entries."""
        partition = self.partitions.get(name)
        if partition is None:
            partition = self.partitions[name] = Partition(self.log, entries[0][0] - 1)
        partition.extend(entries)

    def drop(self, name: str, keep: int) -> None:
        """Remove a partition, or what comes after seq `keep`."""
        if keep > self.partition(name).base:
            self.partition(name).cut(keep)
        else:
            self.partitions.pop(name, None)


class Scope:
    """All tables and logs of one tenant."""

    def __init__(self, schema: Schema) -> None:
        self.tables = {table.name: TableData(table) for table in schema.tables}
        self.logs = {log.name: LogData(log) for log in schema.logs}

    def empty(self) -> bool:
        """True when nothing is stored."""
        return not any(t.rows for t in self.tables.values()) and not any(log.partitions for log in self.logs.values())
