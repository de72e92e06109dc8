"""Reads on memory: each read of a view, answered from the data under the engine's lock."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from perdure.engines.memory.schema import LogData, Scope, TableData
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
        return [scope.logs[read.log].head(partition) for partition in read.partitions]
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
    entries = data.entries.get(read.partition, [])
    low, high = read.after, len(entries) if read.upto is None else min(read.upto, len(entries))
    unique = next((name for name, value in read.where.items() if name in data.log.unique and not _null(value)), None)
    matches: Iterable[LogEntry] = entries[low : max(low, high)]
    if read.segments is not None:
        matches = _in_segments(data, read, low, high)
    elif unique is not None:
        matches = _by_unique(data, read, unique, low, high)
    for name, filter_ in read.where.items():
        position = data.position(name)
        matches = [entry for entry in matches if _matches(entry[position], filter_)]
    ordered = list(matches)
    if read.desc:
        ordered.reverse()
    return ordered[: read.limit] if read.limit is not None else ordered


def _in_segments(data: LogData, read: Read, low: int, high: int) -> list[LogEntry]:
    entries = data.entries.get(read.partition, [])
    position = data.position(data.log.segment or "")
    matches: list[LogEntry] = []
    for segment in read.segments or ():
        first = max(low, segment.after)
        last = high if segment.upto is None else min(high, segment.upto)
        matches.extend(entry for entry in entries[first : max(first, last)] if entry[position] == segment.value)
    return matches


def _by_unique(data: LogData, read: Read, column: str, low: int, high: int) -> list[LogEntry]:
    owners, filter_ = data.owners(column, read.partition), read.where[column]
    values = filter_ if isinstance(filter_, tuple) else (filter_,)
    seqs = sorted({owners[value] for value in values if value in owners})
    entries = data.entries.get(read.partition, [])
    return [entries[seq - 1] for seq in seqs if low < seq <= high]


def _null(filter_: Any) -> bool:
    """Whether a filter accepts NULL, which is in no unique index."""
    return filter_ is None or (isinstance(filter_, tuple) and None in filter_)
