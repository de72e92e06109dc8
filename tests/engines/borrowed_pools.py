"""Pools as a program brings them along, and the conformance kit on stores that use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncmy
from redis.asyncio import Redis
from tests.engines.mysql_place import emptied
from tests.support.providers import MysqlProvider, RedisProvider
from tests.support.servers import fresh_database, server

import perdure
from perdure.clock import Clock
from perdure.engines.mysql.target import parse_target
from perdure.stores.store import Store

CASES = (
    "threads/delete-takes-everything",
    "messages/blocks-round-trip",
    "messages/follow",
    "messages/follow-burst",
    "branches/fork-of-forks",
    "commit/everything-at-once",
    "commit/key-replay-reopened",
    "commit/concurrent-unguarded",
    "state/survives-crash",
    "runs/done-is-final",
    "lifecycle/crash",
    "lifecycle/honest",
    "lifecycle/interrupted-erasure",
)
"""One case for each kind of write, and those that wait for others."""


def chosen(kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Cases and the kinds of pool they run on: all on the default, else those that differ in how they wait and read."""
    return [
        (identity, kind)
        for kind in kinds
        for identity in CASES
        if kind == "default" or identity.startswith(("commit/", "messages/"))
    ]


class ClientProvider(RedisProvider):
    """Redis stores on one client."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._client: Any = None

    async def start(self, clock: Clock) -> None:
        self._url = await fresh_database(server(self.name), "kit")
        self._client = Redis.from_url(self._url, **self._options)

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        store = await perdure.open(self.url, scope=scope, clock=clock, housekeeping=False, pool=self._client)
        self._clients.append(store)
        return store

    async def stop(self) -> None:
        await super().stop()
        assert not self._client.connection_pool._in_use_connections, "a connection did not come back"
        await self._client.aclose()


async def mysql_pool(url: str, **options: Any) -> Any:
    """A pool for the database of a URL."""
    target = parse_target(url)
    return await asyncmy.create_pool(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        database=target.database,
        unix_socket=target.unix_socket,
        **options,
    )


async def end(pool: Any) -> None:
    """Close a pool, which waits until every connection is back."""
    pool.close()
    await pool.wait_closed()


class PoolProvider(MysqlProvider):
    """MySQL stores on one pool."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._pool: Any = None

    async def start(self, clock: Clock) -> None:
        self._url = await emptied("kit_pool")
        self._pool = await mysql_pool(self._url, **self._options)

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        store = await perdure.open(self.url, scope=scope, clock=clock, housekeeping=False, pool=self._pool)
        self._clients.append(store)
        return store

    async def stop(self) -> None:
        await super().stop()
        await end(self._pool)
