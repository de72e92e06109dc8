"""Export: threads as lines of text; `importing` reads them back.

`export_lines` streams: it holds one page of one thread. Each thread is as one moment saw it, however much is written
meanwhile; threads come parents first, so that an import never shows a child without its parent.
`lines` describes the format. Exporting what was imported gives the same lines again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from perdure import limits
from perdure.errors import ConflictError, CorruptError, CursorExpired, NotFoundError, UnsupportedError
from perdure.kernel.ops import NOW, Get, LogEntry, Read, Row, Scan
from perdure.kernel.schema import Log, Schema
from perdure.rules import checks
from perdure.rules.lineage import upward_lines
from perdure.stores.context import Context
from perdure.stores.ownership import owned_logs
from perdure.stores.store import Store
from perdure.stores.thread_lists import ThreadList
from perdure.stores.transfer.importing import Imported, check_lines, import_lines
from perdure.stores.transfer.lines import HOT, end_line, entry_line, header_line, row_line
from perdure.stores.transfer.rows import ThreadReading
from perdure.stores.transfer.scope_rows import is_over
from perdure.stores.transfer.source import OnProgress, TransferProgress, read_lines

__all__ = ["Imported", "TransferProgress", "check_lines", "export_lines", "import_lines", "read_lines"]


_FIRST_ENTRIES = 16
_PAGE_BYTES = 1024 * 1024
"""How many entries the first page of a log brings, and how much the later ones bring, about."""


async def export_lines(
    store: Store, threads: Sequence[str] | None = None, *, on_progress: OnProgress | None = None
) -> AsyncIterator[bytes]:
    """The lines of an export, without line ends: of the whole scope, or of the named threads.

    Raises `NotFoundError` for a named thread that does not exist, `CorruptError` for damage; nothing is skipped.
    """
    context = store._context  # noqa: SLF001 - a store's own machinery
    _refuse_unknown_logs(context.kernel.schema)
    done = lines = size = 0
    yield header_line(context.kernel.schema, context.scope)
    async for thread in _every(context) if threads is None else _chosen(context, threads):
        before = lines
        async for line in _thread_lines(context, thread, named=threads is not None):
            yield line
            lines, size = lines + 1, size + len(line)
            if on_progress is not None:
                on_progress(TransferProgress("exporting", done, lines, size))
        done += lines > before
    if threads is None:
        async for line in _common_lines(context):
            yield line
            lines += 1
    yield end_line(done, lines)
    if on_progress is not None:
        on_progress(TransferProgress("exporting", done, lines, size))


def _refuse_unknown_logs(schema: Schema) -> None:
    for log in schema.logs:
        if log.owner is None:
            raise UnsupportedError(f"the log {log.name} belongs to no thread: an export would leave it out")


async def _every(context: Context) -> AsyncIterator[str]:
    """Every thread in order of creation, but each after its parent.

    What was created before the thread at hand has had its turn, so only those ahead of theirs are remembered.
    """
    ahead: set[str] = set()
    after: tuple[Any, ...] | None = None
    while True:
        groups = await context.view(*_IN_ORDER.scans(limits.PAGE_MAX, after))
        rows = [row for (row,) in _IN_ORDER.merged([list(zip(group)) for group in groups])][: limits.PAGE_MAX]
        for row in rows:
            if str(row.key[0]) in ahead:
                ahead.discard(str(row.key[0]))
                continue
            *ancestors, thread = await _line_of(context, row, ahead)
            ahead.update(ancestors)
            for name in (*ancestors, thread):
                yield name
        if len(rows) < limits.PAGE_MAX:
            return
        after = _creation(rows[-1])


_IN_ORDER = ThreadList(order="created", desc=False)


async def _line_of(context: Context, row: Row, ahead: set[str]) -> list[str]:
    """A thread with those of its ancestors that have not had their turn, oldest first."""
    line = [str(row.key[0])]
    parent = row["parent"]
    while parent is not None and parent not in ahead and parent not in line:
        above: Row | None = (await context.view(Get(HOT, [(parent,)])))[0][0]
        if above is None or _creation(above) < _creation(row):
            break
        line.append(parent)
        parent = above["parent"]
    return line[::-1]


def _creation(row: Row) -> tuple[Any, ...]:
    return _IN_ORDER.keyset(row)


async def _chosen(context: Context, threads: Sequence[str]) -> AsyncIterator[str]:
    """The named threads, each after its parent if that is named too."""
    parents: dict[str, str | None] = {}
    for thread in threads:
        checks.check_id(thread, "thread id")
        row = (await context.view(Get(HOT, [(thread,)])))[0][0]
        if row is None:
            raise NotFoundError(f"thread {thread!r} does not exist")
        parents[thread] = row["parent"]
    for line, _ in upward_lines(parents):
        for name in reversed(line):
            yield name


async def _thread_lines(context: Context, thread: str, *, named: bool) -> AsyncIterator[bytes]:
    """Everything of a thread as one moment saw it; its hot row comes last and completes it.

    A thread that was deleted since it was listed has no lines; one that was asked for by name must not be missing.
    """
    schema = context.kernel.schema
    with ThreadReading(context, thread) as reading:
        await reading.run()
        head = reading.head
        if head is None:
            if named:
                raise _deleted(thread)
            return
        for line in reading.lines():
            yield line
    for log, length in zip(owned_logs(schema), reading.lengths, strict=True):
        async for entry in _entries(context, log, head, length):
            yield entry_line(log, thread, entry)
    yield row_line(schema.table[HOT], head)


async def _entries(context: Context, log: Log, head: Row, length: int) -> AsyncIterator[LogEntry]:
    """A log up to the length that the snapshot showed: entries never change, so pages will do."""
    thread, most = str(head.key[0]), _FIRST_ENTRIES
    (reached,) = await context.kernel.bases(context.scope, log.name, [thread])
    if reached >= length > 0:
        raise _trimmed(log, thread)
    while reached < length:
        read = Read(log.name, thread, after=reached, upto=length, limit=most)
        try:
            (now,), entries = await context.view(Get(HOT, [head.key]), read)
        except CursorExpired:
            raise _trimmed(log, thread) from None
        if now is None or now["born"] != head["born"]:
            raise _deleted(thread)
        for entry in entries:
            reached += 1
            if entry[0] != reached:
                break
            yield entry
        if not entries or entries[-1][0] != reached:
            raise CorruptError(f"{log.name} {reached or 1} is missing", where=f"thread {thread!r}")
        weight = sum(len(entry[-1]) + 512 for entry in entries) // len(entries)
        most = max(1, min(limits.PAGE_MAX, 2 * most, _PAGE_BYTES // weight))


def _deleted(thread: str) -> ConflictError:
    return ConflictError(f"thread {thread!r} was deleted during the export", hint="export again")


def _trimmed(log: Log, thread: str) -> ConflictError:
    return ConflictError(f"the {log.name} of thread {thread!r} were trimmed during the export", hint="export again")


async def _common_lines(context: Context) -> AsyncIterator[bytes]:
    """Rows that belong to no thread: what stores keep for the scope as a whole, without what has expired."""
    for table in context.kernel.schema.tables:
        if table.owner in table.key_names:
            continue
        where = {} if table.owner is None else {table.owner: None}
        after: tuple[Any, ...] | None = None
        while True:
            scan = Scan(table.name, after=after, limit=limits.PAGE_MAX, where=where)
            now, rows = await context.view(NOW, scan)
            for row in rows:
                if not is_over(row, now):
                    yield row_line(table, row)
            if len(rows) < limits.PAGE_MAX:
                break
            after = rows[-1].key
