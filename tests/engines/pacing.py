"""Timeouts without waiting for them: an event loop whose clock is slow, and is put forward by the test.

A test that sets a timeout of half a second because it is to strike also sets it for everything that is to succeed, and
a busy machine can stand still for longer than that. On a slow clock half a second is ten; where the timeout is wanted,
the test lets the time pass at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

SLOWNESS = 20.0


def slow_clock() -> Callable[[float], None]:
    """Slow down the running loop's clock; what is returned puts it forward by so many seconds."""
    loop: Any = asyncio.get_running_loop()
    real, begun, ahead = loop.time, loop.time(), 0.0

    def advance(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    loop.time = lambda: begun + (real() - begun) / SLOWNESS + ahead
    return advance
