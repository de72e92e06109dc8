"""What the two engines on one file share: everything but the thread in which a call runs.

An engine says how it writes (`_write`), how it reads (`_read`) and how it waits for hints (`_signal`); the kernel
contract on top of that is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.clock import Clock
from perdure.engines.shared.hints import Subscription, topics_of
from perdure.engines.shared.signals import Signal
from perdure.engines.sqlite import health
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.engine.database import Database
from perdure.engines.sqlite.read import Question
from perdure.engines.sqlite.write.jobs import Job, TakeJob, TransactJob
from perdure.kernel.engine import Health, Watch
from perdure.kernel.ops import Applied, Op, ReadOp, Scan, Taken

T = TypeVar("T")


class DatabaseEngine(ABC):
    """The kernel contract on an open `Database`."""

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

    @abstractmethod
    def _signal(self) -> Signal:
        """A signal that the caller can wait for."""

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable when it returns."""
        applied: Applied = await self._write(TransactJob(scope, ops, hints))
        return applied

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any]) -> Taken:
        """Atomically select and update the first rows of an index."""
        rows: Taken = await self._write(TakeJob(scope, scan, changes))
        return rows

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot of durable data."""
        readers = self._database.readers
        return await self._read(lambda stop: readers.view(scope, reads, stop))

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        self._database.lifecycle.check_call()
        return Subscription(self._database.hub, topics_of(scope, topics), self._signal())

    def _ask(self, question: Question[T]) -> Awaitable[T]:
        return self._read(lambda stop: self._database.readers.ask(question, stop))

    async def scopes(self) -> list[str]:
        """Every scope that holds a row."""
        return await self._ask(lambda connection: health.scopes(connection, self.schema))

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        declared = self.schema.log[log]
        return await self._ask(lambda connection: health.partitions(connection, declared, scope, after, limit))

    async def check(self) -> list[str]:
        """SQLite's integrity check, missing tables, gaps in logs."""
        return await self._read(self._database.check)

    async def health(self) -> Health:
        """The real settings of the file, and what is wrong with them."""
        return await self._read(self._database.health)
