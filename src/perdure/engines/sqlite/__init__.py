"""The SQLite engine: the default. One file, several processes, readable in any SQLite browser."""

from __future__ import annotations

import asyncio

from perdure.clock import Clock, system_clock
from perdure.engines.sqlite.connections.connect import Sync
from perdure.engines.sqlite.engine.async_engine import SqliteEngine
from perdure.engines.sqlite.engine.database import Core, open_core
from perdure.engines.sqlite.planning import plan
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema
from perdure.kernel.threads import run_in_thread

__all__ = ["open_sqlite", "plan_migration"]


async def open_sqlite(
    path: str,
    schema: Schema,
    *,
    clock: Clock = system_clock,
    read_only: bool = False,
    durability: Sync = "power",
) -> SqliteEngine:
    """Open `path`, creating it or bringing it up to date as needed.

    In a running event loop the work is done in a thread; without one the coroutine does it on the spot and never
    suspends, so that blocking callers can drive it. `read_only` changes nothing on disk. `durability="process"`
    leaves the sync to the system: commits survive a crash of the process, not of the machine. If the call is cancelled,
    the thread closes what it has opened.
    """

    def open_file() -> Core:
        return open_core(path, schema, clock, durability, read_only=read_only)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return SqliteEngine(open_file())
    return SqliteEngine(await run_in_thread(open_file, discard=Core.close))


async def plan_migration(path: str, schema: Schema) -> Migration:
    """What `open_sqlite` would do to bring the file to this schema; changes nothing."""
    return await run_in_thread(lambda: plan(path, schema))
