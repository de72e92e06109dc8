"""An open file, shared by both engines: one writer, one pool of readers, one hub of hints.

Everything here blocks; the engines decide in which thread it runs, and check that the file is still open.
"""

from __future__ import annotations

import threading
from typing import Any

from perdure.engines.shared.lifecycle import Lifecycle, State
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sqlite import health
from perdure.engines.sqlite.connections.connect import file_stamp
from perdure.engines.sqlite.connections.forks import store_of_parent
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.read import Readers, ReaderThreads
from perdure.engines.sqlite.watch import PollingHub
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.engines.sqlite.write.writer import Writer
from perdure.errors import CorruptError
from perdure.kernel.engine import Capabilities, Durability, Health
from perdure.kernel.lifecycle import opened_read_only

# Python 3.11 takes 100 ns to look up a member of an enum, and every commit is checked.
_OPEN = State.OPEN


class Database:
    """An open file. Without a `committer` it is read-only."""

    def __init__(
        self, path: str, queries: Queries, readers: Readers, committer: Committer | None, capabilities: Capabilities
    ) -> None:
        self.path = path
        self.queries = queries
        self.schema = queries.schema
        self.capabilities = capabilities
        self.readers = readers
        self.threads = ReaderThreads()
        self.committer = committer
        self.hub = PollingHub(self._version)
        self.writer = None if committer is None else Writer(committer, self.hub)
        self.hub.note_version()
        self._closing = threading.Lock()
        self.lifecycle = Lifecycle(self, path, in_child=store_of_parent)

    def writing(self) -> Writer:
        """The writer, unless the file is closed or read-only."""
        if self.lifecycle.state is not _OPEN:
            self.lifecycle.check_call()
        if self.writer is None:
            raise opened_read_only(self.path)
        return self.writer

    def _version(self) -> int | None:
        if self.writer is not None:
            return self.writer.data_version()
        # No connection stays open, so a change of the files themselves shows that another process wrote.
        return hash((file_stamp(self.path), file_stamp(f"{self.path}-wal")))

    def scopes(self, stop: Stop | None = None) -> list[str]:
        """Every scope that holds a row."""
        return self.readers.ask(lambda connection: health.scopes(connection, self.schema), stop)

    def partitions(self, scope: str, log: str, after: str | None, limit: int, stop: Stop | None = None) -> list[str]:
        """Partitions with entries, in byte order."""
        declared = self.schema.log[log]
        return self.readers.ask(lambda connection: health.partitions(connection, declared, scope, after, limit), stop)

    def check(self, stop: Stop | None = None) -> list[str]:
        """Human-readable damage."""
        try:
            return self.readers.ask(lambda connection: health.damage(connection, self.schema), stop)
        except CorruptError as error:
            return [str(error)]

    def health(self, stop: Stop | None = None) -> Health:
        """The real settings of the connection that writes (or reads, if the file is read-only)."""
        if self.writer is None:
            settings = self.readers.ask(lambda connection: health.settings(connection, self.path), stop)
            problems = health.problems(settings, writing=False)
        else:
            settings, problems = self.writer.inspect(self._writer_health)
        durability: Durability = "power" if settings["synchronous"] in ("FULL", "EXTRA") else "process"
        return Health("sqlite", not problems, durability, settings, tuple(problems))

    def _writer_health(self, committer: Committer) -> tuple[dict[str, Any], list[str]]:
        settings = health.settings(committer.session.connection, self.path)
        problems = health.problems(settings, writing=True, gone=committer.gone())
        if committer.checkpoints.problem is not None:
            problems.append(f"the last checkpoint failed: {committer.checkpoints.problem}")
        return settings, problems

    def close(self) -> None:
        """Finish what was submitted and release everything; idempotent, and nothing at all in a forked child."""
        if self.lifecycle.is_inherited:
            return
        with self._closing:
            if not self.lifecycle.begin_close():
                return
            self.hub.close()
            self.threads.close()
            self.readers.close()
            if self.writer is not None:
                self.writer.stop()
            self.lifecycle.finish_close()
