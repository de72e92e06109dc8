"""A caller's asyncmy pool behind the interface of ours: the engine uses it and never closes it.

A session of the caller's may have any settings. Each use begins with one packet that saves them on the server, in user
variables, and applies ours, and ends with one that restores them. The first packet also finds a dead connection before
a commit is sent on it. A connection that cannot be restored (broken, cancelled half way, with an open transaction) is
closed and returned: the caller's pool replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from asyncmy import Pool as DriverPool
from asyncmy.constants import FIELD_TYPE
from asyncmy.cursors import Cursor

from perdure.engines.mysql.connections.connect import INTEGERS, TEXTS, begin_session, flavour, session_variables
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.driver import Rows, transport_of
from perdure.engines.mysql.connections.permits import Use
from perdure.engines.mysql.connections.pool import RECONNECTS, Pool
from perdure.engines.mysql.errors import DRIVER_ERRORS, lost, translate, unusable_pool
from perdure.engines.mysql.target import Target
from perdure.errors import InvalidError, UnavailableError

_BLOBS = (FIELD_TYPE.BLOB, FIELD_TYPE.TINY_BLOB, FIELD_TYPE.MEDIUM_BLOB, FIELD_TYPE.LONG_BLOB)
_CHARACTERS = ("character_set_client", "character_set_results", "collation_connection")
_QUIET = ("sql_notes",)
"""The driver asks for the notes of a statement in an extra round trip, and logs them."""


class BorrowedConnection(Connection):
    """One of the caller's connections while the engine uses it. Its cursors and converters may be any."""

    def __init__(self, driver: Any, transport: asyncio.Transport, target: Target) -> None:
        super().__init__(driver, transport, target)
        self.driver = driver
        self._variables = (*session_variables(flavour(self.version).name), *_CHARACTERS, *_QUIET)

    async def begin(self, target: Target) -> None:
        """Save the session's settings and apply ours."""
        saved = ", ".join(f"@perdure_{name} = @@SESSION.{name}" for name in self._variables)
        sql = begin_session(flavour(self.version).name, target.command_timeout, ", CAST(DATABASE() AS BINARY)")
        # After `SET NAMES`: text comes back as it is stored, whatever character set the driver would decode it with.
        quiet = "SET SESSION character_set_results = binary, sql_notes = OFF"
        ((version, packet_bytes, database),) = (await self.run(f"SET {saved};{sql};{quiet}"))[0]
        self.version, self.packet_bytes = str(version), int(packet_bytes)
        if _text(database) != target.database:
            raise InvalidError(
                f"the pool is connected to the database {_text(database)!r}, the URL names {target.database!r}",
                hint="name the same in both, and do not change it with USE",
            )

    async def restore(self) -> None:
        """Give the session its own settings back."""
        settings = ", ".join(f"{name} = @perdure_{name}" for name in self._variables)
        forgotten = ", ".join(f"@perdure_{name} = NULL" for name in (*self._variables, "scope"))
        await self.run(f"SET SESSION {settings};SET {forgotten}")

    async def _exchange(self, sql: str) -> list[Rows]:
        return await self._results(self.driver.cursor(Cursor), sql, sql.encode())

    def _rows(self, cursor: Any, rows: Rows) -> Rows:
        kinds = [column[1] for column in cursor.description]
        return tuple(tuple(map(_value, kinds, row)) for row in rows)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _value(kind: int, value: Any) -> Any:
    """A value as our own connections return it, whatever converters the caller's has."""
    if value is None or (kind not in INTEGERS and kind not in TEXTS and kind not in _BLOBS):
        return value
    if kind in INTEGERS and isinstance(value, (int, str, bytes)):
        return int(value)
    if isinstance(value, (str, bytes)) and kind not in INTEGERS:
        if kind in TEXTS:
            return _text(value)
        return value.encode() if isinstance(value, str) else value
    raise InvalidError(
        f"the pool converts a value of type {kind} to {type(value).__name__}", hint="create the pool without conv="
    )


class BorrowedPool(Pool):
    """A caller's asyncmy pool. Permits are as many as it may have connections."""

    def __init__(self, target: Target, pool: Any, *, read_only: bool = False) -> None:
        if not isinstance(pool, DriverPool):
            raise InvalidError(f"pool must be an asyncmy pool (asyncmy.create_pool), not {type(pool).__name__}")
        if not pool.maxsize:
            raise InvalidError("the pool may have no connection at all", hint="create it with maxsize=1 or more")
        super().__init__(target, size=int(pool.maxsize), read_only=read_only)
        self.borrowed = True
        self.hint = "raise the pool's maxsize, or hold connections for a shorter time"
        self._pool: Any = pool
        self._returning: set[asyncio.Task[None]] = set()

    async def _open(self) -> Connection:
        self.lifecycle.check_usable()
        reconnects = RECONNECTS
        while True:
            try:
                return await self._begin(await self._take())
            except DRIVER_ERRORS as error:
                if not reconnects or not lost(error) or isinstance(error, TimeoutError):
                    raise translate(error, self.target.display_url) from error
            reconnects -= 1

    async def _begin(self, driver: Any) -> Connection:
        connection: BorrowedConnection | None = None
        try:
            connection = BorrowedConnection(driver, await transport_of(driver), self.target)
            await connection.begin(self.target)
        except BaseException as error:
            self._schedule(self._discard(driver, connection))
            if isinstance(error, RuntimeError):
                # asyncio's word for a connection that belongs to another event loop.
                raise unusable_pool(error) from error
            raise
        return connection

    async def _take(self) -> Any:
        """One of the caller's connections, waiting for at most `connect_timeout`."""
        seconds = self.target.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._pool.acquire()
        except TimeoutError:
            raise UnavailableError(
                f"all {self.size} connections of the pool stayed in use for {seconds:g} s: {self.target.display_url}",
                hint=self.hint,
            ) from None
        except DRIVER_ERRORS as error:
            raise translate(error, self.target.display_url) from error
        except RuntimeError as error:
            raise unusable_pool(error) from error

    def release(self, connection: Connection) -> None:
        """Restore the session and return it, in a task: a cancelled caller cannot lose it."""
        use = self._busy.pop(connection)
        if not self.lifecycle.is_inherited:
            self._schedule(self._return(connection, use))

    def _schedule(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _return(self, connection: Any, use: Use) -> None:
        try:
            if not (connection.closed or connection.in_transaction):
                with suppress(*DRIVER_ERRORS):
                    await connection.restore()
                    self._pool.release(connection.driver)
                    return
            await self._discard(connection.driver, connection)
        finally:
            self._permits.give_back(use)

    async def _discard(self, driver: Any, connection: Connection | None) -> None:
        """Close a connection and return it; the pool forgets one that is closed."""
        self._dropped += 1
        if connection is not None:
            connection.abort()
        with suppress(*DRIVER_ERRORS):
            await driver.ensure_closed()
        with suppress(KeyError):  # the caller terminated the pool
            self._pool.release(driver)

    def counters(self) -> dict[str, int]:
        """What `health` reports."""
        free = {"open": int(self._pool.size), "idle": int(self._pool.freesize)}
        return {"most": self.size, **free, "busy": len(self._busy), "dropped": self._dropped}

    async def close(self) -> None:
        """Wait until every connection is back."""
        while self._returning:
            await asyncio.wait(self._returning)
        self.lifecycle.finish_close()
