"""A caller's redis-py client behind the interface of our pool: the engine uses its connections and never closes it.

This module is imported only if a caller passes a client, because redis-py is not a dependency. Connections come from
the client's pool and go back after each request, so its login, TLS, protocol and health checks apply. A request is
sent and its reply read on one connection here, because the client's own `execute_command` sends a request again when
the connection breaks, which could commit twice. A connection that was left in the middle of a request is disconnected
before it goes back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.sentinel import SentinelConnectionPool

from perdure.engines.redis.connections.borrowed_listener import BorrowedListener
from perdure.engines.redis.connections.failures import ErrorReply, Lost, Silent, cleaned, parse_error, reason_of
from perdure.engines.redis.connections.pool import Pool
from perdure.engines.redis.connections.resp import SMALL, Element, command
from perdure.engines.redis.errors import client_busy, foreign_client, refusal, unreachable_client
from perdure.engines.redis.target import Target
from perdure.engines.shared.events import EngineLog
from perdure.errors import InvalidError, UnavailableError
from perdure.kernel.lifecycle import closed

_CODES: dict[type[Exception], str] = {
    exceptions.AskError: "ASK",
    exceptions.AuthenticationError: "NOAUTH",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.ExecAbortError: "EXECABORT",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.MovedError: "MOVED",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.NoScriptError: "NOSCRIPT",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.TryAgainError: "TRYAGAIN",
}
"""The client drops the code of an error reply and raises a class instead."""
_WRONG_SERVER = ("READONLY", "MASTERDOWN")
_ALL_IN_USE = ("Too many connections", "No connection available.")
_PAUSES = (0.001, 0.05)
"""Seconds between two looks at a pool whose connections are all in use, at first and at most."""


def refuse_other(client: object) -> Redis:
    """The client, if it is one for a single server; `InvalidError` for anything else."""
    if not isinstance(client, Redis) or isinstance(client, Pipeline):
        raise InvalidError(
            f"pool must be a redis.asyncio.Redis client, not {type(client).__module__}.{type(client).__name__}",
            hint="pool=redis.asyncio.Redis.from_url(…); for a cluster open redis+cluster:// without pool",
        )
    if isinstance(client.connection_pool, SentinelConnectionPool):
        raise InvalidError(
            "pool must be a client of one server, not of a master that sentinels name",
            hint="open redis+sentinel:// without pool",
        )
    return client


class BorrowedClient(Pool):
    """At most `connections` connections of a caller's client at a time; waiting requests go in order.

    One connection is left for wake-up hints, unless the client has only one: then `listens` is False.
    """

    def __init__(self, target: Target, client: object, log: EngineLog) -> None:
        self._pool: Any = refuse_other(client).connection_pool
        settings: dict[str, Any] = self._pool.connection_kwargs
        most = int(self._pool.max_connections)
        self.listens = most > 1
        size = max(1, min(target.connections, most - 1))
        self.target = replace(target, db=_database(target, settings), connections=size)
        super().__init__(self.target, target.addresses[0], log)
        self._secrets = tuple(text for text in (settings.get("password"),) if isinstance(text, str) and text)
        # Older releases require the name of a command here, newer ones warn about it.
        named = inspect.signature(self._pool.get_connection).parameters.get("command_name")
        self._arguments = ("_",) if named is not None and named.default is named.empty else ()
        self._returning: set[asyncio.Task[None]] = set()

    async def check(self) -> None:
        """Raise unless the client's connections can be used from here."""
        try:
            await self.request(command(b"PING"))
        except ErrorReply as error:
            raise refusal(error, self.where) from error
        except Lost as lost:
            if isinstance(lost.__cause__, RuntimeError):
                raise foreign_client(lost.__cause__) from lost
            raise

    async def request(self, packed: bytes, room: int = SMALL, then: Element | None = None) -> Any:
        """Send a request once and return its reply; there is only one."""
        await self._wait_turn()
        try:
            connection = await self.acquire()
        except BaseException:
            self._release_turn()
            raise
        reply: Any = None
        try:
            reply = await self._exchange(connection, packed)
        except BaseException:
            self._schedule(self._end_turn(connection, sound=False))
            raise
        sound = not (isinstance(reply, ErrorReply) and reply.code in _WRONG_SERVER)
        # Back before the call returns: other users of a small pool would get an error, not a place in a queue.
        await asyncio.shield(self._schedule(self._end_turn(connection, sound=sound)))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def acquire(self) -> Any:
        """A connection of the client that is ready for a request; waits for `connect_timeout` while all are in use."""
        if self._closed:
            raise closed()
        seconds, busy = self._target.connect_timeout, False
        try:
            async with asyncio.timeout(seconds):
                pause = _PAUSES[0]
                while True:
                    try:
                        return await self._connect()
                    except exceptions.ConnectionError as error:
                        busy = str(error) in _ALL_IN_USE
                        if not busy:
                            raise
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _PAUSES[1])
        except TimeoutError as error:
            if busy or not self._pool.can_get_connection():  # some pools wait for a connection themselves
                raise client_busy(self.where, int(self._pool.max_connections), seconds) from None
            raise self._unreachable(error) from error
        except exceptions.RedisError as error:
            raise self._unreachable(error) from error
        except RuntimeError as error:
            raise foreign_client(error) from error

    async def _connect(self) -> Any:
        connection = await self._pool.get_connection(*self._arguments)
        try:
            await connection.check_health()
        except BaseException:
            self.give_back(connection, sound=False)
            raise
        return connection

    def _unreachable(self, error: Exception) -> Exception:
        reply = self._error_reply(error)
        if isinstance(reply, ErrorReply) and not reply.is_login:
            return refusal(reply, self.where)
        return unreachable_client(error, self.where, cleaned(reason_of(error), self._secrets), reply)

    async def _exchange(self, connection: Any, packed: bytes) -> Any:
        """The reply, or the error that the server replied with; `Lost` if there is none."""
        try:
            async with asyncio.timeout(self._target.command_timeout):
                await connection.send_packed_command(packed, check_health=False)
                return normal(await connection.read_response(disable_decoding=True))
        except (TimeoutError, exceptions.TimeoutError) as error:
            raise Silent(f"{self.where}: no answer in time ({self._reason(error)})") from error
        except Exception as error:
            reply = self._error_reply(error)
            if reply is not None:
                return reply
            raise Lost(f"{self.where}: the connection was lost ({self._reason(error)})") from error

    def _reason(self, error: Exception) -> str:
        return cleaned(reason_of(error), self._secrets)

    def _error_reply(self, error: Exception) -> ErrorReply | None:
        """The server's reply behind an error of the client; None if there is none."""
        code = _CODES.get(type(error))
        if code is None and not isinstance(error, exceptions.ResponseError):
            return None
        reply = parse_error(cleaned(f"{code} {error}" if code else str(error), self._secrets))
        return reply if isinstance(reply, ErrorReply) else None

    async def _end_turn(self, connection: Any, *, sound: bool) -> None:
        try:
            await self._return(connection, sound=sound)
        finally:
            self._release_turn()

    async def _return(self, connection: Any, *, sound: bool, sender: asyncio.Task[None] | None = None) -> None:
        try:
            if sender is not None:
                # Until it has ended, it could connect again what is disconnected here. The reader met its failure too.
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
            if not sound:
                with suppress(exceptions.RedisError, OSError, RuntimeError):
                    await connection.disconnect(nowait=True)
        finally:
            await self._pool.release(connection)

    def give_back(self, connection: Any, *, sound: bool, sender: asyncio.Task[None] | None = None) -> None:
        """Return a connection in a task, so that a cancelled caller cannot lose it; disconnect it unless sound."""
        self._schedule(self._return(connection, sound=sound, sender=sender))

    def _schedule(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        return task

    async def listener(self) -> BorrowedListener:
        """A connection for wake-up hints; `UnavailableError` if the client has none to spare."""
        if not self.listens:
            raise UnavailableError(f"{self.where}: the client has one connection, which requests need")
        return BorrowedListener(await self.acquire(), self.where, self.give_back)

    def drop_idle(self) -> None:
        """Nothing: idle connections are the caller's."""

    async def drain(self) -> None:
        """Wait until every connection is back."""
        while self._returning:
            await asyncio.wait(self._returning)


def _database(target: Target, settings: dict[str, Any]) -> int:
    """The database of the client, which the URL may name too."""
    selected = int(settings.get("db") or 0)
    if target.names_db and target.db != selected:
        raise InvalidError(
            f"the client uses the database {selected}, the URL names {target.db}",
            hint="name the same in both, or none in the URL: redis://host?prefix=…",
        )
    return selected


def normal(reply: Any) -> Any:
    """A reply as RESP2 sends it: maps and sets as lists, doubles as text, True as 1 and False as NULL."""
    kind = type(reply)
    if kind is list:
        return reply if all(type(value) is bytes for value in reply) else [normal(value) for value in reply]
    if kind is dict:
        return [normal(value) for pair in reply.items() for value in pair]
    if kind in (set, frozenset, tuple):
        return [normal(value) for value in reply]
    if kind is bool:
        return 1 if reply else None
    if kind is float:
        return f"{reply:.17g}".encode()
    return reply.encode() if kind is str else reply
