"""One connection to a server, and one request and its answer on it at a time.

A request is one write, and what comes back goes to the parser as it comes, without a turn of the event loop between.
What comes unasked ends the connection, except on one that listens to channels.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from perdure import limits
from perdure.engines.redis.connections.failures import InvalidReply, Lost, Silent, cleaned, reason_of
from perdure.engines.redis.connections.resp import PENDING, SMALL, Answers, command

_ROOM = 65_536
_PING = command(b"PING")
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer that is gone without a word is noticed after a minute; systems name these options differently."""


class Line(asyncio.BufferedProtocol):
    """A connection. `where` names the server in errors; `patience` is how many seconds an answer may take; `secrets`
    are never repeated from what the server says."""

    def __init__(self, where: str, patience: float, secrets: tuple[str, ...] = ()) -> None:
        self._transport: Any = None
        self._where = where
        self._secrets = secrets
        self.patience = patience
        self._watchdog: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + patience
        self._answers = Answers(secrets=secrets)
        # A transport that brings its own buffer allocates a quarter of a megabyte for every answer.
        self._room = memoryview(bytearray(_ROOM))
        self._waiter: asyncio.Future[Any] | None = None
        self._hear: Callable[[Any], None] | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)

    @property
    def usable(self) -> bool:
        """Whether the other side has not hung up, and nothing came that nobody asked for: the next request would take
        that for its answer."""
        return not (self._lost or self._answers.unread or self._transport.is_closing())

    @property
    def idle_for(self) -> float:
        """Seconds since the last request was sent."""
        return self._loop.time() - self._due + self.patience

    async def answers(self, seconds: float) -> bool:
        """Whether the server answers a PING within so many seconds; if not, the connection is of no use any more."""
        try:
            async with asyncio.timeout(seconds):
                await self.ask(_PING, SMALL)
        except (Lost, TimeoutError):
            return False
        except BaseException:
            self.abort()
            raise
        return self.usable

    async def ask(self, packed: bytes, room: int) -> Any:
        """Send a request once and return its answer, of at most `room` bytes; an error reply is returned too."""
        if self._lost or self._transport.is_closing():
            raise Lost(f"{self._where}: the connection was lost")
        self._answers.room = room
        self._waiter = self._loop.create_future()
        self._due = self._loop.time() + self.patience
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self.patience, self._look)
        try:
            self._transport.write(packed)
            return await self._waiter
        finally:
            self._waiter = None

    def send(self, packed: bytes) -> None:
        """Send a request whose answer `listen` will hear."""
        if not self._lost:
            self._transport.write(packed)

    async def listen(self, hear: Callable[[Any], None]) -> None:
        """Give all that comes to `hear`, until the connection is lost, which raises `Lost`.

        A server that is silent for long is asked for a PING: a connection that was dropped on the way is silent too,
        and would be for ever.
        """
        self._answers.room = SMALL
        self._hear = hear
        while True:
            if not await self._hears_within(limits.IDLE_CHECK_MS / 1000):
                self.send(_PING)
                if not await self._hears_within(limits.SIGN_OF_LIFE_MS / 1000):
                    raise Silent(f"{self._where}: no sign of life")

    async def _hears_within(self, seconds: float) -> bool:
        if self._lost:
            raise Lost(f"{self._where}: the connection was lost")
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._waiter
        except TimeoutError:
            return False
        finally:
            self._waiter = None
        return True

    def _look(self) -> None:
        """Whether an answer is overdue. A timer for each request would cost more than the rest of sending it."""
        self._watchdog = None
        if self._waiter is None:
            return
        if self._loop.time() < self._due:
            self._watchdog = self._loop.call_at(self._due, self._look)
        else:
            self._fail(Silent(f"{self._where}: no answer within {self.patience:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put bytes that come."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        try:
            if self._hear is not None:
                self._heard(nbytes)
            elif self._waiter is None or self._waiter.done():
                self.abort()
            elif (answer := self._answers.feed(self._room[:nbytes])) is not PENDING:
                self._waiter.set_result(answer)
        except Lost as lost:
            self._fail(lost)
            self.abort()
        except (InvalidReply, ValueError) as error:
            told = cleaned(reason_of(error), self._secrets)
            self._fail(Lost(f"{self._where}: the answer cannot be read ({told})"))
            self.abort()

    def _heard(self, nbytes: int) -> None:
        hear, came = self._hear, self._answers.feed(self._room[:nbytes])
        while came is not PENDING and hear is not None:
            hear(came)
            came = self._answers.feed(b"")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up, or this one did."""
        self._lost = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        told = "the server closed it" if exc is None else cleaned(reason_of(exc), self._secrets)
        self._fail(Lost(f"{self._where}: the connection was lost ({told})"))

    def abort(self) -> None:
        """Hang up at once. With TLS a polite goodbye would wait for the other side's."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()
