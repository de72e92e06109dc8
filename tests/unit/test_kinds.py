"""Filled kinds are the operations that `plan` makes: compared on every commit of every conformance case."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.engines.memory.engine import MemoryEngine
from perdure.kernel.kinds import Filled, Kind, values_of
from perdure.kernel.ops import Append, Applied
from perdure.stores.commit import execute, fill
from perdure.stores.commit.plan import Guess, operations
from perdure.stores.commit.request import Prepared
from perdure.testkit.kit import registry, run_case
from perdure.testkit.providers import MemoryProvider


def _differences(filled: Filled, commit: Prepared, guess: Guess) -> list[str]:
    ops = operations(commit, guess)
    kind = Kind(ops)
    appends = [op for op in ops if isinstance(op, Append)]
    entries: list[Any] = [entry for op in appends for entry in op.entries]
    pairs = {
        "shapes": (filled.kind.shapes, kind.shapes),
        "starts": (filled.kind.starts, kind.starts),
        "values": (filled.values, values_of(ops)),
        "entries": (filled.entries, entries),
        "operations": (filled.operations(), ops),
    }
    return [f"{name}: {left} is not {right}" for name, (left, right) in pairs.items() if left != right]


def test_every_filled_commit_is_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    differences: list[str] = []

    def compared(commit: Prepared, guess: Guess) -> Filled | None:
        filled = fill.fill(commit, guess)
        counts["filled" if filled is not None else "other"] += 1
        if filled is not None:
            differences.extend(_differences(filled, commit, guess))
        return filled

    async def transact_filled(self: MemoryEngine, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Applied:
        return await self.transact(scope, filled.operations(), hints)

    monkeypatch.setattr(MemoryEngine, "transact_filled", transact_filled, raising=False)
    monkeypatch.setattr(execute, "fill", compared)

    async def main() -> None:
        for case in registry().values():
            if case.reason_to_skip(MemoryProvider()) is None:
                await run_case(case, MemoryProvider())

    asyncio.run(main())
    assert not differences, differences[:3]
    unfit = [token for token, kind in fill._kinds.items() if kind is None]
    assert not unfit, unfit
    assert counts["filled"] > counts["other"], counts
