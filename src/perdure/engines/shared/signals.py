"""Calls a function in an event loop, from any thread. Watchers wait for `kernel.signals`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call `function` in the loop, from any thread; does nothing if the loop was closed, where no task waits."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return
