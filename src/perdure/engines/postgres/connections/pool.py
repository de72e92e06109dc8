"""Connections: a free list of held ones, bounded in number, opened with bounded patience.

The driver's own pool resets a connection each time it comes back, which costs a round trip; ours are handed on as they
are, because nothing here leaves session state behind. One that has been idle for long is tried first, with a short
deadline: a firewall may have dropped it without a word, and the statement that finds out is then not a commit. A
caller's own pool (`pool_borrowed`) is used through its `acquire` and `release` and never closed. Waiting for a
connection that others hold is bounded; a queue that moves is waited for as long as it does.

Whoever acquires a connection gives it back in every case: with `release` when it is known to be idle, with `discard`
when it broke or was left in the middle of something.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from perdure.engines.postgres.connections.connect import Connection, Way
from perdure.engines.postgres.connections.login import GuardedTransport
from perdure.engines.postgres.connections.permits import Permits
from perdure.engines.postgres.connections.session_settings import BEGIN, KEEPALIVE
from perdure.engines.postgres.errors import DRIVER_ERRORS, all_in_use, lost, never_sent, translate
from perdure.engines.postgres.target import Target
from perdure.errors import PerdureError
from perdure.kernel.lifecycle import closed, forked, other_loop

IDLE_SECONDS = 30.0
"""A connection that nobody used for so long is tried before it is used."""
TRIAL_SECONDS = 5.0


class Pool(ABC):
    """Connections for the rest of the engine. `prepared` is False where statements cannot outlive a transaction;
    `needs_setup` is True where every statement runs in a transaction that applies our settings to the session. A
    `tuned` statement relies on those settings wherever it runs."""

    def __init__(self, target: Target, *, size: int, needs_setup: bool, ours: bool) -> None:
        self.prepared = target.prepared
        self.needs_setup = needs_setup
        self.where = target.shown
        self.size = size
        self.refusal: Callable[[], PerdureError] | None = None
        self._ours = ours
        self._command_timeout = target.command_timeout
        self._loop = asyncio.get_running_loop()
        _live.add(self)

    def ready(self) -> None:
        """Raise if it may not be used here and now."""
        if self.refusal is not None:
            raise self.refusal()
        if asyncio.get_running_loop() is not self._loop:
            raise other_loop()

    @abstractmethod
    async def acquire(self) -> Connection:
        """A connection for this caller alone."""

    @abstractmethod
    def release(self, connection: Connection) -> None:
        """Give an idle connection back."""

    @abstractmethod
    def discard(self, connection: Connection) -> None:
        """Give up a connection whose state is not known."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for several statements; a failure in between gives it up."""
        connection = await self.acquire()
        try:
            yield connection
        except BaseException as error:
            self.discard(connection)
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error, self.where) from error
            raise
        self.release(connection)

    @abstractmethod
    def transports(self) -> list[GuardedTransport]:
        """The network connections that this pool opened and that are open now."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """How many connections there are, and how many were opened and discarded."""

    @abstractmethod
    async def close(self) -> None:
        """Release what this pool opened; idempotent."""

    async def fetch(
        self, connection: Connection, sql: str, arguments: Sequence[Any] = (), *, tuned: bool = False
    ) -> list[Any]:
        """Run one statement: as it is where the session suits it, else in a transaction that sets the session up."""
        timeout = self._command_timeout
        if not self.needs_setup and (self._ours or not tuned):
            found: list[Any] = await connection.fetch(sql, *arguments, timeout=timeout)
            return found
        # Behind a pooler the transaction also keeps the two exchanges of a statement (parse, run) in one session.
        await connection.execute(BEGIN, timeout=timeout)
        try:
            inside: list[Any] = await connection.fetch(sql, *arguments, timeout=timeout)
        except asyncpg.PostgresError as error:
            if not lost(error):
                await self._roll_back(connection)
            raise
        await connection.execute("COMMIT", timeout=timeout)
        return inside

    async def _roll_back(self, connection: Connection) -> None:
        """After a refusal, which is what the caller is told: if there is no going back, the connection is cut."""
        try:
            await connection.execute("ROLLBACK", timeout=self._command_timeout)
        except DRIVER_ERRORS:
            connection.terminate()

    async def ask(self, sql: str, arguments: Sequence[Any] = (), *, tuned: bool = False) -> list[Any]:
        """Read; once more if the connection proves dead."""
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
        """Run one statement on any connection; on another one if it was surely not sent."""
        while True:
            connection = await self.acquire()
            try:
                found = await self.fetch(connection, sql, arguments, tuned=tuned)
            except BaseException as error:
                self.give_back(connection, error)
                if not never_sent(error):
                    raise
            else:
                self.release(connection)
                return found

    def give_back(self, connection: Connection, error: BaseException) -> None:
        """Release or discard after a failure: a statement that the server refused leaves its connection sound."""
        if isinstance(error, asyncpg.PostgresError) and not lost(error):
            self.release(connection)
        else:
            self.discard(connection)


class OwnPool(Pool):
    """Connections opened here."""

    def __init__(self, target: Target, settings: dict[str, str] | None = None) -> None:
        super().__init__(target, size=target.connections, needs_setup=not target.prepared, ours=True)
        self._target = target
        # A pooler hands sessions from client to client, so there settings of a session must not be assumed.
        session = {**KEEPALIVE, **(settings or {})} if target.prepared else {}
        self._way = Way(target, {"application_name": target.application, **session})
        self._permits = Permits(target.connections)
        self._idle: list[tuple[Connection, float]] = []
        self._open: set[Connection] = set()
        self._opened = 0
        self._discarded = 0
        self._withdrawn = 0

    async def acquire(self) -> Connection:
        """A held connection that is free, else a new one, else the next that comes back."""
        self.ready()
        try:
            # Whoever holds a connection opens it and asks one thing: within this time at least one of them is done.
            await self._permits.take(self._target.connect_timeout + self._target.command_timeout)
        except TimeoutError as error:
            hint = "give it more of them with connections= in the URL, or ask for less"
            raise all_in_use(self.where, self.size, hint) from error
        try:
            return await self._held() or await self._new()
        except BaseException:
            self._permits.give_back()
            raise

    async def _held(self) -> Connection | None:
        """The one that was used last, if it still answers."""
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_closed():
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
            self._drop_idle()
            return False
        return True

    async def _new(self) -> Connection:
        connection = await self._way.open(first=not self._opened)
        self._opened += 1
        self._open.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Keep it for the next caller."""
        if connection.is_closed() or self.refusal is not None:
            self._drop(connection)
        elif self._target.read_write and _writes_no_more(connection):
            # Somebody else is the primary now. Those that are idle here lead to the same server.
            self._drop(connection)
            self._drop_idle()
        else:
            self._idle.append((connection, time.monotonic()))
        self._permits.give_back()

    def discard(self, connection: Connection) -> None:
        """Cut it off without a word: it may be in the middle of a statement."""
        self._drop(connection)
        self._permits.give_back()

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
        """Wait for what is under way, then say goodbye on every connection. Whoever is cut short may call it again."""
        if self.refusal is None:
            self.refusal = closed
        with suppress(asyncio.TimeoutError):
            while self._withdrawn < self.size:
                await self._permits.take(self._target.command_timeout)
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

    def abandon(self) -> None:
        """Cut every connection off where it stands, as the end of the process would."""
        self.refusal = closed
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)


def _writes_no_more(connection: Connection) -> bool:
    """What the server has told (PostgreSQL 14 and newer do, with the answer to any statement)."""
    return getattr(connection.get_settings(), "default_transaction_read_only", "off") == "on"


_live: weakref.WeakSet[Pool] = weakref.WeakSet()
_inherited: list[Pool] = []


def _refuse_in_child() -> None:
    for pool in _live:
        pool.refusal = forked
        # Never collected: ending an inherited connection would speak on a socket that belongs to the parent.
        _inherited.append(pool)


os.register_at_fork(after_in_child=_refuse_in_child)
