"""How blocking callers run async stores without an event loop.

The stores are coroutines over an engine. Over an engine's *blocking view* those coroutines never suspend: each `await`
below them returns at once with the finished result, because the engine did the work on the caller's own thread. So one
`send(None)` runs a whole call, and the blocking face costs a function call instead of a thread hop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from perdure.errors import UnsupportedError

T = TypeVar("T")


class Driver:
    """Runs coroutines that never suspend, in the process that made it, outside event loops."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call."""
        try:
            self._refuse_wrong_place()
            call.send(None)
        except StopIteration as finished:
            result: T = finished.value
            return result
        except BaseException:
            call.close()
            raise
        call.close()
        raise UnsupportedError("this engine cannot serve blocking callers", hint="use perdure.open with async code")

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an async iterator, one blocking step at a time."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self.run(close())

    def _refuse_wrong_place(self) -> None:
        if os.getpid() != self._pid:
            raise UnsupportedError("this store was opened before a fork", hint="open a store of its own in the child")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise UnsupportedError(
            "a blocking call inside a running event loop would stop the loop", hint="use perdure.open and await"
        )


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
