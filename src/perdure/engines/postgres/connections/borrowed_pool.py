"""A caller's asyncpg pool behind the interface of ours: the engine uses it and never closes it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from perdure.engines.postgres.connections.connect import Connection
from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import DRIVER_ERRORS, all_in_use, translate, unusable_pool
from perdure.engines.postgres.target import Target


class BorrowedPool(Pool):
    """A caller's asyncpg pool. Its sessions may have any settings."""

    def __init__(self, target: Target, pool: Any, *, read_only: bool = False) -> None:
        super().__init__(target, size=int(pool.get_max_size()), ours=False, read_only=read_only)
        self._pool = pool
        self._timeout = target.connect_timeout
        self._served = 0
        self._returning: set[asyncio.Task[None]] = set()
        self._discarded = 0

    async def acquire(self) -> Connection:
        """One of the caller's connections. Waits for as long as other calls of this engine get theirs."""
        self.lifecycle.check_usable()
        while True:
            served = self._served
            try:
                connection = await self._pool.acquire(timeout=self._timeout)
            except asyncpg.InterfaceError as error:
                raise unusable_pool(error) from error
            except TimeoutError as error:
                if self._pool.get_size() < self.size or self._pool.get_idle_size():
                    raise translate(error, self.where) from error  # one was being opened
                if self._served == served:
                    hint = "raise the pool's max_size, or hold connections for a shorter time"
                    raise all_in_use(self.where, self.size, hint) from error
            except DRIVER_ERRORS as error:
                raise translate(error, self.where) from error
            else:
                self._served += 1
                return connection

    def release(self, connection: Connection) -> None:
        """Return it in a task: the caller's pool resets it, which takes a moment."""
        task = asyncio.create_task(self._return(connection))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def discard(self, connection: Connection) -> None:
        """Terminate it, then return it: the caller's pool opens another one."""
        self._discarded += 1
        with suppress(asyncpg.InterfaceError):  # the caller's pool took a lost connection back already
            connection.terminate()
        self.release(connection)

    async def _return(self, connection: Connection) -> None:
        with suppress(*DRIVER_ERRORS):  # the caller's pool replaces it
            await self._pool.release(connection, timeout=self._timeout)

    def counters(self) -> dict[str, int]:
        """What `health` shows."""
        return {
            "most": self.size,
            "open": int(self._pool.get_size()),
            "idle": int(self._pool.get_idle_size()),
            "discarded": self._discarded,
        }

    async def close(self) -> None:
        """Wait until every borrowed connection is back."""
        if not self.lifecycle.begin_close():
            return
        while self._returning:
            await asyncio.wait(self._returning)
        self.lifecycle.finish_close()
