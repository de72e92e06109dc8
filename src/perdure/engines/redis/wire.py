"""Connections to one server, and who may use one now.

The driver's client objects resend a request whose connection was lost, which could commit twice; so this engine takes
the driver's connections (handshake, TLS) and asks them itself. A request is sent exactly once: what fails
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

from perdure.engines.redis.line import Line
from perdure.engines.redis.resp import command
from perdure.engines.redis.translate import ANSWERS, Lost, no_master, refusal, said, unreachable
from perdure.engines.redis.url import Address, Target
from perdure.kernel.refusals import closed

Locate = Callable[[], Awaitable[Address]]


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
        self._idle: list[Line] = []
        self._free = target.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.where = target.shown

    async def request(self, packed: bytes) -> Any:
        """Send a request once and return its answer."""
        line = self._ready() or await self._acquire()
        try:
            answer = await line.ask(packed)
        except BaseException:
            line.abort()
            self._give_back()
            raise
        if self._closed or not line.usable:
            line.close()
        else:
            self._idle.append(line)
        self._give_back()
        if isinstance(answer, ANSWERS):
            raise answer
        if isinstance(answer, RedisError):
            raise Lost(f"{self.where}: the connection was lost ({said(answer)})") from answer
        return answer

    def _ready(self) -> Line | None:
        """A connection that can be used at once, if there is one."""
        if self._closed or not self._free:
            return None
        while self._idle:
            line = self._idle.pop()
            if line.usable:
                self._free -= 1
                return line
            line.close()
        return None

    async def _acquire(self) -> Line:
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
        line = self._ready()
        if line is not None:
            return line
        self._free -= 1
        try:
            return await self._connect()
        except BaseException:
            self._give_back()
            raise

    async def _connect(self) -> Line:
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
        return Line(connection, self.where, self._target.command_timeout)

    def _give_back(self) -> None:
        self._free += 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def drop_idle(self) -> None:
        """Let go of connections that may lead to the wrong server."""
        idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    def close(self) -> None:
        """Close what is idle; what is busy closes when it is done."""
        self._closed = True
        self.drop_idle()


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
    answers: list[tuple[str, Exception | None]] = []
    for address in target.addresses:
        connection = _sentinel(target, address)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_packed_command(
                command(b"SENTINEL", b"get-master-addr-by-name", target.master.encode())
            )
            found: Sequence[bytes] | None = await connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            answers.append((f"{address[0]}:{address[1]}", error))
        else:
            if found:
                return found[0].decode(), int(found[1])
            answers.append((f"{address[0]}:{address[1]}", None))
        finally:
            await connection.disconnect(nowait=True)
    raise no_master(answers, target.shown, target.master)
