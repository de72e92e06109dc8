"""Interrupts: stopping a running read, for a task that was cancelled and for Ctrl-C in the thread that reads.

SQLite offers two means, and each alone has a gap. `interrupt()` ends a running statement at once, but has no effect
between two statements. A progress handler is called every N steps of every statement, and notices a request that came
in between; but it needs the interpreter, which may be busy, so it must be called rarely. Both are used.

The handler is also where Ctrl-C arrives: Python runs signal handlers between two steps of its own, and while SQLite
works for the main thread, the progress handler is the only Python code that runs. An exception raised in it ends the
statement, but the driver swallows it; so the handler stores it, and `ask` raises it to the caller.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

from perdure.engines.sqlite.errors import primary_code

T = TypeVar("T")

# Some 20 ms of work. At 100,000 a statement takes up to twice as long while other threads keep the interpreter busy.
STEPS_BETWEEN_CALLS = 1_000_000


class Stopped(Exception):
    """The question was stopped: its task was cancelled, so no caller receives this."""


class Stop:
    """Stops one question, from any thread.

    After the question has released its connection a request has no effect: the connection may be serving another.
    """

    __slots__ = ("_connection", "_lock", "requested")

    def __init__(self) -> None:
        self.requested = False
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def request(self) -> None:
        """End the question as soon as possible; it may have ended already."""
        with self._lock:
            self.requested = True
            if self._connection is not None:
                self._connection.interrupt()

    def raise_if_requested(self) -> None:
        """Raise `Stopped` after a request."""
        if self.requested:
            raise Stopped

    def begin(self, connection: sqlite3.Connection) -> None:
        """From here on, a request interrupts what runs on this connection."""
        with self._lock:
            self.raise_if_requested()
            self._connection = connection

    def end(self) -> None:
        """The connection is about to serve another question."""
        with self._lock:
            self._connection = None


class _ProgressHandler:
    """The progress handler of a connection: the request it watches for, and the exception that interrupted it."""

    __slots__ = ("raised", "stop")

    def __init__(self) -> None:
        self.stop: Stop | None = None
        self.raised: BaseException | None = None

    def calls(self) -> Generator[int, None, None]:
        """Each step is one call of the handler: 0 to go on, 1 to end the statement.

        A generator, because a signal handler runs as soon as Python code is entered: in a function that would be before
        its `try`, here it is at the `yield`, inside it.
        """
        verdict = 0
        while True:
            try:
                yield verdict
                verdict = int(self.stop is not None and self.stop.requested)
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001 - a signal handler may raise anything
                self.raised, verdict = error, 1

    def reason(self) -> BaseException:
        """Why a statement was interrupted: by a request or a signal."""
        if self.stop is not None and self.stop.requested:
            return Stopped()
        return self.raised or KeyboardInterrupt()


class ReadConnection:
    """A connection that answers one question at a time and can be stopped in the middle of it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._handler = _ProgressHandler()
        calls = self._handler.calls()
        next(calls)  # up to the first `yield`
        connection.set_progress_handler(calls.__next__, STEPS_BETWEEN_CALLS)

    def ask(self, question: Callable[[sqlite3.Connection], T], stop: Stop | None = None) -> T:
        """The answer; raises `Stopped` after a request, and any exception of a signal handler.

        After an exception the connection must be closed.
        """
        self._handler.stop = stop
        if stop is not None:
            stop.begin(self._connection)
        try:
            return question(self._connection)
        except sqlite3.OperationalError as error:
            if primary_code(error) == sqlite3.SQLITE_INTERRUPT:
                raise self._handler.reason() from None
            raise
        finally:
            if stop is not None:
                stop.end()

    def close(self) -> None:
        """Close it; idempotent."""
        self._connection.close()
