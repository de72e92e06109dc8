"""Group commit: decides when a job runs, and with which others.

Jobs of this process that write the same row or partition run one after the other here, so that sessions that wait for
each other's locks never use up the connections. While batches are in flight, further jobs of one kind gather and become
the next batch; nothing is ever delayed to make a batch larger. Jobs that cannot be batched, and jobs of a batch that
was refused, run solo.

| state   | where the job is                          | next                                                      |
|---------|-------------------------------------------|-----------------------------------------------------------|
| inline  | `_inline`: runs in its caller's task      | done; or ready (solo) if a locked row stopped it          |
| blocked | behind others in `_row_queues`            | ready, when the last job ahead of it releases its rows    |
| ready   | `_ready_batches[kind]`, or `_ready_solos` | in flight, when a batch task or a solo task is free       |
| running | `_batches` or `_solos` counts its task    | done; or ready (solo) if its batch was refused            |
| done    | its future is resolved, its rows released | –                                                         |

A job runs inline when no other one is about: a separate task and the turns of the event loop that it takes were a third
of a single commit's time in the client. If another job arrives while it runs, the inline job joins the row queues.

Example, with `MAX_BATCHES = 2` and four jobs of one kind; A and D write the same row. A runs inline. B, C and D arrive
while it runs: A joins the row queues, D is blocked behind it, and B starts a batch task (A counts as the other). In the
next turn of the loop that task runs its share, half of the two batchable jobs: B. C waits, until A is done: that frees
a batch, makes D ready, and starts a second task, whose share is two of three jobs (B is still in flight). So C and D
go in one statement. If the server refuses it, C and D run again, each solo.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from copy import copy
from typing import Any

from perdure.engines.postgres.write.executor import Executor
from perdure.engines.postgres.write.job import Job
from perdure.engines.postgres.write.transaction import RowName
from perdure.kernel.ops import Applied

MAX_BATCH = 128
MAX_BATCHES = 2
"""Batches in flight at once: while the server syncs one, the client prepares the other (measured)."""


class Batcher:
    """Schedules jobs. At most `max_solo` of them run solo at once."""

    def __init__(self, executor: Executor, max_solo: int) -> None:
        self._executor = executor
        self._max_solo = max(max_solo, 1)
        self._row_queues: dict[RowName, deque[Job]] = {}
        self._ready_batches: dict[Any, list[Job]] = {}
        self._ready_solos: deque[Job] = deque()
        self._batches = 0
        self._solos = 0
        self._batchable = 0
        """Batchable jobs that are ready or in flight."""
        self._inline: Job | None = None
        self._busy = False
        """Whether the next job has to run in a task, because others are likely to join it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def submit(self, job: Job) -> Applied:
        """Run a job when its turn comes, and return its result."""
        if self._row_queues or self._inline is not None or self._busy:
            self._busy = True
            self._enqueue(job)
        else:
            await self._run_inline(job)
        return await job.future

    async def drain(self) -> None:
        """Wait until every job is done."""
        while self._tasks or self._inline is not None:
            inline: set[asyncio.Future[Any]] = set() if self._inline is None else {self._inline.future}
            await asyncio.wait(inline | self._tasks)

    def _enqueue(self, job: Job) -> None:
        job.solo = not job.transaction.batchable()
        if self._inline is not None and not self._inline.queued:
            self._queue_on_rows(self._inline)
        self._queue_on_rows(job)
        if not job.blockers:
            self._make_ready(job)

    def _queue_on_rows(self, job: Job) -> None:
        job.queued = True
        queues = self._row_queues
        for name in job.names:
            queue = queues.get(name)
            if queue is None:
                queues[name] = deque((job,))
            else:
                queue.append(job)
                job.blockers += 1

    def _make_ready(self, job: Job) -> None:
        if job.solo:
            self._ready_solos.append(job)
            if self._solos < self._max_solo:
                self._solos += 1
                self._start_task(self._run_solos())
            return
        self._ready_batches.setdefault(job.transaction.batch_key, []).append(job)
        self._batchable += 1
        self._start_batch()

    def _start_batch(self) -> None:
        if self._ready_batches and self._batches < MAX_BATCHES:
            self._batches += 1
            self._start_task(self._run_batches())

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_batches(self) -> None:
        """Run batch after batch until none is ready. The task begins in the loop's next turn, when callers that woke up
        together with the first one have submitted too."""
        try:
            while self._ready_batches:
                batch = self._next_batch()
                self._busy = len(batch) > 1
                try:
                    await self._execute(batch)
                finally:
                    self._batchable -= len(batch)
                if len(batch) > 1:
                    await asyncio.sleep(0)  # callers whose jobs are done submit their next ones in this turn
        finally:
            self._batches -= 1

    def _next_batch(self) -> list[Job]:
        """The oldest kind; at most this task's share of all batchable jobs, so that while the callers of one batch
        prepare what comes next, the server works on the other."""
        kind = next(iter(self._ready_batches))
        ready = self._ready_batches.pop(kind)
        share = min(-(-self._batchable // MAX_BATCHES), MAX_BATCH)
        if len(ready) > share:
            self._ready_batches[kind] = ready[share:]
        return ready[:share]

    async def _run_inline(self, job: Job) -> None:
        """Run a job in its caller's task; it counts as a batch in flight."""
        self._inline = job
        self._batches += 1
        try:
            await self._execute([job])
        except asyncio.CancelledError:
            # The connection was given up with it. The next job runs in a task, which outlives its caller: otherwise
            # callers with less patience than a new connection takes would give up one connection after the other.
            self._busy = True
            raise
        finally:
            self._inline = None
            self._batches -= 1
            if self._ready_batches:
                self._start_batch()

    async def _run_solos(self) -> None:
        try:
            while self._ready_solos:
                await self._execute([self._ready_solos.popleft()])
        finally:
            self._solos -= 1
            self._busy = bool(self._row_queues)

    async def _execute(self, batch: list[Job]) -> None:
        """Run a batch, resolve its futures and release its rows."""
        again: list[Job] = []
        # Jobs that were cancelled before anything was sent do not run.
        live = [job for job in batch if not job.future.cancelled()]
        try:
            if live:
                again = await self._executor.run(live)
        except Exception as error:  # noqa: BLE001 - whatever it was, no caller may be left waiting
            for number, job in enumerate(live):
                job.fail(_duplicate(error) if number else error)
        except BaseException:
            # The event loop is shutting down, or the caller of an inline job was cancelled.
            for job in live:
                job.future.cancel()
            raise
        finally:
            for job in again:
                if not job.queued:
                    self._queue_on_rows(job)
                job.solo = job.retried = True
                self._make_ready(job)
            if self._row_queues:
                self._release([job for job in batch if job not in again] if again else batch)

    def _release(self, jobs: list[Job]) -> None:
        queues = self._row_queues
        for job in jobs:
            for name in job.names if job.queued else ():
                queue = queues[name]
                queue.popleft()
                if not queue:
                    del queues[name]
                    continue
                first = queue[0]
                first.blockers -= 1
                if not first.blockers:
                    self._make_ready(first)


def _duplicate(error: Exception) -> Exception:
    """A copy for another caller: raising an exception adds to its traceback, and each caller needs its own."""
    try:
        twin = copy(error)
    except TypeError:  # its constructor takes other arguments than it keeps
        return error
    twin.__cause__ = error.__cause__
    return twin
