"""Opening a memory engine: there is nothing to connect to, and each one starts empty."""

from __future__ import annotations

from perdure.clock import Clock, system_clock
from perdure.engines.memory.engine import MemoryEngine
from perdure.kernel.schema import Schema


async def open_memory(schema: Schema, *, clock: Clock = system_clock) -> MemoryEngine:
    """A fresh, empty engine."""
    return MemoryEngine(schema, clock)
