"""Whole tables: does every index show what the key order shows, and does every row belong to a thread?

The pass reads in chunks, so on a store in use it may see a false problem: it reads everything suspicious again in one
snapshot, and reports only what is still wrong there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from perdure.audit.findings import CHUNK, Audit
from perdure.kernel.ops import Get, Heads, Row, Scan
from perdure.kernel.schema import Index, Log, Table
from perdure.stores.ownership import owner_of
from perdure.stores.soundness import body_problems, row_problems

Group = tuple[Any, ...]
OWN = ("threads", "thread_heads")
"""The rows that make up a thread."""


class Tally(msgspec.Struct):
    """A fingerprint of some rows that does not depend on their order."""

    count: int = 0
    total: int = 0

    def add(self, position: Group) -> None:
        """Count one row in."""
        self.count += 1
        self.total += hash(position)


async def check_table(audit: Audit, table: Table, alive: set[str]) -> None:
    """Check a table's indexes and the owners of its rows."""
    tallies: dict[str, dict[Group, Tally]] = {index.name: {} for index in table.indexes}
    strangers: dict[str, Row] = {}
    async for row in audit.rows(table.name):
        for index in table.indexes:
            position = _position(table, index, row)
            if position is not None:
                tallies[index.name].setdefault(position[: len(index.by)], Tally()).add(position)
        thread = owner(table, row)
        if table.name in OWN or (thread in alive and not _hidden(table, row)):
            continue  # checked with its thread
        if audit.collect(row_problems(table, row)):
            continue
        if thread is None:
            audit.collect(body_problems(table.name, row))
        elif thread not in alive:
            strangers.setdefault(thread, row)
    for index in table.indexes:
        groups = tallies[index.name] if index.by else {(): tallies[index.name].get((), Tally())}
        for group, tally in groups.items():
            if await _tally(audit, table, index, group) != tally:
                await _compare(audit, table, index, group)
    for thread, row in strangers.items():
        await _check_stranger(audit, table, thread, row)


def owner(table: Table, row: Row) -> str | None:
    """The thread that a row belongs to; None for the rows that make up a thread, and for those of the scope."""
    thread = None if table.name in OWN else owner_of(table, row.key, row)
    return None if thread is None else str(thread)


def _hidden(table: Table, row: Row) -> bool:
    """Does a look at the thread miss this row? A run without `created_at` is in no index."""
    return table.owner_index is not None and _position(table, table.owner_index, row) is None


def _values(table: Table, row: Row, names: tuple[str, ...]) -> Group:
    keyed = dict(zip(table.key_names, row.key, strict=True))
    return tuple(keyed[name] if name in keyed else row[name] for name in names)


def _position(table: Table, index: Index, row: Row) -> Group | None:
    """The position of a row in an index: group, order, key. None if the row is not in the index."""
    by, order = _values(table, row, index.by), _values(table, row, index.order)
    if None in order or None in by[: index.required]:
        return None
    return by + order + row.key


async def _walk(audit: Audit, table: Table, index: Index, group: Group) -> AsyncIterator[Row]:
    after: Group | None = None
    while True:
        rows: list[Row] = (await audit.view(Scan(table.name, index.name, group, after, CHUNK)))[0]
        for row in rows:
            yield row
        if len(rows) < CHUNK:
            return
        after = _values(table, rows[-1], index.order) + rows[-1].key


async def _tally(audit: Audit, table: Table, index: Index, group: Group) -> Tally | None:
    """What an index shows of a group; None if it shows it out of order, or shows what does not belong there."""
    tally, last = Tally(), None
    async for row in _walk(audit, table, index, group):
        position = _position(table, index, row)
        if position is None or (last is not None and _sortable(position) <= _sortable(last)):
            return None
        tally.add(position)
        last = position
    return tally


def _sortable(position: Group) -> Group:
    """A position that can be compared with any other, even if a damaged column holds another type."""
    return tuple((value is not None, not isinstance(value, int), isinstance(value, bytes), value) for value in position)


async def _compare(audit: Audit, table: Table, index: Index, group: Group) -> None:
    where = dict(zip(index.by, group, strict=True))
    by_key, by_index = await audit.view(Scan(table.name, where=where), Scan(table.name, index.name, group))
    positions = [position for row in by_key if (position := _position(table, index, row)) is not None]
    expected = [position[-len(table.key) :] for position in sorted(positions, key=_sortable)]
    actual = [row.key for row in by_index]
    for key in expected:
        if key not in actual:
            audit.report("index", f"{table.name} {key}", f"the index {index.name} does not show it")
    for key in actual:
        if key not in expected:
            audit.report("index", f"{table.name} {key}", f"the index {index.name} shows it under {group}, wrongly")
    if actual != expected and sorted(actual, key=_sortable) == sorted(expected, key=_sortable):
        audit.report("index", f"{table.name} {group}", f"the index {index.name} shows it out of order")


async def check_log(audit: Audit, log: Log, alive: set[str]) -> None:
    """Does every partition of a log that threads own belong to one?"""
    if log.owner is None:
        return
    async for thread in partitions_of(audit, log):
        if thread not in alive:
            await _check_strange_log(audit, log, thread)


async def partitions_of(audit: Audit, log: Log) -> AsyncIterator[str]:
    """Every partition of a log, in order."""
    after: str | None = None
    while True:
        names = await audit.kernel.engine.partitions(audit.scope, log.name, after=after, limit=CHUNK)
        for name in names:
            yield name
        if len(names) < CHUNK:
            return
        after = names[-1]


async def _check_strange_log(audit: Audit, log: Log, thread: str) -> None:
    """An erased thread that has messages is reported with its tombstone."""
    record = f"the {log.name} of thread {thread!r}"
    if type(thread) is not str:
        audit.report("column", record, f"{log.name}.{log.partition} is not text")
        return
    hot, cold, lengths = await audit.view(
        Get("thread_heads", [(thread,)]), Get("threads", [(thread,)]), Heads(log.name, [thread])
    )
    orphaned = lengths[0] and hot[0] is None and cold[0] is None
    audit.expect(not orphaned, "orphan", record, f"its thread {thread!r} does not exist")


async def _check_stranger(audit: Audit, table: Table, thread: str, row: Row) -> None:
    now, hot, cold = await audit.view(
        Get(table.name, [row.key]), Get("thread_heads", [(thread,)]), Get("threads", [(thread,)])
    )
    if now[0] is None or hot[0] is not None:
        return
    erasing = cold[0] is not None and cold[0]["deleted_at"] is not None and cold[0]["erased_at"] is None
    audit.expect(erasing, "orphan", f"{table.name} {row.key}", f"its thread {thread!r} does not exist")
