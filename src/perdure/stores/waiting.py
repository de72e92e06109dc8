"""Where a follower waits: one subscription to hints, which any thread may end.

This is all that following knows of events, loops and threads. A hint may be lost, so whoever waits also looks again
every second.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from perdure import limits
from perdure.kernel.engine import Watch
from perdure.kernel.signals import running_loop
from perdure.stores.context import Context

_LOOK_AGAIN = limits.FOLLOW_POLL_MS / 1000


class Waiter:
    """Waits for hints on one topic; `close` ends the wait from any task or thread.

    The topic may be set later: until then there is nothing to subscribe to.
    """

    def __init__(self, context: Context, topic: str | None = None) -> None:
        self.closed: bool = False
        self.topic: str | None = topic
        self._context = context
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    def subscribe(self) -> None:
        """Take hints from now on; call it before the first look, so that nothing is missed in between."""
        if self._watch is None and self.topic is not None and not self.closed:
            self._loop = running_loop()
            self._watch = self._context.kernel.watch(self._context.scope, [self.topic])
            if self.closed:  # by another thread, which found nothing to release yet
                self._release()

    async def wait(self, seconds: float | None) -> None:
        """Wait for a hint, for the end, or until it is time to look again; at most `seconds`."""
        if self._watch is not None:
            await self._watch.wait(_LOOK_AGAIN if seconds is None else min(seconds, _LOOK_AGAIN))

    def close(self) -> None:
        """End the wait and the subscription; from any thread, any number of times."""
        self.closed = True
        self._release()

    def _release(self) -> None:
        if self._watch is None or os.getpid() != self._process:  # a forked child has no part in it
            return
        loop = self._loop
        with suppress(RuntimeError):  # the loop was closed, and with it whatever waited
            if loop is None or loop is running_loop() or not loop.is_running():
                self._watch.close()
            else:
                loop.call_soon_threadsafe(self._watch.close)
