"""Is there room for a file's threads in the store? Asked for all of them before the first is written.

Which of them exist already, whether every parent will be there when its child arrives, how deep the hierarchy becomes,
and whether the ids of their runs, which a whole scope shares, are free. Others may write meanwhile, so each thread asks
again when it lands; but a file that cannot go in as a whole is refused here, with nothing written.
"""

from __future__ import annotations

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, NotFoundError
from perdure.kernel.ops import Get, Row
from perdure.scratch import Scratch
from perdure.stores.context import Context
from perdure.stores.ownership import owner_of
from perdure.stores.thread_creation import ancestor_checks
from perdure.stores.tombstones import is_arriving, is_unfinished
from perdure.stores.transfer.arrival import already_there, being_erased
from perdure.stores.transfer.lines import COLD, HOT, RowLine
from perdure.stores.transfer.scope_rows import ScopeRows

RUNS = "runs"


class Survey:
    """What the store says to the threads of a file. They are handed in one by one and looked up some at a time."""

    def __init__(self, context: Context, scratch: Scratch, latest: int, *, skip_existing: bool, detach: bool) -> None:
        self._context = context
        self._scratch = scratch
        self.latest = latest
        self.skip_existing = skip_existing
        self.detach = detach
        self.skipped: int = 0
        self._threads: list[str] = []
        self._runs: list[tuple[str, str]] = []
        self._scope_rows = ScopeRows(context, skip_existing=skip_existing, dry=True)

    async def row(self, line: RowLine, digest: bytes | None) -> None:
        """Take in a row; the one that completes a thread comes with the digest of the thread's lines."""
        if line.thread is None:
            await self._scope_rows.take(line)
        if line.table.name == RUNS:
            self._runs.append((str(line.key[0]), line.thread or ""))
            if len(self._runs) >= limits.BATCH_ROWS:
                await self._look_for_runs()
        if digest is not None:
            await self._thread(str(line.key[0]), line.columns.get("parent"), digest)

    async def _thread(self, thread: str, parent: str | None, digest: bytes) -> None:
        depth = 0 if parent is None else await self._depth(thread, parent)
        if depth > limits.ANCESTORS:
            raise InvalidError(f"the hierarchy is deeper than {limits.ANCESTORS} threads")
        if not self._scratch.add_thread(thread, depth, digest):
            raise InvalidError(f"thread {thread!r} is in the file twice")
        self._threads.append(thread)
        if len(self._threads) >= limits.PAGE_MAX:
            await self.look()

    async def _depth(self, thread: str, parent: str) -> int:
        """How many ancestors a thread will have; 0 if it loses a parent that is nowhere."""
        if self.skip_existing and parent in self._threads:
            await self.look()  # a parent that exists may live deeper in the store than in the file
        noted = self._scratch.thread(parent)
        if noted is not None:
            return noted[0] + 1
        try:
            return len(await ancestor_checks(self._context, thread, parent))
        except NotFoundError:
            if self.detach:
                return 0
            raise NotFoundError(
                f"the parent {parent!r} of thread {thread!r} is neither in the file before it nor in the store",
                hint="export the parent too, or import with --detach to make the thread a root",
            ) from None

    async def look(self) -> None:
        """Find those that exist; raises `AlreadyExists` unless they are to be skipped."""
        await self._look_for_runs()
        threads, self._threads = self._threads, []
        keys = [(thread,) for thread in threads]
        heads, colds = await self._context.view(Get(HOT, keys), Get(COLD, keys))
        for thread, head, cold in zip(threads, heads, colds, strict=True):
            if head is not None:
                await self._exists(thread, head)
            elif cold is not None and is_unfinished(cold) and not is_arriving(cold):
                raise being_erased(thread)
        await self._scope_rows.flush()

    async def _exists(self, thread: str, head: Row) -> None:
        if not self.skip_existing:
            raise already_there(thread)
        self.skipped += 1
        self._scratch.skip_thread(thread)
        self._scratch.set_depth(thread, len(await ancestor_checks(self._context, thread, head["parent"])))

    def skips(self, thread: str) -> bool:
        """Whether a thread is left as it is."""
        return bool(self.skipped) and self._scratch.skips(thread)

    async def _look_for_runs(self) -> None:
        """Refuse a run whose id another thread uses. A run of this very thread is what an interrupted import left."""
        runs, self._runs = self._runs, []
        if not runs:
            return
        owners = list(dict.fromkeys(thread for _, thread in runs))
        rows, heads = await self._context.view(
            Get(RUNS, [(run,) for run, _ in runs]), Get(HOT, [(thread,) for thread in owners])
        )
        alive = {thread for thread, head in zip(owners, heads, strict=True) if head is not None}
        table = self._context.kernel.schema.table[RUNS]
        for (run, thread), row in zip(runs, rows, strict=True):
            owner = None if row is None else owner_of(table, row.key, row)
            if row is not None and thread not in alive and owner != thread:
                raise AlreadyExists(
                    f"run {run!r} of thread {thread!r} already exists and belongs to thread {owner!r}", actual=run
                )
