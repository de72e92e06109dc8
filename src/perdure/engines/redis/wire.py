"""Connections to one server, and one request and its answer on each at a time.

The driver's client objects resend a request whose connection was lost, which could commit twice; so this engine takes
the driver's connections (handshake, TLS, parser) and asks them itself. A request is sent exactly once: what fails
before it was sent is `UnavailableError`, what fails after it is `Lost`, and a cancelled request takes its
connection with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from perdure.engines.redis.translate import ANSWERS, Lost, Silent, refusal, said, unreachable
from perdure.engines.redis.url import Address, Target
from perdure.kernel.refusals import closed

Locate = Callable[[], Awaitable[Address]]


def command(*arguments: bytes) -> bytes:
    """A request in the protocol's form."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        parts += (b"$%d\r\n" % len(argument), argument, b"\r\n")
    return b"".join(parts)


def new_connection(target: Target, address: Address, *, db: int | None = None) -> Connection:
    """A connection that is not connected yet. It never sends anything twice."""
    options: dict[str, Any] = {
        "host": address[0],
        "port": address[1],
        "db": target.db if db is None else db,
        "username": target.username,
        "password": target.password,
        "socket_connect_timeout": target.connect_timeout,
        "socket_timeout": None,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if target.tls:
        return SSLConnection(**options, **target.ssl)
    return Connection(**options)


class Pool:
    """At most so many connections to one server, the last used first."""

    def __init__(self, target: Target, locate: Locate) -> None:
        self._target = target
        self._locate = locate
        self._idle: list[Connection] = []
        self._free = target.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.where = target.shown

    async def request(self, packed: bytes) -> Any:
        """Send a request once and return its answer."""
        connection = await self._acquire()
        try:
            answer = await self._exchange(connection, packed)
        except ANSWERS:
            await self._release(connection)
            raise
        except BaseException:
            await self._discard(connection)
            raise
        await self._release(connection)
        return answer

    async def _exchange(self, connection: Connection, packed: bytes) -> Any:
        try:
            async with asyncio.timeout(self._target.command_timeout):
                await connection.send_packed_command(packed, check_health=False)
                return await connection.read_response(disable_decoding=True)
        except ANSWERS:
            raise
        except TimeoutError as error:
            raise Silent(f"{self.where}: no answer within {self._target.command_timeout:g} s") from error
        except (RedisError, OSError, EOFError) as error:
            raise Lost(f"{self.where}: the connection was lost ({said(error)})") from error

    async def _acquire(self) -> Connection:
        while self._free == 0:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
        if self._closed:
            self._wake()
            raise closed()
        self._free -= 1
        while self._idle:
            connection = self._idle.pop()
            if _alive(connection):
                return connection
            await connection.disconnect(nowait=True)
        try:
            return await self._connect()
        except BaseException:
            self._give_back()
            raise

    async def _connect(self) -> Connection:
        address = await self._locate()
        connection = new_connection(self._target, address)
        try:
            # The driver's own limit ends with the TCP connection; a server may take it and never greet.
            async with asyncio.timeout(self._target.connect_timeout):
                await connection.connect()  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            await connection.disconnect(nowait=True)
            raise unreachable(error, self.where) from error
        except ANSWERS as error:
            raise refusal(error, self.where) from error
        except (RedisError, OSError) as error:
            raise unreachable(error, self.where) from error
        return connection

    async def _release(self, connection: Connection) -> None:
        if self._closed or not _alive(connection) or _unread(connection):
            await self._discard(connection)
            return
        self._idle.append(connection)
        self._give_back()

    async def _discard(self, connection: Connection) -> None:
        self._give_back()
        await connection.disconnect(nowait=True)

    def _give_back(self) -> None:
        self._free += 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def drop_idle(self) -> None:
        """Let go of connections that may lead to the wrong server."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close what is idle; what is busy closes when it is done."""
        self._closed = True
        await self.drop_idle()


def _alive(connection: Connection) -> bool:
    """Whether the other side has not hung up. The driver tells only by reading, which costs a turn of the loop."""
    reader = getattr(connection, "_reader", None)
    return reader is not None and not reader.at_eof() and reader.exception() is None


def _unread(connection: Connection) -> bool:
    """Whether more came than the answer. The next request would take it for its own, so the connection must go."""
    if getattr(getattr(connection, "_reader", None), "_buffer", b""):
        return True
    # With hiredis, what came in is held by its own reader.
    has_data = getattr(getattr(getattr(connection, "_parser", None), "_reader", None), "has_data", None)
    return has_data is not None and bool(has_data())


def _sentinel(target: Target, address: Address) -> Connection:
    """A connection to a sentinel: with TLS if the master is spoken to with TLS, and without user and password."""
    options: dict[str, Any] = {
        "host": address[0],
        "port": address[1],
        "socket_connect_timeout": target.connect_timeout,
        "socket_timeout": target.connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if target.tls:
        return SSLConnection(**options, **target.ssl)
    return Connection(**options)


async def ask_sentinels(target: Target) -> Address:
    """The address of the master as the first sentinel that answers knows it."""
    told: list[str] = []
    for address in target.addresses:
        connection = _sentinel(target, address)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_packed_command(
                command(b"SENTINEL", b"get-master-addr-by-name", target.master.encode())
            )
            found: Sequence[bytes] | None = await connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            told.append(f"{address[0]}:{address[1]}: {error}")
        else:
            if found:
                return found[0].decode(), int(found[1])
            told.append(f"{address[0]}:{address[1]} knows no master {target.master!r}")
        finally:
            await connection.disconnect(nowait=True)
    raise unreachable(OSError("; ".join(told)), target.shown)
