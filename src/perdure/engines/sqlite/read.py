"""Reading connections: a pool for any thread, a stricter pool for read-only stores, and threads that serve tasks.

A view of several reads is one read transaction, so all its answers come from one snapshot; a single statement needs
none. Every result is fetched whole before its connection goes back, because an unfinished statement would pin the
log. A question asked for a task comes with a `Stop`, and ends when the task is cancelled.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from perdure.engines.shared.outcome_delivery import OutcomeDelivery
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sqlite.connections import connect
from perdure.engines.sqlite.connections.interrupts import ReadConnection, Stop
from perdure.engines.sqlite.errors import DRIVER_ERRORS, locked, translate
from perdure.engines.sqlite.migrate import Inspector
from perdure.engines.sqlite.target import DatabaseFile
from perdure.errors import CorruptError, UnavailableError
from perdure.kernel.joined import Joined, Values
from perdure.kernel.lifecycle import closed
from perdure.kernel.ops import Get, Heads, Now, ReadOp, Scan

T = TypeVar("T")
Question = Callable[[sqlite3.Connection], T]

MAX_IDLE = 8
MAX_THREADS = 3
_STILL_ATTEMPTS = 5


def inspected(connection: sqlite3.Connection, inspector: Inspector) -> sqlite3.Connection:
    """The connection; raises and closes it if its file is not as declared."""
    try:
        inspector.inspect(connection)
    except BaseException:
        connection.close()
        raise
    return connect.lift_bound(connection)


class Readers:
    """A pool of connections that only read."""

    def __init__(self, file: DatabaseFile, queries: Queries, inspector: Inspector) -> None:
        self._file = file
        self._path = file.path
        self._queries = queries
        self._inspector = inspector
        self._idle: deque[ReadConnection] = deque()
        self._closed = False

    def view(self, scope: str, reads: Sequence[ReadOp], stop: Stop | None = None) -> list[Any]:
        """All answers from one snapshot."""
        return self.ask(lambda connection: self._view(connection, scope, reads), stop)

    def view_joined(self, scope: str, joined: Joined, stop: Stop | None = None) -> list[list[Values]]:
        """All scans from one snapshot."""

        def question(connection: sqlite3.Connection) -> list[list[Values]]:
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            answers = self._queries.view_joined(cursor, scope, joined)
            cursor.execute("COMMIT")
            return answers

        return self.ask(question, stop)

    def ask(self, question: Question[T], stop: Stop | None = None) -> T:
        """Run `question` on a connection of the pool, in this thread, until it is done or `stop` is requested."""
        if stop is not None:
            stop.raise_if_requested()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            answer = connection.ask(question, stop)
        except BaseException as error:
            connection.close()
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error, self._path) from error
            raise
        self._give_back(connection)
        return answer

    def _view(self, connection: sqlite3.Connection, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        cursor = connection.cursor()
        if len(reads) == 1 and _is_one_statement(reads[0]):
            return self._queries.view(cursor, scope, reads)
        cursor.execute("BEGIN")
        answers = self._queries.view(cursor, scope, reads)
        cursor.execute("COMMIT")
        return answers

    def _connect(self) -> ReadConnection:
        if self._closed:
            raise closed()
        try:
            return ReadConnection(inspected(self._open(), self._inspector))
        except DRIVER_ERRORS as error:
            raise translate(error, self._path) from error

    def _open(self) -> sqlite3.Connection:
        # It opens by path, where another file may be by now: answers must not come from two databases.
        self._file.refuse_if_gone()
        return connect.reader_connection(self._path)

    def _give_back(self, connection: ReadConnection) -> None:
        if len(self._idle) >= MAX_IDLE:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):  # another thread may take the last one
                self._idle.pop().close()

    def close(self) -> None:
        """Close every idle connection; one in use is closed when it is returned."""
        self._closed = True
        self._close_idle()


class StillReaders(Readers):
    """Readers that leave no trace on disk, for stores opened read-only.

    While there is no `-wal` file their connections are immutable: they take no locks and would not notice a writer. So
    the file is compared before and after each question, and a question answered during a change is asked again.
    """

    def __init__(self, file: DatabaseFile, queries: Queries, inspector: Inspector) -> None:
        super().__init__(file, queries, inspector)
        self._pool_state: connect.FileStamp | bool | None = None
        self._swap = threading.Lock()
        self._pool: Readers = _StillPool(file, queries, inspector)

    def ask(self, question: Question[T], stop: Stop | None = None) -> T:
        """Run `question` on a connection that was up to date throughout."""
        for _ in range(_STILL_ATTEMPTS):
            before = self._state()
            with self._swap:
                if before != self._pool_state:
                    self._pool.close()
                    self._pool, self._pool_state = _StillPool(self._file, self._queries, self._inspector), before
                pool = self._pool
            try:
                answer = pool.ask(question, stop)
            except (CorruptError, UnavailableError):
                if before == self._state():
                    raise
                continue
            if before == self._state():
                return answer
        raise locked(self._path)

    def close(self) -> None:
        """Close every idle connection; one in use is closed when it is returned."""
        self._closed = True
        self._pool.close()

    def _state(self) -> connect.FileStamp | bool:
        """True while there is a log, in which connections notice a writer; else the stamp of the file."""
        return connect.file_stamp(f"{self._path}-wal") is not None or connect.file_stamp(self._path) or False


class _StillPool(Readers):
    """Connections of one state of the file: one opened before a change never serves a question after it."""

    def _open(self) -> sqlite3.Connection:
        return connect.still_connection(self._path)


class ReaderThreads:
    """Threads that run questions for tasks. They start on demand and end when the pool is closed."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        """Questions that wait or run: while there are fewer than threads, none waits behind another."""
        self._closed = False
        self._lock = threading.Lock()

    async def run(self, action: Callable[[Stop], T], delivery: OutcomeDelivery) -> T:
        """The outcome of `action`, which stops if the call is cancelled. `delivery` is that of the caller's loop."""
        stop = Stop()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work() -> None:
            result: T | None = None
            failure: Exception | None = None
            try:
                result = action(stop)
            except Exception as error:  # noqa: BLE001 - any failure is the outcome of this question
                failure = error
            with self._lock:
                self._busy -= 1  # before the caller wakes: its next question must find this thread free
            delivery.deliver(((future, result, failure),))

        with self._lock:
            if self._closed:
                raise closed()
            if self._busy >= len(self._threads) < MAX_THREADS:
                self._start()
            self._busy += 1
            self._work.put(work)
        try:
            return await future
        except BaseException:
            stop.request()
            raise

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"perdure-reader-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def close(self) -> None:
        """Finish what was submitted and end the threads; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._work.put(None)
        for thread in self._threads:
            thread.join()


def _is_one_statement(read: ReadOp) -> bool:
    if isinstance(read, Get):
        return isinstance(read.keys, Sequence) and len(read.keys) == 1
    if isinstance(read, Heads):
        return len(read.partitions) == 1
    return isinstance(read, (Now, Scan)) or read.segments is None
