"""Providers of the embedded engines, memory and SQLite, and the short names by which the kit finds a provider.

A provider makes fresh data, opens clients on it, drops them without closing them, and deletes the data. Write one for
your own engine, and every conformance case runs on it.
"""

from __future__ import annotations

import asyncio
import importlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import perdure
from perdure.clock import Clock
from perdure.engines.memory import MemoryEngine, open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Engine
from perdure.kernel.schema import Schema
from perdure.opening import DurabilityChoice
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.testkit.kit import Provider

_SQLITE_FILES = ("", "-wal")
"""What a dead process leaves behind; the next process rebuilds the shared-memory index."""


class MemoryProvider:
    """The memory engine: a second client shares the engine object, and nothing survives."""

    name = "memory"
    features: frozenset[str] = frozenset({"schemas"})
    opt_outs: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._engine: MemoryEngine | None = None

    async def start(self, clock: Clock) -> None:
        """A fresh engine."""
        self._engine = await open_memory(SCHEMA, clock=clock)

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        """A client with its own caches on the shared engine; closing it closes nothing."""
        if self._engine is None:
            raise UnsupportedError("the provider was not started")
        return Store(self._engine, scope, owner=False)

    async def open_engine(self, schema: Schema, clock: Clock) -> Engine:
        """Another memory engine."""
        return await open_memory(schema, clock=clock)

    async def crash(self) -> None:
        """A memory engine that crashed has nothing to open again."""
        raise UnsupportedError("memory does not survive a crash")

    async def stop(self) -> None:
        """Forget the data."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None


class SqliteProvider:
    """The SQLite engine on a file in a temporary directory; every client is a separate engine on that file.

    A crash copies the files as they are at that instant, which is what a killed process leaves, and continues there.
    """

    name = "sqlite"
    features = frozenset({"durable", "processes", "schemas"})
    opt_outs: Mapping[str, str] = {}

    def __init__(self, durability: DurabilityChoice = "process") -> None:
        self._durability: DurabilityChoice = durability
        self._folder: Path | None = None
        self._lives = self._files = 0
        self._clients: list[Store] = []

    @property
    def path(self) -> Path:
        """The file that clients open now."""
        if self._folder is None:
            raise UnsupportedError("the provider was not started")
        return self._folder / f"life-{self._lives}.db"

    async def start(self, clock: Clock) -> None:
        """A fresh directory."""
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="perdure-kit-"))
        self._lives = 0

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        """A client as another process would open it."""
        store = await perdure.open(
            str(self.path), scope=scope, durability=self._durability, clock=clock, housekeeping=False
        )
        self._clients.append(store)
        return store

    async def open_engine(self, schema: Schema, clock: Clock) -> Engine:
        """An engine on another file."""
        self._files += 1
        file = self.path.with_name(f"engine-{self._files}.db")
        return await open_sqlite(str(file), schema, clock=clock, durability=self._durability)

    async def crash(self) -> None:
        """Drop every client as it is and continue with what it left on disk."""
        old = self.path
        self._lives += 1
        for suffix in reversed(_SQLITE_FILES):
            left = old.with_name(old.name + suffix)
            if left.exists():
                await asyncio.to_thread(shutil.copyfile, left, self.path.with_name(self.path.name + suffix))

    async def stop(self) -> None:
        """Close what a crash left open, and remove the directory."""
        for store in self._clients:
            await store.close()
        self._clients.clear()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder)
            self._folder = None


_makers: dict[str, Callable[[], Provider]] = {"memory": MemoryProvider, "sqlite": SqliteProvider}


def register_provider(name: str, make: Callable[[], Provider]) -> None:
    """Let the pytest option and the programs of the kit call a provider by a short name."""
    _makers[name] = make


def provider_names() -> list[str]:
    """Every short name, in the order of registration."""
    return list(_makers)


def provider_named(name: str) -> Provider:
    """A registered provider by its short name, or any other as `package.module:Class`."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        provider: Provider = getattr(importlib.import_module(module), attribute)()
        return provider
    if name not in _makers:
        hint = f"{', '.join(_makers)}, or package.module:Class"
        raise UnsupportedError(f"no provider is called {name!r}", hint=hint)
    return _makers[name]()
