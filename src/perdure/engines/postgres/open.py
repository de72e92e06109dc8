"""Opening a database: connect, check the session, verify or migrate the schema, and put the engine together."""

from __future__ import annotations

from typing import Any, Literal

import asyncpg

from perdure.clock import Clock, system_clock
from perdure.engines.postgres import health, migrate
from perdure.engines.postgres.connections.borrowed_pool import BorrowedPool
from perdure.engines.postgres.connections.pool import OwnPool, Pool
from perdure.engines.postgres.connections.session_settings import READ_SESSION, SESSION, needs_transaction, set_up
from perdure.engines.postgres.engine import PostgresEngine
from perdure.engines.postgres.schema.clock import StampClock
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.target import Target, parse_target
from perdure.engines.postgres.watch import NotifyHub
from perdure.engines.shared.capabilities import capabilities
from perdure.engines.shared.server_answers import Sense
from perdure.errors import InvalidError, UnsupportedError
from perdure.kernel.engine import Capabilities, Durability, Migration
from perdure.kernel.schema import Schema
from perdure.kernel.transport import warn_insecure

OLDEST_SERVER = 130_000
_READ_SERVER = """SELECT pg_catalog.current_setting('server_version_num') AS version,
pg_catalog.current_database() AS database, pg_catalog.current_setting('fsync') AS fsync,
pg_catalog.current_setting('synchronous_commit') AS synchronous_commit"""
_MIGRATE = "run `perdure migrate` as the owner of the schema"
_OPEN_ONCE = "open it once without read_only, or run `perdure migrate`: that brings it up to date"


async def open_engine(
    url: str,
    schema: Schema,
    *,
    clock: Clock = system_clock,
    read_only: bool = False,
    durability: Durability = "power",
    pool: Any = None,
) -> PostgresEngine:
    """Open the database behind `url`; create its tables or bring them up to date as needed.

    With the system's clock, `Now` is the server's time. `read_only` changes nothing and verifies the tables; the URL's
    `migrate=no` verifies them too, and writes. `durability="process"` does not wait for the server's disk. `pool` is
    the caller's asyncpg pool: the engine uses it and never closes it, and the URL then only carries options.
    """
    target = parse_target(url)
    layout = Layout(schema, target.schema)
    connections = _pool(target, durability, pool, read_only=read_only)
    expected_database = "" if pool is None else target.database
    sense = Sense(target.display_url, target.password, target.names)
    try:
        with sense:
            async with connections.connection() as connection:
                if not connections.needs_setup:
                    connections.needs_setup = needs_transaction(await connection.fetchrow(READ_SESSION))
                async with set_up(connection):
                    await _check_session(connection, connections.where, expected_database, durability)
                if target.migrate and not read_only:
                    await migrate.bring_up_to_date(connection, layout, connections.where)
                else:
                    hint = _OPEN_ONCE if read_only else _MIGRATE
                    await migrate.verify(connection, layout, connections.where, writing=not read_only, hint=hint)
            settings = await health.settings(connections, layout)
        for problem in health.transport_problems(connections).values():
            warn_insecure(problem)
    except BaseException:
        await connections.close()
        raise
    listens = target.listen_dsn is not None or (target.prepared and pool is None)
    capabilities = _capabilities(health.durability(settings), target, connections, listens=listens, read_only=read_only)
    hub = NotifyHub(connections, target, listens=listens)
    return PostgresEngine(connections, layout, hub, StampClock(clock), capabilities, sense=sense)


async def plan_migration(url: str, schema: Schema) -> Migration:
    """The statements that opening `url` would run; changes nothing."""
    target = parse_target(url)
    pool = OwnPool(target)
    try:
        with Sense(target.display_url, target.password, target.names):
            async with pool.connection() as connection:
                return await migrate.plan(connection, Layout(schema, target.schema), pool.where)
    finally:
        await pool.close()


def _pool(target: Target, durability: Durability, callers_pool: Any, *, read_only: bool) -> Pool:
    if callers_pool is None:
        settings = SESSION if durability == "power" else {**SESSION, "synchronous_commit": "off"}
        return OwnPool(target, settings, read_only=read_only)
    if not isinstance(callers_pool, asyncpg.Pool):
        raise InvalidError(f"pool must be an asyncpg pool (asyncpg.create_pool), not {type(callers_pool).__name__}")
    return BorrowedPool(target, callers_pool, read_only=read_only)


async def _check_session(connection: Any, where: str, expected_database: str, durability: Durability) -> None:
    """Refuse an unsuitable server or session before anything changes. A caller's pool or a pooler makes sessions with
    its own database and settings, so both are checked."""
    server = await connection.fetchrow(_READ_SERVER)
    version, database = int(server["version"]), server["database"]
    if version < OLDEST_SERVER:
        raise UnsupportedError(
            f"{where} is PostgreSQL {version // 10_000}; {OLDEST_SERVER // 10_000} or newer is needed"
        )
    if expected_database not in ("", database):
        raise InvalidError(
            f"the pool is connected to the database {database!r}, the URL names {expected_database!r}",
            hint="name the same in both, or none in the URL: postgresql://host?schema=…",
        )
    if durability == "process" and health.durability(server) != "process":
        raise InvalidError(
            "durability='process' cannot be set for the sessions of your own pool or pooler",
            hint="create them with synchronous_commit=off (create_pool(server_settings=…), ALTER ROLE … SET …)",
        )


def _capabilities(
    durability: Durability, target: Target, pool: Pool, *, listens: bool, read_only: bool
) -> Capabilities:
    pooler, setup = not target.prepared, target.prepared and pool.needs_setup
    notes = {
        "wake-ups between processes come by polling; listen_url= turns them into a push": not listens,
        "behind a pooler every statement runs in an explicit transaction: three more round trips": pooler,
        "the sessions of your pool need our settings for every statement: two more round trips": setup,
    }
    round_trips = 4 if pooler else 3 if setup else 1
    watch: Literal["push", "poll"] = "push" if listens else "poll"
    return capabilities("postgres", durability, notes, round_trips=round_trips, watch=watch, read_only=read_only)
