"""What a server's settings promise now. An administrator may change them while a store is open, and no server tells.

So they are read again with the first commit after a second: a receipt never rests on a reading that was older than
that. Between two readings it says what the last one found. A server that does not answer the question gets no credit:
receipts then name the least that the engine ever promises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from perdure import limits
from perdure.errors import PerdureError
from perdure.kernel.engine import Durability


class DurabilityReading:
    """The latest reading of one engine, on its event loop. Opening has just made the first.

    `read` asks the server, `least` stands for no answer, and `tell` takes what was found.
    """

    def __init__(
        self, read: Callable[[], Awaitable[Durability]], least: Durability, tell: Callable[[Durability], None]
    ) -> None:
        self._read = read
        self._least: Durability = least
        self._tell = tell
        self._asking = asyncio.Lock()
        self._read_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the next receipt needs another reading, or one that is being made."""
        old = time.monotonic() - self._read_at > limits.DURABILITY_AGE_MS / 1000
        return old or self._asking.locked()

    async def refresh(self) -> None:
        """Read again, unless somebody did within the last second; never raises for what the server does."""
        if not self.is_due:
            return
        async with self._asking:
            if self._is_old():
                begun = time.monotonic()
                self._tell(await self._ask())
                self._read_at = begun

    def _is_old(self) -> bool:
        return time.monotonic() - self._read_at > limits.DURABILITY_AGE_MS / 1000

    async def _ask(self) -> Durability:
        try:
            async with asyncio.timeout(limits.DURABILITY_PATIENCE_MS / 1000):
                return await self._read()
        except (PerdureError, TimeoutError):
            return self._least
