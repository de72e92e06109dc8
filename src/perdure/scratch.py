"""A temporary notebook on disk for an import: what it must remember of a file that may be larger than memory.

It is an unnamed SQLite file: a few megabytes of it stay in memory, the rest goes to the system's folder for temporary
files (`SQLITE_TMPDIR`, `TMPDIR`), where it disappears with the process. It holds no store's data, and is deleted when
the check ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from perdure.errors import UnavailableError

_LAYOUT = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16384;
CREATE TABLE threads (thread TEXT PRIMARY KEY, depth INTEGER, digest BLOB) WITHOUT ROWID;
CREATE TABLE skipped (thread TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE runs (run TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE scope_rows (name TEXT, key BLOB, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE rows (name TEXT, key BLOB, data BLOB, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE messages (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, branch INTEGER, run TEXT, visible INTEGER, at INTEGER);
CREATE INDEX produced ON messages (run, seq) WHERE run IS NOT NULL AND visible = 1;
BEGIN;
"""

Message = tuple[str, int, str | None, int, int]
"""A message without its body: id, branch, run, whether a reader sees it as output (1 or 0), time."""


class Scratch:
    """Notes on the threads and runs of a whole file, and on the rows and messages of the thread at hand."""

    def __init__(self) -> None:
        # An import may be driven from one thread now and from another later, never from two at once.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(_LAYOUT)

    def close(self) -> None:
        """Throw everything away."""
        self._db.close()

    def _do(self, sql: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(sql, values)
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            hint = "make room in the folder for temporary files, or name another one in SQLITE_TMPDIR"
            raise UnavailableError(f"the import cannot take notes on a temporary file: {error}", hint=hint) from None

    def _add(self, sql: str, values: tuple[Any, ...]) -> bool:
        try:
            self._do(sql, values)
        except sqlite3.IntegrityError:
            return False
        return True

    def add_thread(self, thread: str, depth: int, digest: bytes) -> bool:
        """Note a thread, how many ancestors it has, and what its lines add up to; False if it was noted before."""
        return self._add("INSERT INTO threads VALUES (?, ?, ?)", (thread, depth, digest))

    def thread(self, thread: str) -> tuple[int, bytes] | None:
        """The depth and the digest of a thread that was noted."""
        note: tuple[int, bytes] | None = self._do(
            "SELECT depth, digest FROM threads WHERE thread = ?", (thread,)
        ).fetchone()
        return note

    def set_depth(self, thread: str, depth: int) -> None:
        """Correct the depth of a thread: it already exists, and its parent is not the one in the file."""
        self._do("UPDATE threads SET depth = ? WHERE thread = ?", (depth, thread))

    def skip_thread(self, thread: str) -> None:
        """Note that a thread of the file is left out."""
        self._add("INSERT INTO skipped VALUES (?)", (thread,))

    def skips(self, thread: str) -> bool:
        """Whether a thread of the file is left out."""
        return self._do("SELECT 1 FROM skipped WHERE thread = ?", (thread,)).fetchone() is not None

    def add_run(self, run: str) -> bool:
        """Note a run of any thread of the file; False if it was noted before."""
        return self._add("INSERT INTO runs VALUES (?)", (run,))

    def add_scope_row(self, table: str, key: bytes) -> bool:
        """Note a row of the file that belongs to no thread; False if its key was noted before."""
        return self._add("INSERT INTO scope_rows VALUES (?, ?)", (table, key))

    def add_row(self, table: str, key: bytes, data: bytes) -> bool:
        """Note a row of the thread at hand; False if its key was noted before."""
        return self._add("INSERT INTO rows VALUES (?, ?, ?)", (table, key, data))

    def rows(self, table: str) -> Iterator[bytes]:
        """The rows of a table that were noted."""
        for (data,) in self._do("SELECT data FROM rows WHERE name = ?", (table,)):
            yield data

    def row(self, table: str, key: bytes) -> bytes | None:
        """One of them."""
        values = self._do("SELECT data FROM rows WHERE name = ? AND key = ?", (table, key)).fetchone()
        return None if values is None else values[0]

    def add_message(self, seq: int, message: Message) -> bool:
        """Note a message of the thread at hand; False if its id was noted before."""
        return self._add("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", (seq, *message))

    def message(self, seq: int) -> Message | None:
        """What was noted of a message."""
        note: Message | None = self._do(
            "SELECT id, branch, run, visible, at FROM messages WHERE seq = ?", (seq,)
        ).fetchone()
        return note

    def has_message(self, message_id: str) -> bool:
        """Whether a message of this id was noted."""
        return self._do("SELECT 1 FROM messages WHERE id = ?", (message_id,)).fetchone() is not None

    def output(self, run: str) -> tuple[int, int, int]:
        """How many visible messages name a run as their producer, and the first and last of their seqs."""
        count, first, last = self._do(
            "SELECT count(*), min(seq), max(seq) FROM messages WHERE run = ? AND visible = 1", (run,)
        ).fetchone()
        return count, first or 0, last or 0

    def next_thread(self) -> None:
        """Forget the rows and messages of the thread at hand."""
        self._do("DELETE FROM rows")
        self._do("DELETE FROM messages")
