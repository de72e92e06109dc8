"""Migration: which schema the database holds, and how it becomes the one this build declares.

The record, the tables and the functions are created or brought up to date in one transaction, under an advisory lock
that ends with it: killed half way, the database is unchanged; of two processes that open at once, the second waits and
has nothing left to do. A newer version, other declarations, or tables of another program under our names are refused
before anything changes. New indexes of tables that exist follow after that transaction, which notes them: see
`schema.online_indexes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
from asyncpg.exceptions import InsufficientPrivilegeError

from perdure import failpoints
from perdure.engines.postgres.connections.connect import Connection
from perdure.engines.postgres.connections.session_settings import set_up
from perdure.engines.postgres.schema import online_indexes
from perdure.engines.postgres.schema.functions import FUNCTIONS_VERSION, create_functions
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.shared import schema_record
from perdure.engines.shared.events import EngineLog
from perdure.engines.shared.schema_record import META
from perdure.engines.sql.ddl import index_name, quote
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Migration

_AS_OWNER = "run `perdure migrate` as the owner of the schema, then open it with this role"
_FUNCTIONS = f"functions_{FUNCTIONS_VERSION}"
"""The fact that records this version's functions; older builds read and write `functions`, and find it unchanged."""
_RELATIONS = """SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY($2)"""
_SCHEMA_EXISTS = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1"
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))"
# Waiting for a migration in another process takes its time.
_PATIENCE = 24 * 3600.0


class Current(msgspec.Struct, frozen=True):
    """What the database holds: the recorded schema and the functions' fingerprint, both None in an empty schema;
    `schema_exists` is True where the PostgreSQL schema is there, which may be all that the role was granted."""

    recorded: schema_record.Recorded | None
    functions: str | None
    schema_exists: bool = True
    unbuilt: tuple[str, ...] = ()
    """The indexes that a migration has noted and nobody has built yet."""


def fingerprint(pg_schema: str) -> str:
    """A digest of this version's functions."""
    return hashlib.sha256("\n".join(create_functions(pg_schema)).encode()).hexdigest()[:16]


async def inspect(connection: Connection, layout: Layout, where: str) -> Current:
    """Read the record; raises for tables under our names that are not ours."""
    ours = [META, *layout.tables()]
    present = {name for (name,) in await connection.fetch(_RELATIONS, layout.pg_schema, ours)}
    if META in present:
        rows = await connection.fetch(f'SELECT "name", "value" FROM {layout.table(META)}')
        values = {str(name): str(value) for name, value in rows}
        recorded, unbuilt = schema_record.recorded_from(values, where), online_indexes.noted(values, where)
        return Current(recorded, values.get(_FUNCTIONS), unbuilt=unbuilt)
    if present:
        raise UnsupportedError(
            f"schema {layout.pg_schema} of {where} has tables of another program ({', '.join(sorted(present)[:5])})",
            hint="choose another with ?schema=…; nothing was changed",
        )
    return Current(None, None, schema_exists=bool(await connection.fetch(_SCHEMA_EXISTS, layout.pg_schema)))


async def verify(connection: Connection, layout: Layout, where: str, *, writing: bool, hint: str) -> None:
    """Raise unless the database holds exactly what this build uses; changes nothing."""
    async with set_up(connection):
        current = await inspect(connection, layout, where)
    schema_record.refuse_unless_current(current.recorded, layout.schema, f"schema {layout.pg_schema} of {where}", hint)
    if writing and current.functions != fingerprint(layout.pg_schema):
        raise UnsupportedError(f"{where} lacks the functions of this build", hint=hint)


async def bring_up_to_date(connection: Connection, layout: Layout, where: str) -> None:
    """Make the database hold this schema, or refuse it untouched."""
    async with set_up(connection):
        current = await inspect(connection, layout, where)
    if list(steps(current, layout, where)) or new_indexes(current, layout, where):
        current = await _migrate(connection, layout, where)
    try:
        await online_indexes.build(connection, layout, current.unbuilt, where)
    except InsufficientPrivilegeError as error:
        raise _not_allowed(error, layout, where) from error


async def _migrate(connection: Connection, layout: Layout, where: str) -> Current:
    """Everything but new indexes of tables that exist; those are noted. Returns what the database holds then."""
    async with set_up(connection):
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute(_LOCK, f"perdure {layout.pg_schema}", timeout=_PATIENCE)
        # Another process may have been quicker: only the record read under the lock counts.
        current = await inspect(connection, layout, where)
        statements, indexes = list(steps(current, layout, where)), new_indexes(current, layout, where)
        for statement in statements:
            try:
                await connection.execute(statement, timeout=_PATIENCE)
            except InsufficientPrivilegeError as error:
                raise _not_allowed(error, layout, where) from error
            failpoints.hit("postgres.in_migration")
        unbuilt = tuple(dict.fromkeys((*current.unbuilt, *indexes)))
        if statements or indexes:
            functions = {_FUNCTIONS: fingerprint(layout.pg_schema)}
            record = {**schema_record.facts(layout.schema), **functions, **online_indexes.note(unbuilt)}
            upsert = 'ON CONFLICT ("name") DO UPDATE SET "value" = excluded."value"'
            await connection.executemany(f"INSERT INTO {layout.table(META)} VALUES ($1, $2) {upsert}", record.items())
    if statements or indexes:
        before = None if current.recorded is None else current.recorded.version
        EngineLog("postgres", where).migrated(before, layout.schema.version)
    return msgspec.structs.replace(current, unbuilt=unbuilt)


def _not_allowed(error: Exception, layout: Layout, where: str) -> UnsupportedError:
    return UnsupportedError(
        f"this role may not bring schema {layout.pg_schema} of {where} up to date: {error}", hint=_AS_OWNER
    )


def steps(current: Current, layout: Layout, where: str) -> Iterator[str]:
    """The statements that are missing, without indexes of tables that exist; raises when adding is not enough."""
    if current.recorded is None:
        if not current.schema_exists:
            yield f"CREATE SCHEMA {quote(layout.pg_schema)}"
        yield f'CREATE TABLE {layout.table(META)} ("name" text PRIMARY KEY, "value" text NOT NULL)'
        yield from layout.ddl.create_all(layout.schema)
    else:
        schema_record.refuse_unless_usable(current.recorded, layout.schema, where, "database")
        if current.recorded.version < layout.schema.version:
            yield from layout.ddl.create_shapes(schema_record.missing(current.recorded, layout.schema, where))
    if current.functions != fingerprint(layout.pg_schema):
        yield from create_functions(layout.pg_schema)


def new_indexes(current: Current, layout: Layout, where: str) -> list[str]:
    """The indexes that are missing from tables that exist."""
    if current.recorded is None or current.recorded.version >= layout.schema.version:
        return []
    added = schema_record.missing(current.recorded, layout.schema, where).indexes
    return [index_name(table.name, index.name) for table, index in added]


async def plan(connection: Connection, layout: Layout, where: str) -> Migration:
    """What `bring_up_to_date` would run."""
    async with set_up(connection):
        current = await inspect(connection, layout, where)
    version = None if current.recorded is None else current.recorded.version
    unbuilt = dict.fromkeys((*current.unbuilt, *new_indexes(current, layout, where)))
    statements = (*steps(current, layout, where), *[online_indexes.statement(layout, name, where) for name in unbuilt])
    return Migration("postgres", version, layout.schema.version, statements)
