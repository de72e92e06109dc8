"""How an engine wakes whoever watches: one signal per watcher, for a task or for a plain thread.

Any thread may ring. A signal rung while nobody waits is remembered, so a hint between a look and a wait is not lost.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol


class Signal(Protocol):
    """Something that one waiter waits for and any thread may ring."""

    def ring(self) -> None:
        """Wake the waiter, now or at its next wait."""
        ...

    async def wait(self, timeout: float) -> bool:
        """True if rung within `timeout` seconds."""
        ...


class LoopSignal:
    """A signal for a task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the task from whichever thread this is."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    async def wait(self, timeout: float) -> bool:
        """Suspend until rung."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class ThreadSignal:
    """A signal for a plain thread; its coroutine never suspends."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """Wake the thread."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Block until rung."""
        rung = self._event.wait(timeout)
        self._event.clear()
        return rung
