"""What a receipt says of durability is what the server does now: settings are changed while a store is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
from tests.engines.redis_place import client_at, until
from tests.support.servers.local import LocalServer
from tests.support.servers.mysql import MysqlRecipe
from tests.support.servers.postgres import PostgresRecipe
from tests.support.servers.redis import RedisRecipe

import perdure
from perdure.engines.mysql import health as mysql_health
from perdure.engines.shared import durability
from perdure.engines.shared.durability import DurabilityReading
from perdure.errors import UnavailableError
from perdure.kernel.engine import Durability
from perdure.model.message import Message

Say = Callable[[str], Awaitable[Any]]


@asynccontextmanager
async def on_redis(url: str) -> AsyncIterator[Say]:
    async with client_at(url) as client:
        yield lambda said: client.execute_command("CONFIG", "SET", *said.split())


@asynccontextmanager
async def on_postgres(url: str) -> AsyncIterator[Say]:
    connection = await asyncpg.connect(url)

    async def say(said: str) -> None:
        await connection.execute(f"ALTER SYSTEM {said}")
        await connection.execute("SELECT pg_reload_conf()")

    try:
        yield say
    finally:
        await connection.close()


@asynccontextmanager
async def on_mysql(url: str) -> AsyncIterator[Say]:
    parts = urlsplit(url)
    connection: Any = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username or "root", password=parts.password or ""
    )
    try:
        yield lambda said: connection.query(f"SET GLOBAL {said}")
    finally:
        await connection.ensure_closed()


REDIS = [
    ("no-appendfsync-on-rewrite yes", "process", "no-appendfsync-on-rewrite is yes"),
    ("no-appendfsync-on-rewrite no", "power", ""),
    ("appendfsync everysec", "process", "appendfsync is everysec"),
    ("appendonly no", "none", "appendonly is no"),
]
POSTGRES = [
    ("SET fsync = off", "process", "fsync is off"),
    ("RESET fsync", "power", ""),
    ("SET synchronous_commit = off", "process", "synchronous_commit is off"),
]
MYSQL = [
    ("innodb_flush_log_at_trx_commit = 2", "process", "innodb_flush_log_at_trx_commit is 2"),
    ("innodb_flush_log_at_trx_commit = 1", "power", ""),
]


@pytest.mark.parametrize(
    ("recipe", "on", "changes"),
    [
        pytest.param(RedisRecipe, on_redis, REDIS, id="redis"),
        pytest.param(PostgresRecipe, on_postgres, POSTGRES, id="postgres"),
        pytest.param(MysqlRecipe, on_mysql, MYSQL, id="mysql"),
    ],
)
def test_receipts_follow_the_settings_of_the_server(recipe: Any, on: Any, changes: list[tuple[str, str, str]]) -> None:
    async def main(url: str) -> None:
        async with perdure.open(url) as store, on(url) as say:
            assert (await store.commit("t", messages=[Message.user("a")])).durable == "power"
            for said, durable, problem in changes:
                await say(said)

                async def told() -> bool:
                    return (await store.commit("t", messages=[Message.user("a")])).durable == durable  # noqa: B023

                await until(told)
                assert store.capabilities().durability == durable
                health = await store.health()
                assert health.durability == durable
                assert problem in " ".join(health.problems)

    own = LocalServer(recipe(durable=True))
    try:
        asyncio.run(main(own.url))
    finally:
        own.dispose()


def test_a_binary_log_that_is_not_synced_is_not_power() -> None:
    for settings, durable in (
        ({"log_bin": "OFF", "sync_binlog": 0}, "power"),
        ({"log_bin": "ON", "sync_binlog": 1}, "power"),
        ({"log_bin": "ON", "sync_binlog": 0}, "process"),
    ):
        assert mysql_health.durability({"innodb_flush_log_at_trx_commit": 1, **settings}) == durable


def test_a_reading_is_shared_ages_and_gives_no_credit_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(durability.time, "monotonic", lambda: now)
    told: list[Durability] = []
    asked = 0

    async def read() -> Durability:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked == 2:
            raise UnavailableError("no answer")
        return "power"

    async def main() -> None:
        nonlocal now
        reading = DurabilityReading(read, "none", told.append)
        await reading.refresh()
        assert told == []
        for expected in (["power"], ["power", "none"], ["power", "none", "power"]):
            now += 1.1
            await asyncio.gather(*[reading.refresh() for _ in range(5)])
            assert told == expected

    asyncio.run(main())
