"""The Redis engine: Redis from 6.2 and Valkey, one server, sentinels or a cluster, without modules."""

from __future__ import annotations

from perdure.engines.redis.engine import RedisEngine
from perdure.engines.redis.open import open_engine, plan_migration

__all__ = ["RedisEngine", "open_engine", "plan_migration"]
