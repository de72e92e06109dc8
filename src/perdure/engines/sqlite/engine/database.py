"""What both faces of the engine share: one writer, one pool of readers, one hub of hints, and the end of all three.

`open_core` blocks, and so does everything in `Core`; the faces decide in which thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from perdure.clock import Clock
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sql.embedded.statements import Statements
from perdure.engines.sql.embedded.write import Session
from perdure.engines.sqlite import health
from perdure.engines.sqlite.connections.connect import Sync, check_library, file_stamp, stop_waiting, writer_connection
from perdure.engines.sqlite.connections.forks import store_of_parent
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.migrate import Inspector, prepare
from perdure.engines.sqlite.read import Readers, ReaderThreads, StillReaders, inspected
from perdure.engines.sqlite.target import DatabaseFile, usable_path
from perdure.engines.sqlite.watch import Hub
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.engines.sqlite.write.writer import Writer
from perdure.errors import CorruptError, InvalidError, PerdureError, UnavailableError
from perdure.kernel.engine import Capabilities, Durability, Health
from perdure.kernel.lifecycle import closed, opened_read_only
from perdure.kernel.schema import Schema


class Core:
    """An open file. `refusal` makes the error for every call once nothing may be done any more."""

    def __init__(
        self, path: str, queries: Queries, readers: Readers, committer: Committer | None, durability: Durability
    ) -> None:
        self.path = path
        self._queries = queries
        self.schema = queries.schema
        self.readers = readers
        self.threads = ReaderThreads()
        self.committer = committer
        self.refusal: Callable[[], PerdureError] | None = None
        self.capabilities = _capabilities(durability, read_only=committer is None)
        self._closing = threading.Lock()
        self._durability = durability
        self.hub = Hub(self._version)
        self.writer = None if committer is None else Writer(committer, self.hub.publish)
        self.hub.note_version()
        _live.add(self)

    @property
    def clock(self) -> Clock:
        """What `Now` reads; the system's clock stands for SQLite's own."""
        return self._queries.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._queries.clock = clock

    @property
    def belongs_to_parent(self) -> bool:
        """Whether this process was forked from the one that opened the file."""
        return self.refusal is store_of_parent

    def ready(self) -> None:
        """Raise if the store is closed, or was opened by the parent of this process."""
        if self.refusal is not None:
            raise self.refusal()

    def writing(self) -> Writer:
        """The writer, unless there is nothing to write to."""
        if self.refusal is not None:
            raise self.refusal()
        if self.writer is None:
            raise opened_read_only(self.path)
        return self.writer

    def _version(self) -> int | None:
        if self.writer is not None:
            return self.writer.data_version()
        # Without a connection of our own that stays open, the files themselves tell that somebody wrote.
        return hash((file_stamp(self.path), file_stamp(f"{self.path}-wal")))

    def scopes(self, stop: Stop | None = None) -> list[str]:
        """Every scope that holds a row, sorted."""
        self.ready()
        return self.readers.ask(lambda connection: health.scopes(connection, self.schema), stop)

    def partitions(self, scope: str, log: str, after: str | None, limit: int, stop: Stop | None = None) -> list[str]:
        """Partitions of a log with entries, in byte order."""
        self.ready()
        declared = self.schema.log[log]
        return self.readers.ask(lambda connection: health.partitions(connection, declared, scope, after, limit), stop)

    def check(self, stop: Stop | None = None) -> list[str]:
        """What is damaged, in words."""
        self.ready()
        try:
            return self.readers.ask(lambda connection: health.findings(connection, self.schema), stop)
        except CorruptError as error:
            return [str(error)]

    def health(self, stop: Stop | None = None) -> Health:
        """The real settings of the connection that writes (or reads, when nothing may be written)."""
        self.ready()
        if self.writer is None:
            found = self.readers.ask(lambda connection: health.settings(connection, self.path), stop)
            problems = health.problems(found, writing=False)
        else:
            found, gone, more = self.writer.inspect(
                lambda c: (health.settings(c.session.connection, self.path), c.gone(), c.problems())
            )
            problems = health.problems(found, writing=True, gone=gone) + more
        durability: Durability = "power" if found["synchronous"] in ("FULL", "EXTRA") else "process"
        return Health("sqlite", not problems, durability, found, tuple(problems))

    def close(self) -> None:
        """Finish what was submitted and release everything; idempotent, and nothing at all in a forked child."""
        if self.belongs_to_parent:
            return
        with self._closing:
            self.refusal = closed
            self.hub.close()
            self.threads.close()
            self.readers.close()
            if self.writer is not None:
                self.writer.stop()


def open_core(path: str, schema: Schema, clock: Clock, durability: Sync, *, read_only: bool) -> Core:
    """Open the file, creating or migrating it as needed."""
    check_library()
    if durability not in ("power", "process"):
        raise InvalidError(f"durability is 'power' or 'process' on SQLite, not {durability!r}")
    path = usable_path(path)
    queries = Queries(schema, clock)
    if read_only:
        return _open_read_only(path, schema, queries, durability)
    statements = Statements(schema)
    connection = writer_connection(path, durability, create=True)
    try:
        prepare(connection, path, schema)
        inspector = Inspector(path, schema)
        inspector.inspect(connection)
        prepared = [connection]

        def open_session() -> Session:
            opened = prepared.pop() if prepared else inspected(writer_connection(path, durability), inspector)
            return Session(stop_waiting(opened), statements, queries)

        file = DatabaseFile(path)
        return Core(path, queries, Readers(file, queries, inspector), Committer(open_session, file), durability)
    except BaseException:
        connection.close()
        raise


def _open_read_only(path: str, schema: Schema, queries: Queries, durability: Sync) -> Core:
    if not Path(path).exists():
        raise UnavailableError(f"{path} does not exist", hint="open it without read_only to create it")
    readers = StillReaders(DatabaseFile(path), queries, Inspector(path, schema))
    readers.ask(lambda _: None)  # to be refused now if it cannot be read at all
    return Core(path, queries, readers, None, durability)


def _capabilities(durability: Durability, *, read_only: bool) -> Capabilities:
    notes = ["wake-ups between processes come by polling"]
    if durability == "process":
        notes.append("synchronous=NORMAL: a power failure may take the last commits")
    if read_only:
        notes.append("opened read-only")
    return Capabilities(
        engine="sqlite",
        durability=durability,
        processes="many",
        machines="one",
        round_trips_per_commit=0,
        watch="poll",
        blocking=True,
        notes=tuple(notes),
    )


_live: weakref.WeakSet[Core] = weakref.WeakSet()
_inherited: list[Core] = []


def _refuse_in_child() -> None:
    for core in _live:
        core.refusal = store_of_parent
        _inherited.append(core)  # never collected: it would end what belongs to the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)
