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
    """A signal for a task."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the task from whichever thread this is."""
        if running_loop() is self._loop:
            self._event.set()
        else:
            with suppress(RuntimeError):  # the loop was closed, where no task waits
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None) -> bool:
        """Suspend until rung."""
        if timeout is None:  # thousands of followers wait like this: `asyncio.timeout` would cost as much as the wait
            await self._event.wait()
            self._event.clear()
            return True
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
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
