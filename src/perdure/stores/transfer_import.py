"""Importing an export: checked as a whole first, then written thread by thread, each becoming visible at once.

A thread's children are counted as they arrive, each together with its child, so the counts are right at every moment. A
thread whose parent is neither in the file before it nor in the store is refused, or made a root with `detach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, NotFoundError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Get, Op
from perdure.stores.core import Core
from perdure.stores.store import Store
from perdure.stores.transfer_arrival import Arrival, already_there, put_new
from perdure.stores.transfer_lines import HOT, RowLine
from perdure.stores.transfer_source import Watcher, at_line, read_items

Source = Callable[[], Iterable[bytes]]


class Imported(msgspec.Struct, frozen=True):
    """What an import did: threads written, threads left as they were, rows and entries written."""

    threads: int
    skipped: int
    records: int


async def import_lines(
    store: Store,
    source: Source,
    *,
    skip_existing: bool = False,
    detach: bool = False,
    progress: Watcher | None = None,
) -> Imported:
    """Import every thread of an export into the store's scope.

    `source` gives the lines anew each time it is called: the first time everything is checked and nothing written, so a
    damaged file (`InvalidError`, naming the line) changes nothing. A thread that exists is refused with `AlreadyExists`
    before anything is written, or left alone with `skip_existing`.
    """
    existing = await check_lines(store, source, skip_existing=skip_existing, detach=detach, progress=progress)
    core = store._core  # noqa: SLF001 - a store's own machinery
    return await _Import(core, existing, skip_existing=skip_existing, detach=detach).run(source, progress)


async def check_lines(
    store: Store,
    source: Source,
    *,
    skip_existing: bool = False,
    detach: bool = False,
    progress: Watcher | None = None,
) -> set[str]:
    """Would this export be imported? Raises what `import_lines` would, writes nothing; the threads that exist."""
    core = store._core  # noqa: SLF001 - a store's own machinery
    survey = _Survey(core, skip_existing=skip_existing, detach=detach)
    for item in read_items(core.kernel.schema, source(), "checking", progress):
        if item.closes and isinstance(item.line, RowLine):
            try:
                await survey.thread(str(item.line.key[0]), item.line.columns.get("parent"))
            except InvalidError as error:
                raise at_line(item.number, error) from None
    await survey.look()
    return survey.existing


class _Survey:
    """Which threads of the file exist already, and whether every parent will be there."""

    def __init__(self, core: Core, *, skip_existing: bool, detach: bool) -> None:
        self._core = core
        self._skip_existing = skip_existing
        self._detach = detach
        self._seen: set[str] = set()
        self._fresh: list[str] = []
        self.existing: set[str] = set()

    async def thread(self, thread: str, parent: str | None) -> None:
        """Note a thread; look at the store every now and then."""
        if thread in self._seen:
            raise InvalidError(f"thread {thread!r} is in the file twice")
        if parent is not None and parent not in self._seen and not self._detach:
            row = (await self._core.view(Get(HOT, [(parent,)])))[0][0]
            if row is None:
                raise NotFoundError(
                    f"the parent {parent!r} of thread {thread!r} is neither in the file before it nor in the store",
                    hint="export the parent too, or import with --detach to make the thread a root",
                )
        self._seen.add(thread)
        self._fresh.append(thread)
        if len(self._fresh) >= limits.PAGE_MAX:
            await self.look()

    async def look(self) -> None:
        """Find those that exist."""
        rows = (await self._core.view(Get(HOT, [(thread,) for thread in self._fresh])))[0]
        found = [str(row.key[0]) for row in rows if row is not None]
        if found and not self._skip_existing:
            raise already_there(found[0])
        self.existing.update(found)
        self._fresh.clear()


class _Import:
    """The second reading of the file: every thread arrives."""

    def __init__(self, core: Core, skip: set[str], *, skip_existing: bool, detach: bool) -> None:
        self._core = core
        self._skip = skip
        self._skip_existing = skip_existing
        self._detach = detach
        self._arrival: Arrival | None = None
        self._common: list[Op] = []

    async def run(self, source: Source, watcher: Watcher | None) -> Imported:
        """Write everything; a failure leaves whole threads and nothing else."""
        threads = records = 0
        try:
            for item in read_items(self._core.kernel.schema, source(), "writing", watcher):
                if item.line.thread in self._skip:
                    continue
                records += 1
                if item.line.thread is None and isinstance(item.line, RowLine):
                    await self._common_row(item.line)
                    continue
                if self._arrival is None:
                    self._arrival = Arrival(self._core, item.line.thread or "", detach=self._detach)
                await self._arrival.take(item.line)
                if item.closes:
                    self._arrival = None
                    threads += 1
        except BaseException:
            if self._arrival is not None:
                await self._arrival.abandon()
            raise
        await self._write_common()
        return Imported(threads, len(self._skip), records)

    async def _common_row(self, line: RowLine) -> None:
        self._common.append(put_new(line))
        if len(self._common) >= limits.BATCH_ROWS:
            await self._write_common()

    async def _write_common(self) -> None:
        """Rows of the scope as a whole; with `skip_existing`, those that are there stay as they are."""
        ops, self._common = self._common, []
        try:
            if ops:
                await self._core.transact(ops)
            return
        except Conflict as conflict:
            if not self._skip_existing:
                raise AlreadyExists(f"{ops[conflict.op]} exists already", hint="import with --skip-existing") from None
        for op in ops:
            try:
                await self._core.transact([op])
            except Conflict:
                continue
