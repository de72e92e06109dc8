"""`serve`: looks for runs and calls the handler for each, in a task of its own, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any
from uuid import uuid4

from perdure import limits
from perdure.errors import CorruptError, InvalidError, PerdureError, short_repr
from perdure.rules import checks
from perdure.stores.store import Store
from perdure.workers.driving import Driver, Handler
from perdure.workers.finding import Finder
from perdure.workers.logs import LOGGER, brief
from perdure.workers.takeovers import OwnRuns
from perdure.workers.transient import transient
from perdure.workers.trouble import RetryOn, is_async, may_pass

_LONGEST_REST = 60.0
_LONGEST_OUTAGE_REST = 5.0
_REMEMBERED = 10_000
"""For how many runs a worker remembers that it must leave them alone for a while."""


async def serve(
    store: Store,
    handler: Handler,
    *,
    agent_id: str | None = None,
    concurrency: int = 8,
    poll_ms: int = 200,
    lease_ms: int = 30_000,
    drain_ms: int = 30_000,
    retries: int = 6,
    retry_on: RetryOn = transient,
    in_order: bool = False,
    max_takeovers: int = 5,
    stop: asyncio.Event | None = None,
    worker: str | None = None,
) -> None:
    """Work on the runs of a store: created, running, and waiting runs whose tickets are all decided, the oldest first.

    Any number of processes may serve the same store: a lease gives each run to one of them. It calls
    `await handler(job)` with a `Job`, in a task per run. The handler drives the run until it is done or waits. If it
    raises an error, the run fails with the text of that error; if the store is in trouble, the run is tried again. An
    error that may pass (`retries`) fails the run only if it keeps coming back.

    - `store`: an open async store. It sees the runs of its scope.
    - `handler`: an async function. Blocking work belongs in `asyncio.to_thread`.
    - `agent_id`: only the runs of this agent.
    - `concurrency`: how many runs it works on at the same time.
    - `poll_ms`: how long it waits between two polls for work.
    - `lease_ms`: how long after the death of a worker another one picks up its runs. A live worker renews its leases.
    - `drain_ms`: how long handlers may continue after `stop` before they are cancelled.
    - `retries`: how often in a row the handler is called again after an error with a true `retryable`, such as a
      model's stream that was cut off. The pauses are 1, 2, 4, 8, 16 and 32 seconds, together about a minute, and at
      least what a `retry-after` of the error's `response` asks for, up to a minute each. A commit of the job resets
      the count.
    - `retry_on`: further errors after which the handler is called again: a tuple of classes, or a function that is
      given the error and returns True; by default `transient`: lost connections, and servers that are busy.
    - `in_order`: your promise that the handlers of all workers run the tools of a run one at a time, in the order of
      `job.unfinished_calls()`, and commit each result before they start the next tool. Then after a crash only the
      first call without a result is uncertain; otherwise all of them are.
    - `max_takeovers`: how many workers in a row may be lost with a run (crashed, out of memory), with no step in
      between. One more, and the run ends with `error` and the code `worker_lost`: it may be what kills them.
    - `stop`: set it, and `serve` takes no more work, lets the handlers end, and returns. Cancelling `serve` cancels
      them at once. What was cut off stays running, for the next worker.
    - `worker`: the name that its leases show; by default, the host, the process and a random part.
    """
    _check(store, handler, worker)
    if agent_id is not None:
        checks.check_id(agent_id, "agent_id")
    _check_range("concurrency", concurrency, 1, limits.WORKER_JOBS)
    _check_range("poll_ms", poll_ms, 1, limits.WORKER_MS)
    _check_range("lease_ms", lease_ms, limits.LEASE_LEAST_MS, limits.WORKER_MS)
    _check_range("drain_ms", drain_ms, 0, limits.WORKER_MS)
    _check_range("retries", retries, 0, limits.WORKER_RETRIES)
    _check_classes(retry_on)
    checks.check_flag(in_order, "in_order")
    _check_range("max_takeovers", max_takeovers, 0, limits.WORKER_TAKEOVERS)
    worker = worker or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    driver = Driver(store, handler, worker, lease_ms, retries, retry_on, in_order, max_takeovers, OwnRuns())
    service = Service(driver, Finder(store, agent_id), concurrency, poll_ms / 1000)
    stop = asyncio.Event() if stop is None else stop
    stopping = asyncio.create_task(stop.wait())
    agents = "all agents" if agent_id is None else f"agent {agent_id!r}"
    LOGGER.info("worker %r serves %s in %r", worker, agents, store)
    try:
        await service.work(stop, stopping)
        await service.drain(drain_ms / 1000)
    finally:
        stopping.cancel()
        await service.close()
        LOGGER.info("worker %r has stopped", worker)


class Service:
    """The tasks of one `serve`, and the runs that it leaves alone for a while."""

    def __init__(self, driver: Driver, finder: Finder, concurrency: int, poll: float) -> None:
        self._driver = driver
        self._finder = finder
        self._concurrency = concurrency
        self._poll = poll
        self._tasks: dict[str, asyncio.Task[bool]] = {}
        self._rests: dict[str, tuple[float, float]] = {}
        """Run -> when to try it again, and how long the pause was."""

    async def work(self, stop: asyncio.Event, stopping: asyncio.Task[bool]) -> None:
        """Look for work until it is time to stop; `stopping` is the task that waits for `stop`."""
        rest, outage = self._poll, False
        while not stop.is_set():
            try:
                await self._look(stop)
            except PerdureError as error:
                if not (may_pass(error) or isinstance(error, CorruptError)):
                    raise
                if not outage:
                    LOGGER.warning("runs cannot be listed, which is tried again: %s", brief(error))
                rest, outage = min(2 * rest, max(self._poll, _LONGEST_OUTAGE_REST)), True
            else:
                if outage:
                    LOGGER.info("runs can be listed again")
                rest, outage = self._poll, False
            await self._rest(stopping, rest)

    async def _rest(self, stopping: asyncio.Task[bool], seconds: float) -> None:
        """Wait until it is time to look again; while all hands are busy, until one of them is free."""
        if len(self._tasks) < self._concurrency:
            await asyncio.wait({stopping}, timeout=seconds)
        else:
            await asyncio.wait({stopping, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
        self._collect()

    async def _look(self, stop: asyncio.Event) -> None:
        free = self._concurrency - len(self._tasks)
        if free <= 0:
            return
        now = asyncio.get_running_loop().time()
        resting = {run_id for run_id, (until, _) in self._rests.items() if until > now}
        runs = await self._finder.look(free, resting | self._tasks.keys())
        for run in [] if stop.is_set() else runs:
            self._tasks[run.id] = asyncio.create_task(self._driver.drive(run.id), name=f"perdure run {run.id}")

    def _collect(self) -> None:
        """Take note of the tasks that have ended."""
        for run_id, task in list(self._tasks.items()):
            if not task.done():
                continue
            del self._tasks[run_id]
            if task.cancelled() or task.exception() is not None or not task.result():
                if not task.cancelled() and task.exception() is not None:
                    LOGGER.error("work on run %r ended with an error", run_id, exc_info=task.exception())
                self._leave_alone(run_id)
            else:
                self._rests.pop(run_id, None)

    def _leave_alone(self, run_id: str) -> None:
        """Do not try a run again at once; the pause doubles each time."""
        if len(self._rests) >= _REMEMBERED:
            self._rests.clear()
        pause = min(2 * self._rests.get(run_id, (0.0, self._poll))[1], _LONGEST_REST)
        self._rests[run_id] = (asyncio.get_running_loop().time() + pause, pause)

    async def drain(self, seconds: float) -> None:
        """Let the handlers end, for so long."""
        if self._tasks:
            LOGGER.info("the worker takes no more runs; the handlers of %d have %g s to end", len(self._tasks), seconds)
            await asyncio.wait(self._tasks.values(), timeout=seconds)

    async def close(self) -> None:
        """Cancel what has not ended, and wait for it: leases are released."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._collect()


def _check(store: object, handler: object, worker: str | None) -> None:
    if not isinstance(store, Store):
        raise InvalidError(f"serve needs an async store, not {short_repr(store)}", hint="await perdure.open(url)")
    if not is_async(handler):
        raise InvalidError(
            f"handler must be an async function, not {short_repr(handler)}",
            hint="async def handler(job); call blocking code with asyncio.to_thread",
        )
    if worker is not None:
        checks.check_id(worker, "worker")


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if checks.check_count(value, name, least=least) > most:
        raise InvalidError(f"{name} must be at most {most}, not {value}")


def _check_classes(classes: Any) -> None:
    if callable(classes) and not isinstance(classes, type):
        if is_async(classes):
            raise InvalidError(f"retry_on must not be an async function, as {short_repr(classes)} is")
        return
    if type(classes) is not tuple or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in classes
    ):
        raise InvalidError(f"retry_on must be a tuple of exception classes or a function, not {short_repr(classes)}")
