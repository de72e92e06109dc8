"""The PostgreSQL engine: the kernel contract on a pool of connections, bound to the event loop that opened it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.clock import Clock
from perdure.engines.postgres import health
from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.read.read_sql import ReadSql
from perdure.engines.postgres.read.view import ViewReader
from perdure.engines.postgres.schema.clock import StampClock
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.watch import NotifyHub
from perdure.engines.postgres.write.take import Claims
from perdure.engines.postgres.write.writer import Writer
from perdure.engines.shared.durability import DurabilityReading
from perdure.engines.shared.hints import Subscription, topics_of
from perdure.engines.shared.server_answers import Sense
from perdure.kernel.engine import Capabilities, Durability, Health, Watch
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import Applied, Op, ReadOp, Scan, Taken
from perdure.kernel.signals import LoopSignal


class PostgresEngine:
    """An open database; `open_engine` makes it. Its life is that of its pool."""

    def __init__(
        self,
        pool: Pool,
        layout: Layout,
        hub: NotifyHub,
        clock: StampClock,
        capabilities: Capabilities,
        *,
        sense: Sense,
    ) -> None:
        self.schema = layout.schema
        self.capabilities = capabilities
        self._pool = pool
        self._lifecycle = pool.lifecycle
        self._layout = layout
        self._hub = hub
        self._clock = clock
        self._sense = sense
        self._writer = Writer(pool, layout, clock)
        read_sql = ReadSql(layout, clock)
        self._reader = ViewReader(read_sql)
        self._claims = Claims(read_sql)
        self._closing = asyncio.Lock()
        self._durability = DurabilityReading(partial(health.durability_now, pool), "process", self._set_durability)

    def _set_durability(self, durability: Durability) -> None:
        self.capabilities = msgspec.structs.replace(self.capabilities, durability=durability)

    @property
    def clock(self) -> Clock:
        """What `Now` reads, where it is not the server's clock; tests replace it to move time."""
        return self._clock.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._clock.clock = clock

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        self._lifecycle.check_write()
        with self._sense:
            applied = await self._writer.transact(scope, ops)
        if hints:
            self._hub.publish(scope, hints)
        await self._durability.refresh()
        return applied

    async def transact_filled(self, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Applied:
        """The same for a transaction of a known kind."""
        self._lifecycle.check_write()
        try:
            applied = await self._writer.transact(scope, filled)
        except Exception as error:
            self._sense.judge(error)
            raise
        self._hub.publish(scope, hints)
        if self._durability.is_due:
            await self._durability.refresh()
        return applied

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot, in one statement."""
        self._lifecycle.check_call()
        with self._sense:
            return await self._reader.view(self._pool, scope, reads)

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Atomically select and update the first rows of an index; rows locked by other sessions are skipped."""
        self._lifecycle.check_write()
        with self._sense:
            claim = await self._claims.take(self._pool, scope, scan, changes, self._clock.now())
        if hints and claim.rows:
            self._hub.publish(scope, hints)
        return claim

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        self._lifecycle.check_call()
        return Subscription(self._hub, topics_of(scope, topics), LoopSignal())

    def blocking(self) -> None:
        """None: a server cannot be read without suspending."""

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        self._lifecycle.check_call()
        with self._sense:
            return await health.scopes(self._pool, self._layout)

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        self._lifecycle.check_call()
        declared = self.schema.log[log]
        with self._sense:
            return await health.partitions(self._pool, self._layout, declared, scope, after=after, limit=limit)

    async def check(self) -> list[str]:
        """Missing tables and indexes, gaps in logs, heads that contradict their logs."""
        self._lifecycle.check_call()
        with self._sense:
            return await health.findings(self._pool, self._layout)

    async def health(self) -> Health:
        """Read the actual settings."""
        self._lifecycle.check_call()
        with self._sense:
            settings = await health.settings(self._pool, self._layout)
            problems = health.problems(settings, writing=not self._lifecycle.read_only)
        problems += health.transport_problems(self._pool).values()
        return Health("postgres", not problems, health.durability(settings), settings, tuple(problems))

    async def close(self) -> None:
        """Finish what was submitted and release everything; idempotent, and without effect in a forked child. If a call
        is cancelled, the next one does the rest."""
        if not self._lifecycle.begin_close():
            return
        async with self._closing:
            if not self._lifecycle.is_closed:
                await self._writer.close()
                await self._hub.close()
                await self._pool.close()

    def abandon(self) -> None:
        """Terminate every connection at once, like a crash of this process: for tests of what it leaves behind."""
        self._hub.abandon()
        self._pool.abandon()
