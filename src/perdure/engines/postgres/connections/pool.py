"""Connections: a bounded free list, opened with bounded patience.

The driver's pool resets a connection each time it comes back, which costs a round trip; ours hands connections on as
they are, because no statement here leaves session state behind. A connection that was idle for long is tried first,
with a short deadline: a firewall may have dropped it silently, and the statement that notices is then not a commit. A
caller's pool (`borrowed_pool`) is used through its `acquire` and `release` and never closed. Waiting for a connection
is bounded, but a caller keeps waiting while others ahead of it get theirs.

Every acquired connection comes back: with `release` when it is known to be idle, with `discard` when it broke or was
left in the middle of a statement.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from perdure.engines.postgres.connections.connect import Connection, Connector
from perdure.engines.postgres.connections.login import GuardedTransport
from perdure.engines.postgres.connections.permits import Permits
from perdure.engines.postgres.connections.session_settings import BEGIN, KEEPALIVE
from perdure.engines.postgres.errors import DRIVER_ERRORS, all_in_use, lost, never_sent, translate, unreadable
from perdure.engines.postgres.target import Target
from perdure.engines.shared.events import EngineLog
from perdure.engines.shared.lifecycle import Lifecycle, State

IDLE_SECONDS = 30.0
"""A connection that was idle for longer is tried before it is used."""
TRIAL_SECONDS = 5.0
_READ_ONLY = "default_transaction_read_only"
"""Whether the server takes no writes now: PostgreSQL 14 and newer report it with the answer to any statement."""


class Pool(ABC):
    """Connections for the rest of the engine. `needs_setup` is True where every statement runs in a transaction that
    applies our settings to the session. A `tuned` statement relies on those settings wherever it runs."""

    def __init__(self, target: Target, *, size: int, ours: bool, read_only: bool) -> None:
        self.needs_setup = not target.prepared
        self.where = target.display_url
        self.log = EngineLog("postgres", target.display_url)
        self.size = size
        self.lifecycle = Lifecycle(self, target.display_url, read_only=read_only, one_loop=True)
        self._ours = ours
        self._command_timeout = target.command_timeout

    @abstractmethod
    async def acquire(self) -> Connection:
        """A connection for this caller alone."""

    @abstractmethod
    def release(self, connection: Connection) -> None:
        """Return an idle connection."""

    @abstractmethod
    def discard(self, connection: Connection) -> None:
        """Give up a connection whose state is not known."""

    def transports(self) -> list[GuardedTransport]:
        """The network connections that this pool opened and that are open now; how others are protected is up to the
        caller."""
        return []

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """How many connections there are, and how many were opened and discarded."""

    @abstractmethod
    async def close(self) -> None:
        """Release what this pool opened; idempotent. If it is cancelled, call it again."""

    def abandon(self) -> None:
        """Stop at once, as the end of the process would."""
        self.lifecycle.finish_close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for several statements; it is given up if one of them fails."""
        connection = await self.acquire()
        try:
            yield connection
        except BaseException as error:
            self.discard(connection)
            if lost(error):
                self.log.lost(error)
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error, self.where) from error
            raise
        self.release(connection)

    async def fetch(self, connection: Connection, sql: str, arguments: Sequence[Any], *, tuned: bool) -> list[Any]:
        """Run one statement: as it is where the session suits it, else in a transaction that sets the session up."""
        timeout = self._command_timeout
        if not self.needs_setup and (self._ours or not tuned):
            rows: list[Any] = await connection.fetch(sql, *arguments, timeout=timeout)
            return rows
        # Behind a pooler the transaction also keeps the two exchanges of a statement (parse, run) in one session.
        await connection.execute(BEGIN, timeout=timeout)
        try:
            rows = await connection.fetch(sql, *arguments, timeout=timeout)
        except asyncpg.PostgresError as error:
            if not lost(error):
                await self._roll_back(connection)
            raise
        await connection.execute("COMMIT", timeout=timeout)
        return rows

    async def _roll_back(self, connection: Connection) -> None:
        """Roll back after a refusal, which is the error that the caller gets; terminate the connection if it fails."""
        try:
            await connection.execute("ROLLBACK", timeout=self._command_timeout)
        except DRIVER_ERRORS:
            connection.terminate()

    async def query(self, sql: str, arguments: Sequence[Any] = (), *, tuned: bool = False) -> list[Any]:
        """Read with one statement on any connection; retried once if the connection proves dead."""
        try:
            return await self.run(sql, arguments, tuned=tuned)
        except DRIVER_ERRORS as error:
            if not lost(error) or isinstance(error, asyncio.TimeoutError):
                raise translate(error, self.where) from error
        try:
            return await self.run(sql, arguments, tuned=tuned)
        except DRIVER_ERRORS as error:
            raise translate(error, self.where) from error

    async def run(self, sql: str, arguments: Sequence[Any], *, tuned: bool = False) -> list[Any]:
        """Run one statement on any connection; on another one if it was surely not sent. Raises the driver's errors."""
        while True:
            connection = await self.acquire()
            try:
                rows = await self.fetch(connection, sql, arguments, tuned=tuned)
            except BaseException as error:
                # A statement that the server refused leaves its connection sound.
                if isinstance(error, asyncpg.PostgresError) and not lost(error):
                    self.release(connection)
                else:
                    self.discard(connection)
                if lost(error):
                    self.log.lost(error)
                if isinstance(error, Exception) and not isinstance(error, DRIVER_ERRORS):
                    raise unreadable(error) from error
                if not never_sent(error):
                    raise
            else:
                self.release(connection)
                return rows


class OwnPool(Pool):
    """Connections that this engine opens."""

    def __init__(self, target: Target, settings: dict[str, str] | None = None, *, read_only: bool = False) -> None:
        super().__init__(target, size=target.connections, ours=True, read_only=read_only)
        self._target = target
        # A pooler hands sessions from client to client, so there session settings must not be assumed.
        session = {**KEEPALIVE, **(settings or {})} if target.prepared else {}
        self._connector = Connector(target, {"application_name": target.application, **session})
        self._permits = Permits(target.connections)
        self._idle: list[tuple[Connection, float]] = []
        self._open: set[Connection] = set()
        self._opened = 0
        self._discarded = 0
        self._withdrawn = 0

    async def acquire(self) -> Connection:
        """An idle connection, else a new one, else the next that comes back."""
        self.lifecycle.check_usable()
        try:
            # A holder opens the connection and runs one statement: within this time at least one of them is done.
            await self._permits.acquire(self._target.connect_timeout + self._target.command_timeout)
        except TimeoutError as error:
            hint = "raise connections= in the URL, or run fewer calls at once"
            raise all_in_use(self.where, self.size, hint) from error
        try:
            if self._idle:
                connection, since = self._idle[-1]
                if time.monotonic() - since < IDLE_SECONDS and not connection.is_closed():
                    self._idle.pop()
                    return connection
            return await self._reuse() or await self._connect()
        except BaseException:
            self._permits.release()
            raise

    async def _reuse(self) -> Connection | None:
        """The connection that was used last, if it still answers."""
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_closed():
                self.log.lost()
                self._drop(connection)
            elif time.monotonic() - since < IDLE_SECONDS or await self._answers(connection):
                return connection
        return None

    async def _answers(self, connection: Connection) -> bool:
        """Try a connection that was idle for long. Those that were idle for longer lead to the same server: if this one
        is dead they are not tried one by one."""
        try:
            await connection.execute("SELECT", timeout=min(TRIAL_SECONDS, self._target.connect_timeout))
        except BaseException as error:
            self._drop(connection)
            if not isinstance(error, DRIVER_ERRORS):
                raise
            self.log.lost(error)
            self._drop_idle()
            return False
        return True

    async def _connect(self) -> Connection:
        connection = await self._connector.open(first=not self._opened)
        self._opened += 1
        self._open.add(connection)
        self.log.connected()
        return connection

    def release(self, connection: Connection) -> None:
        """Keep it for the next caller."""
        if connection.is_closed() or self.lifecycle.state is State.CLOSED:
            self._drop(connection)
        elif self._target.read_write and getattr(connection.get_settings(), _READ_ONLY, "off") == "on":
            # Another server is the primary now. The idle connections lead to the same server.
            self.log.demoted()
            self._drop(connection)
            self._drop_idle()
        else:
            self._idle.append((connection, time.monotonic()))
        self._permits.release()

    def discard(self, connection: Connection) -> None:
        """Terminate it: it may be in the middle of a statement."""
        self._drop(connection)
        self._permits.release()

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._discarded += 1
        self._open.discard(connection)
        connection.terminate()

    def transports(self) -> list[GuardedTransport]:
        """Those of the connections that are open now."""
        return [connection.transport for connection in self._open if connection.transport is not None]

    def counters(self) -> dict[str, int]:
        """What `health` shows."""
        return {
            "most": self.size,
            "open": len(self._open),
            "idle": len(self._idle),
            "opened": self._opened,
            "discarded": self._discarded,
        }

    async def close(self) -> None:
        """Wait for the statements in flight, then close every connection gracefully."""
        if not self.lifecycle.begin_close():
            return
        with suppress(asyncio.TimeoutError):
            while self._withdrawn < self.size:
                await self._permits.acquire(self._target.command_timeout)
                self._withdrawn += 1
        while self._idle:
            connection, _ = self._idle.pop()
            self._open.discard(connection)
            try:
                await connection.close(timeout=self._target.connect_timeout)
            except BaseException as error:
                connection.terminate()
                if not isinstance(error, DRIVER_ERRORS):
                    raise
        self.lifecycle.finish_close()

    def abandon(self) -> None:
        """Terminate every connection."""
        super().abandon()
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
