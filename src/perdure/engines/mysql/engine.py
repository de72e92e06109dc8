"""The MySQL engine as stores see it: the kernel contract on one database of a MariaDB or MySQL server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.clock import Clock
from perdure.engines.mysql import health
from perdure.engines.mysql.connections.pool import Pool, ask
from perdure.engines.mysql.read.queries import Queries
from perdure.engines.mysql.read.view import view
from perdure.engines.mysql.watch import Hub, Subscription
from perdure.engines.mysql.write.row_queue import Turns
from perdure.engines.mysql.write.writer import Writer
from perdure.engines.shared.durability import DurabilityReading
from perdure.kernel.engine import Capabilities, Durability, Health, Watch
from perdure.kernel.lifecycle import closed, opened_read_only
from perdure.kernel.ops import Append, Applied, Ask, Drop, Op, Scan, Taken
from perdure.kernel.schema import Schema

_NOTES = (
    "verified on MariaDB 10.11; written for MariaDB 10.6 and MySQL 8.0 and later, MySQL itself not verified",
    "a commit is two packets: locking reads, then all writes and the COMMIT; a third if max_allowed_packet is exceeded",
    "InnoDB shows a commit to others an instant before it is on disk",
    "wake-ups between processes come by polling",
)


class MysqlEngine:
    """The kernel contract on one database."""

    def __init__(
        self,
        schema: Schema,
        pool: Pool,
        clock: Clock,
        durability: Durability,
        *,
        asked: Durability = "power",
        read_only: bool,
    ) -> None:
        self.schema = schema
        self._pool = pool
        self._queries = Queries(schema, clock)
        self._writer = Writer(schema, pool, self._queries)
        self._turns = Turns(pool.target.shown, pool.target.command_timeout)
        self._hub = Hub(pool, tells=not read_only)
        self._sense = pool.target.sense()
        self._read_only = read_only
        self._under_way = 0
        self._closing = False
        self._quiet = asyncio.Event()
        self._asked = asked
        self._take_durability(durability)
        self._durability = DurabilityReading(lambda: ask(pool, health.durability_now), "process", self._take_durability)

    def _take_durability(self, found: Durability) -> None:
        self.capabilities = Capabilities(
            engine="mysql",
            durability=found if self._asked == "power" else "process",
            processes="many",
            machines="many",
            round_trips_per_commit=2,
            watch="poll",
            blocking=False,
            notes=(*_NOTES, "opened read-only") if self._read_only else _NOTES,
        )

    @property
    def clock(self) -> Clock:
        """What `Now` reads: the server's own clock unless another was given; may be replaced."""
        return self._queries.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._queries.clock = clock

    def _begin_write(self) -> None:
        self._pool.ready()
        if self._closing:
            raise closed()
        if self._read_only:
            raise opened_read_only(self._pool.target.shown)
        self._under_way += 1

    def _end_write(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._quiet.set()

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        self._begin_write()
        try:
            async with self._turns.taking([_name(scope, op) for op in ops]):
                with self._sense:
                    applied = await self._writer.transact(scope, ops)
            self._hub.publish(scope, hints)
            await self._durability.refresh()
            return applied
        finally:
            self._end_write()

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
        """Atomically select and update the first rows of an index that nobody else holds."""
        self._begin_write()
        try:
            with self._sense:
                return await self._writer.take(scope, Scan(table, index, eq, limit=limit, upto=upto), set)
        finally:
            self._end_write()

    async def view(self, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """Answer all reads from one snapshot."""
        with self._sense:
            return await view(self._pool, self._queries, scope, reads)

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        self._pool.ready()
        return Subscription(self._hub, scope, topics)

    def blocking(self) -> None:
        """There is none: blocking callers reach a server through an event loop in the background."""
        return

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        with self._sense:
            return await ask(self._pool, lambda wire: health.scopes(wire, self.schema))

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        declared = self.schema.log[log]
        with self._sense:
            return await ask(self._pool, lambda wire: health.partitions(wire, declared, scope, after, limit))

    async def check(self) -> list[str]:
        """The server's own check, missing tables, gaps in logs."""
        with self._sense:
            return await ask(self._pool, lambda wire: health.findings(wire, self.schema))

    async def health(self) -> Health:
        """Read the real settings."""
        target = self._pool.target
        with self._sense:
            found = await ask(self._pool, health.settings)
            told = health.problems(found)
        problem = target.transport_problem()
        if problem is not None:
            told.append(problem)
        shown = {"url": target.shown, **found, "tls": target.tls, "connections": self._pool.counters()}
        shown["retried"] = self._writer.retried
        return Health("mysql", not told, health.durability(found), shown, tuple(told))

    async def close(self) -> None:
        """Finish what was submitted and release everything."""
        if self._pool.refusal is not None:
            return
        self._pool.ready()
        self._closing = True
        while self._under_way:
            self._quiet.clear()
            await self._quiet.wait()
        await self._hub.close()
        await self._pool.close()

    def abandon(self) -> None:
        """Cut every connection off where it stands, as the end of the process would."""
        self._pool.abandon()


def _name(scope: str, op: Op) -> tuple[Any, ...]:
    if isinstance(op, (Append, Drop)):
        return (scope, op.log, op.partition)
    return (scope, op.table, op.key)
