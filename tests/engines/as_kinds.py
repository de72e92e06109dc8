"""Sends transactions as filled kinds, where the engine takes them: what the stores do with commits."""

from __future__ import annotations

import zlib
from typing import Any

from perdure.kernel.engine import Engine
from perdure.kernel.kinds import Filled, Kind, values_of
from perdure.kernel.ops import Append, Applied, Op

_kinds: dict[Any, Kind] = {}


def filled(ops: list[Op]) -> Filled:
    """A transaction as its kind and its values; nothing is promised about who owns the rows."""
    kind = Kind(ops)
    kind = _kinds.setdefault(kind.shapes, kind)
    entries = [entry for op in ops if isinstance(op, Append) for entry in op.entries]
    return Filled(kind, values_of(ops), entries, lambda: list(ops))


async def send(engine: Engine, scope: str, ops: list[Op]) -> Applied:
    """Apply a transaction: about half of them as filled kinds, always the same ones."""
    if not hasattr(type(engine), "transact_filled") or zlib.crc32(repr(ops).encode()) % 2:
        return await engine.transact(scope, ops)
    fill: Any = engine
    applied: Applied = await fill.transact_filled(scope, filled(ops), ())
    return applied
