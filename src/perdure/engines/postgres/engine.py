"""The PostgreSQL engine: the kernel contract on a pool of connections, bound to the event loop that opened it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.clock import Clock
from perdure.engines.postgres import health
from perdure.engines.postgres.connections.pool import OwnPool, Pool
from perdure.engines.postgres.read.read_sql import ReadSql
from perdure.engines.postgres.read.view import ViewReader
from perdure.engines.postgres.schema.clock import StampClock
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.watch import Hub, Subscription
from perdure.engines.postgres.write.take import Claims
from perdure.engines.postgres.write.writer import Writer
from perdure.engines.shared.durability import DurabilityReading
from perdure.engines.shared.server_answers import Sense
from perdure.kernel.engine import Capabilities, Durability, Health, Watch
from perdure.kernel.lifecycle import closed, forked, opened_read_only
from perdure.kernel.ops import Applied, Ask, Op, Scan, Taken


class PostgresEngine:
    """An open database. Everything that opening decides is given to it ready-made."""

    def __init__(
        self,
        pool: Pool,
        layout: Layout,
        hub: Hub,
        clock: StampClock,
        capabilities: Capabilities,
        *,
        sense: Sense,
        read_only: bool,
    ) -> None:
        self.schema = layout.schema
        self.capabilities = capabilities
        self._pool = pool
        self._layout = layout
        self._hub = hub
        self._clock = clock
        self._writer = Writer(pool, layout, clock)
        self._sense = sense
        read_sql = ReadSql(layout, clock)
        self._reader = ViewReader(read_sql)
        self._claims = Claims(read_sql)
        self._read_only = read_only
        self._closing = self._closed = False
        self._closers = asyncio.Lock()
        self._durability = DurabilityReading(self._read_durability, "process", self._take_durability)

    async def _read_durability(self) -> Durability:
        return await health.durability_now(self._pool)

    def _take_durability(self, found: Durability) -> None:
        self.capabilities = msgspec.structs.replace(self.capabilities, durability=found)

    @property
    def clock(self) -> Clock:
        """What `Now` reads, where it is not the server's own clock; may be replaced, which is how tests move time."""
        return self._clock.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._clock.clock = clock

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        self._writing()
        with self._sense:
            applied = await self._writer.transact(scope, ops)
        if hints:
            self._hub.publish(scope, hints)
        await self._durability.refresh()
        return applied

    async def view(self, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """Answer all reads from one snapshot, in one statement."""
        self._pool.ready()
        with self._sense:
            return await self._reader.view(self._pool, scope, reads)

    async def take(
        self,
        scope: str,
        table: str,
        index: str,
        eq: tuple[Any, ...],
        *,
        upto: Mapping[str, int],
        limit: int,
        set: Mapping[str, Any],
    ) -> Taken:
        """Atomically select and update the first rows of an index; rows that others hold are passed over."""
        self._writing()
        scan = Scan(table, index, eq, limit=limit, upto=upto)
        with self._sense:
            return await self._claims.take(self._pool, scope, scan, set, self._clock.now())

    def _writing(self) -> None:
        self._pool.ready()
        if self._closing:
            raise closed()
        if self._read_only:
            raise opened_read_only(self._pool.where)

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        self._pool.ready()
        return Subscription(self._hub, scope, topics)

    def blocking(self) -> None:
        """There is no view of a server that never suspends."""

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        self._pool.ready()
        with self._sense:
            return await health.scopes(self._pool, self._layout)

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        self._pool.ready()
        declared = self.schema.log[log]
        with self._sense:
            return await health.partitions(self._pool, self._layout, declared, scope, after=after, limit=limit)

    async def check(self) -> list[str]:
        """Missing tables and indexes, gaps in logs, heads that contradict them."""
        self._pool.ready()
        with self._sense:
            return await health.findings(self._pool, self._layout)

    async def health(self) -> Health:
        """Read the real settings."""
        self._pool.ready()
        with self._sense:
            found = await health.settings(self._pool, self._layout)
            problems = health.problems(found, writing=not self._read_only)
        problems += health.transport_problems(self._pool).values()
        return Health("postgres", not problems, health.durability(found), found, tuple(problems))

    async def close(self) -> None:
        """Finish what was submitted and release everything; idempotent, and nothing at all in a forked child. A call
        that is cancelled leaves the rest to the next one."""
        if self._closed or self._pool.refusal is forked:
            return
        if self._pool.refusal is None:
            self._pool.ready()
        self._closing = True
        async with self._closers:
            if not self._closed:
                await self._writer.close()
                await self._hub.close()
                await self._pool.close()
                self._closed = True

    def abandon(self) -> None:
        """Cut every connection where it stands, as the end of the process would: for tests of what is left then."""
        self._closed = True
        self._hub.abandon()
        if isinstance(self._pool, OwnPool):
            self._pool.abandon()
