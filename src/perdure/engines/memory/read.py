"""Reads on memory: each read of a view, answered from the data under the engine's lock.

A read touches what it returns and what its filters skip, never the whole log or index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from perdure.engines.memory.schema import LogData, Partition, Scope, TableData, position_in_entry
from perdure.engines.shared.references import Earlier
from perdure.kernel.ops import Get, Heads, LogEntry, Now, Read, ReadOp, Ref, Row, Scan


def answer(scope: Scope, read: ReadOp, earlier: Earlier, now: int) -> Any:
    """The answer to one read; `earlier` resolves its references to the reads before it."""
    if isinstance(read, Now):
        return now + read.plus
    if isinstance(read, Get):
        table = scope.tables[read.table]
        if isinstance(read.keys, Ref):
            return [table.rows[key] for key in earlier.keys(read.keys) if key in table.rows]
        return [table.rows.get(key) for key in read.keys]
    if isinstance(read, Scan):
        eq = earlier.eq(read.eq)
        return [] if eq is None else select(scope.tables[read.table], read, eq)
    if isinstance(read, Heads):
        return [scope.logs[read.log].partition(name).last for name in read.partitions]
    return _entries(scope.logs[read.log], read)


def select(data: TableData, scan: Scan, eq: tuple[Any, ...]) -> list[Row]:
    """Rows of a scan; `eq` has no `Ref` any more."""
    rows = (data.rows[key] for key in data.walk(scan.index, eq, scan.after, desc=scan.desc))
    return list(islice((row for row in rows if _row_matches(data, row, scan)), scan.limit))


def _row_matches(data: TableData, row: Row, scan: Scan) -> bool:
    if not scan.where and not scan.upto:
        return True
    values = {**row.columns, **dict(zip(data.table.key_names, row.key, strict=True))}
    if not all(_matches(values[name], filter_) for name, filter_ in scan.where.items()):
        return False
    return all(values[name] is not None and values[name] <= most for name, most in scan.upto.items())


def _matches(value: Any, filter_: Any) -> bool:
    """Whether a value passes a filter: a value, or a tuple of alternatives."""
    return value in filter_ if isinstance(filter_, tuple) else bool(value == filter_)


def _entries(data: LogData, read: Read) -> list[LogEntry]:
    partition = data.partition(read.partition)
    low, high = max(read.after, partition.base), partition.last
    if read.upto is not None:
        high = min(read.upto, high)
    unique = next((name for name, value in read.where.items() if name in data.log.unique and not _null(value)), None)
    if read.segments is not None:
        matches = _in_segments(partition, position_in_entry(data.log, data.log.segment or ""), read, low, high)
    elif unique is not None:
        matches = _by_unique(partition, unique, read, low, high)
    else:
        matches = _stretch(partition, low, high, desc=read.desc)
    for name, filter_ in read.where.items():
        matches = _passing(matches, position_in_entry(data.log, name), filter_)
    return list(islice(matches, read.limit))


def _stretch(partition: Partition, low: int, high: int, *, desc: bool) -> Iterator[LogEntry]:
    """Entries with `low < seq <= high`, in either order."""
    positions = range(low - partition.base, high - partition.base)
    return map(partition.entries.__getitem__, reversed(positions) if desc else positions)


def _passing(entries: Iterable[LogEntry], position: int, filter_: Any) -> Iterator[LogEntry]:
    return (entry for entry in entries if _matches(entry[position], filter_))


def _in_segments(partition: Partition, position: int, read: Read, low: int, high: int) -> Iterator[LogEntry]:
    segments = read.segments or ()
    for segment in reversed(segments) if read.desc else segments:
        first = max(low, segment.after)
        last = high if segment.upto is None else min(high, segment.upto)
        for entry in _stretch(partition, first, last, desc=read.desc):
            if entry[position] == segment.value:
                yield entry


def _by_unique(partition: Partition, column: str, read: Read, low: int, high: int) -> Iterator[LogEntry]:
    owners, filter_ = partition.owners[column], read.where[column]
    values = filter_ if isinstance(filter_, tuple) else (filter_,)
    seqs = sorted({owners[value] for value in values if value in owners}, reverse=read.desc)
    return (partition.entries[seq - partition.base - 1] for seq in seqs if low < seq <= high)


def _null(filter_: Any) -> bool:
    """Whether a filter accepts NULL, which is in no unique index."""
    return filter_ is None or (isinstance(filter_, tuple) and None in filter_)
