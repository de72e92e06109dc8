"""A caller's asyncpg pool, behind the same face as ours: used, never closed, and nothing assumed about its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from perdure.engines.postgres.connections.connect import Connection
from perdure.engines.postgres.connections.login import GuardedTransport
from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import DRIVER_ERRORS, all_in_use, translate, unreadable, unusable_pool
from perdure.engines.postgres.target import Target
from perdure.kernel.lifecycle import closed


class BorrowedPool(Pool):
    """A caller's asyncpg pool: used, never closed, and nothing assumed about its sessions."""

    def __init__(self, target: Target, pool: Any) -> None:
        super().__init__(target, size=int(pool.get_max_size()), needs_setup=not target.prepared, ours=False)
        self._pool = pool
        self._timeout = target.connect_timeout
        self._served = 0
        self._returning: set[asyncio.Task[None]] = set()
        self._discarded = 0

    async def acquire(self) -> Connection:
        """One of the caller's connections."""
        self.ready()
        try:
            connection = await self._lend_while_it_moves()
        except asyncpg.InterfaceError as error:
            raise unusable_pool(error) from error
        except DRIVER_ERRORS as error:
            raise translate(error, self.where) from error
        self._served += 1
        return connection

    async def _lend_while_it_moves(self) -> Connection:
        """Wait for a connection, again and again while others of ours get theirs."""
        while True:
            served = self._served
            try:
                return await self._lend()
            except TimeoutError as error:
                if self._served == served:
                    hint = "give the pool more of them, or hold them for a shorter time"
                    raise all_in_use(self.where, self.size, hint) from error

    async def _lend(self) -> Connection:
        try:
            return await self._pool.acquire(timeout=self._timeout)
        except TimeoutError as error:
            if self._pool.get_size() < self.size or self._pool.get_idle_size():
                raise translate(error, self.where) from error  # one was being opened
            raise

    async def fetch(
        self, connection: Connection, sql: str, arguments: Sequence[Any] = (), *, tuned: bool = False
    ) -> list[Any]:
        """Run one statement; an answer that the driver trips over is one of its own errors."""
        try:
            return await super().fetch(connection, sql, arguments, tuned=tuned)
        except DRIVER_ERRORS:
            raise
        except Exception as error:
            raise unreadable(error) from error

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

    def transports(self) -> list[GuardedTransport]:
        """None that we know of: how the caller's connections are protected is the caller's to see to."""
        return []

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
