"""Runs blocking tools, each in a thread of its own.

Not `asyncio.to_thread`: its few threads are shared with all that the process does, such as looking up host names. So
tools that take long would keep others waiting, which then run after their run was stopped, and would keep the store
from connecting again.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """What a blocking call returns. If this is cancelled, the call goes on, and what comes of it is dropped.

    The process does not wait for the thread when it ends.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[T] = loop.create_future()

    def finish(value: T | None, error: BaseException | None) -> None:
        if ended.cancelled():
            return
        if error is None:
            ended.set_result(value)  # type: ignore[arg-type]
        else:
            ended.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited, also `SystemExit`
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish, value, error)

    threading.Thread(target=work, name="perdure tool", daemon=True).start()
    return await ended
