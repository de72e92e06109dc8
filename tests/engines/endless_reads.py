"""Reads that never end by themselves, and programs that are stopped in the middle of one.

    python -m tests.engines.endless_reads tasks FILE       tasks that read are cancelled, then the store is closed
    python -m tests.engines.endless_reads still FILE       the same on a store opened read-only
    python -m tests.engines.endless_reads blocking FILE    a read of the blocking face, to be ended by Ctrl-C
    python -m tests.engines.endless_reads alarm FILE       the same, to be ended by a signal handler's own exception
    python -m tests.engines.endless_reads cli FILE ARG…    the command line, whose `check` does not end

The last three say `reading` once SQLite is at work, and then wait for their signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, drive

from perdure.cli import main as command_line
from perdure.engines.sqlite import health, open_sqlite
from perdure.engines.sqlite.connections.database import Database
from perdure.engines.sqlite.read import MAX_THREADS
from perdure.kernel.ops import Heads

LONG = """
WITH RECURSIVE s(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s LIMIT ?)
SELECT max(x), max(CASE x WHEN 9 THEN begun() END) FROM s
"""


class Alarmed(Exception):
    """What the signal handler of the program raises."""


def read_long(connection: sqlite3.Connection, begun: Callable[[], int | None], rows: int = -1) -> Any:
    """Keep SQLite busy, for ever unless `rows` are enough; `begun` is called from inside the statement."""
    connection.create_function("begun", 0, begun)
    return connection.execute(LONG, (rows,)).fetchall()


def make_views_endless(database: Database, begun: Callable[[], int | None]) -> None:
    """From now on, every view of the store is such a read."""

    def view(cursor: sqlite3.Cursor, *_: object) -> list[Any]:
        return [read_long(cursor.connection, begun)]

    database.readers._queries.view = view  # type: ignore[method-assign, assignment]


async def cancel_reads(path: str, *, read_only: bool) -> int:
    """Every reader thread is busy, every task is cancelled; the store must still close."""
    engine = await open_sqlite(path, SCHEMA, read_only=read_only)
    begun = threading.Semaphore(0)
    make_views_endless(engine._database, begun.release)
    # More than there are threads: the last one waits in the queue, and must not begin at all.
    tasks = [asyncio.create_task(engine.view(SCOPE, [Heads("notes", ["t"])])) for _ in range(MAX_THREADS + 1)]
    for _ in range(MAX_THREADS):
        if not await asyncio.to_thread(begun.acquire, timeout=DEADLINE):
            return 1
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await engine.close()
    return int(begun.acquire(blocking=False) or not all(isinstance(o, asyncio.CancelledError) for o in outcomes))


# No function of Python's: a signal that arrives inside one would end the statement by itself.
_say_reading = partial(os.write, 1, b"reading\n")


def _raise_alarm(*_: object) -> None:
    raise Alarmed


def read_blocking(path: str, expected: type[BaseException]) -> int:
    """Read in the main thread, and be interrupted; the store must stay usable."""
    engine = drive(open_sqlite(path, SCHEMA))
    blocking = engine.blocking()
    view = engine._database.readers._queries.view
    make_views_endless(engine._database, _say_reading)
    try:
        drive(blocking.view(SCOPE, [Heads("notes", ["t"])]))
    except BaseException as error:
        if type(error) is not expected:
            raise
    engine._database.readers._queries.view = view  # type: ignore[method-assign]
    heads = drive(blocking.view(SCOPE, [Heads("notes", ["t"])]))
    drive(blocking.close())
    return int(heads != [[0]])


def run_command_line(path: str, arguments: tuple[str, ...]) -> int:
    """The command line on this file; the engine's own check does not end."""
    health.damage = lambda connection, _: read_long(connection, _say_reading)
    sys.argv = ["perdure", *arguments, "--store", f"sqlite:///{path}"]
    command_line()
    return 0


def main(program: str, path: str, *arguments: str) -> int:
    """Returns 0 if the read ended as it should."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it as ignored
    if program in ("tasks", "still"):
        return asyncio.run(cancel_reads(path, read_only=program == "still"))
    if program == "cli":
        return run_command_line(path, arguments)
    signal.signal(signal.SIGUSR1, _raise_alarm)
    return read_blocking(path, Alarmed if program == "alarm" else KeyboardInterrupt)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
