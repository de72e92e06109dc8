"""The one writer of a file in this process: a queue of jobs, and the thread that leads it at the moment.

The leader commits everything that waits as one batch with one sync, and only then delivers outcomes, conflicts
included: a member that failed may have read a neighbour that was not durable yet. Nothing is delayed to make a batch
larger; an idle writer starts at once, and batches form while the disk is busy.

Tasks are served by the writer's thread. A blocking caller that finds the lock free becomes the leader and runs the
queue in its own thread until its own job is done; if the lock is held it waits for its outcome. No wake-up is lost:
a job is queued before the lock is tried, and a leader looks at the queue again after it has released the lock.

A signal handler may raise in a blocking caller between any two steps, as Ctrl-C does. So the lock knows its owner: the
owner releases it, even if the exception came before the acquisition could be noted. Callers that wait look up now and
then, in case a leader was interrupted before it could hand over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.engines.shared.hints import HintHub
from perdure.engines.sqlite.errors import DRIVER_ERRORS
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.engines.sqlite.write.jobs import Job, deliver, mark_interrupted, refuse
from perdure.errors import PerdureError, UnavailableError
from perdure.kernel.lifecycle import closed

MAX_BATCH = 256
_LOOK_UP_S = 1.0

T = TypeVar("T")


class Writer:
    """The queue, lock and thread around a `Committer`."""

    def __init__(self, committer: Committer, hub: HintHub) -> None:
        self._committer = committer
        self._hub = hub
        self._jobs: deque[Job] = deque()
        self._lead = threading.RLock()
        self._drainer: int | None = None
        # A binary semaphore: held while the thread sleeps, released to wake it.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="perdure-writer", daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs whose outcomes are delivered to tasks."""
        self._jobs.extend(jobs)
        self._signal()
        if self._stopped:
            self._refuse_rest()

    def run(self, job: Job) -> Any:
        """Queue a job and block until its outcome, leading the queue if no other thread does."""
        self._refuse_nested()
        gate = job.gate = threading.Lock()
        gate.acquire()
        self._jobs.append(job)
        try:
            if self._lead.acquire(blocking=False):
                if not self._stopped:
                    self._drain(job)
            elif self._stopped:
                self._refuse_rest()
        finally:
            # Nothing may come before this: a signal handler runs after a call, never within one of the lock's.
            try:  # noqa: SIM105 - `suppress` is a call
                self._lead.release()
            except RuntimeError:
                pass  # another thread leads
        self._hand_over()
        while not gate.acquire(timeout=_LOOK_UP_S):
            self._signal()
        return job.outcome()

    def data_version(self) -> int | None:
        """The file's change counter; None while another thread writes."""
        try:
            if not self._lead.acquire(blocking=False) or self._stopped or self._drainer is not None:
                return None
            return self._committer.data_version()
        except (*DRIVER_ERRORS, PerdureError):
            return None  # the next commit or read raises it
        finally:
            try:
                self._lead.release()
                self._hand_over()
            except RuntimeError:
                pass  # another thread leads

    def inspect(self, question: Callable[[Committer], T]) -> T:
        """The answer to a question about the writing connection, asked between two batches."""
        self._refuse_nested()
        with self._lead:
            if self._stopped:
                raise closed()
            answer = question(self._committer)
        self._hand_over()
        return answer

    def stop(self) -> None:
        """Commit what is queued, close the connection, end the thread; idempotent."""
        self._refuse_nested()
        with self._lead:
            if not self._stopped:
                self._drain(None)
                self._stopped = True
                self._committer.close()
        self._refuse_rest()
        self._signal()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _refuse_nested(self) -> None:
        """Raise in a signal handler that runs in the middle of a batch, where it would find it half committed."""
        if self._drainer == threading.get_ident():
            raise UnavailableError(
                "this thread is in the middle of a commit", hint="use no store in a signal handler that interrupts one"
            )

    def _serve(self) -> None:
        while not self._stopped:
            self._wake.acquire()
            with self._lead:
                if not self._stopped:
                    self._drain(None)
            self._hand_over()

    def _hand_over(self) -> None:
        """After releasing the lock: the thread takes over what was queued in the meantime."""
        if self._stopped:
            self._refuse_rest()
        elif self._jobs or self._committer.checkpoints.due:
            self._signal()

    def _drain(self, own: Job | None) -> None:
        """Commit batch after batch; until `own` is done, if it is given."""
        jobs, checkpoints = self._jobs, self._committer.checkpoints
        self._drainer = threading.get_ident()
        try:
            while jobs and (own is None or not own.done):
                self._commit_batch()
                if own is None and checkpoints.due:
                    self._committer.checkpoint(idle=not jobs)
            if own is None and checkpoints.due:
                self._committer.checkpoint(idle=True)
        finally:
            self._drainer = None

    def _commit_batch(self) -> None:
        jobs = self._jobs
        batch: list[Job] = []
        try:
            while jobs and len(batch) < MAX_BATCH:
                batch.append(jobs.popleft())
            self._committer.commit(batch)
        except BaseException:
            mark_interrupted(batch)
            raise
        finally:
            deliver(batch)
            if self._hub.is_watched:
                self._hub.ring({(job.scope, hint) for job in batch if job.error is None for hint in job.hints})

    def _signal(self) -> None:
        if self._wake.locked():
            try:
                self._wake.release()
            except RuntimeError:
                return  # another thread was faster

    def _refuse_rest(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            refuse((job,), closed())
