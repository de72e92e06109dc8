"""The SQLite engine: the kernel contract on one file, once for tasks and once for plain threads.

The two differ in the thread in which a call runs. `SqliteEngine` hands every call to a thread and waits for the answer:
writes go to the writer's thread, where all jobs that wait share one sync, and reads to a few reader threads. In
`BlockingSqlite` the coroutines never suspend: a caller that finds the writer free commits in its own thread, and a read
runs where it is called on a pooled connection, so a blocking caller never pays for a switch between threads.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.clock import Clock
from perdure.engines.shared.hints import Subscription, topics_of
from perdure.engines.shared.outcome_delivery import OutcomeDelivery
from perdure.engines.shared.signals import call_in_loop
from perdure.engines.sqlite.connections.database import Database
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.write.jobs import FilledJob, Job, TakeJob, TransactJob, refuse
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine, Health, Watch
from perdure.kernel.joined import Joined, Values
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import Applied, Op, ReadOp, Scan, Taken
from perdure.kernel.signals import LoopSignal, ThreadSignal
from perdure.kernel.threads import run_in_thread

T = TypeVar("T")


class DatabaseEngine(ABC):
    """The kernel contract on an open `Database`. Callers wait for a hint with a signal of the type `_signal`."""

    _signal: type[LoopSignal | ThreadSignal]

    def __init__(self, database: Database) -> None:
        self._database = database
        self.schema = database.schema
        self.capabilities = database.capabilities

    @property
    def clock(self) -> Clock:
        """What `Now` reads; tests replace it to move time."""
        return self._database.queries.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._database.queries.clock = clock

    @abstractmethod
    def _write(self, job: Job) -> Awaitable[Any]:
        """The outcome of a job of the writer."""

    @abstractmethod
    def _read(self, action: Callable[[Stop | None], T]) -> Awaitable[T]:
        """The outcome of an action that reads; `action` ends early once its `Stop` is requested."""

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        applied: Applied = await self._write(TransactJob(scope, ops, hints))
        return applied

    def transact_filled(self, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Awaitable[Applied]:
        """The same for a transaction of a known kind."""
        return self._write(FilledJob(scope, filled, hints))

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Atomically select and update the first rows of an index."""
        rows: Taken = await self._write(TakeJob(scope, scan, changes, hints))
        return rows

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot of durable data."""
        readers = self._database.readers
        return await self._read(lambda stop: readers.view(scope, reads, stop))

    def view_through(self, scope: str, reads: Sequence[ReadOp], build: Callable[[list[Any]], T]) -> Awaitable[T]:
        """What `build` makes of the answers of `view`, in the thread that read them."""
        readers = self._database.readers
        return self._read(lambda stop: build(readers.view(scope, reads, stop)))

    def view_joined(self, scope: str, joined: Joined, build: Callable[[list[list[Values]]], T]) -> Awaitable[T]:
        """The same for scans whose rows each have columns of another table."""
        readers = self._database.readers
        return self._read(lambda stop: build(readers.view_joined(scope, joined, stop)))

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        self._database.lifecycle.check_call()
        return Subscription(self._database.hub, topics_of(scope, topics), self._signal())

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        return await self._read(self._database.scopes)

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        database = self._database
        return await self._read(lambda stop: database.partitions(scope, log, after, limit, stop))

    async def check(self) -> list[str]:
        """SQLite's integrity check, missing tables, gaps in logs."""
        return await self._read(self._database.check)

    async def health(self) -> Health:
        """The real settings of the file, and what is wrong with them."""
        return await self._read(self._database.health)


class BlockingSqlite(DatabaseEngine):
    """The kernel contract for callers without an event loop. Usable from several threads at once."""

    _signal = ThreadSignal

    async def _write(self, job: Job) -> Any:
        return self._database.writing().run(job)

    async def _read(self, action: Callable[[Stop | None], T]) -> T:
        self._database.lifecycle.check_call()
        return action(None)

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot of durable data."""
        # Not through `_read`: one more coroutine would cost a short view several percent.
        self._database.lifecycle.check_call()
        return self._database.readers.view(scope, reads)

    def blocking(self) -> Engine:
        """This engine: it blocks already."""
        return self

    async def close(self) -> None:
        """Finish what was submitted and release everything."""
        self._database.close()


class Turn:
    """The calls of one event loop: how many of its tasks wait for a write, the jobs gathered in its current turn, and
    what delivers outcomes."""

    __slots__ = ("delivery", "gathered", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.delivery = OutcomeDelivery(loop)
        self.waiting = 0
        self.gathered: list[Job] = []


class SqliteEngine(DatabaseEngine):
    """The kernel contract on one SQLite file."""

    _signal = LoopSignal

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._turns: dict[asyncio.AbstractEventLoop, Turn] = {}

    async def _write(self, job: Job) -> Any:
        """Give the job to the writer and wait for its outcome.

        If no other task waits, the job goes at once. Otherwise the jobs of one turn of the loop go together at its
        end: a writer that wakes for the first would compete with the loop for the interpreter.
        """
        writer = self._database.writing()
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop) or self._first_turn(loop)
        turn.waiting += 1
        try:
            job.delivery, job.future = turn.delivery, loop.create_future()
            if turn.waiting == 1:
                writer.submit((job,))
            else:
                if not turn.gathered:
                    loop.call_soon(self._hand_over, turn)
                turn.gathered.append(job)
            return await job.future
        finally:
            turn.waiting -= 1

    def _first_turn(self, loop: asyncio.AbstractEventLoop) -> Turn:
        """A loop calls for the first time; closed ones are forgotten."""
        for other in list(self._turns):
            if other.is_closed():
                self._turns.pop(other, None)
        turn = self._turns[loop] = Turn(loop)
        return turn

    def _hand_over(self, turn: Turn) -> None:
        jobs, turn.gathered = turn.gathered, []
        if not jobs:
            return
        try:
            self._database.writing().submit(jobs)
        except PerdureError as refusal:
            refuse(jobs, refusal)

    def _read(self, action: Callable[[Stop | None], T]) -> Awaitable[T]:
        """A call that is cancelled stops reading."""
        self._database.lifecycle.check_call()
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop) or self._first_turn(loop)
        return self._database.threads.run(action, turn.delivery)

    def blocking(self) -> Engine:
        """The same file for callers without an event loop; both engines share one writer."""
        return BlockingSqlite(self._database)

    async def close(self) -> None:
        """Finish what was submitted and release everything; nothing at all in a forked child.

        Cancelling the call does not stop a close that has begun; it may be called again.
        """
        if self._database.lifecycle.is_inherited:
            return
        turn = self._turns.get(asyncio.get_running_loop())
        if turn is not None:
            self._hand_over(turn)
        await run_in_thread(self._database.close)
        for loop in list(self._turns):
            call_in_loop(loop, self._turns.pop(loop).delivery.stop_listening)
