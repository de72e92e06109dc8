"""Which schema a database holds, and how it becomes the one this build declares.

MySQL commits every DDL statement by itself, so a migration is not one transaction. Instead each step can run again, all
run under a named lock, and the record in `perdure_meta` is written last: after a kill, the next opening reads the old
record (or none) and resumes. The empty record table is created first; a database that has tables of our names but not
that one belongs to another program and is refused unchanged. Indexes are built while others write.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from perdure import failpoints
from perdure.engines.mysql.connections.connect import LONG_WORK, set_table_lock_wait
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.literals import literal, literals
from perdure.engines.mysql.errors import DRIVER_ERRORS, NOT_ONLINE, code_of
from perdure.engines.mysql.schema import (
    CREATE_META,
    INDEXED_BYTES,
    ONLINE,
    Step,
    addition_steps,
    create_all,
    quote,
    table_names,
)
from perdure.engines.shared import schema_record
from perdure.engines.shared.events import EngineLog
from perdure.engines.shared.schema_record import META, Recorded
from perdure.errors import UnavailableError, UnsupportedError
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema

LOCK_SECONDS = 60
_HINT = "run `perdure migrate` on it"


async def prepare(connection: Connection, schema: Schema, where: str) -> None:
    """Make the database hold this schema, or refuse it unchanged."""
    recorded = await read_recorded(connection, schema, where)
    if recorded is not None:
        schema_record.refuse_unless_usable(recorded, schema, where, "database")
        if recorded.version == schema.version:
            return
    await _lock(connection, where)
    try:
        await connection.run(set_table_lock_wait(LONG_WORK))
        # Another process may have migrated it in the meantime: only the record read under the lock counts.
        await _bring_up_to_date(connection, schema, await read_recorded(connection, schema, where), where)
    finally:
        if not connection.broken:
            await connection.run(f"{set_table_lock_wait(connection.timeout)};DO RELEASE_LOCK({_lock_name(where)})")


async def verify(connection: Connection, schema: Schema, where: str) -> None:
    """Raise unless the database holds exactly this schema."""
    schema_record.refuse_unless_current(await read_recorded(connection, schema, where), schema, where, _HINT)


async def plan(connection: Connection, schema: Schema, where: str) -> Migration:
    """What `prepare` would run."""
    recorded = await read_recorded(connection, schema, where)
    version = None if recorded is None else recorded.version
    steps = [sql async for sql in _steps(connection, schema, recorded, where)]
    return Migration("mysql", version, schema.version, tuple(steps))


async def read_recorded(connection: Connection, schema: Schema, where: str) -> Recorded | None:
    """The schema that the database records; None when it holds nothing of ours, or its creation was interrupted."""
    listed = literals(table_names(schema))
    (rows,) = await connection.run(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({listed})"
    )
    tables = sorted(name for (name,) in rows)
    if META not in tables:
        if tables:
            raise UnsupportedError(
                f"{where} has tables of another program under names that Perdure needs: {', '.join(tables[:5])}",
                hint="choose another database; this one was not changed",
            )
        return None
    (rows,) = await connection.run(f"SELECT `name`, `value` FROM {quote(META)}")
    return schema_record.recorded_from({name: value.decode() for name, value in rows}, where) if rows else None


async def _bring_up_to_date(connection: Connection, schema: Schema, recorded: Recorded | None, where: str) -> None:
    if recorded is None:
        await connection.run(CREATE_META)
    async for sql in _steps(connection, schema, recorded, where):
        failpoints.hit("mysql.in_migration")
        await _run(connection, sql)
    failpoints.hit("mysql.in_migration")
    values = ", ".join(f"({literal(name)}, {literal(value)})" for name, value in schema_record.facts(schema).items())
    await connection.run(f"REPLACE INTO {quote(META)} (`name`, `value`) VALUES {values}")
    if recorded is None or recorded.version < schema.version:
        EngineLog("mysql", where).migrated(None if recorded is None else recorded.version, schema.version)


async def _run(connection: Connection, sql: str) -> None:
    """Run a step; where the server cannot build an index while others write, they wait for it."""
    try:
        await connection.run(sql, timeout=LONG_WORK)
    except DRIVER_ERRORS as error:
        if code_of(error) not in NOT_ONLINE or ONLINE not in sql:
            raise
        await connection.run(sql.replace(f", {ONLINE}", ""), timeout=LONG_WORK)


async def _steps(connection: Connection, schema: Schema, recorded: Recorded | None, where: str) -> AsyncIterator[str]:
    """The statements that have yet to run; raises when they are not enough.

    What is left of a step is looked up when its turn comes: an earlier one may have renamed its table.
    """
    if recorded is None:
        for sql in create_all(schema):
            yield sql
        return
    schema_record.refuse_unless_usable(recorded, schema, where, "database")
    if recorded.version == schema.version:
        return
    for step in addition_steps(schema_record.missing(recorded, schema, where)):
        statement = await _statement(connection, step)
        if statement is not None:
            yield statement


async def _statement(connection: Connection, step: Step) -> str | None:
    """What is left to do of a step; None if it is done."""
    if step.adds is None:
        return step.sql
    if step.adds == "name":
        return step.sql if await _has_table(connection, step.table) else None
    if step.adds == "column":
        return None if await _columns(connection, step, "columns", "column_name") else step.sql
    if step.adds == "width":
        return step.sql if await _columns(connection, step, "columns", "column_name", wide=True) else None
    columns = await _columns(connection, step, "statistics", "index_name")
    if columns == step.columns:
        return None
    # One statement, which InnoDB carries out as a whole: an index that is missing would fail the readers that name it.
    return step.sql.replace(" ADD INDEX ", f" DROP INDEX {quote(step.name)}, ADD INDEX ") if columns else step.sql


async def _has_table(connection: Connection, table: str) -> bool:
    listing = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = "
    (rows,) = await connection.run(listing + literal(table))
    return bool(rows)


async def _columns(
    connection: Connection, step: Step, listing: str, named: str, *, wide: bool = False
) -> tuple[str, ...]:
    """The columns that the database lists under the name of a step, those of an index in their order."""
    more = " ORDER BY seq_in_index" if listing == "statistics" else ""
    if wide:
        more = f" AND character_maximum_length > {INDEXED_BYTES}"
    (rows,) = await connection.run(
        f"SELECT column_name FROM information_schema.{listing} WHERE {named} = {literal(step.name)}"
        f" AND table_schema = DATABASE() AND table_name = {literal(step.table)}{more}"
    )
    return tuple(str(name) for (name,) in rows)


async def _lock(connection: Connection, where: str) -> None:
    get_lock = f"SELECT GET_LOCK({_lock_name(where)}, {LOCK_SECONDS})"
    (rows,) = await connection.run(get_lock, timeout=LOCK_SECONDS + connection.timeout)
    if rows[0][0] != 1:
        raise UnavailableError(f"another process is migrating {where}", hint="retry when it is done")


def _lock_name(where: str) -> str:
    """Named locks are global to the server, and their names are short: so a digest of the database's name."""
    database = where.rpartition("/")[2]
    return literal(f"perdure {hashlib.sha256(database.encode()).hexdigest()[:16]}")
