"""The PostgreSQL engine: real tables in a schema of their own, one round trip per commit, many machines."""

from __future__ import annotations

from typing import Any

from perdure.clock import Clock, system_clock
from perdure.engines.postgres.engine import PostgresEngine
from perdure.engines.postgres.open import open_postgres, plan_on
from perdure.engines.postgres.target import parse_target
from perdure.kernel.engine import Durability, Migration
from perdure.kernel.schema import Schema

__all__ = ["PostgresEngine", "open_engine", "plan_migration"]


async def open_engine(
    url: str,
    schema: Schema,
    *,
    clock: Clock = system_clock,
    read_only: bool = False,
    durability: Durability = "power",
    pool: Any = None,
) -> PostgresEngine:
    """Open the database behind `url`, making its tables or bringing them up to date as needed.

    With the system's clock, `Now` is the server's time. `read_only` changes nothing and verifies the tables; the URL's
    `migrate=no` verifies them too, and writes. `durability="process"` does not wait for the server's disk. `pool` is an
    asyncpg pool of the caller's: it is used and never closed, and the URL then only carries options.
    """
    target = parse_target(url)
    return await open_postgres(target, schema, clock, durability, pool, read_only=read_only)


async def plan_migration(url: str, schema: Schema) -> Migration:
    """What opening `url` would run; changes nothing."""
    return await plan_on(parse_target(url), schema)
