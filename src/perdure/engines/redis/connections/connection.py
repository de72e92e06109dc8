"""One connection to a server, with one request in flight at a time.

A request is one write, and received bytes go to the parser at once, without a turn of the event loop in between. Data
that no request asked for ends the connection, except on one that listens to channels.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from perdure import limits
from perdure.engines.redis.connections.failures import InvalidReply, Lost, Silent, cleaned, reason_of
from perdure.engines.redis.connections.resp import PENDING, SMALL, Element, Parser, command

_PING = command(b"PING")
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer that vanished is noticed after a minute; systems name these options differently."""


class Connection(asyncio.BufferedProtocol):
    """A connection. `where` names the server in errors; `reply_timeout` is in seconds; `secrets` are removed from the
    server's words."""

    def __init__(self, where: str, reply_timeout: float, secrets: tuple[str, ...] = ()) -> None:
        self._transport: Any = None
        self._where = where
        self._secrets = secrets
        self.reply_timeout = reply_timeout
        self._watchdog: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + reply_timeout
        self._parser = Parser(secrets=secrets)
        self._waiter: asyncio.Future[Any] | None = None
        self._then: Element | None = None
        self._first: Any = PENDING
        self._on_reply: Callable[[Any], None] | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when TCP, and TLS if used, is established."""
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)

    @property
    def usable(self) -> bool:
        """Whether the peer has not hung up, and nothing is left unread: the next request would take that for its
        reply."""
        return not (self._lost or self._parser.unread or self._transport.is_closing())

    @property
    def idle_for(self) -> float:
        """Seconds since the last request was sent."""
        return self._loop.time() - self._due + self.reply_timeout

    async def is_alive(self, seconds: float) -> bool:
        """Whether the server replies to a PING in time; if not, the connection must not be used again."""
        try:
            async with asyncio.timeout(seconds):
                await self.ask(_PING, SMALL)
        except (Lost, TimeoutError):
            return False
        except BaseException:
            self.abort()
            raise
        return self.usable

    async def ask(self, packed: bytes, room: int, then: Element | None = None) -> Any:
        """Send a request once and return its reply, of at most `room` bytes; an error reply is returned too.

        With `then`, the request has two commands, and both replies are returned as a list. The second is an array, and
        `then` makes its values, as far as `Parser.element` does.
        """
        if self._lost or self._transport.is_closing():
            raise Lost(f"{self._where}: the connection was lost")
        self._parser.room = room
        self._then, self._first = then, PENDING
        self._waiter = self._loop.create_future()
        self._due = self._loop.time() + self.reply_timeout
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self.reply_timeout, self._check_deadline)
        try:
            self._transport.write(packed)
            return await self._waiter
        finally:
            self._waiter = None
            if then is not None:
                self._parser.element = memoryview.tobytes

    def send(self, packed: bytes) -> None:
        """Send a request whose reply goes to `listen`."""
        if not self._lost:
            self._transport.write(packed)

    async def listen(self, on_reply: Callable[[Any], None]) -> None:
        """Pass every reply to `on_reply` until the connection is lost, which raises `Lost`.

        A server that is silent for long gets a PING: a connection that was dropped on the way is silent too.
        """
        self._parser.room = SMALL
        self._on_reply = on_reply
        if self._watchdog is not None:  # of the login: nobody owes this connection a reply any more
            self._watchdog.cancel()
            self._watchdog = None
        while True:
            if not await self._receives_within(limits.IDLE_CHECK_MS / 1000):
                self.send(_PING)
                if not await self._receives_within(limits.SIGN_OF_LIFE_MS / 1000):
                    raise Silent(f"{self._where}: no sign of life")

    async def _receives_within(self, seconds: float) -> bool:
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

    def _check_deadline(self) -> None:
        """Fail an overdue request. One timer per request would cost more than the rest of sending it."""
        self._watchdog = None
        if self._waiter is None:
            return
        if self._loop.time() < self._due:
            self._watchdog = self._loop.call_at(self._due, self._check_deadline)
        else:
            self._fail(Silent(f"{self._where}: no answer within {self.reply_timeout:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for received bytes. A transport with its own would allocate one for every reply."""
        return self._parser.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Called when bytes are in the buffer."""
        try:
            if self._on_reply is not None:
                self._receive(nbytes)
            elif self._waiter is None or self._waiter.done():
                self.abort()
            elif (reply := self._parser.advance(nbytes)) is not PENDING:
                if self._then is not None:
                    reply = self._second(reply)
                if reply is not PENDING:
                    self._waiter.set_result(reply)
        except Lost as lost:
            self._fail(lost)
            self.abort()
        except (InvalidReply, ValueError) as error:
            reason = cleaned(reason_of(error), self._secrets)
            self._fail(Lost(f"{self._where}: the reply cannot be read ({reason})"))
            self.abort()

    def _second(self, reply: Any) -> Any:
        """Both replies of two, when the second has arrived."""
        if self._first is PENDING:
            self._first = reply
            self._parser.element = self._then or memoryview.tobytes
            reply = self._parser.advance(0)
        return PENDING if reply is PENDING else [self._first, reply]

    def _receive(self, nbytes: int) -> None:
        on_reply, reply = self._on_reply, self._parser.advance(nbytes)
        while reply is not PENDING and on_reply is not None:
            on_reply(reply)
            reply = self._parser.advance(0)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when either side has hung up."""
        self._lost = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        reason = "the server closed it" if exc is None else cleaned(reason_of(exc), self._secrets)
        self._fail(Lost(f"{self._where}: the connection was lost ({reason})"))

    def abort(self) -> None:
        """Terminate. Closing TLS gracefully would wait for the peer."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort()
