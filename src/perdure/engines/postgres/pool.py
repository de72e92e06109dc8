"""Connections: a free list of held ones, bounded in number, opened with bounded patience.

The driver's own pool resets a connection each time it comes back, which costs a round trip; ours are handed on as they
are, because nothing here leaves session state behind. A caller's own pool is used through its `acquire` and `release`
and never closed. Waiting for a connection that others hold is bounded; a queue that moves is waited for as long as it
does.

Whoever acquires a connection gives it back in every case: with `release` when it is known to be idle, with `discard`
when it broke or was left in the middle of something.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import asyncpg

from perdure.engines.postgres.reach import Connection, Way
from perdure.engines.postgres.target import Target
from perdure.engines.postgres.translate import DRIVER_ERRORS, all_in_use, lost, never_sent, translate, unusable_pool
from perdure.errors import PerdureError
from perdure.kernel.refusals import closed, forked, other_loop

T = TypeVar("T")


class Pool(Protocol):
    """What the rest of the engine asks of a pool. `prepared` is False where statements cannot outlive a transaction."""

    prepared: bool
    where: str
    size: int

    @property
    def refusal(self) -> Callable[[], PerdureError] | None:
        """Makes the error for every call once nothing may be done any more."""
        ...

    def ready(self) -> None:
        """Raise if the pool is closed, forked, or used from another event loop."""
        ...

    async def acquire(self) -> Connection:
        """A connection for this caller alone."""
        ...

    def release(self, connection: Connection) -> None:
        """Give an idle connection back."""
        ...

    def discard(self, connection: Connection) -> None:
        """Give up a connection whose state is not known."""
        ...

    async def fetch(self, connection: Connection, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """Run one statement in a transaction of its own."""
        ...

    async def run(self, sql: str, arguments: Sequence[Any]) -> list[Any]:
        """Run one statement on any connection; on another one if it was surely not sent. The driver's errors are the
        caller's to judge."""
        ...

    async def ask(self, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """Read with one statement on any connection; asked once more if the connection proves dead."""
        ...

    def give_back(self, connection: Connection, error: BaseException) -> None:
        """Release or discard after a failure."""
        ...

    def counters(self) -> dict[str, int]:
        """How many connections there are, and how many were opened and given up."""
        ...

    async def close(self) -> None:
        """Let go of what was opened here; idempotent."""
        ...


class _Base(ABC):
    """What both kinds of pool do alike."""

    def __init__(self, target: Target, *, prepared: bool, size: int) -> None:
        self.prepared = prepared
        self.where = target.shown
        self.size = size
        self.refusal: Callable[[], PerdureError] | None = None
        self._loop = asyncio.get_running_loop()
        self._served = 0
        _live.add(self)

    def ready(self) -> None:
        if self.refusal is not None:
            raise self.refusal()
        if asyncio.get_running_loop() is not self._loop:
            raise other_loop()

    @abstractmethod
    async def acquire(self) -> Connection: ...

    async def _while_it_moves(self, turn: Callable[[], Awaitable[T]], hint: str) -> T:
        """Wait for a turn that times out by itself, again and again while others get theirs."""
        while True:
            served = self._served
            try:
                return await turn()
            except TimeoutError as error:
                if self._served == served:
                    raise all_in_use(self.where, self.size, hint) from error

    @abstractmethod
    def release(self, connection: Connection) -> None: ...

    @abstractmethod
    def discard(self, connection: Connection) -> None: ...

    async def fetch(self, connection: Connection, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        if self.prepared:
            found: list[Any] = await connection.fetch(sql, *arguments)
            return found
        # The driver parses and runs in two exchanges; only a transaction keeps a pooler from splitting them.
        async with connection.transaction():
            inside: list[Any] = await connection.fetch(sql, *arguments)
            return inside

    async def ask(self, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        try:
            return await self.run(sql, arguments)
        except DRIVER_ERRORS as error:
            if not lost(error) or isinstance(error, asyncio.TimeoutError):
                raise translate(error, self.where) from error
        try:
            return await self.run(sql, arguments)
        except DRIVER_ERRORS as error:
            raise translate(error, self.where) from error

    async def run(self, sql: str, arguments: Sequence[Any]) -> list[Any]:
        while True:
            connection = await self.acquire()
            try:
                found = await self.fetch(connection, sql, arguments)
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


class OwnPool(_Base):
    """Connections opened here."""

    def __init__(self, target: Target, settings: dict[str, str] | None = None) -> None:
        super().__init__(target, prepared=target.prepared, size=target.connections)
        self._target = target
        # A pooler hands sessions from client to client, so there settings of a session must not be assumed.
        told = {"application_name": target.application, **(settings or {} if target.prepared else {})}
        self._way = Way(target, told)
        self._free = asyncio.Semaphore(target.connections)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opened = 0
        self._discarded = 0

    async def acquire(self) -> Connection:
        """A held connection that is free, else a new one, else the next that comes back."""
        self.ready()
        if self._free.locked():
            await self._while_it_moves(self._wait, "give it more of them with connections= in the URL, or ask for less")
        else:
            await self._free.acquire()
        self._served += 1
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._drop(connection)
            connection = await self._way.open(first=not self._opened)
        except BaseException:
            self._free.release()
            raise
        self._opened += 1
        self._open.add(connection)
        return connection

    async def _wait(self) -> None:
        # Whoever holds a connection opens it and asks one thing: within this time at least one of them is done.
        async with asyncio.timeout(self._target.connect_timeout + self._target.command_timeout):
            await self._free.acquire()

    def release(self, connection: Connection) -> None:
        """Keep it for the next caller."""
        if connection.is_closed() or self.refusal is not None:
            self._drop(connection)
        elif self._target.read_write and _writes_no_more(connection):
            # Somebody else is the primary now. Those that are idle here lead to the same server.
            for other in (connection, *self._idle):
                self._drop(other)
            self._idle.clear()
        else:
            self._idle.append(connection)
        self._free.release()

    def discard(self, connection: Connection) -> None:
        """Cut it off without a word: it may be in the middle of a statement."""
        self._drop(connection)
        self._free.release()

    def _drop(self, connection: Connection) -> None:
        self._discarded += 1
        self._open.discard(connection)
        connection.terminate()

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
        """Wait for what is under way, then say goodbye on every connection."""
        if self.refusal is not None:
            return
        self.refusal = closed
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(self._target.command_timeout):
                for _ in range(self.size):
                    await self._free.acquire()
        idle, self._idle = self._idle, []
        for connection in idle:
            self._open.discard(connection)
            try:
                await connection.close(timeout=self._target.connect_timeout)
            except DRIVER_ERRORS:
                connection.terminate()

    def abandon(self) -> None:
        """Cut every connection off where it stands, as the end of the process would."""
        self.refusal = closed
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)


def _writes_no_more(connection: Connection) -> bool:
    """What the server has told (PostgreSQL 14 and newer do, with the answer to any statement)."""
    return getattr(connection.get_settings(), "default_transaction_read_only", "off") == "on"


class BorrowedPool(_Base):
    """A caller's asyncpg pool: used, never closed, and nothing assumed about its sessions."""

    def __init__(self, target: Target, pool: Any) -> None:
        super().__init__(target, prepared=target.prepared, size=int(pool.get_max_size()))
        self._pool = pool
        self._timeout = target.connect_timeout
        self._returning: set[asyncio.Task[None]] = set()
        self._discarded = 0

    async def acquire(self) -> Connection:
        """One of the caller's connections."""
        self.ready()
        try:
            connection = await self._while_it_moves(
                self._lend, "give the pool more of them, or hold them for less long"
            )
        except asyncpg.InterfaceError as error:
            raise unusable_pool(error) from error
        except DRIVER_ERRORS as error:
            raise translate(error, self.where) from error
        self._served += 1
        return connection

    async def _lend(self) -> Connection:
        try:
            return await self._pool.acquire(timeout=self._timeout)
        except TimeoutError as error:
            if self._pool.get_size() < self.size or self._pool.get_idle_size():
                raise translate(error, self.where) from error  # one was being opened
            raise

    def release(self, connection: Connection) -> None:
        """Hand it back; the caller's pool resets it, which takes a moment."""
        task = self._loop.create_task(self._hand_back(connection))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def discard(self, connection: Connection) -> None:
        """Break it, then hand it back: the caller's pool opens another in its place."""
        self._discarded += 1
        with suppress(asyncpg.InterfaceError):  # the caller's pool has taken a lost connection back already
            connection.terminate()
        self.release(connection)

    async def _hand_back(self, connection: Connection) -> None:
        try:
            await self._pool.release(connection, timeout=self._timeout)
        except DRIVER_ERRORS:
            return  # it is the pool's to replace

    def counters(self) -> dict[str, int]:
        """What `health` shows."""
        return {
            "most": self.size,
            "open": int(self._pool.get_size()),
            "idle": int(self._pool.get_idle_size()),
            "discarded": self._discarded,
        }

    async def close(self) -> None:
        """Wait until everything borrowed is back."""
        if self.refusal is None:
            self.refusal = closed
        while self._returning:
            await asyncio.wait(self._returning)


_live: weakref.WeakSet[_Base] = weakref.WeakSet()
_inherited: list[_Base] = []


def _refuse_in_child() -> None:
    for pool in _live:
        pool.refusal = forked
        # Never collected: ending an inherited connection would speak on a socket that belongs to the parent.
        _inherited.append(pool)


os.register_at_fork(after_in_child=_refuse_in_child)
