"""Jobs for the writer: what to do inside a transaction, who waits for the outcome, and how it is delivered.

A job is waited for either by a task (`loop` and `future`) or by a thread (`gate`, a lock that is released when the job
is done). Outcomes of a whole batch reach an event loop with one wake-up.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.engines.sql.embedded.write import Session
from perdure.errors import OutcomeUnknown
from perdure.ids import new_rev
from perdure.kernel.ops import Op, Patch, Scan, Taken


class Job(ABC):
    """One member of a batch."""

    # Defaults live on the class: a job is made for every commit, and most of these are never set.
    hints: Sequence[str] = ()
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    gate: threading.Lock | None = None
    result: Any = None
    error: BaseException | None = None
    done = False

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.rev = new_rev()

    @abstractmethod
    def apply(self, session: Session) -> Any:
        """Do the work inside the transaction that the writer has begun."""

    def await_on(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Have the outcome delivered to a task of `loop`."""
        self.loop = loop
        self.future = loop.create_future()
        return self.future

    def outcome(self) -> Any:
        """The result, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.result


class TransactJob(Job):
    """`transact`."""

    def __init__(self, scope: str, ops: Sequence[Op], hints: Sequence[str]) -> None:
        self.scope = scope
        self.rev = new_rev()
        self.ops = ops
        self.hints = hints

    def apply(self, session: Session) -> Any:
        """Apply the operations."""
        return session.apply(self.scope, self.rev, session.now(), self.ops)


class TakeJob(Job):
    """`take`: the scan and the updates share one write transaction, so no row is claimed twice."""

    def __init__(self, scope: str, scan: Scan, changes: Mapping[str, Any]) -> None:
        super().__init__(scope)
        self.scan = scan
        self.changes = dict(changes)

    def apply(self, session: Session) -> Any:
        """Select, update, and read back."""
        now = session.now()
        table = session.queries.tables[self.scan.table]
        rows = table.scan(session.cursor, self.scope, self.scan, self.scan.eq)
        if not rows:
            return Taken([], now)
        patches = [Patch(self.scan.table, row.key, self.changes) for row in rows]
        session.apply(self.scope, self.rev, now, patches)
        return Taken(table.existing(session.cursor, self.scope, [row.key for row in rows]), now)


def deliver(jobs: Iterable[Job]) -> None:
    """Wake everybody who waits for one of these jobs; one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        job.done = True
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append(job)
        elif job.gate is not None:
            job.gate.release()
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, waiting)
        except RuntimeError:
            continue  # the loop was closed: nobody waits there any more


def refuse(jobs: Iterable[Job], error: Exception) -> None:
    """Jobs that never reached the writer: everybody gets the reason."""
    for job in jobs:
        job.error = error
    deliver(jobs)


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue  # cancelled; what was submitted is not undone
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)


def unknown_outcome(job: Job, why: str) -> OutcomeUnknown:
    """The error of a job that may or may not have landed."""
    return OutcomeUnknown(f"the outcome of the commit is unknown: {why}", rev=job.rev, hint="retry with its key")


def mark_interrupted(jobs: Iterable[Job]) -> None:
    """The leader was interrupted (Ctrl-C) somewhere in the batch: nobody can say how far it came."""
    for job in jobs:
        job.error = unknown_outcome(job, "the thread that was committing it was interrupted")
