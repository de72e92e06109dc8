"""A queue per row: transactions of one engine that name the same row or partition run one after another.

The server would serialise them anyway, but each would sit in a lock wait on its own connection, and one busy thread
could occupy them all. A caller joins the queues of all its rows at once, so no two can wait for each other:

    A joins {x}, B joins {x, y}, C joins {y}: B waits for A, and C for B. C cannot hold y while it waits for x.

The wait has a deadline; a caller that gives up lets none overtake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager

from perdure.errors import UnavailableError

Turn = asyncio.Future[None]
"""Done when its caller, and all before it, are finished."""


class RowQueue:
    """The last turn of each row that is in use."""

    def __init__(self, where: str, seconds: float) -> None:
        self._where = where
        self._seconds = seconds
        self._tails: dict[Hashable, Turn] = {}

    @asynccontextmanager
    async def turn(self, rows: Sequence[Hashable]) -> AsyncIterator[None]:
        """Wait for every earlier caller that named one of these rows; then they are ours until the block ends."""
        earlier = {self._tails[row] for row in rows if row in self._tails}
        turn: Turn = asyncio.get_running_loop().create_future()
        for row in rows:
            self._tails[row] = turn
        turn.add_done_callback(lambda _: self._forget(rows, turn))
        try:
            if earlier and (await asyncio.wait(earlier, timeout=self._seconds))[1]:
                raise self._too_long()
            yield
        finally:
            # A caller that gave up waiting must not let the next one overtake those that still run.
            _end_after(earlier, turn)

    def _too_long(self) -> UnavailableError:
        return UnavailableError(
            f"earlier commits on the same rows of {self._where} took longer than {self._seconds:g} s;"
            " nothing was written",
            hint="retry; if it persists, see information_schema.innodb_trx for open transactions",
        )

    def _forget(self, rows: Sequence[Hashable], turn: Turn) -> None:
        for row in rows:
            if self._tails.get(row) is turn:
                del self._tails[row]


def _end_after(earlier: set[Turn], turn: Turn) -> None:
    """End a turn once all earlier ones have ended."""
    left = {other for other in earlier if not other.done()}
    if not left:
        turn.set_result(None)

    def ended(other: Turn) -> None:
        left.discard(other)
        if not left:
            turn.set_result(None)

    for other in left.copy():
        other.add_done_callback(ended)
