"""Every engine of this repository as a provider for the conformance kit: the kit's own, and those on servers.

Importing this module registers the server engines under their names, so that `--perdure-provider postgres` works. Each
of them uses one database per process, which is emptied for every case.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.servers import fresh_database, server

import perdure
from perdure.clock import Clock
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Engine
from perdure.kernel.schema import Schema
from perdure.stores.store import Store
from perdure.testkit.kit import Provider
from perdure.testkit.providers import MemoryProvider, SqliteProvider, provider_named, register_provider


class ServerProvider:
    """An engine on a server of this process; every client is an engine with connections of its own.

    A crash cuts the connections of every client where they stand, which is all that a server sees of a dying client.
    """

    name: str
    features = frozenset({"durable", "processes", "schemas"})
    opt_outs: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._url: str | None = None
        self._clients: list[Store] = []
        self._engines = 0

    @property
    def url(self) -> str:
        """The database that clients open now."""
        if self._url is None:
            raise UnsupportedError("the provider was not started")
        return self._url

    async def start(self, clock: Clock) -> None:
        """An empty database."""
        self._url = await fresh_database(server(self.name), "kit")

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        """A client as another process would open it."""
        store = await perdure.open(f"{self.url}?connections=4", scope=scope, clock=clock, housekeeping=False)
        self._clients.append(store)
        return store

    async def open_engine(self, schema: Schema, clock: Clock) -> Engine:
        """An engine on another database."""
        self._engines += 1
        url = await fresh_database(server(self.name), f"kit{self._engines}")
        engine: Engine = await importlib.import_module(f"perdure.engines.{self.name}").open_engine(
            url, schema, clock=clock
        )
        return engine

    async def crash(self) -> None:
        """Cut every client off."""
        for store in self._clients:
            engine: Any = store.engine
            engine.abandon()
        self._clients.clear()

    async def stop(self) -> None:
        """Close what was left open."""
        for store in self._clients:
            await store.close()
        self._clients.clear()
        self._url = None


class PostgresProvider(ServerProvider):
    """PostgreSQL."""

    name = "postgres"
    opt_outs: Mapping[str, str] = {
        "runs/corrupt": "the case stores a body that is not JSON, which PostgreSQL's json column refuses"
    }


class MysqlProvider(ServerProvider):
    """MariaDB or MySQL."""

    name = "mysql"


class RedisProvider(ServerProvider):
    """Redis or Valkey."""

    name = "redis"

    async def crash(self) -> None:
        """Nothing to do: what the clients were told is on the server, and nobody asks them again."""


EMBEDDED = ("memory", "sqlite")
"""The engines that need no server."""

BUILTIN: dict[str, Callable[[], Provider]] = {
    "memory": MemoryProvider,
    "sqlite": SqliteProvider,
    "postgres": PostgresProvider,
    "mysql": MysqlProvider,
    "redis": RedisProvider,
}
"""Every engine of this repository, by name."""

for _name, _make in BUILTIN.items():
    register_provider(_name, _make)

__all__ = ["BUILTIN", "EMBEDDED", "MemoryProvider", "ServerProvider", "SqliteProvider", "provider_named"]
