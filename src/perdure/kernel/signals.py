"""How whoever waits is woken: one signal each, for a task or for a plain thread.

Any thread may ring, and so may the collector, in the middle of another ring. A signal rung while nobody waits is
remembered, so what happens between a look and a wait is not lost.
"""

from __future__ import annotations

import asyncio
import queue
from contextlib import suppress
from typing import Protocol


class Signal(Protocol):
    """Something that one waiter waits for and any thread may ring."""

    def ring(self) -> None:
        """Wake the waiter, now or at its next wait."""
        ...

    async def wait(self, timeout: float | None) -> bool:
        """True if rung within `timeout` seconds; None waits on."""
        ...


class LoopSignal:
    """A signal for a task. Thousands may wait, so it is no `asyncio.Event` with `asyncio.timeout` around it."""

    __slots__ = ("_loop", "_rung", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the task from whichever thread this is."""
        if running_loop() is self._loop:
            self._ring()
        else:
            with suppress(RuntimeError):  # the loop was closed, where no task waits
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout: float | None) -> bool:
        """Suspend until rung."""
        if not self._rung:
            self._waiter = self._loop.create_future()
            try:
                if timeout is None:
                    await self._waiter
                else:
                    async with asyncio.timeout(timeout):
                        await self._waiter
            except TimeoutError:
                return False
            finally:
                self._waiter = None
        self._rung = False
        return True


class ThreadSignal:
    """A signal for a plain thread; its coroutine never suspends."""

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        # Not an Event: its lock is not reentrant, and the collector may ring while this thread does.
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake the thread."""
        self._rings.put(None)

    async def wait(self, timeout: float | None) -> bool:
        """Block until rung."""
        rings = self._rings
        try:
            if timeout is None or timeout > 0:
                rings.get(timeout=timeout)
            else:
                rings.get_nowait()
        except queue.Empty:
            return False
        with suppress(queue.Empty):
            while True:
                rings.get_nowait()
        return True


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if one is running."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
