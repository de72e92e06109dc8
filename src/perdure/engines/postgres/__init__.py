"""The PostgreSQL engine: real tables in their own schema, one round trip per commit, many machines."""

from __future__ import annotations

from perdure.engines.postgres.engine import PostgresEngine
from perdure.engines.postgres.open import open_engine, plan_migration

__all__ = ["PostgresEngine", "open_engine", "plan_migration"]
