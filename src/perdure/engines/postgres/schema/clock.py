"""The clock that stamps rows: the server's, unless the caller opened the store with another one."""

from __future__ import annotations

from perdure.clock import Clock, system_clock

SERVER_CLOCK = "floor(date_part('epoch', now()) * 1000)::bigint"
"""The server's time in milliseconds, as SQL."""


class StampClock:
    """The clock of one engine. Tests replace `clock` to move time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def now(self) -> int | None:
        """The time to send with a statement; None for the server's own."""
        return None if self.clock is system_clock else self.clock()
