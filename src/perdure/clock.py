"""Clocks: a clock is a callable that returns integer milliseconds, UTC, and is passed as an argument.

Production uses `system_clock`; tests use `ManualClock` and move it by hand, backwards too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """The machine's wall clock in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def steady_clock() -> Clock:
    """The wall clock as of now, carried on by the monotonic one: setting the machine's time does not move it."""
    start = system_clock() - time.monotonic_ns() // 1_000_000
    return lambda: start + time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now: int = now

    def __call__(self) -> int:
        """The time it shows."""
        return self.now

    def advance(self, ms: int) -> None:
        """Move by `ms`; a negative number jumps back."""
        self.now += ms
