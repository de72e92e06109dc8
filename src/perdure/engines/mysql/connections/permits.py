"""Permits to use a connection: first come, first served, with a share that writers cannot take from readers.

A write may wait on the server for a row that another transaction has locked, and it occupies its connection while it
waits. So some connections are reserved for reads, and writes that have already waited for a lock once (`retry`) share
at most half of what writes have: however many of them wait, a new write still gets a connection.

With 10 connections, `all` is 10, `writing` 7 and `retrying` 3: seven writes may run at once, three of them retries.

A permit that comes back goes to the longest waiter that may have it. There is no overtaking: a permit is never
free while a caller who may have it waits.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Literal

Use = Literal["read", "write", "retry"]
_Share = Literal["all", "writing", "retrying"]

_RESERVED_FOR_READS = 3
_SHARES: dict[Use, tuple[_Share, ...]] = {
    "read": ("all",),
    "write": ("all", "writing"),
    "retry": ("all", "writing", "retrying"),
}
"""The shares that each use takes a permit of."""


class Permits:
    """At most `most` permits at a time, on one event loop."""

    def __init__(self, most: int) -> None:
        writing = most - min(_RESERVED_FOR_READS, (most + 1) // 3)
        self._most: dict[_Share, int] = {"all": most, "writing": writing, "retrying": max(1, writing // 2)}
        self._used: dict[_Share, int] = dict.fromkeys(self._most, 0)
        self._arrivals = count()
        self._waiting: dict[Use, dict[asyncio.Future[None], int]] = {use: {} for use in _SHARES}

    async def take(self, use: Use, seconds: float) -> None:
        """Take a permit, waiting for at most `seconds`; raises `TimeoutError`. The caller gives it back."""
        if self._has_room(use):
            self._add(use, 1)
            return
        future = asyncio.get_running_loop().create_future()
        queue = self._waiting[use]
        queue[future] = next(self._arrivals)
        try:
            async with asyncio.timeout(seconds):
                await future
        except BaseException:
            # Cancelled after the permit was handed over, and before this task could run: it goes to the next.
            if queue.pop(future, None) is None:
                self.give_back(use)
            raise

    def give_back(self, use: Use) -> None:
        """Give a permit back, to the next in line."""
        self._add(use, -1)
        while (following := self._next()) is not None:
            future = next(iter(self._waiting[following]))
            del self._waiting[following][future]
            self._add(following, 1)
            # A future that is already cancelled gives its permit back by itself.
            if not future.done():
                future.set_result(None)

    def _next(self) -> Use | None:
        """The use whose first waiter came before all others that may have a permit now."""
        ready: list[Use] = [use for use, queue in self._waiting.items() if queue and self._has_room(use)]
        return min(ready, key=lambda use: next(iter(self._waiting[use].values())), default=None)

    def _has_room(self, use: Use) -> bool:
        return all(self._used[share] < self._most[share] for share in _SHARES[use])

    def _add(self, use: Use, change: int) -> None:
        for share in _SHARES[use]:
            self._used[share] += change
