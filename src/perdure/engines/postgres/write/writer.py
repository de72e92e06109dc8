"""The write path from end to end: `Writer` analyses a transaction, the `Batcher` schedules it, the `Executor` runs it.

Each calls the next one and none calls back. Batched statements run in their own tasks: a caller that is cancelled stops
waiting, and the statement goes on. When no other job is in flight, a statement runs in its caller's task: cancelling
that one gives its connection up, and what was sent takes effect whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.schema.clock import StampClock
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.write.batching import Batcher
from perdure.engines.postgres.write.executor import Executor
from perdure.engines.postgres.write.filled_transaction import Plans
from perdure.engines.postgres.write.job import Job
from perdure.engines.postgres.write.transaction import Analyser
from perdure.ids import new_rev
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import Applied, Op

_RESERVED_FOR_READERS = 3


class Writer:
    """Writes for one engine, on one event loop."""

    def __init__(self, pool: Pool, layout: Layout, clock: StampClock) -> None:
        self._analyser = Analyser(layout.schema)
        self._plans = Plans(self._analyser)
        executor = Executor(pool, layout, clock, self._plans)
        self._batcher = Batcher(executor, max_solo=pool.size - _RESERVED_FOR_READERS)
        self._loop = asyncio.get_running_loop()

    def transact(self, scope: str, ops: Sequence[Op] | Filled) -> Awaitable[Applied]:
        """Apply all operations or none; raises `Conflict`."""
        rev = new_rev()
        if isinstance(ops, Filled):
            transaction = self._plans.transaction(scope, rev, ops)
        else:
            transaction = self._analyser.analyse(scope, rev, ops)
        return self._batcher.submit(Job(transaction, self._loop.create_future(), transaction.names))

    async def close(self) -> None:
        """Finish what was submitted."""
        await self._batcher.drain()
