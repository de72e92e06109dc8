"""Permits to hold a connection, handed out first come, first served.

Whoever gives one back hands it to the first that waits, who is sure to have it then: nobody comes in between. A caller
keeps its place in the queue for as long as the queue moves. If nobody got a permit for `patience` seconds, those who
hold them will not give them back in time, and waiting ends.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """So many at most, on one event loop."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._given = 0

    async def take(self, patience: float) -> None:
        """Get one; raises `TimeoutError` when none was given to anybody for `patience` seconds."""
        if self._free and not self._waiting:
            self._free -= 1
            self._given += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            while not turn.done():
                given = self._given
                await asyncio.wait([turn], timeout=patience)
                if given == self._given and not turn.done():
                    raise TimeoutError
        except BaseException:
            if turn.done():
                self.give_back()  # it came in the very moment in which the caller gave up
            else:
                turn.cancel()
            raise

    def give_back(self) -> None:
        """Hand one to the first that waits, or keep it for whoever comes next."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._given += 1
                turn.set_result(None)
                return
        self._free += 1
