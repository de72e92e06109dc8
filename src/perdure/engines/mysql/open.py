"""Opening a MySQL or MariaDB database: connect, bring its tables up to date, read its settings, build the engine."""

from __future__ import annotations

from typing import Any, Literal

from perdure.clock import Clock, system_clock
from perdure.engines.mysql import health, migrate
from perdure.engines.mysql.connections.borrowed_pool import BorrowedPool
from perdure.engines.mysql.connections.connect import open_connection, refuse_unless_able
from perdure.engines.mysql.connections.pool import Pool
from perdure.engines.mysql.engine import MysqlEngine
from perdure.engines.mysql.errors import DRIVER_ERRORS, translate
from perdure.engines.mysql.target import Target, parse_target
from perdure.kernel.engine import Durability, Migration
from perdure.kernel.schema import Schema
from perdure.kernel.transport import warn_insecure


async def open_engine(
    url: str,
    schema: Schema,
    *,
    clock: Clock = system_clock,
    read_only: bool = False,
    durability: Literal["power", "process"] = "power",
    pool: Any = None,
) -> MysqlEngine:
    """Open the database that the URL names, creating its tables or bringing them up to date as needed.

    What a commit survives is a setting of the server, not of the client: `capabilities.durability` is the weaker of
    what was asked for and what the server does, and `health()` names the settings to change. `read_only`, and
    `migrate=no` in the URL, change nothing in the schema and refuse one that is not current. `pool` is the caller's
    asyncmy pool: the engine uses it and never closes it, and the URL then only carries options.
    """
    target = parse_target(url)
    connections = _pool(target, pool, read_only=read_only)
    try:
        with target.sense():
            at_most = await _prepare(connections, schema, read_only=read_only)
        if not connections.borrowed:
            warn_insecure(target.transport_problem())
    except BaseException:
        if connections.borrowed:
            await connections.close()
        else:
            connections.abandon()
        raise
    return MysqlEngine(schema, connections, clock, at_most, requested=durability)


def _pool(target: Target, callers_pool: Any, *, read_only: bool) -> Pool:
    if callers_pool is None:
        return Pool(target, read_only=read_only)
    return BorrowedPool(target, callers_pool, read_only=read_only)


async def _prepare(pool: Pool, schema: Schema, *, read_only: bool) -> Durability:
    """Check the server and bring the tables up to date; returns what the server's settings promise."""
    target = pool.target
    connection = await pool.acquire()
    try:
        refuse_unless_able(connection, target.display_url)
        if read_only or not target.migrate:
            await migrate.verify(connection, schema, target.display_url)
        else:
            await migrate.prepare(connection, schema, target.display_url)
        return health.durability(await health.settings(connection))
    except DRIVER_ERRORS as error:
        raise translate(error, target.display_url) from error
    finally:
        pool.release(connection)


async def plan_migration(url: str, schema: Schema) -> Migration:
    """What opening the URL would run in its database; changes nothing."""
    target = parse_target(url)
    with target.sense():
        connection = await open_connection(target)
        try:
            refuse_unless_able(connection, target.display_url)
            return await migrate.plan(connection, schema, target.display_url)
        except DRIVER_ERRORS as error:
            raise translate(error, target.display_url) from error
        finally:
            await connection.close()
