"""A process that copies a store, or imports it, and is killed on the way: `test_trimmed_transfer` starts it.

    python -m tests.engines.trimmed_transfer KIND PLACE SOURCE AT

SOURCE is a file: a SQLite database to copy, or lines to import. AT is the row at which a copy kills itself; an import
is killed by a failpoint.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path

from perdure.clock import ManualClock
from perdure.copy import CopyProgress, copy_engine
from perdure.engines.sqlite import open_sqlite
from perdure.kernel.engine import Engine
from perdure.stores.store import Store
from perdure.stores.transfer.export import import_lines
from perdure.testkit.cases.trimmed_logs import TRAILS

START = 1_700_000_000_000


async def open_trails(kind: str, place: str) -> Engine:
    """An engine with the kit's declarations."""
    if kind == "sqlite":
        return await open_sqlite(place, TRAILS, clock=ManualClock(START))
    engine: Engine = await importlib.import_module(f"perdure.engines.{kind}").open_engine(
        place, TRAILS, clock=ManualClock(START)
    )
    return engine


async def work(kind: str, place: str, source: str, at: int, lines: list[bytes]) -> None:
    """Import these lines; without any, copy the source."""

    def stop(progress: CopyProgress) -> None:
        if progress.stage == "copying" and progress.done >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    target = await open_trails(kind, place)
    if not lines:
        await copy_engine(await open_trails("sqlite", source), target, last=("thread_heads",), on_progress=stop)
    else:
        await import_lines(Store(target, owner=False), lambda: lines)


if __name__ == "__main__":
    kind, place, source, at = sys.argv[1:]
    lines = [] if source.endswith(".db") else Path(source).read_bytes().splitlines()
    asyncio.run(work(kind, place, source, int(at), lines))
