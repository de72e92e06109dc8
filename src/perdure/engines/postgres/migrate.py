"""Which schema the database holds, and how it becomes the one this build declares.

The record, the tables and the functions beside them are made or brought up to date in one transaction, under an
advisory lock that ends with it: killed half way, the database is as old as it was; of two that open at once the second
waits and finds the work done. A newer version, other declarations, or tables of another program under our names are
refused before anything is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from perdure import failpoints
from perdure.engines.postgres.connections.connect import Connection
from perdure.engines.postgres.connections.session_settings import set_up
from perdure.engines.postgres.schema.functions import create_functions
from perdure.engines.postgres.schema.tables import Layout, heads_name, quote
from perdure.engines.shared.schema_record import (
    META,
    Recorded,
    facts,
    missing,
    recorded_from,
    refuse_unless_current,
    refuse_unless_usable,
)
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Migration

_FUNCTIONS = "functions"
_RELATIONS = """SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY($2)"""
_PLACE = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1"
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))"
# Indexes of a large store take their time; so does waiting for somebody else's.
_PATIENCE = 24 * 3600.0


class Found(msgspec.Struct, frozen=True):
    """What is there: the recorded schema and the functions' fingerprint, both None in an empty place; `place` is True
    where the PostgreSQL schema exists, which may be all that the role is given."""

    recorded: Recorded | None
    functions: str | None
    place: bool = True


def fingerprint(place: str) -> str:
    """What tells one build's functions from another's."""
    return hashlib.sha256("\n".join(create_functions(place)).encode()).hexdigest()[:16]


async def look(connection: Connection, layout: Layout, where: str) -> Found:
    """Read the record; raises for tables under our names that are not ours."""
    ours = [META, *layout.schema.table, *layout.schema.log, *map(heads_name, layout.schema.log)]
    present = {name for (name,) in await connection.fetch(_RELATIONS, layout.place, ours)}
    if META in present:
        rows = await connection.fetch(f'SELECT "name", "value" FROM {layout.table(META)}')
        values = {str(name): str(value) for name, value in rows}
        return Found(recorded_from(values, where), values.get(_FUNCTIONS))
    if present:
        raise UnsupportedError(
            f"schema {layout.place} of {where} has tables of another program ({', '.join(sorted(present)[:5])})",
            hint="choose another with ?schema=…; nothing was changed",
        )
    return Found(None, None, place=bool(await connection.fetch(_PLACE, layout.place)))


async def verify(connection: Connection, layout: Layout, where: str, *, writing: bool, hint: str) -> None:
    """Raise unless the database holds exactly what this build uses; changes nothing."""
    async with set_up(connection):
        found = await look(connection, layout, where)
    refuse_unless_current(found.recorded, layout.schema, f"schema {layout.place} of {where}", hint)
    if writing and found.functions != fingerprint(layout.place):
        raise UnsupportedError(f"{where} holds the functions of another build", hint=hint)


async def bring_up_to_date(connection: Connection, layout: Layout, where: str) -> None:
    """Make the database hold this schema, or refuse it untouched."""
    async with set_up(connection):
        found = await look(connection, layout, where)
    if not list(steps(found, layout, where)):
        return
    async with set_up(connection):
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute(_LOCK, f"perdure {layout.place}", timeout=_PATIENCE)
        # Another may have been quicker: only what is recorded under the lock counts, and READ COMMITTED shows it.
        found = await look(connection, layout, where)
        todo = list(steps(found, layout, where))
        for statement in todo:
            await connection.execute(statement, timeout=_PATIENCE)
            failpoints.hit("postgres.in_migration")
        if todo:
            told = {**facts(layout.schema), _FUNCTIONS: fingerprint(layout.place)}
            upsert = 'ON CONFLICT ("name") DO UPDATE SET "value" = excluded."value"'
            await connection.executemany(f"INSERT INTO {layout.table(META)} VALUES ($1, $2) {upsert}", told.items())


def steps(found: Found, layout: Layout, where: str) -> Iterator[str]:
    """The statements that are missing; raises when adding is not enough."""
    if found.recorded is None:
        if not found.place:
            yield f"CREATE SCHEMA {quote(layout.place)}"
        yield f'CREATE TABLE {layout.table(META)} ("name" text PRIMARY KEY, "value" text NOT NULL)'
        yield from layout.create_all()
    else:
        refuse_unless_usable(found.recorded, layout.schema, where, "database")
        if found.recorded.version < layout.schema.version:
            yield from layout.create_additions(missing(found.recorded, layout.schema, where))
    if found.functions != fingerprint(layout.place):
        yield from create_functions(layout.place)


async def plan(connection: Connection, layout: Layout, where: str) -> Migration:
    """What `bring_up_to_date` would run."""
    async with set_up(connection):
        found = await look(connection, layout, where)
    current = None if found.recorded is None else found.recorded.version
    return Migration("postgres", current, layout.schema.version, tuple(steps(found, layout, where)))
