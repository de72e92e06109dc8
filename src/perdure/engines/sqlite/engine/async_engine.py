"""The SQLite engine as tasks see it: every call hands its work to a thread and waits for the answer.

Writes go to the writer's thread, where whatever is waiting shares one sync; reads go to a few reader threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.clock import Clock
from perdure.engines.shared.signals import LoopSignal
from perdure.engines.sqlite.engine.blocking_engine import BlockingSqlite
from perdure.engines.sqlite.engine.database import Database
from perdure.engines.sqlite.watch import Subscription
from perdure.engines.sqlite.write.jobs import Job, TakeJob, TransactJob, refuse
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine, Health, Watch
from perdure.kernel.ops import Applied, Ask, Op, Scan, Taken
from perdure.kernel.threads import run_in_thread


class Turn:
    """What one event loop has under way: how many of its tasks wait, and the jobs its current turn has brought."""

    __slots__ = ("gathered", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.gathered: list[Job] = []


class SqliteEngine:
    """The kernel contract on one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.schema = database.schema
        self.capabilities = database.capabilities
        self._turns: dict[asyncio.AbstractEventLoop, Turn] = {}

    @property
    def clock(self) -> Clock:
        """What `Now` reads; may be replaced, which is how tests move time."""
        return self._database.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._database.clock = clock

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        applied: Applied = await self._write(TransactJob(scope, ops, hints))
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
        taken: Taken = await self._write(TakeJob(scope, Scan(table, index, eq, limit=limit, upto=upto), set))
        return taken

    async def _write(self, job: Job) -> Any:
        """Give the job to the writer and wait for its outcome.

        A lone caller's job goes at once. While others wait too, jobs are handed over together at the end of the turn of
        the loop: that spares them a writer that wakes for the first and then fights the loop for the interpreter.
        """
        writer = self._database.writing()
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = Turn()
        turn.waiting += 1
        try:
            future = job.await_on(loop)
            if turn.waiting == 1:
                writer.submit((job,))
            else:
                if not turn.gathered:
                    loop.call_soon(self._hand_over, turn)
                turn.gathered.append(job)
            return await future
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(loop, None)

    def _hand_over(self, turn: Turn) -> None:
        jobs, turn.gathered = turn.gathered, []
        if not jobs:
            return
        try:
            self._database.writing().submit(jobs)
        except PerdureError as refusal:
            refuse(jobs, refusal)

    async def view(self, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """Answer all reads from one snapshot of durable data; a call that is cancelled stops reading."""
        database = self._database
        database.ready()
        return await database.threads.run(lambda stop: database.readers.view(scope, reads, stop))

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints, from a running event loop."""
        self._database.ready()
        return Subscription(self._database.hub, scope, topics, LoopSignal())

    def blocking(self) -> Engine:
        """The same file for callers without an event loop; both share one writer."""
        return BlockingSqlite(self._database)

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        self._database.ready()
        return await self._database.threads.run(self._database.scopes)

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        self._database.ready()
        return await self._database.threads.run(lambda stop: self._database.partitions(scope, log, after, limit, stop))

    async def check(self) -> list[str]:
        """SQLite's integrity check, missing tables, gaps in logs."""
        self._database.ready()
        return await self._database.threads.run(self._database.check)

    async def health(self) -> Health:
        """Read the real settings."""
        self._database.ready()
        return await self._database.threads.run(self._database.health)

    async def close(self) -> None:
        """Finish what was submitted and release everything; nothing at all in a forked child.

        A call that is cancelled does not stop the work that has begun, and may be repeated.
        """
        if self._database.belongs_to_parent:
            return
        turn = self._turns.get(asyncio.get_running_loop())
        if turn is not None:
            self._hand_over(turn)
        await run_in_thread(self._database.close)
