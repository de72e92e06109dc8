"""One connection to a server, and one request and its answer on it at a time.

The driver connects (handshake, password, TLS), then its stream is taken off and this is put in its place: a request is
one write, and what comes back goes to the parser as it comes, without a turn of the event loop between.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError

from perdure.engines.redis.resp import PENDING, Answers, command
from perdure.engines.redis.translate import Lost, Silent, said

_ROOM = 65_536
_PING = command(b"PING")


class Line(asyncio.BufferedProtocol):
    """A connection that the driver has made; it is ours from here on."""

    def __init__(self, connection: Connection, where: str, patience: float) -> None:
        # The writer is kept because it closes its transport when it is collected.
        self._writer: Any = getattr(connection, "_writer")  # noqa: B009 - no part of the driver's public face
        self._transport: Any = self._writer.transport
        self._where = where
        self._patience = patience
        self._watchdog: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + patience
        self._answers = Answers()
        # A transport that brings its own buffer allocates a quarter of a megabyte for every answer.
        self._room = memoryview(bytearray(_ROOM))
        self._waiter: asyncio.Future[Any] | None = None
        self._lost = False
        for name in ("_reader", "_writer"):
            setattr(connection, name, None)
        self._transport.set_protocol(self)

    @property
    def usable(self) -> bool:
        """Whether the other side has not hung up, and nothing came that nobody asked for: the next request would take
        that for its answer."""
        return not (self._lost or self._answers.unread or self._transport.is_closing())

    @property
    def idle_for(self) -> float:
        """Seconds since the last request was sent."""
        return self._loop.time() - self._due + self._patience

    async def answers(self, seconds: float) -> bool:
        """Whether the server answers a PING within so many seconds; if not, the connection is of no use any more."""
        try:
            async with asyncio.timeout(seconds):
                await self.ask(_PING)
        except (Lost, TimeoutError):
            return False
        except BaseException:
            self.abort()
            raise
        return self.usable

    async def ask(self, packed: bytes) -> Any:
        """Send a request once and return its answer; a refusal is returned as the driver's error."""
        if self._lost or self._transport.is_closing():
            raise Lost(f"{self._where}: the connection was lost")
        self._waiter = self._loop.create_future()
        self._due = self._loop.time() + self._patience
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._patience, self._look)
        try:
            self._transport.write(packed)
            return await self._waiter
        finally:
            self._waiter = None

    def _look(self) -> None:
        """Whether an answer is overdue. A timer for each request would cost more than the rest of sending it."""
        self._watchdog = None
        if self._waiter is None:
            return
        if self._loop.time() < self._due:
            self._watchdog = self._loop.call_at(self._due, self._look)
        else:
            self._fail(Silent(f"{self._where}: no answer within {self._patience:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put bytes that come."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        try:
            answer = self._answers.feed(self._room[:nbytes])
        except (RedisError, ValueError) as error:
            self._fail(Lost(f"{self._where}: the answer cannot be read ({said(error)})"))
            self.abort()
            return
        if answer is PENDING:
            return
        if self._waiter is None or self._waiter.done():
            self.abort()
        else:
            self._waiter.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up, or this one did."""
        self._lost = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        told = "the server closed it" if exc is None else said(exc)
        self._fail(Lost(f"{self._where}: the connection was lost ({told})"))

    def abort(self) -> None:
        """Hang up at once. With TLS a polite goodbye would wait for the other side's."""
        self._lost = True
        self._transport.abort()
