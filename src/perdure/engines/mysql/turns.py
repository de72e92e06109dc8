"""Turns: transactions of one engine that name the same row or partition go one after another.

The server would serialise them anyway, but each would sit in a lock wait on a connection of its own, and one busy
thread could occupy them all. A caller joins the queues of all its names at once, so no two can wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager


class Turns:
    """Who is last in line for each name."""

    def __init__(self) -> None:
        self._tails: dict[Hashable, asyncio.Event] = {}

    @asynccontextmanager
    async def taking(self, names: Sequence[Hashable]) -> AsyncIterator[None]:
        """Wait for everybody who asked for one of these names before; then they are ours until the end."""
        done = asyncio.Event()
        before = [self._tails[name] for name in names if name in self._tails]
        for name in names:
            self._tails[name] = done
        try:
            for other in before:
                await other.wait()
            yield
        finally:
            # A caller that gives up while waiting lets the next one go ahead early: the server still has its locks.
            done.set()
            for name in names:
                if self._tails.get(name) is done:
                    del self._tails[name]
