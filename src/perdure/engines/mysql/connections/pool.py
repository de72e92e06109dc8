"""Connections: a free list, bounded in number, waited for in order and with a time limit.

Every caller gives its connection back with `release`. One that broke is dropped there, and so is one with an open
transaction: aborted, it is rolled back; reused, its next transaction would commit what was left. After a server restart
every idle connection is dead: the first caller to notice drops them all with `drop_idle`.

A firewall may drop an idle connection without notice to either side. One that has idled for long is therefore probed
before it is used, with a short time limit: otherwise a commit would wait for `command_timeout` and end as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.engines.mysql.connections.connect import open_connection
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.permits import Permits, Use
from perdure.engines.mysql.errors import DRIVER_ERRORS, lost, translate
from perdure.engines.mysql.target import Target
from perdure.engines.shared.events import EngineLog
from perdure.engines.shared.lifecycle import Lifecycle
from perdure.errors import UnavailableError

T = TypeVar("T")
RECONNECTS = 3
IDLE_SECONDS = 20.0
"""A connection that was not used for this long is probed first. Firewalls that drop idle ones take a minute or more."""
PROBE_SECONDS = 2.0


class Pool:
    """All connections of one engine; they belong to the event loop that opened it. A caller's pool is `borrowed`."""

    borrowed = False
    hint = "raise connections= in the URL, or do less at once"
    """The way out when all connections stay busy."""

    def __init__(self, target: Target, *, size: int | None = None, read_only: bool = False) -> None:
        self.target = target
        self.log = EngineLog("mysql", target.display_url)
        self.size = target.connections if size is None else size
        self.lifecycle = Lifecycle(self, target.display_url, read_only=read_only, one_loop=True)
        self._permits = Permits(self.size)
        self._idle: list[Connection] = []
        self._busy: dict[Connection, Use] = {}
        self._opened = 0
        self._dropped = 0

    async def acquire(self, use: Use = "read") -> Connection:
        """An idle connection, else a new one, else the next that comes back; `use` is for `Permits`."""
        self.lifecycle.check_usable()
        try:
            await self._permits.take(use, self.target.command_timeout)
        except TimeoutError:
            raise UnavailableError(
                f"all {self.size} connections to {self.target.display_url} stayed busy", hint=self.hint
            ) from None
        try:
            connection = await self._take_idle() or await self._open()
        except BaseException:
            self._permits.give_back(use)
            raise
        self._busy[connection] = use
        return connection

    async def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                self.log.lost()
                self._drop(connection)
            elif connection.idle_seconds < IDLE_SECONDS or await self._answers(connection):
                return connection
        return None

    async def _answers(self, connection: Connection) -> bool:
        """Probe a connection that has idled for long; if it is dead, so are those that have idled for longer."""
        try:
            await connection.run("DO 0", timeout=PROBE_SECONDS)
        except DRIVER_ERRORS as error:
            self.log.lost(error)
            self._drop(connection)
            self.drop_idle(IDLE_SECONDS)
            return False
        except BaseException:
            self._drop(connection)
            raise
        return True

    async def _open(self) -> Connection:
        self.lifecycle.check_usable()
        connection = await open_connection(self.target)
        self._opened += 1
        self.log.connected()
        return connection

    def release(self, connection: Connection) -> None:
        """Keep a sound connection for the next caller, drop any other."""
        use = self._busy.pop(connection)
        over = self.lifecycle.is_closed or self.lifecycle.is_inherited
        if over or connection.closed or connection.in_transaction:
            self._drop(connection)
        else:
            self._idle.append(connection)
        self._permits.give_back(use)

    def drop_idle(self, seconds: float = 0.0) -> None:
        """Drop every connection that has idled for at least `seconds`: one of them proved dead."""
        idle, self._idle = self._idle, []
        for connection in idle:
            if connection.idle_seconds < seconds:
                self._idle.append(connection)
            else:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._dropped += 1
        connection.abort()

    def counters(self) -> dict[str, int]:
        """What `health` reports."""
        held = {"idle": len(self._idle), "busy": len(self._busy)}
        return {"most": self.size, **held, "opened": self._opened, "dropped": self._dropped}

    async def close(self) -> None:
        """Close every idle connection gracefully; one still in use is aborted when it comes back."""
        self.lifecycle.finish_close()
        idle, self._idle = self._idle, []
        try:
            await asyncio.gather(*[connection.close() for connection in idle])
        except BaseException:
            for connection in idle:
                connection.abort()  # a close that had not begun when this was cancelled never will
            raise

    def abandon(self) -> None:
        """Abort every connection, as the end of the process would."""
        self.lifecycle.finish_close()
        self.drop_idle()
        for connection in list(self._busy):
            connection.abort()


async def ask(pool: Pool, question: Callable[[Connection], Awaitable[T]]) -> T:
    """Read on any connection, and again on a new one if the connection proves dead, as all do after a restart."""
    reconnects = RECONNECTS
    while True:
        connection = await pool.acquire()
        try:
            return await question(connection)
        except DRIVER_ERRORS as error:
            if lost(error):
                pool.log.lost(error)
            if not reconnects or not lost(error) or isinstance(error, TimeoutError):
                raise translate(error, pool.target.display_url) from error
        finally:
            pool.release(connection)
        reconnects -= 1
        pool.drop_idle()
