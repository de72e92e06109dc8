"""What following the runs of a thread costs: one trip per look, and rows only of runs that are open or new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.kernel.validate import Kernel
from perdure.stores import run_following
from perdure.stores.run_following import ThreadRunsSource


def test_a_look_costs_one_trip_however_many_runs_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_following, "_OVERLAP_MS", -60_000)  # as if all of them had ended long ago
    answers: list[list[Any]] = []
    view = Kernel.view

    async def counted(self: Kernel, *args: Any) -> list[Any]:
        answers.append(await view(self, *args))
        return answers[-1]

    async def look() -> None:
        async with await perdure.open("memory://", housekeeping=False) as store:
            for number in range(50):
                await store.runs.start("t", "agent", run_id=f"r{number}")
                await store.runs.cancel(f"r{number}")
            await store.runs.start("t", "agent", run_id="open")
            source = ThreadRunsSource(store.runs._context, "t")
            assert [run.id for run in await source.read()] == ["open"]
            monkeypatch.setattr(Kernel, "view", counted)
            assert await source.read() == []

    asyncio.run(look())
    assert len(answers) == 1
    assert sum(len(rows) for rows in answers[0][1:]) == 3  # the head, the latest run, and the same run as open
