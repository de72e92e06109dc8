"""The write path from end to end: `Writer` analyses a transaction, the `Batcher` schedules it, the `Executor` runs it.

Each calls the next one and none calls back. Batched statements run in their own tasks: a caller that is cancelled stops
waiting, and the statement goes on. When no other job is in flight, a statement runs in its caller's task: cancelling
that one gives its connection up, and what was sent takes effect whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.schema.clock import StampClock
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.write.batching import Batcher
from perdure.engines.postgres.write.executor import Executor
from perdure.engines.postgres.write.job import Job
from perdure.engines.postgres.write.transaction import Analyser
from perdure.ids import new_rev
from perdure.kernel.ops import Applied, Op

_RESERVED_FOR_READERS = 3


class Writer:
    """Writes for one engine, on one event loop."""

    def __init__(self, pool: Pool, layout: Layout, clock: StampClock) -> None:
        self._analyser = Analyser(layout.schema)
        self._batcher = Batcher(Executor(pool, layout, clock), max_solo=pool.size - _RESERVED_FOR_READERS)

    async def transact(self, scope: str, ops: Sequence[Op]) -> Applied:
        """Apply all operations or none; raises `Conflict`."""
        future = asyncio.get_running_loop().create_future()
        return await self._batcher.submit(Job(self._analyser.analyse(scope, new_rev(), ops), future))

    async def close(self) -> None:
        """Finish what was submitted."""
        await self._batcher.drain()
