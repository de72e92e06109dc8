"""The engines that come with Perdure, as the conformance kit sees them.

A provider makes fresh data, opens clients on it, drops them without a close, and throws the data away. Write one of these
for an engine of your own and every case runs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.clock import Clock
from perdure.engines.memory import MemoryEngine, open_memory
from perdure.errors import UnsupportedError
from perdure.stores.layout import SCHEMA
from perdure.stores.store import Store
from perdure.testkit.kit import Provider


class MemoryProvider:
    """The memory engine: a second client shares the engine object, and nothing survives."""

    name = "memory"
    features: frozenset[str] = frozenset()
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
        return Store(self._engine, scope, clock=clock, owner=False)

    async def crash(self) -> None:
        """A memory engine that crashed has nothing to open again."""
        raise UnsupportedError("memory does not survive a crash")

    async def stop(self) -> None:
        """Forget the data."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None


BUILTIN: dict[str, Callable[[], Provider]] = {"memory": MemoryProvider}
