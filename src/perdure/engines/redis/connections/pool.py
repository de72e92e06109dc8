"""The pool of connections to one server.

A request is sent exactly once: resending it after a lost connection could commit twice. A failure before it was sent is
`UnavailableError`, a failure after it is `Lost`, and a cancelled request closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

from perdure import limits
from perdure.engines.redis.connections.connect import connect
from perdure.engines.redis.connections.connection import Connection
from perdure.engines.redis.connections.failures import ErrorReply, Lost, reason_of
from perdure.engines.redis.connections.resp import SMALL, Element
from perdure.engines.redis.errors import all_busy
from perdure.engines.redis.target import Address, Target
from perdure.engines.shared.events import EngineLog
from perdure.kernel.lifecycle import closed

_IDLE_CHECK = limits.IDLE_CHECK_MS / 1000


class Pool:
    """At most `target.connections` connections to one server, the last used first; waiting requests go in order."""

    def __init__(self, target: Target, address: Address, log: EngineLog) -> None:
        self._target = target
        self._address = address
        self._idle: list[Connection] = []
        self._free = target.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.where = target.display_url
        self.log = log

    async def request(self, packed: bytes, room: int = SMALL, then: Element | None = None) -> Any:
        """Send a request once and return its reply, of at most `room` bytes; with `then`, a list of two."""
        connection = self._ready() or await self._acquire()
        try:
            reply = await connection.ask(packed, room, then)
        except BaseException as error:
            connection.abort()
            self._release_turn()
            if isinstance(error, Lost):
                self.log.lost(error)
            raise
        if self._closed or not connection.usable:
            connection.abort()
        else:
            self._idle.append(connection)
        self._release_turn()
        for part in (reply,) if then is None else reply:
            if isinstance(part, ErrorReply):
                raise part
            if isinstance(part, Lost):
                self.log.lost(part)
                raise Lost(f"{self.where}: the connection was lost ({reason_of(part)})") from part
        return reply

    def _ready(self) -> Connection | None:
        """An idle connection that needs no check, if there is one."""
        if self._closed or not self._free or not self._idle:
            return None
        connection = self._idle[-1]
        if not connection.usable or connection.idle_for > _IDLE_CHECK:
            return None
        self._free -= 1
        return self._idle.pop()

    async def _acquire(self) -> Connection:
        await self._wait_turn()
        try:
            if self._closed:
                raise closed()
            return await self._live_idle() or await self._connect()
        except BaseException:
            self._release_turn()
            raise

    async def _connect(self) -> Connection:
        connection = await connect(self._target, self._address)
        self.log.connected()
        return connection

    async def _wait_turn(self) -> None:
        """Wait until a connection may be used, first come first served."""
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
                with contextlib.suppress(ValueError):  # a released turn has skipped it already
                    self._waiting.remove(turn)
            elif turn.done():
                self._release_turn()
            if isinstance(error, TimeoutError):
                raise all_busy(self.where, self._target.connections, self._target.command_timeout) from None
            raise

    def _release_turn(self) -> None:
        """Pass the turn to the request that has waited longest. It is never free in between: the caller that just
        finished would take it again with its next request, each time, and starve the others."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _live_idle(self) -> Connection | None:
        """The idle connection that was used last, if it still works; otherwise all are dropped, idle for longer."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.usable:
                self.log.lost()
                connection.abort()
            elif connection.idle_for <= _IDLE_CHECK or await connection.is_alive(limits.SIGN_OF_LIFE_MS / 1000):
                return connection
            else:
                self.log.lost()
                connection.abort()
                self.drop_idle()
        return None

    def drop_idle(self) -> None:
        """Close connections that may lead to the wrong server."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()

    def close(self) -> None:
        """Close idle connections; busy ones close when their request ends."""
        self._closed = True
        self.drop_idle()
