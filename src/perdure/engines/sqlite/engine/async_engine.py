"""The SQLite engine for tasks: every call hands its work to a thread and waits for the answer.

Writes go to the writer's thread, where all jobs that wait share one sync; reads go to a few reader threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from perdure.engines.shared.signals import LoopSignal
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.engine.base import DatabaseEngine
from perdure.engines.sqlite.engine.blocking_engine import BlockingSqlite
from perdure.engines.sqlite.engine.database import Database
from perdure.engines.sqlite.write.jobs import Job, refuse
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine
from perdure.kernel.threads import run_in_thread

T = TypeVar("T")


class Turn:
    """The writes of one event loop: how many of its tasks wait, and the jobs gathered in its current turn."""

    __slots__ = ("gathered", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.gathered: list[Job] = []


class SqliteEngine(DatabaseEngine):
    """The kernel contract on one SQLite file."""

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
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = Turn()
        turn.waiting += 1
        try:
            job.loop, job.future = loop, loop.create_future()
            if turn.waiting == 1:
                writer.submit((job,))
            else:
                if not turn.gathered:
                    loop.call_soon(self._hand_over, turn)
                turn.gathered.append(job)
            return await job.future
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

    def _read(self, action: Callable[[Stop | None], T]) -> Awaitable[T]:
        """A call that is cancelled stops reading."""
        self._database.lifecycle.check_call()
        return self._database.threads.run(action)

    def _signal(self) -> LoopSignal:
        return LoopSignal()

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
