"""Opening connections: one kind that writes, one that reads, one that may not even leave side files behind.

Never open the database, `-wal` or `-shm` file with plain `open()`: POSIX drops every lock a process holds on a file
when *any* descriptor of it is closed, and SQLite's locks would be gone. `os.stat` is safe. A new file is created,
private to its owner, before SQLite opens it: see `forks`.

A file may come from an attacker, so what it declares is not trusted: functions that reach beyond the database do not
run from it (`trusted_schema`), pages are checked as they are read (`cell_size_check`), and a trigger stops the
statement that would run it. `schema` refuses such a file when it is opened; this is for one that is changed later.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import quote

from perdure import limits
from perdure.engines.shared.events import EngineLog
from perdure.engines.sqlite.connections import forks
from perdure.engines.sqlite.errors import DRIVER_ERRORS, is_busy, locked, translate
from perdure.errors import UnsupportedError

T = TypeVar("T")

Sync = Literal["power", "process"]
OLDEST_SQLITE = (3, 31, 0)
# For new files, by measurement (decision 35): a commit writes half as many bytes as with pages of 4 KB, a message of
# 2 KB takes 2.5 KB instead of 4.3 KB, and commits, loads and lists take the same time.
PAGE_SIZE = 2048
# The writer checkpoints after it has delivered outcomes (see `checkpoints`); this is the bound if it never does.
WAL_BOUND_PAGES = 12_000
# A log that grew during a long read shrinks to this when it restarts.
_WAL_SIZE_LIMIT = 32 * 1024 * 1024
_SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}
_CACHED_STATEMENTS = 512
_CACHE_KIB = 16_384
# Twenty million steps are about a second. Reading the schema of a store takes a few thousand.
_STEPS_PER_CALL, _CALLS_AT_OPENING = 100_000, 200
_FIRST_PAUSE = 0.0002
_WARY = ("trusted_schema=OFF", "cell_size_check=ON")


class FileStamp(NamedTuple):
    """Which file a path leads to and when it changed: equal until something writes to it."""

    inode: int
    size: int
    changed_at: int


def writer_connection(path: str, durability: Sync, *, create: bool = False) -> sqlite3.Connection:
    """The connection that writes. It waits for locks until `stop_waiting`."""
    settings = (
        f"synchronous={_SYNCHRONOUS[durability]}",
        f"wal_autocheckpoint={WAL_BOUND_PAGES}",
        f"journal_size_limit={_WAL_SIZE_LIMIT}",
    )
    return _connect(path, "rw", timeout=limits.BUSY_TIMEOUT_MS / 1000, settings=settings, create=create)


def stop_waiting(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Never wait for locks inside SQLite from now on: the writer retries by itself (`retry_busy`)."""
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
    immutable; `read.StillReaders` checks that this stays true.
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
            cached_statements=_CACHED_STATEMENTS,
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
    """End any statement after a number of steps, until `lift_bound`.

    In a small file, pages that refer to each other can make a schema of a hundred million rows, and SQLite reads all of
    it before the first statement.
    """
    calls = itertools.count()
    connection.set_progress_handler(lambda: next(calls) >= _CALLS_AT_OPENING, _STEPS_PER_CALL)


def lift_bound(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Let statements take as long as they need: the tables are known to be those that were declared."""
    connection.set_progress_handler(None, 0)
    return connection


def use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch the file to write-ahead logging, for good."""
    (mode,) = retry_busy(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchone(), path)
    if mode != "wal":
        raise UnsupportedError(
            f"{path} is on a file system that cannot do write-ahead logging (journal_mode stayed {mode})",
            hint="put the file on a local disk",
        )


def retry_busy(action: Callable[[], T], path: str) -> T:
    """Retry `action` while another connection holds a lock, for at most `BUSY_TIMEOUT_MS`."""
    deadline = time.monotonic() + limits.BUSY_TIMEOUT_MS / 1000
    pause = _FIRST_PAUSE
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        if time.monotonic() >= deadline:
            raise locked(path)
        if pause == _FIRST_PAUSE:
            EngineLog("sqlite", path).waits()
        # Short and jittered, so that two processes that collided once do not collide again and again.
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 1.5, 0.004)


def check_library() -> None:
    """Raise if the SQLite library lacks features that the statements use."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise UnsupportedError(f"SQLite {sqlite3.sqlite_version} is too old; {needed} or newer is needed")


def file_size(path: str) -> int:
    """Size in bytes, 0 when there is no such file."""
    stamp = file_stamp(path)
    return 0 if stamp is None else stamp.size


def file_stamp(path: str) -> FileStamp | None:
    """The stamp of a file, None when there is no such file."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return FileStamp(status.st_ino, status.st_size, status.st_mtime_ns)
