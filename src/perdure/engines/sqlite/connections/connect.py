"""Opening connections: one kind that writes, one that reads, one that may not even leave side files behind.

Never open the database, `-wal` or `-shm` file with plain `open()`: POSIX drops every lock a process holds on a file
when *any* descriptor of it is closed, and SQLite's locks would be gone. `os.stat` is safe. A new file is made, for its
owner alone, before SQLite opens it: see `forks`.

A file may come from anybody, so what it declares is not trusted: functions that reach beyond the database do not run
from it (`trusted_schema`), pages are checked as they are read (`cell_size_check`), and a trigger stops the statement
that would run it. `objects` refuses such a file when it is opened; this is for one that is changed later.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

from perdure import limits
from perdure.engines.sqlite.connections import forks
from perdure.engines.sqlite.errors import DRIVER_ERRORS, is_busy, locked, translate
from perdure.errors import UnsupportedError

T = TypeVar("T")

Sync = Literal["power", "process"]
OLDEST_SQLITE = (3, 31, 0)
# By measurement on the turn mix: 4 KB pages write the fewest bytes per commit (10.9 frames, 44 KB; with 8 KB pages
# 9.1 frames, 73 KB) and pack 2.5 KB messages no worse than 8 or 16 KB pages do.
PAGE_SIZE = 4096
# The writer checkpoints by itself after it has answered (see `checkpoints`); the bound if it never comes to that.
WAL_BOUND_PAGES = 12_000
# A log that a long read has let grow shrinks to this when it begins again.
_WAL_BYTES_KEPT = 32 * 1024 * 1024
_SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}
_STATEMENTS_KEPT = 512
_CACHE_KIB = 16_384
# Twenty million steps are about a second. Reading the schema of a store takes a few thousand.
_STEPS_PER_LOOK, _LOOKS_AT_OPENING = 100_000, 200
_WARY = ("trusted_schema=OFF", "cell_size_check=ON")


def writer_connection(path: str, durability: Sync, *, create: bool = False) -> sqlite3.Connection:
    """The connection that writes. While it is being set up it waits for locks; see `stop_waiting`."""
    settings = (
        f"synchronous={_SYNCHRONOUS[durability]}",
        f"wal_autocheckpoint={WAL_BOUND_PAGES}",
        f"journal_size_limit={_WAL_BYTES_KEPT}",
    )
    return _connect(path, "rw", timeout=limits.BUSY_TIMEOUT_MS / 1000, settings=settings, create=create)


def stop_waiting(connection: sqlite3.Connection) -> sqlite3.Connection:
    """From now on the connection never waits for locks inside SQLite: the writer retries on its own terms."""
    connection.execute("PRAGMA busy_timeout=0")
    return connection


def reader_connection(path: str) -> sqlite3.Connection:
    """A connection that only reads.

    Readers see durable data only: in WAL mode a commit is published to other connections, through the shared index,
    after its frames are written and, with synchronous=FULL, after they are synced.
    """
    return _connect(path, "rw", timeout=limits.BUSY_TIMEOUT_MS / 1000, settings=("query_only=1",))


def still_connection(path: str) -> sqlite3.Connection:
    """A connection that changes nothing on disk, not even side files.

    A cleanly closed file has no `-wal`; opening it `mode=ro` would create one. Then, and only then, it is opened as
    immutable; `reader.StillReaders` watches that this stays true.
    """
    if Path(f"{path}-wal").exists():
        return _connect(path, "ro", timeout=limits.BUSY_TIMEOUT_MS / 1000)
    return _connect(path, "ro&immutable=1", timeout=0)


def _connect(
    path: str, mode: str, timeout: float, settings: tuple[str, ...] = (), *, create: bool = False
) -> sqlite3.Connection:
    connection = None
    try:
        connection = forks.connect(
            path,
            f"file:{quote(path)}?mode={mode}",
            create=create,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_KEPT,
        )
        _distrust(connection)
        _bound_steps(connection)
        for setting in (*_WARY, *settings, f"cache_size=-{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {setting}")
    except DRIVER_ERRORS as error:
        if connection is not None:
            connection.close()
        raise translate(error, path) from error
    return connection


def _distrust(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)


def _bound_steps(connection: sqlite3.Connection) -> None:
    """End whatever runs after so many steps, until `lift_bound`: pages that lead to each other make a schema of a
    hundred million rows from a small file, and SQLite reads it whole before the first statement."""
    looks = itertools.count()
    connection.set_progress_handler(lambda: next(looks) >= _LOOKS_AT_OPENING, _STEPS_PER_LOOK)


def lift_bound(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The tables are those that were declared: from here on a statement may take as long as it needs."""
    connection.set_progress_handler(None, 0)
    return connection


def use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch the file to write-ahead logging; it stays so."""
    (mode,) = retry_busy(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchone(), path)
    if mode != "wal":
        raise UnsupportedError(
            f"{path} is on a file system that cannot do write-ahead logging (journal_mode stayed {mode})",
            hint="put the file on a local disk",
        )


def retry_busy(action: Callable[[], T], path: str) -> T:
    """Run `action` until no other connection is in its way, within the product's bound on waiting."""
    deadline = time.monotonic() + limits.BUSY_TIMEOUT_MS / 1000
    pause = 0.0002
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        if time.monotonic() >= deadline:
            raise locked(path)
        # Short and jittered: two processes that collided once must not go on colliding in step.
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 1.5, 0.004)


def check_library() -> None:
    """Refuse a SQLite library that lacks what the statements use."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise UnsupportedError(f"SQLite {sqlite3.sqlite_version} is too old; {needed} or newer is needed")


def file_size(path: str) -> int:
    """Size in bytes, 0 when there is no such file."""
    stamp = file_stamp(path)
    return 0 if stamp is None else stamp[1]


def file_stamp(path: str) -> tuple[int, int, int] | None:
    """Identity, size and time of a file: equal as long as nobody writes to it. None when there is no such file."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
