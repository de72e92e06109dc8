"""The SQLite engine as plain threads see it: the same methods, and coroutines that never suspend.

A caller that finds the writer free commits in its own thread; a read borrows a connection and runs where it is called.
So a blocking caller pays for no hand-over at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.clock import Clock
from perdure.engines.shared.signals import ThreadSignal
from perdure.engines.sqlite.engine.database import Database
from perdure.engines.sqlite.watch import Subscription
from perdure.engines.sqlite.write.jobs import TakeJob, TransactJob
from perdure.kernel.engine import Engine, Health, Watch
from perdure.kernel.ops import Applied, Ask, Op, Scan, Taken


class BlockingSqlite:
    """The kernel contract for callers without an event loop. Usable from several threads at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.schema = database.schema
        self.capabilities = database.capabilities

    @property
    def clock(self) -> Clock:
        """What `Now` reads."""
        return self._database.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._database.clock = clock

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none, in this thread if no other is writing."""
        applied: Applied = self._database.writing().run(TransactJob(scope, ops, hints))
        return applied

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
        """Atomically select and update the first rows of an index."""
        scan = Scan(table, index, eq, limit=limit, upto=upto)
        taken: Taken = self._database.writing().run(TakeJob(scope, scan, set))
        return taken

    async def view(self, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """Answer all reads from one snapshot, in this thread."""
        self._database.ready()
        return self._database.readers.view(scope, reads)

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints; waiting blocks the thread."""
        self._database.ready()
        return Subscription(self._database.hub, scope, topics, ThreadSignal())

    def blocking(self) -> Engine:
        """Already blocking."""
        return self

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        return self._database.scopes()

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        return self._database.partitions(scope, log, after, limit)

    async def check(self) -> list[str]:
        """SQLite's integrity check, missing tables, gaps in logs."""
        return self._database.check()

    async def health(self) -> Health:
        """Read the real settings."""
        return self._database.health()

    async def close(self) -> None:
        """Finish what was submitted and release everything."""
        self._database.close()
