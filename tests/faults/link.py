"""The way from a store to its server, through the proxy that breaks it: what the fault programs need of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.shell import address_of
from tests.support.proxy import Direction, Proxy

UP: Direction = "up"
DOWN: Direction = "down"
_QUIET_LOOKS = 8
"""Looks, a millisecond apart, without a byte passing: hints follow a commit within three."""


class Link:
    """A proxy before one server."""

    def __init__(self, proxy: Proxy, url: str) -> None:
        self.proxy = proxy
        self.url = proxy.through(url)

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Link]:
        """A link to the server behind a URL."""
        proxy = Proxy(*address_of(url))
        try:
            yield cls(proxy, url)
        finally:
            await asyncio.to_thread(proxy.close)

    def passed(self) -> dict[Direction, int]:
        """Bytes that went each way so far."""
        return {UP: self.proxy.seen["up"], DOWN: self.proxy.seen["down"]}

    async def quiet(self) -> None:
        """Wait until nothing travels any more, such as a hint that follows a commit."""
        last, looks = self.passed(), 0
        while looks < _QUIET_LOOKS:
            await asyncio.sleep(0.001)
            now = self.passed()
            last, looks = now, looks + 1 if now == last else 0

    def cut_after(self, way: Direction, count: int) -> int:
        """Arm one cut; returns how many have struck until now."""
        self.proxy.cut_after(count, way)
        return self.proxy.cuts

    async def struck(self, before: int) -> bool:
        """Heal the link, and say whether the cut that was armed has struck."""
        await self.heal()
        return self.proxy.cuts > before

    async def heal(self) -> None:
        """Forget every fault."""
        await asyncio.to_thread(self.proxy.heal)
