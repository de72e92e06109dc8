"""Importing an export: checked as a whole first, then written thread by thread, each becoming visible at once.

A thread's children are counted as they arrive, each together with its child, so the counts are right at every moment. A
thread whose parent is neither in the file before it nor in the store is refused, or made a root with `detach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Put
from perdure.scratch import Scratch
from perdure.stores.context import Context
from perdure.stores.store import Store
from perdure.stores.transfer.arrival import Arrival, put_new
from perdure.stores.transfer.checks import FileCheck
from perdure.stores.transfer.lines import RowLine
from perdure.stores.transfer.source import Item, OnProgress, at_line, read_items
from perdure.stores.transfer.survey import Survey

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
    on_progress: OnProgress | None = None,
) -> Imported:
    """Import every thread of an export into the store's scope.

    `source` gives the lines anew each time it is called: the first time everything is checked and nothing written, so a
    damaged file (`InvalidError`, naming the line) changes nothing. A thread that exists is refused with `AlreadyExists`
    before anything is written, or left alone with `skip_existing`. A thread whose lines are not those that were checked
    is refused too: whoever changes the file in between gets nothing past the check.
    """
    context = store._context  # noqa: SLF001 - a store's own machinery
    with closing(Scratch()) as scratch:
        survey = await _check(
            context, source, scratch, skip_existing=skip_existing, detach=detach, on_progress=on_progress
        )
        return await _Import(context, survey, scratch).run(source, on_progress)


async def check_lines(
    store: Store,
    source: Source,
    *,
    skip_existing: bool = False,
    detach: bool = False,
    on_progress: OnProgress | None = None,
) -> None:
    """Would this export be imported? Raises what `import_lines` would, and writes nothing."""
    context = store._context  # noqa: SLF001 - a store's own machinery
    with closing(Scratch()) as scratch:
        await _check(context, source, scratch, skip_existing=skip_existing, detach=detach, on_progress=on_progress)


async def _check(
    context: Context,
    source: Source,
    scratch: Scratch,
    *,
    skip_existing: bool,
    detach: bool,
    on_progress: OnProgress | None,
) -> Survey:
    survey = Survey(context, scratch, skip_existing=skip_existing, detach=detach)
    (now,) = await context.view(NOW)
    check = FileCheck(context.kernel.schema, scratch, now + limits.IMPORT_AHEAD_MS)
    for item in read_items(context.kernel.schema, source(), "checking", on_progress, check):
        if isinstance(item.line, RowLine):
            try:
                await survey.row(item.line, item.digest)
            except InvalidError as error:
                raise at_line(item.number, error) from None
    await survey.look()
    return survey


class _Import:
    """The second reading of the file: every thread arrives."""

    def __init__(self, context: Context, survey: Survey, scratch: Scratch) -> None:
        self._context = context
        self._survey = survey
        self._scratch = scratch
        self._arrival: Arrival | None = None
        self._common: list[Put] = []

    async def run(self, source: Source, on_progress: OnProgress | None) -> Imported:
        """Write everything; a failure leaves whole threads and nothing else."""
        threads = records = 0
        try:
            for item in read_items(self._context.kernel.schema, source(), "writing", on_progress):
                if item.closes:
                    self._insist_checked(item)
                if item.line.thread is not None and self._survey.skips(item.line.thread):
                    continue
                records += 1
                if item.line.thread is None and isinstance(item.line, RowLine):
                    await self._common_row(item.line)
                    continue
                if self._arrival is None:
                    self._arrival = Arrival(self._context, item.line.thread or "", detach=self._survey.detach)
                await self._arrival.take(item.line)
                if item.closes:
                    self._arrival = None
                    threads += 1
        except BaseException:
            if self._arrival is not None:
                await self._arrival.abandon()
            raise
        await self._write_common()
        return Imported(threads, self._survey.skipped, records)

    def _insist_checked(self, item: Item) -> None:
        """A thread is only made visible if its lines are those that were checked."""
        noted = self._scratch.thread(item.line.thread or "")
        if noted is None or noted[1] != item.digest:
            text = f"thread {item.line.thread!r} is not what it was a moment ago: the file changed during the import"
            raise at_line(item.number, InvalidError(text, hint="import a file that nobody writes to"))

    async def _common_row(self, line: RowLine) -> None:
        self._common.append(put_new(line))
        if len(self._common) >= limits.BATCH_ROWS:
            await self._write_common()

    async def _write_common(self) -> None:
        """Rows of the scope as a whole; with `skip_existing`, those that are there stay as they are."""
        ops, self._common = self._common, []
        try:
            if ops:
                await self._context.transact(ops)
            return
        except Conflict as conflict:
            if not self._survey.skip_existing:
                op = ops[conflict.op]
                raise AlreadyExists(
                    f"{op.table} {op.key[0]!r} already exists", hint="import with --skip-existing"
                ) from None
        for op in ops:
            try:
                await self._context.transact([op])
            except Conflict:
                continue
