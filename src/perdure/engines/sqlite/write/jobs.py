"""Jobs for the writer: one transaction each, who waits for it, and how its outcome is delivered.

A job is awaited either by a task (`future`, and the delivery of its event loop) or by a thread (`gate`, a lock that is
released when the job is done). Outcomes of a whole batch reach an event loop with one wake-up.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.engines.shared.outcome_delivery import Outcome, OutcomeDelivery
from perdure.engines.sql.embedded.filled import FilledSession
from perdure.errors import OutcomeUnknown
from perdure.ids import new_rev
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import Applied, Op, Scan, Taken


class Job(ABC):
    """One member of a batch."""

    # Defaults live on the class: every commit creates a job, and most of these are never set.
    hints: Sequence[str] = ()
    delivery: OutcomeDelivery | None = None
    future: asyncio.Future[Any] | None = None
    gate: threading.Lock | None = None
    result: Any = None
    error: BaseException | None = None
    done = False

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.rev = new_rev()

    @abstractmethod
    def run(self, session: FilledSession) -> Any:
        """The result, in a transaction that has begun; raises what refuses the job."""

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


class TransactJob(Job):
    """`transact`."""

    def __init__(self, scope: str, ops: Sequence[Op], hints: Sequence[str]) -> None:
        super().__init__(scope)
        self.ops = ops
        self.hints = hints

    def run(self, session: FilledSession) -> Applied:
        """Apply the operations."""
        return session.apply(self.scope, self.rev, session.now(), self.ops)


class FilledJob(Job):
    """`transact_filled`."""

    def __init__(self, scope: str, filled: Filled, hints: Sequence[str]) -> None:
        # Not through `super`: every commit comes through here.
        self.scope = scope
        self.rev = new_rev()
        self.filled = filled
        self.hints = hints

    def run(self, session: FilledSession) -> Applied:
        """Apply the values."""
        return session.apply_filled(self.scope, self.rev, self.filled)


class TakeJob(Job):
    """`take`."""

    def __init__(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str]) -> None:
        super().__init__(scope)
        self.scan = scan
        self.changes = dict(changes)
        self._hints_if_taken = hints

    def run(self, session: FilledSession) -> Taken:
        """Select and update. Without a row there is nothing to hint at."""
        claim = session.take(self.scope, self.rev, self.scan, self.changes)
        self.hints = self._hints_if_taken if claim.rows else ()
        return claim


def deliver(jobs: Sequence[Job]) -> None:
    """Wake every caller that waits for one of these jobs; one call per event loop."""
    by_loop: dict[OutcomeDelivery, list[Outcome]] = {}
    for job in jobs:
        job.done = True
        if job.future is not None and job.delivery is not None:
            by_loop.setdefault(job.delivery, []).append((job.future, job.result, job.error))
        elif job.gate is not None:
            job.gate.release()
    for delivery, outcomes in by_loop.items():
        delivery.deliver(outcomes)


def refuse(jobs: Sequence[Job], error: Exception) -> None:
    """Deliver the same error to jobs that never reached the writer."""
    for job in jobs:
        job.error = error
    deliver(jobs)


def unknown_outcome(job: Job, why: str) -> OutcomeUnknown:
    """The error of a job that may or may not have landed."""
    return OutcomeUnknown(f"the outcome of the commit is unknown: {why}", rev=job.rev, hint="retry with its key")


def mark_interrupted(jobs: Iterable[Job]) -> None:
    """The leader was interrupted (Ctrl-C) somewhere in the batch: how far it came is unknown."""
    for job in jobs:
        job.error = unknown_outcome(job, "the thread that was committing it was interrupted")
