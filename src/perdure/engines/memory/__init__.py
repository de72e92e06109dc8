"""The memory engine: the contract in its simplest form, for tests and notebooks, and the reference for every other."""

from perdure.engines.memory.engine import MemoryEngine
from perdure.engines.memory.open import open_memory

__all__ = ["MemoryEngine", "open_memory"]
