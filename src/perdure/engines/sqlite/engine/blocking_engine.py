"""The SQLite engine for plain threads: the same methods, as coroutines that never suspend.

A caller that finds the writer free commits in its own thread, and a read runs where it is called on a pooled
connection, so a blocking caller never pays for a switch between threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.engines.shared.signals import ThreadSignal
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.engine.base import DatabaseEngine
from perdure.engines.sqlite.write.jobs import Job
from perdure.kernel.engine import Engine
from perdure.kernel.ops import ReadOp

T = TypeVar("T")


class BlockingSqlite(DatabaseEngine):
    """The kernel contract for callers without an event loop. Usable from several threads at once."""

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

    def _signal(self) -> ThreadSignal:
        return ThreadSignal()

    def blocking(self) -> Engine:
        """This engine: it blocks already."""
        return self

    async def close(self) -> None:
        """Finish what was submitted and release everything."""
        self._database.close()
