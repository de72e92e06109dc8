"""Importing an export: checked as a whole first, then written thread by thread, each becoming visible at once.

A thread's children are counted as they arrive, each together with its child, so the counts are right at every moment. A
thread whose parent is neither in the file before it nor in the store is refused, or made a root with `detach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

import msgspec

from perdure import limits
from perdure.errors import InvalidError
from perdure.kernel.ops import NOW
from perdure.scratch import Scratch
from perdure.stores.context import Context
from perdure.stores.store import Store
from perdure.stores.transfer.arrival import Arrival
from perdure.stores.transfer.checks import FileCheck
from perdure.stores.transfer.lines import RowLine
from perdure.stores.transfer.scope_rows import ScopeRows, check_scope_row
from perdure.stores.transfer.source import Item, OnProgress, at_line, read_items
from perdure.stores.transfer.survey import Survey

Source = Callable[[], Iterable[bytes]]


class Imported(msgspec.Struct, frozen=True):
    """What an import did: threads written, threads left as they were, rows and entries written (profiles included)."""

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
    """Import every thread and profile of an export into the store's scope.

    `source` gives the lines anew each time it is called: the first time everything is checked and nothing written, so a
    damaged file (`InvalidError`, naming the line) changes nothing. A thread or profile that exists is refused with
    `AlreadyExists` before anything is written, or left alone with `skip_existing`. A thread whose lines are not those
    that were checked is refused too: whoever changes the file in between gets nothing past the check.
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
    (now,) = await context.view(NOW)
    latest = now + limits.IMPORT_AHEAD_MS
    survey = Survey(context, scratch, latest, skip_existing=skip_existing, detach=detach)
    check = FileCheck(context.kernel.schema, scratch, latest)
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
        self._scope_rows = ScopeRows(context, skip_existing=survey.skip_existing)

    async def run(self, source: Source, on_progress: OnProgress | None) -> Imported:
        """Write everything; a failure leaves whole threads and nothing else."""
        threads = records = 0
        try:
            for item in read_items(self._context.kernel.schema, source(), "writing", on_progress):
                if item.closes:
                    self._insist_checked(item)
                if item.line.thread is not None and self._survey.skips(item.line.thread):
                    continue
                if item.line.thread is None and isinstance(item.line, RowLine):
                    await self._scope_row(item, item.line)
                    continue
                records += 1
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
        await self._scope_rows.flush()
        return Imported(threads, self._survey.skipped, records + self._scope_rows.written)

    def _insist_checked(self, item: Item) -> None:
        """A thread is only made visible if its lines are those that were checked."""
        noted = self._scratch.thread(item.line.thread or "")
        if noted is None or noted[1] != item.digest:
            text = f"thread {item.line.thread!r} is not what it was a moment ago: the file changed during the import"
            raise at_line(item.number, InvalidError(text, hint="import a file that nobody writes to"))

    async def _scope_row(self, item: Item, line: RowLine) -> None:
        """A row of the scope stands for itself: it is checked again, so that a changed file gets nothing past."""
        try:
            check_scope_row(line, self._survey.latest)
        except InvalidError as error:
            raise at_line(item.number, error) from None
        await self._scope_rows.take(line)
