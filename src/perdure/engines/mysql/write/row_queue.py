"""Turns: transactions of one engine that name the same row or partition go one after another.

The server would serialise them anyway, but each would sit in a lock wait on a connection of its own, and one busy
thread could occupy them all. A caller joins the queues of all its names at once, so no two can wait for each other.
The wait has a deadline; whoever gives up lets nobody overtake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager

from perdure.errors import UnavailableError

Turn = asyncio.Future[None]


class Turns:
    """Who is last in line for each name."""

    def __init__(self, where: str, seconds: float) -> None:
        self._where = where
        self._seconds = seconds
        self._tails: dict[Hashable, Turn] = {}

    @asynccontextmanager
    async def taking(self, names: Sequence[Hashable]) -> AsyncIterator[None]:
        """Wait for everybody who asked for one of these names before; then they are ours until the end."""
        before = {self._tails[name] for name in names if name in self._tails}
        turn: Turn = asyncio.get_running_loop().create_future()
        for name in names:
            self._tails[name] = turn
        turn.add_done_callback(lambda _: self._forget(names, turn))
        try:
            if before and (await asyncio.wait(before, timeout=self._seconds))[1]:
                raise self._too_long()
            yield
        finally:
            # Whoever gives up while waiting does not let the next one overtake those who are still at it.
            _end_after(before, turn)

    def _too_long(self) -> UnavailableError:
        return UnavailableError(
            f"earlier commits on the same rows of {self._where} took longer than {self._seconds:g} s;"
            " nothing was written",
            hint="retry; if it lasts, see what keeps the rows locked (SHOW PROCESSLIST)",
        )

    def _forget(self, names: Sequence[Hashable], turn: Turn) -> None:
        for name in names:
            if self._tails.get(name) is turn:
                del self._tails[name]


def _end_after(before: set[Turn], turn: Turn) -> None:
    """End a turn once all those before it have ended."""
    left = {other for other in before if not other.done()}
    if not left:
        turn.set_result(None)

    def ended(other: Turn) -> None:
        left.discard(other)
        if not left:
            turn.set_result(None)

    for other in left.copy():
        other.add_done_callback(ended)
