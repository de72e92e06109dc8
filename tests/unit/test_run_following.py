"""What following the runs of a thread costs: one trip per look, and rows only of runs that are open or new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Message
from perdure.clock import ManualClock
from perdure.kernel.ops import Scan
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


@pytest.mark.parametrize("branch", [0, 1, 2])
def test_the_runs_of_other_branches_are_gone_through_once(branch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by every look of a tab: branch 2 has no run at all, and that of branch 0 is older than all of branch 1."""
    monkeypatch.setattr(run_following, "_OVERLAP_MS", -60_000)
    scans: list[Any] = []
    view = Kernel.view

    async def counted(self: Kernel, scope: str, *reads: Any) -> list[Any]:
        scans.extend(read for read in reads if isinstance(read, Scan) and read.where)
        return await view(self, scope, *reads)

    async def story() -> None:
        async with await perdure.open("memory://", housekeeping=False) as store:
            await store.runs.start("t", "agent", run_id="first", messages=[Message.user("q", id="q")])
            await store.runs.cancel("first")
            for _ in range(2):
                await store.branches.fork("t", at="q")
            for number in range(20):
                await store.runs.start("t", "agent", run_id=f"r{number:02}", branch=1)
                await store.runs.cancel(f"r{number:02}")
            monkeypatch.setattr(Kernel, "view", counted)
            source = ThreadRunsSource(store.runs._context, "t", branch)
            expected = {0: ["first"], 1: ["r19"], 2: []}[branch]
            assert [run.id for run in await source.read()] == expected
            assert len(scans) == 2, "of the first look, and before it, to learn the time"
            for number in range(2):
                assert await source.read() == []
                await store.runs.start("t", "agent", run_id=f"s{number}", branch=branch)
                assert [run.id for run in await source.read()] == [f"s{number}"]
                await store.runs.cancel(f"s{number}")
                assert [run.status for run in await source.read()] == ["done"]
            assert len(scans) == 2

    asyncio.run(story())


def test_a_first_look_that_is_cancelled_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever began and ended since then is the latest run now."""
    views: list[Any] = []
    view = Kernel.view

    async def cancelled(self: Kernel, *args: Any) -> list[Any]:
        views.append(args)
        if len(views) == 2:
            raise asyncio.CancelledError
        return await view(self, *args)

    async def story() -> None:
        clock = ManualClock()
        async with await perdure.open("memory://", housekeeping=False, clock=clock) as store:
            await store.runs.start("t", "agent", run_id="old")
            await store.runs.cancel("old")
            source = ThreadRunsSource(store.runs._context, "t", 0)
            with monkeypatch.context() as patch:
                patch.setattr(Kernel, "view", cancelled)
                with pytest.raises(asyncio.CancelledError):
                    await source.read()
            clock.advance(60_000)
            await store.runs.start("t", "agent", run_id="new")
            await store.runs.cancel("new")
            clock.advance(60_000)
            assert [run.id for run in await source.read()] == ["new"]

    asyncio.run(story())
