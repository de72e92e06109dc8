"""The MySQL engine as stores see it: the kernel contract on one database of a MariaDB or MySQL server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.clock import Clock
from perdure.engines.mysql import health
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.pool import Pool, ask
from perdure.engines.mysql.read.queries import Queries
from perdure.engines.mysql.read.view import answer
from perdure.engines.mysql.watch import Hub
from perdure.engines.mysql.write.row_queue import RowQueue
from perdure.engines.mysql.write.steps import row_of
from perdure.engines.mysql.write.writer import Writer
from perdure.engines.shared.capabilities import capabilities
from perdure.engines.shared.durability import DurabilityReading
from perdure.engines.shared.hints import Subscription, topics_of
from perdure.kernel.engine import Durability, Health, Watch
from perdure.kernel.ops import Applied, Op, ReadOp, Scan, Taken
from perdure.kernel.schema import Schema
from perdure.kernel.signals import LoopSignal

T = TypeVar("T")

_NOTES: tuple[str, ...] = (
    "verified on MariaDB 10.11; written for MariaDB 10.6 and MySQL 8.0 and later, MySQL itself not verified",
    "a commit is two packets: locking reads, then all writes and the COMMIT; a third if max_allowed_packet is exceeded",
    "InnoDB shows a commit to others an instant before it is on disk",
    "wake-ups between processes come by polling",
)
_BORROWED = "the sessions of your pool get our settings for each use and their own back: two more round trips"


class MysqlEngine:
    """The kernel contract on one database. `requested` is the durability that the caller asked for."""

    def __init__(
        self, schema: Schema, pool: Pool, clock: Clock, durability: Durability, *, requested: Durability = "power"
    ) -> None:
        self.schema = schema
        self._pool = pool
        self._lifecycle = pool.lifecycle
        self._queries = Queries(schema, clock)
        self._writer = Writer(schema, pool, self._queries)
        self._row_queue = RowQueue(pool.target.display_url, pool.target.command_timeout)
        self._hub = Hub(pool)
        self._sense = pool.target.sense()
        self._requested = requested
        self._set_durability(durability)
        self._durability = DurabilityReading(lambda: ask(pool, health.durability_now), "process", self._set_durability)

    def _set_durability(self, durability: Durability) -> None:
        promised = durability if self._requested == "power" else "process"
        borrowed, read_only = self._pool.borrowed, self._lifecycle.read_only
        notes = {**dict.fromkeys(_NOTES, True), _BORROWED: borrowed}
        trips = 4 if borrowed else 2
        self.capabilities = capabilities("mysql", promised, notes, round_trips=trips, watch="poll", read_only=read_only)

    @property
    def clock(self) -> Clock:
        """The clock that `Now` reads: the server's own unless another was set; may be replaced."""
        return self._queries.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._queries.clock = clock

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        with self._lifecycle.call(write=True):
            async with self._row_queue.turn([(scope, *row_of(op)) for op in ops]):
                with self._sense:
                    applied = await self._writer.transact(scope, ops)
            self._hub.publish(scope, hints)
            await self._durability.refresh()
            return applied

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Atomically select and update the first rows of an index that no other transaction holds."""
        with self._lifecycle.call(write=True):
            with self._sense:
                claim = await self._writer.take(scope, scan, changes)
            if claim.rows:
                self._hub.publish(scope, hints)
            return claim

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot."""
        return await self._ask(lambda connection: answer(connection, self._queries, scope, reads))

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        self._lifecycle.check_call()
        return Subscription(self._hub, topics_of(scope, topics), LoopSignal())

    def blocking(self) -> None:
        """None: blocking callers reach a server through an event loop in the background."""
        return

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        return await self._ask(lambda connection: health.scopes(connection, self.schema))

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        declared = self.schema.log[log]
        return await self._ask(lambda connection: health.partitions(connection, declared, scope, after, limit))

    async def check(self) -> list[str]:
        """Damage that the server's own check reports, missing tables, gaps in logs."""
        return await self._ask(lambda connection: health.damage(connection, self.schema))

    async def health(self) -> Health:
        """The server's settings now, and what is wrong with them."""
        target = self._pool.target
        settings = await self._ask(health.settings)
        with self._sense:
            problems = health.problems(settings)
        # How a caller's pool protects its connections is up to the caller.
        problem, tls = (None, None) if self._pool.borrowed else (target.transport_problem(), target.tls)
        if problem is not None:
            problems.append(problem)
        details = {"url": target.display_url, **settings, "tls": tls, "connections": self._pool.counters()}
        details["retried"] = self._writer.retried
        return Health("mysql", not problems, health.durability(settings), details, tuple(problems))

    async def _ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        self._lifecycle.check_call()
        with self._sense:
            return await ask(self._pool, question)

    async def close(self) -> None:
        """Finish the writes in flight and release everything."""
        if self._lifecycle.begin_close():
            await self._lifecycle.drain()
            await self._hub.close()
            await self._pool.close()

    def abandon(self) -> None:
        """Abort every connection, as the end of the process would."""
        self._pool.abandon()
