"""The rows of one thread for an export: as one moment saw them, in memory that does not grow with their number.

One view brings the first rows of every table, and for most threads that is all. What is left comes page by page, and
every page looks again at the rows that each change of a thread touches: if one of them has another rev, the pages do
not belong together and everything is read anew. Until then the lines wait in a file of their own. A thread that is
written to all the time is read at once in the end, whatever memory that takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType

from perdure import limits
from perdure.errors import CorruptError
from perdure.kernel.ops import Get, Heads, ReadOp, Row
from perdure.kernel.schema import Table
from perdure.stores.context import Context
from perdure.stores.ownership import owned_logs, owned_tables, scan_of
from perdure.stores.transfer.lines import COLD, HOT, row_line

_FIRST_ROWS = 16
"""Pending messages may have 4 MB each."""
_PAGE_BYTES = 1024 * 1024
_TRIES = 3
_MEMORY_BYTES = 128 * 1024
_GUARDS = (HOT, COLD, "queues")
_AT_ONCE = frozenset((COLD, "queues", "branches"))
"""Of these a thread has few rows, or their names must not be seen at two moments."""


class _Changed(Exception):
    """The thread was written to between two pages."""


class ThreadReading:
    """One reading of a thread's rows. `head` is None if there is no such thread; `lengths` are those of its logs."""

    def __init__(self, context: Context, thread: str) -> None:
        self._context = context
        self._thread = thread
        self._tables = [table for table in owned_tables(context.kernel.schema) if table.name != HOT]
        self._lines = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - closed by __exit__
        self._revs: list[int | None] = []
        self.head: Row | None = None
        self.lengths: list[int] = []

    def __enter__(self) -> ThreadReading:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lines.close()

    async def run(self) -> None:
        """Read everything but the logs."""
        for attempt in range(_TRIES + 1):
            self._lines.seek(0)
            self._lines.truncate()
            try:
                await self._read(None if attempt == _TRIES else _FIRST_ROWS)
            except _Changed:
                continue
            return

    def lines(self) -> Iterator[bytes]:
        """The lines of the rows, without line ends."""
        self._lines.seek(0)
        for line in self._lines:
            yield line.removesuffix(b"\n")

    async def _read(self, most: int | None) -> None:
        logs = owned_logs(self._context.kernel.schema)
        pages: list[ReadOp] = [scan_of(t, self._thread, None if t.name in _AT_ONCE else most) for t in self._tables]
        heads: list[ReadOp] = [Heads(log.name, [self._thread]) for log in logs]
        hot, cold, queue, *answers = await self._context.view(*self._guards(), *pages, *heads)
        self.head, self._revs = hot[0], _revs(hot, cold, queue)
        if self.head is None:
            return
        if cold[0] is None:
            raise CorruptError("its cold row is missing", where=f"thread {self._thread!r}")
        self.lengths = [lengths[0] for lengths in answers[len(self._tables) :]]
        for table, rows in zip(self._tables, answers, strict=False):
            self._write(table, rows)
            if table.name not in _AT_ONCE and len(rows) == most:
                await self._rest(table, rows)

    async def _rest(self, table: Table, rows: Sequence[Row]) -> None:
        while rows:
            weight = sum(len(row.body or b"") + 512 for row in rows) // len(rows)
            limit = max(1, min(limits.PAGE_MAX, 2 * len(rows), _PAGE_BYTES // weight))
            scan = scan_of(table, self._thread, limit, rows[-1])
            hot, cold, queue, rows = await self._context.view(*self._guards(), scan)
            if _revs(hot, cold, queue) != self._revs:
                raise _Changed
            self._write(table, rows)
            if len(rows) < limit:
                return

    def _guards(self) -> list[ReadOp]:
        return [Get(name, [(self._thread,)]) for name in _GUARDS]

    def _write(self, table: Table, rows: Sequence[Row]) -> None:
        for row in rows:
            self._lines.write(row_line(table, row) + b"\n")


def _revs(*answers: Sequence[Row | None]) -> list[int | None]:
    return [None if row is None else row.rev for (row,) in answers]
