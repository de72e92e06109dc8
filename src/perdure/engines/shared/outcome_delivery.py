"""Delivers outcomes from the threads of an engine to an event loop that sleeps.

`call_soon_threadsafe` writes to a socket, which the loop then reads until an exception says that it is empty: three
system calls. Where the system has event counters (Linux), the loop watches one of these instead: one write, one read.
On other systems, and in loops that cannot watch a descriptor, outcomes take the loop's own way.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from perdure.engines.shared.signals import call_in_loop

Outcome = tuple["asyncio.Future[Any]", Any, "BaseException | None"]
"""A future, its result, and the error that it gets instead if there is one."""


class OutcomeDelivery:
    """Settles futures of one event loop, from any thread and in order. Make it in the loop's own thread.

    The counter is closed when nothing refers to this object any more: neither the loop, nor a job in flight. So a
    thread that delivers late never writes to a descriptor that belongs to something else by then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outcomes: deque[Outcome] = deque()
        self._counter = _new_counter()
        self._is_heard = False
        if self._counter is not None:
            try:
                loop.add_reader(self._counter, self._answer)
            except (NotImplementedError, OSError):
                return
            self._is_heard = True

    def deliver(self, outcomes: Iterable[Outcome]) -> None:
        """Settle futures, with one wake-up of the loop; does nothing if it was closed, where no task waits."""
        self._outcomes.extend(outcomes)
        if sys.platform == "linux" and self._is_heard and self._counter is not None:
            os.eventfd_write(self._counter, 1)
        if not self._is_heard:  # looked at last: the loop may just have stopped listening
            call_in_loop(self._loop, self._settle)

    def _answer(self) -> None:
        if sys.platform == "linux" and self._counter is not None:
            os.eventfd_read(self._counter)
        self._settle()

    def _settle(self) -> None:
        outcomes = self._outcomes
        try:
            while outcomes:
                future, result, error = outcomes.popleft()
                if future.done():
                    continue  # its task was cancelled
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)
        finally:
            if outcomes:  # a signal handler raised, as Ctrl-C does
                call_in_loop(self._loop, self._settle)

    def stop_listening(self) -> None:
        """Let the loop forget the counter, in the loop's own thread; later outcomes take the loop's own way."""
        if self._is_heard and self._counter is not None:
            self._is_heard = False
            self._loop.remove_reader(self._counter)
            self._settle()

    def __del__(self) -> None:
        if self._counter is not None:
            os.close(self._counter)


def _new_counter() -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError:
        return None  # no descriptor is left
