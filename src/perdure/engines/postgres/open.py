"""Opening: from a target to an engine, with the schema verified or brought up to date on the way."""

from __future__ import annotations

from typing import Any

import asyncpg

from perdure.clock import Clock
from perdure.engines.postgres import health, migrate
from perdure.engines.postgres.connections.borrowed_pool import BorrowedPool
from perdure.engines.postgres.connections.pool import OwnPool, Pool
from perdure.engines.postgres.connections.session_settings import READ_FOUND, SESSION, needs_transaction, set_up
from perdure.engines.postgres.engine import PostgresEngine
from perdure.engines.postgres.errors import DRIVER_ERRORS, translate
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.target import Target
from perdure.engines.postgres.watch import Hub
from perdure.engines.postgres.write.writer import Writer
from perdure.engines.shared.server_answers import Sense
from perdure.errors import InvalidError, UnsupportedError
from perdure.kernel.engine import Capabilities, Durability, Migration
from perdure.kernel.schema import Schema
from perdure.kernel.transport import warn_insecure

OLDEST_SERVER = 130_000
_SESSION = """SELECT pg_catalog.current_setting('server_version_num') AS version,
pg_catalog.current_database() AS database, pg_catalog.current_setting('fsync') AS fsync,
pg_catalog.current_setting('synchronous_commit') AS synchronous_commit"""
_MIGRATE = "run `perdure migrate` with this URL"
_OPEN_ONCE = "open it once without read_only, or run `perdure migrate`: that brings it up to date"


async def open_postgres(
    target: Target, schema: Schema, clock: Clock, durability: Durability, given: Any, *, read_only: bool
) -> PostgresEngine:
    """Connect, see to the schema, and put the engine together."""
    if durability not in ("power", "process"):
        raise InvalidError(f"durability is 'power' or 'process' on PostgreSQL, not {durability!r}")
    layout = Layout(schema, target.schema)
    pool = _pool(target, durability, given)

    async def prepare(connection: Any) -> None:
        named = "" if given is None else target.database
        pool.alone = pool.alone or needs_transaction(await connection.fetchrow(READ_FOUND))
        async with set_up(connection):
            await _see_to_session(connection, pool.where, named, durability)
        await _see_to_schema(connection, layout, pool.where, target, read_only=read_only)

    sense = Sense(target.shown, target.password, target.names)
    try:
        with sense:
            await _with_connection(pool, prepare)
            found = await health.settings(pool, layout)
        for problem in health.transport_problems(pool).values():
            warn_insecure(problem)
    except BaseException:
        await pool.close()
        raise
    listens = target.listen_dsn is not None or (target.prepared and given is None)
    hub = Hub(pool, target, listens=listens)
    told = _capabilities(health.durability(found), target, pool, listens=listens, read_only=read_only)
    return PostgresEngine(pool, layout, hub, Writer(pool, layout, clock), told, sense=sense, read_only=read_only)


async def plan_on(target: Target, schema: Schema) -> Migration:
    """What opening would run."""
    layout = Layout(schema, target.schema)
    pool = OwnPool(target)
    try:
        with Sense(target.shown, target.password, target.names):
            plan: Migration = await _with_connection(pool, lambda c: migrate.plan(c, layout, pool.where))
        return plan
    finally:
        await pool.close()


def _pool(target: Target, durability: Durability, given: Any) -> Pool:
    if given is None:
        settings = SESSION if durability == "power" else {**SESSION, "synchronous_commit": "off"}
        return OwnPool(target, settings)
    if not isinstance(given, asyncpg.Pool):
        raise InvalidError(f"pool must be an asyncpg pool (asyncpg.create_pool), not {type(given).__name__}")
    return BorrowedPool(target, given)


async def _with_connection(pool: Pool, work: Any) -> Any:
    connection = await pool.acquire()
    try:
        done = await work(connection)
    except BaseException as error:
        pool.discard(connection)
        if isinstance(error, DRIVER_ERRORS):
            raise translate(error, pool.where) from error
        raise
    pool.release(connection)
    return done


async def _see_to_session(connection: Any, where: str, named: str, durability: Durability) -> None:
    """Refuse a server or a session that is not what was asked for, before anything is changed. Sessions that are not
    opened here are what others made them: neither their database nor their settings are taken on trust."""
    found = await connection.fetchrow(_SESSION)
    version, database = int(found["version"]), found["database"]
    if version < OLDEST_SERVER:
        raise UnsupportedError(
            f"{where} is PostgreSQL {version // 10_000}; {OLDEST_SERVER // 10_000} or newer is needed"
        )
    if named not in ("", database):
        raise InvalidError(
            f"the pool is connected to the database {database!r}, the URL names {named!r}",
            hint="name the same in both, or none in the URL: postgresql://host?schema=…",
        )
    if durability == "process" and health.durability(found) != "process":
        raise InvalidError(
            "durability='process' cannot be set for the sessions of a pool or pooler of your own",
            hint="make them with synchronous_commit=off (create_pool(server_settings=…), ALTER ROLE … SET …)",
        )


async def _see_to_schema(connection: Any, layout: Layout, where: str, target: Target, *, read_only: bool) -> None:
    if read_only:
        await migrate.verify(connection, layout, where, writing=False, hint=_OPEN_ONCE)
    elif not target.migrate:
        await migrate.verify(connection, layout, where, writing=True, hint=_MIGRATE)
    else:
        await migrate.bring_up_to_date(connection, layout, where)


def _capabilities(
    durability: Durability, target: Target, pool: Pool, *, listens: bool, read_only: bool
) -> Capabilities:
    notes = []
    if not listens:
        notes.append("wake-ups between processes come by polling; listen_url= makes them a push")
    if not target.prepared:
        notes.append("behind a pooler every statement is a transaction of its own making: three round trips more")
    elif pool.alone:
        notes.append("the sessions of the pool given are set up for every statement: two round trips more")
    if read_only:
        notes.append("opened read-only")
    return Capabilities(
        engine="postgres",
        durability=durability,
        processes="many",
        machines="many",
        round_trips_per_commit=4 if not target.prepared else 3 if pool.alone else 1,
        watch="push" if listens else "poll",
        blocking=False,
        notes=tuple(notes),
    )
