"""Logs in to PostgreSQL without sending the password in clear to an unverified server.

The server chooses how a client authenticates, and asyncpg complies: a man in the middle who refuses TLS and requests
the password in clear text would get it. asyncpg accepts the event loop to connect with, so it gets one that puts a
guard between the driver and the socket. The guard inspects what arrives before the driver does: a request for the
password in clear passes over verified TLS and Unix sockets only, or where the URL allows it. It guards the connection
that is used, so a server cannot behave differently for a probe and for the login.

The guard also bounds what a server may send, during the login and per answer.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from typing import Any

import asyncpg

from perdure import limits
from perdure.engines.postgres.connections.message_guard import CleartextAsked, Inspection, Offence
from perdure.engines.postgres.errors import DRIVER_ERRORS, unreadable
from perdure.errors import InvalidError, PerdureError, UnavailableError

_TLS_REQUEST = struct.pack("!II", 8, 80_877_103)
"""The client's first request; the answer is a single letter, not a message."""


class LoginLoop:
    """The running event loop as the driver sees it: every TCP connection it makes is guarded.

    `refusal` makes the error for a server that the guard cut off; the driver only notices a lost connection.
    `connected` separates failures of the server from mistakes in the URL; `logged_in` says that the login is over.
    """

    def __init__(self, *, allow_cleartext: bool, metered: bool) -> None:
        self.running: Any = asyncio.get_running_loop()
        self.allow_cleartext = allow_cleartext
        self.metered = metered
        self.refusal: Callable[[str], PerdureError] | None = None
        self.connected = False
        self.logged_in = False
        # The driver sets a timer for every statement; this saves a call of `__getattr__`.
        self.call_later = self.running.call_later

    def __getattr__(self, name: str) -> Any:
        return getattr(self.running, name)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the driver's. If a login is cancelled, nobody reads how it ended; asyncio would log that."""
        future: asyncio.Future[Any] = self.running.create_future()
        if not self.logged_in:
            future.add_done_callback(_read)
        return future

    async def create_connection(
        self, factory: Callable[[], Any], host: str | None = None, port: int | None = None, **options: Any
    ) -> tuple[GuardedTransport, Any]:
        """Connect; returns the guarded transport."""
        if self.refusal is not None:
            # The driver would retry the same server without TLS.
            raise ConnectionError("this server was refused")
        _, guard = await self.running.create_connection(lambda: _Guard(self, factory(), host), host, port, **options)
        return guard.transport, guard.protocol

    async def start_tls(self, transport: GuardedTransport, protocol: Any, context: Any, **options: Any) -> Any:
        """Upgrade the connection to TLS, guarded as before."""
        secured = await self.running.start_tls(transport.inner, protocol, context, **options)
        return None if secured is None else GuardedTransport(self, secured, transport.host)


def _read(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class GuardedTransport:
    """A transport that inspects and bounds what arrives. `offence`: why it was cut off, if it was."""

    def __init__(self, loop: LoginLoop, inner: Any, host: str | None) -> None:
        tls = inner.get_extra_info("ssl_object")
        self.inner = inner
        self.host = host
        self.encrypted = tls is not None
        self.verified = tls is not None and tls.context.verify_mode == ssl.CERT_REQUIRED
        self.offence: str | None = None
        self._loop = loop
        self._inspection: Inspection | None = None
        self._received = 0
        self._most: int | None = limits.LOGIN_BYTES

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def logged_in(self) -> None:
        """The login is over: from now on every answer is bounded separately."""
        if self._inspection is not None:
            self._inspection.logging_in = False
        self._received = 0
        self._most = limits.ANSWER_BYTES if self._loop.metered else None

    def set_protocol(self, protocol: Any) -> None:
        """Deliver what arrives to another protocol, guarded as before."""
        guard = _Guard(self._loop, protocol, self.host)
        guard.transport = self
        self.inner.set_protocol(guard)

    def write(self, data: Any) -> None:
        """Send. The first message other than the TLS request starts the login."""
        if self._inspection is None:
            if data != _TLS_REQUEST:
                self._inspection = Inspection(cleartext=self.verified or self._loop.allow_cleartext)
        elif not self._inspection.logging_in:
            self._received = 0
        self.inner.write(data)

    def writelines(self, buffers: Any) -> None:
        """Send several buffers."""
        for buffer in buffers:
            self.write(buffer)

    def admit(self, data: bytes) -> bytes:
        """The bytes that the driver may read; none, and the connection is aborted, when the server misbehaves."""
        self._received += len(data)
        try:
            if self._most is not None and self._received > self._most:
                raise Offence(f"it sent more than {self._most:,} bytes")
            return data if self._inspection is None else self._inspection.admit(data)
        except Offence as offence:
            self.cut_off(offence)
            return b""

    def cut_off(self, offence: Offence) -> None:
        """Abort the connection because the server misbehaved."""
        self.offence = f"the server was cut off: {offence}"
        self._loop.refusal = _asks_for_cleartext if isinstance(offence, CleartextAsked) else _offends(str(offence))
        self.inner.abort()


class _Guard:
    """The driver's protocol as the event loop sees it: it gets the guarded transport, and what that admits."""

    transport: GuardedTransport

    def __init__(self, loop: LoginLoop, protocol: Any, host: str | None) -> None:
        self.protocol = protocol
        self._loop = loop
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self.protocol, name)

    def connection_made(self, transport: Any) -> None:
        self._loop.connected = True
        self.transport = GuardedTransport(self._loop, transport, self._host)
        self.protocol.connection_made(self.transport)

    def data_received(self, data: bytes) -> None:
        admitted = self.transport.admit(data)
        if not admitted:
            return
        try:
            self.protocol.data_received(admitted)
        except Exception:  # noqa: BLE001 - an unexpected answer breaks the driver; asyncio would log it as fatal
            self.transport.cut_off(Offence("it sent an unexpected message"))


def _asks_for_cleartext(where: str) -> PerdureError:
    return InvalidError(
        f"{where} asks for the password in clear text, and the connection does not prove who is asking: not sent",
        hint="verify the server with sslmode=verify-full, or let it use scram-sha-256; "
        "allow_cleartext=yes sends the password to any server that answers",
    )


def _offends(offence: str) -> Callable[[str], PerdureError]:
    return lambda where: UnavailableError(
        f"the login to {where} was broken off: {offence}", hint="check host and port in the URL"
    )


def _readable(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method of a connection: any failure of the driver on an answer becomes one of the driver's errors."""

    async def call(self: GuardedConnection, *args: Any, **options: Any) -> Any:
        try:
            return await method(self, *args, **options)
        except DRIVER_ERRORS as error:
            if self.transport is not None and self.transport.offence is not None:
                raise asyncpg.InternalClientError(self.transport.offence) from error
            raise
        except Exception as error:
            raise unreadable(error) from error

    return call


class GuardedConnection(asyncpg.Connection):  # type: ignore[misc] # the driver has no types
    """A connection that logged in through the guard; `transport` knows how it is protected, None on a Unix socket."""

    def __init__(self, *args: Any, **options: Any) -> None:
        guards = [argument for argument in args if isinstance(argument, GuardedTransport)]
        self.transport = guards[0] if guards else None
        if self.transport is not None:
            self.transport.logged_in()
        # From here on the driver needs the real loop, to look up the current task.
        plain: list[Any] = []
        for each in args:
            if isinstance(each, LoginLoop):
                each.logged_in = True
            plain.append(each.running if isinstance(each, LoginLoop) else each)
        super().__init__(*plain, **options)

    execute = _readable(asyncpg.Connection.execute)
    executemany = _readable(asyncpg.Connection.executemany)
    fetch = _readable(asyncpg.Connection.fetch)
    fetchrow = _readable(asyncpg.Connection.fetchrow)
    fetchval = _readable(asyncpg.Connection.fetchval)
    add_listener = _readable(asyncpg.Connection.add_listener)
