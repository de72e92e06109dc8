"""How a thread of an engine gives tasks their answers, in their event loops. Watchers wait for `kernel.signals`."""

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


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Give a future its outcome, in its own loop; a task that was cancelled no longer waits for one."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
