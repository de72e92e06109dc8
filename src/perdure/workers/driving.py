"""Drives one run: claims it, picks it up, calls the handler, and decides what its end means for the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from perdure.errors import ConflictError, NotFoundError, PerdureError
from perdure.model.receipt import RunReceipt
from perdure.model.run import CREATED, DONE, RUNNING
from perdure.stores.store import Store
from perdure.workers.calls import Calls
from perdure.workers.hold import Hold, Stopped, may_have_begun, read_calls
from perdure.workers.job import Job
from perdure.workers.lease import Lease, claim
from perdure.workers.logs import LOGGER, brief, described, log_end, log_given_up, log_pick_up, was_driven
from perdure.workers.retry_after import asked_pause
from perdure.workers.takeovers import OwnRuns, counted, given_up, in_a_row, release
from perdure.workers.trouble import RetryOn, code_of, is_retryable, may_pass, to_its_end, until_stored

Handler = Callable[[Job], Coroutine[Any, Any, None]]
CHECK_SECONDS = 1.0
"""How often a worker looks whether its run was stopped from outside."""
CLEANUP_SECONDS = 10.0
"""How long a handler may clean up after a commit has told it that its run was stopped."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""How many seconds pass before a handler is called again after an error that may pass; the pause doubles each time. It
is longer, up to the longest, if a server asks for that."""


class Driver(NamedTuple):
    """What is the same for all runs of one `serve`."""

    store: Store
    handler: Handler
    worker: str
    lease_ms: int
    retries: int
    retry_on: RetryOn
    in_order: bool
    max_takeovers: int
    own: OwnRuns

    async def drive(self, run_id: str) -> bool:
        """Work on a run until the handler ends; False if it should be tried again later."""
        try:
            lease = await claim(self.store, run_id, self.worker, self.lease_ms)
            if lease is None:
                return True
            try:
                return await self._with_lease(lease, run_id)
            finally:
                await lease.release()
        except (PerdureError, TimeoutError) as error:
            LOGGER.warning("run %r is left for later: %s", run_id, brief(error))
            return False

    async def _with_lease(self, lease: Lease, run_id: str) -> bool:
        async with asyncio.timeout_at(lease.deadline):
            hold = await self._pick_up(run_id)
        if hold is None:
            return True
        try:
            error = await self._call(hold, lease)
            async with asyncio.timeout_at(lease.deadline):
                return await _settle(hold, error)
        finally:
            await to_its_end(self._let_go(hold, lease))

    async def _let_go(self, hold: Hold, lease: Lease) -> None:
        """Nothing is left to do: the draft goes, and the next worker is told that this one was not lost."""
        left = hold.end is None or hold.lost
        # Whoever moved the run from outside was no worker if the lease was ours.
        if left or asyncio.get_running_loop().time() < lease.deadline:
            self.own.note(hold.run)
        if left:
            await release(self.store, hold.run)  # even without the lease: nobody else may have come yet
        await hold.drafts.close()

    async def _pick_up(self, run_id: str) -> Hold | None:
        """Move the run, so that what an earlier worker still commits is rejected; None if there is nothing to do."""
        run = await self.store.runs.find(run_id)  # again: the list was read before the lease was ours
        if run is None or not (run.status in (CREATED, RUNNING) or run.ready):
            return None
        takeovers = counted(run, own=self.own.includes(run))
        lost = 0 if takeovers is None else takeovers.count
        change = run.resume() if run.ready else run.begin()
        change = replace(given_up(run, lost) if lost > self.max_takeovers else change, takeovers=takeovers)
        key = uuid4().hex

        async def move() -> RunReceipt:
            return await self.store.commit(run.thread_id, run=change, key=key)

        try:
            run_now = (await until_stored(move)).run
            self.own.note(run_now)
            if run_now.status == DONE:
                log_given_up(run_now)
                return None
            wait = run_now.body.resumed_from
            # Without tickets there are no decisions, and nothing to read.
            calls = await until_stored(lambda: read_calls(self.store, run_now)) if wait and wait.tickets else Calls()
            hold = Hold(self.store, run_now, recovered=may_have_begun(run), calls=calls)
            doubts = await self._doubts(hold) if hold.recovered and was_driven(run) else None
            log_pick_up(run, doubts, in_a_row(run_now))
        except (ConflictError, NotFoundError) as error:
            LOGGER.debug("run %r was moved while it was picked up: %s", run_id, type(error).__name__)
            return None
        return hold

    async def _doubts(self, hold: Hold) -> int:
        """How many calls an earlier worker may have started."""
        if self.in_order:
            await hold.narrow()
        return sum(hold.is_uncertain(item.call) for item in await until_stored(hold.unfinished_calls))

    async def _call(self, hold: Hold, lease: Lease) -> BaseException | None:
        """Call the handler until it ends, or the run is no longer ours; returns what it raised."""
        handling = asyncio.create_task(self._handle(hold), name=f"perdure handler {hold.run.id}")
        keeping = asyncio.create_task(_keep(lease, hold))
        watching = asyncio.create_task(_watch(hold))
        try:
            await asyncio.wait({handling, keeping, watching}, return_when=asyncio.FIRST_COMPLETED)
            await _unshielded(hold, handling)
        finally:
            for task in (handling, keeping, watching):
                task.cancel()
            # A handler may take its time to end; it can no longer commit anything but the results of tools.
            await asyncio.gather(handling, keeping, watching, return_exceptions=True)
        return asyncio.CancelledError() if handling.cancelled() else handling.exception() or handling.result()

    async def _handle(self, hold: Hold) -> SystemExit | None:
        """Call the handler; again after an error that may pass, unless too many follow each other without a commit."""
        failures, rev = 0, hold.run.rev
        while True:
            try:
                await self.handler(Job(hold))
                return None
            except SystemExit as error:  # returned: if a task raises it, the event loop ends, and the worker with it
                return error
            except Exception as error:
                failures, rev = failures + 1 if hold.run.rev == rev else 1, hold.run.rev
                over = hold.end is not None or hold.run.status != RUNNING or may_pass(error)
                if over or not is_retryable(error, self.retry_on) or failures > self.retries:
                    raise
                pause = min(max(FIRST_PAUSE * 2 ** (failures - 1), asked_pause(error)), LONGEST_PAUSE)
                LOGGER.warning("the handler of run %r is called again in %g s: %s", hold.run.id, pause, brief(error))
            finally:
                hold.drafts.end()
            await asyncio.sleep(pause)
            hold.begin_again()
            if self.in_order:
                with suppress(PerdureError):  # then any call may have begun
                    await hold.narrow()


async def _unshielded(hold: Hold, handling: asyncio.Task[SystemExit | None]) -> None:
    """Return when the handler is inside no shield, or has ended."""
    # Again and again: by the time this task hears of the end of a shield, the handler may be inside the next one.
    while hold.shields and not handling.done():
        leaving = asyncio.create_task(hold.unshielded.wait())
        try:
            await asyncio.wait({handling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()


async def _keep(lease: Lease, hold: Hold) -> None:
    """Renew the lease; returns when it is lost."""
    await lease.keep()
    hold.lose()


async def _watch(hold: Hold) -> None:
    """Return when the run was stopped from outside and the handler should end."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        if hold.end is not None:  # `commit` has told the handler, which may have something to clean up
            await asyncio.sleep(CLEANUP_SECONDS)
            return
        with suppress(PerdureError):  # the next look, or the lease, will tell
            await hold.check()
        if hold.end is not None:
            return


async def _settle(hold: Hold, error: BaseException | None) -> bool:
    """What the end of a handler means for its run; False if it should be tried again later."""
    run = hold.run
    if hold.end is not None:
        LOGGER.info("the handler of run %r is stopped: %s", run.id, hold.end)
        return _has_moved(hold)
    if error is not None and may_pass(error):
        LOGGER.warning("run %r is left for later: %s", run.id, brief(error))
        return False
    if error is not None:
        LOGGER.error("the handler of run %r failed: %s", run.id, brief(error), exc_info=error)
    elif run.status == RUNNING:
        LOGGER.error("the handler of run %r returned, but the run is still running", run.id)
    else:
        log_end(run)
    if run.status == RUNNING:
        with suppress(Stopped):
            await hold.commit((), run.fail(_describe(error), code=code_of(error)), {})
    return _has_moved(hold)


def _has_moved(hold: Hold) -> bool:
    """Has the run got any further? If not, it must not be picked up again at once, for ever."""
    return hold.committed or hold.run.status != RUNNING or (hold.end is not None and hold.end.run is None)


def _describe(error: BaseException | None) -> str:
    """The text of a failed run."""
    if error is None:
        return "the handler returned, but the run was still running: end every path with finish, fail, ask or wait"
    return described(error)
