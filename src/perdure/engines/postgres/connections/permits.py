"""Permits to hold a connection, handed out first come, first served.

`release` hands a permit to the first waiter, which is then sure to have it: no later caller can take it first. A caller
waits for as long as the queue moves. If no permit was handed out for `patience` seconds, the holders will not return
theirs in time, and waiting ends.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """At most `limit` permits, on one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._handed_out = 0

    async def acquire(self, patience: float) -> None:
        """Get a permit; raises `TimeoutError` when no caller got one for `patience` seconds."""
        if self._free and not self._waiters:
            self._free -= 1
            self._handed_out += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            while not turn.done():
                before = self._handed_out
                await asyncio.wait([turn], timeout=patience)
                if before == self._handed_out and not turn.done():
                    raise TimeoutError
        except BaseException:
            if turn.done():
                self.release()  # it arrived at the very moment in which the caller gave up
            else:
                turn.cancel()
            raise

    def release(self) -> None:
        """Hand a permit to the first waiter, or keep it for the next caller."""
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                self._handed_out += 1
                turn.set_result(None)
                return
        self._free += 1
