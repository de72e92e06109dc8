"""Connections to one server, and who may use one now.

The driver's client objects resend a request whose connection was lost, which could commit twice; so this engine makes
its own connections and asks them itself. A request is sent exactly once: what fails
before it was sent is `UnavailableError`, what fails after it is `Lost`, and a cancelled request takes its
connection with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from perdure import limits
from perdure.engines.redis.connections.connect import connect
from perdure.engines.redis.connections.connection import Line
from perdure.engines.redis.connections.failures import ErrorReply, Lost, reason_of
from perdure.engines.redis.connections.resp import SMALL
from perdure.engines.redis.errors import all_busy
from perdure.engines.redis.target import Address, Target
from perdure.kernel.lifecycle import closed

Locate = Callable[[], Awaitable[Address]]


_IDLE_CHECK = limits.IDLE_CHECK_MS / 1000


class Pool:
    """At most so many connections to one server, the last used first; who waits for one is served in order."""

    def __init__(self, target: Target, locate: Locate) -> None:
        self._target = target
        self._locate = locate
        self._idle: list[Line] = []
        self._free = target.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.where = target.shown

    async def request(self, packed: bytes, room: int = SMALL) -> Any:
        """Send a request once and return its answer, of at most `room` bytes."""
        line = self._ready() or await self._acquire()
        try:
            answer = await line.ask(packed, room)
        except BaseException:
            line.abort()
            self._give_back()
            raise
        if self._closed or not line.usable:
            line.abort()
        else:
            self._idle.append(line)
        self._give_back()
        if isinstance(answer, ErrorReply):
            raise answer
        if isinstance(answer, Lost):
            raise Lost(f"{self.where}: the connection was lost ({reason_of(answer)})") from answer
        return answer

    def _ready(self) -> Line | None:
        """A connection that can be used at once, if there is one."""
        if self._closed or not self._free or not self._idle:
            return None
        line = self._idle[-1]
        if not line.usable or line.idle_for > _IDLE_CHECK:
            return None
        self._free -= 1
        return self._idle.pop()

    async def _acquire(self) -> Line:
        await self._take_turn()
        try:
            if self._closed:
                raise closed()
            return await self._live_idle() or await self._connect()
        except BaseException:
            self._give_back()
            raise

    async def _take_turn(self) -> None:
        """Wait until fewer than all connections are in use, first come first served."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._target.command_timeout):
                await turn
        except BaseException as error:
            if turn.cancelled():
                with contextlib.suppress(ValueError):  # somebody who gave a turn back has passed it over already
                    self._waiting.remove(turn)
            elif turn.done():
                self._give_back()
            if isinstance(error, TimeoutError):
                raise all_busy(self.where, self._target.connections, self._target.command_timeout) from None
            raise

    def _give_back(self) -> None:
        """Hand the turn to whoever waits longest. It is not free for a moment between: the caller that just finished
        would take it with its next request, each time, and those who wait would wait for ever."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _live_idle(self) -> Line | None:
        """The idle connection that was used last, if it still works; if not, the others were idle for longer."""
        while self._idle:
            line = self._idle.pop()
            if not line.usable:
                line.abort()
            elif line.idle_for <= _IDLE_CHECK or await line.answers(limits.SIGN_OF_LIFE_MS / 1000):
                return line
            else:
                line.abort()
                self.drop_idle()
        return None

    async def _connect(self) -> Line:
        return await connect(self._target, await self._locate())

    def drop_idle(self) -> None:
        """Let go of connections that may lead to the wrong server."""
        idle, self._idle = self._idle, []
        for line in idle:
            line.abort()

    def close(self) -> None:
        """Close what is idle; what is busy closes when it is done."""
        self._closed = True
        self.drop_idle()
