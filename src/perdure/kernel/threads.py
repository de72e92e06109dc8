"""Runs blocking work in a separate thread while a task waits for it; its result is never lost.

The event loop's own executor would not do: it accepts no work in an `atexit` handler, it drops the result of a
cancelled wait, and a child forked inside the loop may wait for its threads forever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """The result of `work`, without blocking the loop.

    A wait that is cancelled does not stop the work; what it returns then goes to `discard`, in a thread as well. Where
    no thread can be started any more, the work is done on the spot.
    """
    errand = _Errand(work, discard)
    if not _start(errand.run):
        return work()
    try:
        return await errand.future
    except BaseException:
        errand.abandon()
        raise


class _Errand(Generic[T]):
    """Work on its way, and who gets its result: the task that waits, or `discard`."""

    def __init__(self, work: Callable[[], T], discard: Callable[[T], object] | None) -> None:
        self._work = work
        self._discard = discard
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()
        # Reentrant: a waiting coroutine may be collected, and abandon this, wherever the thread is.
        self._lock = threading.RLock()
        self._abandoned = False
        self._results: list[T] = []

    def run(self) -> None:
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - it belongs to the task, whatever it is
            self._deliver(self.future.set_exception, error)
            return
        with self._lock:
            self._results.append(result)
            if not self._abandoned:
                self._deliver(self.future.set_result, result)
                return
        self._discard_result()

    def _deliver(self, settle: Callable[[Any], None], outcome: object) -> None:
        def unless_cancelled() -> None:
            if not self.future.done():
                settle(outcome)

        try:
            self._loop.call_soon_threadsafe(unless_cancelled)
        except RuntimeError:
            return  # the loop was closed; the wait ends with its coroutine, which abandons this errand

    def abandon(self) -> None:
        """The wait has ended. A result that exists already was on its way through the loop."""
        with self._lock:
            self._abandoned = True
            finished = bool(self._results)
        if finished and self._discard is not None and not _start(self._discard_result):
            self._discard_result()

    def _discard_result(self) -> None:
        if self._discard is not None:
            self._discard(self._results.pop())


def _start(work: Callable[[], None]) -> bool:
    try:
        threading.Thread(target=work, name="perdure-errand").start()
    except RuntimeError:
        return False  # the interpreter is ending, or the system has no thread left
    return True
