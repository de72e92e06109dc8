"""Reads on memory: each `Ask` answered from the data as it stands under the engine's lock."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from perdure.engines.memory.schema import LogData, Scope, TableData
from perdure.errors import InvalidError
from perdure.kernel.ops import Ask, Get, Heads, LogEntry, Now, Read, Ref, Row, Scan

Earlier = list[tuple[Ask, Any]]


def answer(scope: Scope, read: Ask, earlier: Earlier, now: int) -> Any:
    """The answer to one read; `earlier` are the reads before it with their answers, for `Ref`."""
    if isinstance(read, Now):
        return now + read.plus
    if isinstance(read, Get):
        data = scope.tables[read.table]
        if isinstance(read.keys, Ref):
            found = (data.rows.get(key) for key in resolve(scope, read.keys, earlier))
            return [row for row in found if row is not None]
        return [data.rows.get(key) for key in read.keys]
    if isinstance(read, Scan):
        eq = resolve_eq(scope, read.eq, earlier)
        return [] if eq is None else select(scope.tables[read.table], read, eq)
    if isinstance(read, Heads):
        return [scope.logs[read.log].head(partition) for partition in read.partitions]
    return _entries(scope.logs[read.log], read)


def resolve(scope: Scope, ref: Ref, earlier: Earlier) -> list[tuple[Any, ...]]:
    """Keys named by a `Ref`, without those that hold a NULL."""
    read, rows = earlier[ref.read]
    if not isinstance(read, (Get, Scan)):
        raise InvalidError("a Ref names a Get or a Scan")
    table = scope.tables[read.table]
    keys = [table.values(row, ref.columns) for row in rows if row is not None]
    return [key for key in keys if None not in key]


def resolve_eq(scope: Scope, eq: tuple[Any, ...], earlier: Earlier) -> tuple[Any, ...] | None:
    """`eq` with its `Ref` replaced; None when the reference leads nowhere."""
    values = []
    for value in eq:
        if isinstance(value, Ref):
            keys = resolve(scope, value, earlier)
            if not keys:
                return None
            value = keys[0][0]
        values.append(value)
    return tuple(values)


def select(data: TableData, scan: Scan, eq: tuple[Any, ...]) -> list[Row]:
    """Rows of a scan."""
    rows = (data.rows[key] for key in data.walk(scan.index, eq, scan.after, desc=scan.desc))
    kept = (row for row in rows if _row_matches(data, row, scan))
    return list(islice(kept, scan.limit))


def _row_matches(data: TableData, row: Row, scan: Scan) -> bool:
    if not scan.where and not scan.upto:
        return True
    value = {**row.columns, **dict(zip(data.table.key_names, row.key, strict=True))}
    if not all(matches(value[name], wanted) for name, wanted in scan.where.items()):
        return False
    return all(value[name] is not None and value[name] <= most for name, most in scan.upto.items())


def matches(actual: Any, wanted: Any) -> bool:
    """A residual filter: a value, or any of a tuple."""
    return actual in wanted if isinstance(wanted, tuple) else bool(actual == wanted)


def _entries(data: LogData, read: Read) -> list[LogEntry]:
    entries = data.entries.get(read.partition, [])
    low, high = read.after, len(entries) if read.upto is None else min(read.upto, len(entries))
    found: Iterable[LogEntry] = entries[low : max(low, high)]
    if read.segments is not None:
        found = _in_segments(data, read, low, high)
    elif any(name in data.log.unique and not _asks_null(wanted) for name, wanted in read.where.items()):
        found = _by_unique(data, read, low, high)
    if read.where:
        at = {name: data.log.position[name] + 2 for name in read.where}
        found = [e for e in found if all(matches(e[at[n]], wanted) for n, wanted in read.where.items())]
    ordered = list(found)
    if read.desc:
        ordered.reverse()
    return ordered[: read.limit] if read.limit is not None else ordered


def _in_segments(data: LogData, read: Read, low: int, high: int) -> list[LogEntry]:
    entries = data.entries.get(read.partition, [])
    at = data.log.position[data.log.segment or ""] + 2
    found: list[LogEntry] = []
    for segment in read.segments or ():
        first = max(low, segment.after)
        last = high if segment.upto is None else min(high, segment.upto)
        found.extend(entry for entry in entries[first : max(first, last)] if entry[at] == segment.value)
    return found


def _by_unique(data: LogData, read: Read, low: int, high: int) -> list[LogEntry]:
    column, wanted = next((n, w) for n, w in read.where.items() if n in data.log.unique and not _asks_null(w))
    taken = data.taken(column, read.partition)
    seqs = sorted({taken[v] for v in (wanted if isinstance(wanted, tuple) else (wanted,)) if v in taken})
    entries = data.entries.get(read.partition, [])
    return [entries[seq - 1] for seq in seqs if low < seq <= high]


def _asks_null(wanted: Any) -> bool:
    """NULLs are many: they are in no unique index."""
    return wanted is None or (isinstance(wanted, tuple) and None in wanted)
