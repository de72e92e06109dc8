"""What a commit sends unchecked is sound: every conformance case of commits runs again with the check put back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure.kernel.ops import Applied, Op
from perdure.kernel.validate import Kernel, check_ops
from perdure.testkit.kit import registry, run_case
from perdure.testkit.providers import MemoryProvider

WRITING = ("commit", "runs", "state", "pending", "branches")
CASES = [case for case in registry().values() if case.capability in WRITING and not case.needs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_operations_of_a_commit_pass_the_door(case: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async def checked(self: Kernel, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        check_ops(self.schema, ops)
        return await self.engine.transact(scope, ops, hints)

    monkeypatch.setattr(Kernel, "apply", checked)
    asyncio.run(run_case(case, MemoryProvider()))
