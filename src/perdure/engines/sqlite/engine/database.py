"""An open file, shared by both engines: one writer, one pool of readers, one hub of hints.

Everything here blocks; the engines decide in which thread it runs.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from perdure.clock import Clock
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sqlite import health
from perdure.engines.sqlite.connections.connect import file_stamp
from perdure.engines.sqlite.connections.forks import store_of_parent
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.read import Readers, ReaderThreads
from perdure.engines.sqlite.watch import Hub
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.engines.sqlite.write.writer import Writer
from perdure.errors import CorruptError, PerdureError
from perdure.kernel.engine import Capabilities, Durability, Health
from perdure.kernel.lifecycle import closed, opened_read_only


class Database:
    """An open file. `refusal` makes the error for every call once nothing may be done any more."""

    def __init__(
        self, path: str, queries: Queries, readers: Readers, committer: Committer | None, capabilities: Capabilities
    ) -> None:
        self.path = path
        self._queries = queries
        self.schema = queries.schema
        self.readers = readers
        self.threads = ReaderThreads()
        self.committer = committer
        self.refusal: Callable[[], PerdureError] | None = None
        self.capabilities = capabilities
        self._closing = threading.Lock()
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


_live: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[Database] = []


def _refuse_in_child() -> None:
    for database in _live:
        database.refusal = store_of_parent
        _inherited.append(database)  # never collected: it would end what belongs to the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)
