"""The Redis engine as the conformance kit sees it: one server of this process, one emptied database for each case."""

from __future__ import annotations

from collections.abc import Mapping

import perdure
from perdure.clock import Clock
from perdure.errors import UnsupportedError
from perdure.stores.store import Store
from perdure.testkit.servers import fresh_database, server


class RedisProvider:
    """Every client is an engine of its own on the same database; a crash leaves them where they are."""

    name = "redis"
    features = frozenset({"durable", "processes"})
    opt_outs: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._url: str | None = None
        self._clients: list[Store] = []

    async def start(self, clock: Clock) -> None:
        """An empty database."""
        self._url = await fresh_database(server("redis"), "kit")

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        """A client as another process would open it."""
        if self._url is None:
            raise UnsupportedError("the provider was not started")
        store = await perdure.open(self._url, scope=scope, clock=clock)
        self._clients.append(store)
        return store

    async def crash(self) -> None:
        """Nothing to do: what the clients were told is on the server, and nobody asks them again."""

    async def stop(self) -> None:
        """Close what a crash left open."""
        for store in self._clients:
            await store.close()
        self._clients.clear()
        self._url = None
