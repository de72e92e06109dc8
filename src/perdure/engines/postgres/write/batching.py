"""Who goes when: transactions wait for the rows they share, and those of one shape travel together.

Two transactions of this process that name the same row or partition run one after the other here, so that they never
fill the connections with sessions that wait for each other's locks. While statements for many are under way, whatever
else is ready and of one shape waits and becomes the next; nothing is ever delayed to make a batch larger. Transactions
that cannot be combined, and members of a batch that failed, go alone on connections of their own. Where nobody else is
about, a transaction runs in its caller's own task: another one and the turns of the event loop that it takes were a
third of a lone commit's time in the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from copy import copy
from typing import Any

from perdure.engines.postgres.write.transaction import Name, Transaction
from perdure.kernel.ops import Applied

BATCH_MOST = 128
LANES = 2
"""Statements for many under way at once: while the server syncs one, the client prepares the other (measured)."""


class Job:
    """A transaction and who waits for it."""

    __slots__ = ("alone", "entered", "future", "refused", "transaction", "waits")

    def __init__(self, transaction: Transaction, future: asyncio.Future[Applied]) -> None:
        self.transaction = transaction
        self.future = future
        self.alone = False
        self.entered = False
        self.refused = False
        self.waits = 0

    def finish(self, applied: Applied) -> None:
        """Tell the caller, unless it was cancelled: what was submitted is not undone."""
        if not self.future.done():
            self.future.set_result(applied)

    def fail(self, error: BaseException) -> None:
        """Tell the caller why not."""
        if not self.future.done():
            self.future.set_exception(error)


Run = Callable[[list[Job]], Coroutine[Any, Any, list[Job]]]
"""Runs jobs in one statement; returns them all if they have to be run again, each alone."""


class Queue:
    """Everything submitted and not answered yet."""

    def __init__(self, run: Run, alone_most: int) -> None:
        self._run = run
        self._alone_most = max(alone_most, 1)
        self._rows: dict[Name, deque[Job]] = {}
        self._kinds: dict[Any, list[Job]] = {}
        self._singles: deque[Job] = deque()
        self._lanes = 0
        self._shared = 0
        self._alone = 0
        self._crowded = False
        self._lone: Job | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def perform(self, job: Job) -> Applied:
        """Run a job when its turn comes; what became of it."""
        if self._rows or self._lone is not None or self._crowded:
            self._crowded = True
            self._submit(job)
        else:
            await self._go_now(job)
        return await job.future

    def _submit(self, job: Job) -> None:
        """Queue a job behind those that share a row with it."""
        job.alone = not job.transaction.may_travel()
        if self._lone is not None and not self._lone.entered:
            self._enter(self._lone)
        self._enter(job)
        if not job.waits:
            self._ready(job)

    def _enter(self, job: Job) -> None:
        job.entered = True
        rows = self._rows
        for name in job.transaction.names:
            waiting = rows.get(name)
            if waiting is None:
                rows[name] = deque((job,))
            else:
                waiting.append(job)
                job.waits += 1

    async def drain(self) -> None:
        """Wait until everything submitted is answered."""
        while self._tasks or self._lone is not None:
            lone: set[asyncio.Future[Any]] = set() if self._lone is None else {self._lone.future}
            await asyncio.wait(lone | self._tasks)

    def _ready(self, job: Job) -> None:
        if job.alone:
            self._singles.append(job)
            if self._alone < self._alone_most:
                self._alone += 1
                self._start(self._go_alone())
            return
        alike = self._kinds.get(job.transaction.form.kind)
        if alike is None:
            self._kinds[job.transaction.form.kind] = [job]
        else:
            alike.append(job)
        self._shared += 1
        self._start_lane()

    def _start_lane(self) -> None:
        if self._kinds and self._lanes < LANES:
            self._lanes += 1
            self._start(self._travel())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _travel(self) -> None:
        """A lane: batch after batch, for as long as anything is ready. It begins in the loop's next turn, when whoever
        was woken together with the first caller has submitted as well."""
        try:
            while self._kinds:
                batch = self._next_batch()
                self._crowded = len(batch) > 1
                try:
                    await self._serve(batch)
                finally:
                    self._shared -= len(batch)
                if len(batch) > 1:
                    await asyncio.sleep(0)  # whoever was answered comes back in this turn, and travels with the rest
        finally:
            self._lanes -= 1

    def _next_batch(self) -> list[Job]:
        """The oldest kind; not more than this lane's share of all that is under way, so that while one lane's callers
        prepare what comes next, the server works for those of the other."""
        kind = next(iter(self._kinds))
        alike = self._kinds.pop(kind)
        share = min(-(-self._shared // LANES), BATCH_MOST)
        if len(alike) > share:
            self._kinds[kind] = alike[share:]
            return alike[:share]
        return alike

    async def _go_now(self, job: Job) -> None:
        """Nobody else is about: run in the caller's task. It counts as a lane, and its rows are entered, when somebody
        comes meanwhile."""
        self._lone = job
        self._lanes += 1
        try:
            await self._serve([job])
        except asyncio.CancelledError:
            # Its connection was given up with it. The next one runs in a task of its own, which outlives its caller:
            # else callers with less patience than a new connection takes would cut off one after the other.
            self._crowded = True
            raise
        finally:
            self._lone = None
            self._lanes -= 1
            self._start_lane()

    async def _go_alone(self) -> None:
        try:
            while self._singles:
                await self._serve([self._singles.popleft()])
        finally:
            self._alone -= 1
            self._crowded = bool(self._rows)

    async def _serve(self, batch: list[Job]) -> None:
        again: list[Job] = []
        # A caller that gave up before anything was sent has nothing coming.
        wanted = [job for job in batch if not job.future.cancelled()]
        try:
            if wanted:
                again = await self._run(wanted)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may be left waiting
            for number, job in enumerate(wanted):
                job.fail(_another(error) if number else error)
        except BaseException:
            # The event loop is going down, or the one caller that runs in its own task was cancelled.
            for job in wanted:
                job.future.cancel()
            raise
        finally:
            for job in again:
                if not job.entered:
                    self._enter(job)
                job.alone = job.refused = True
                self._ready(job)
            self._release([job for job in batch if job not in again] if again else batch)

    def _release(self, done: list[Job]) -> None:
        rows = self._rows
        for job in done:
            for name in job.transaction.names if job.entered else ():
                waiting = rows[name]
                waiting.popleft()
                if not waiting:
                    del rows[name]
                    continue
                first = waiting[0]
                first.waits -= 1
                if not first.waits:
                    self._ready(first)


def _another(error: Exception) -> Exception:
    """One like it, for the next caller: raising an exception adds to its traceback, and that is each caller's own."""
    try:
        twin = copy(error)
    except TypeError:  # it cannot be made from what it shows
        return error
    twin.__cause__ = error.__cause__
    return twin
