"""Opening a file: a path becomes a running engine, or the plan of what opening would do to the file's schema."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure.clock import Clock, system_clock
from perdure.engines.shared.capabilities import capabilities
from perdure.engines.sql.embedded.filled import FilledSession
from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sql.embedded.statements import Statements
from perdure.engines.sqlite.connections.connect import Sync, check_library, stop_waiting, writer_connection
from perdure.engines.sqlite.connections.database import Database
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.migrate import Inspector, plan, prepare
from perdure.engines.sqlite.read import Readers, StillReaders, inspected
from perdure.engines.sqlite.target import DatabaseFile, usable_path
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.errors import UnavailableError
from perdure.kernel.engine import Capabilities, Durability, Migration
from perdure.kernel.schema import Schema
from perdure.kernel.threads import run_in_thread


async def open_sqlite(
    path: str,
    schema: Schema,
    *,
    clock: Clock = system_clock,
    read_only: bool = False,
    durability: Sync = "power",
) -> SqliteEngine:
    """Open `path`, creating it or bringing it up to date as needed.

    In a running event loop a thread does the work; without a loop the coroutine does it directly and never suspends, so
    that blocking callers can drive it. `read_only` changes nothing on disk. `durability="process"` leaves the sync to
    the system: commits survive a crash of the process, not of the machine. If the call is cancelled, the thread closes
    what it has opened.
    """

    def open_file() -> Database:
        return open_database(path, schema, clock, durability, read_only=read_only)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return SqliteEngine(open_file())
    return SqliteEngine(await run_in_thread(open_file, discard=Database.close))


async def plan_migration(path: str, schema: Schema) -> Migration:
    """What `open_sqlite` would do to bring the file to this schema; changes nothing."""
    return await run_in_thread(lambda: plan(path, schema))


def open_database(path: str, schema: Schema, clock: Clock, durability: Sync, *, read_only: bool) -> Database:
    """Open the file, creating or migrating it as needed."""
    check_library()
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

        def open_session() -> FilledSession:
            opened = prepared.pop() if prepared else inspected(writer_connection(path, durability), inspector)
            return FilledSession(stop_waiting(opened), statements, queries)

        file = DatabaseFile(path)
        readers, committer = Readers(file, queries, inspector), Committer(open_session, file)
        return Database(path, queries, readers, committer, _capabilities(durability, read_only=False))
    except BaseException:
        connection.close()
        raise


def _open_read_only(path: str, schema: Schema, queries: Queries, durability: Sync) -> Database:
    if not Path(path).exists():
        raise UnavailableError(f"{path} does not exist", hint="open it without read_only to create it")
    readers = StillReaders(DatabaseFile(path), queries, Inspector(path, schema))
    readers.ask(lambda _: None)  # raises now if the file cannot be read at all
    return Database(path, queries, readers, None, _capabilities(durability, read_only=True))


def _capabilities(durability: Durability, *, read_only: bool) -> Capabilities:
    notes = {
        "wake-ups between processes come by polling": True,
        "synchronous=NORMAL: a power failure may take the last commits": durability == "process",
    }
    return capabilities("sqlite", durability, notes, round_trips=0, watch="poll", read_only=read_only, embedded=True)
