"""New indexes of tables that exist, built while others read and write.

`CREATE INDEX CONCURRENTLY` cannot be part of a transaction. So the migration's own transaction notes the names of these
indexes in the record, and every process that opens the store for writing sees to it that they are built: under a name
of their own, which one more transaction exchanges for the declared one and takes off the note. A build that was killed
leaves an index that is not valid; the next process drops it and builds it again.

No session-level lock is needed, which a pooler would lose: a build holds a lock on its table, so whoever gets that lock
knows that nobody builds. Others ask again after a moment, with statements so short that a build never waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec
from asyncpg.exceptions import DeadlockDetectedError, DuplicateTableError, LockNotAvailableError

from perdure import failpoints
from perdure.engines.postgres.connections.connect import Connection
from perdure.engines.postgres.connections.session_settings import set_up
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.shared.schema_record import META
from perdure.engines.sql.ddl import index_name, quote
from perdure.errors import CorruptError, UnavailableError
from perdure.kernel.schema import Index, Table

_FACT = "indexes_to_build"
_NEW = "__new"
_VALID = """SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"""
_TIMEOUTS = """SELECT pg_catalog.current_setting('statement_timeout') AS statement_timeout,
pg_catalog.current_setting('lock_timeout') AS lock_timeout"""
_PATIENCE = 24 * 3600.0
_PAUSE = 0.1
_State = Literal["done", "missing", "busy"]
_names = msgspec.json.Decoder(tuple[str, ...])


def note(names: Sequence[str]) -> dict[str, str]:
    """What the record says about these indexes."""
    return {_FACT: msgspec.json.encode(names).decode()}


def noted(values: Mapping[str, str], where: str) -> tuple[str, ...]:
    """The indexes that the record says are still to be built."""
    try:
        return _names.decode(values.get(_FACT, "[]"))
    except msgspec.DecodeError as error:
        raise CorruptError(f"{META} is damaged: {error}", where=where) from None


def statement(layout: Layout, name: str, where: str) -> str:
    """The statement that builds an index, for a plan."""
    missing = _declared(layout, name, where)
    return layout.ddl.create_index(missing.table, missing.declaration, "CONCURRENTLY ")


class _Missing(NamedTuple):
    """An index that is noted, and the declaration it comes from."""

    name: str
    table: Table
    declaration: Index


async def build(connection: Connection, layout: Layout, names: Sequence[str], where: str) -> None:
    """Build the indexes that are noted, or wait until another process has."""
    waited = 0.0
    for name in names:
        missing = _declared(layout, name, where)
        while (state := await _settle(connection, layout, missing, where)) != "done":
            if state == "missing":
                await _create(connection, layout, missing)
                continue
            await asyncio.sleep(_PAUSE)
            waited += _PAUSE
            if waited > _PATIENCE:
                raise UnavailableError(f"another process has been building the index {name} of {where} for too long")


def _declared(layout: Layout, name: str, where: str) -> _Missing:
    for table in layout.schema.tables:
        for index in table.indexes:
            if index_name(table.name, index.name) == name:
                return _Missing(name, table, index)
    raise CorruptError(f"{META} notes an index {name!r:.80} that is not declared", where=where)


async def _create(connection: Connection, layout: Layout, missing: _Missing) -> None:
    """Build an index under its temporary name. It waits for every older transaction, so no timeout may end it."""
    sql = layout.ddl.create_index(missing.table, missing.declaration, "CONCURRENTLY ", name=missing.name + _NEW)
    changed = [name for name, value in (await connection.fetchrow(_TIMEOUTS)).items() if value != "0"]
    for name in changed:
        await connection.execute(f"SET {name} = 0")
    with suppress(DuplicateTableError, DeadlockDetectedError):  # another process began at the same moment
        await connection.execute(sql, timeout=_PATIENCE)
    for name in changed:
        await connection.execute(f"RESET {name}")
    failpoints.hit("postgres.in_migration")


async def _settle(connection: Connection, layout: Layout, missing: _Missing, where: str) -> _State:
    """Is the index done, missing, or is another process busy with it? One that is ready gets its name here, and what a
    killed build left is dropped. Locks are waited for briefly: behind this, everyone else waits too."""
    try:
        async with set_up(connection):
            return await _settle_locked(connection, layout, missing, where)
    except LockNotAvailableError:
        await connection.execute("ROLLBACK")
        return "busy"


async def _settle_locked(connection: Connection, layout: Layout, missing: _Missing, where: str) -> _State:
    name, new = missing.name, missing.name + _NEW
    sql = f'SELECT "name", "value" FROM {layout.table(META)} WHERE "name" = $1 FOR UPDATE'
    unbuilt = noted(dict(await connection.fetch(sql, _FACT)), where)
    if name not in unbuilt:
        return "done"
    await connection.execute(f"LOCK TABLE {layout.table(missing.table.name)} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
    states = await connection.fetch(_VALID, layout.pg_schema, new)
    if not states:
        return "missing"
    if not states[0][0]:
        await connection.execute(f"DROP INDEX {layout.qualified(new)}")
        return "missing"
    await connection.execute(f"DROP INDEX IF EXISTS {layout.qualified(name)}")
    await connection.execute(f"ALTER INDEX {layout.qualified(new)} RENAME TO {quote(name)}")
    (rest,) = note([other for other in unbuilt if other != name]).values()
    await connection.execute(f'UPDATE {layout.table(META)} SET "value" = $2 WHERE "name" = $1', _FACT, rest)
    return "done"
