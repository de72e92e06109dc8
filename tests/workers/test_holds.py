"""How the hold on a run ends, and what it must not lose, undo or repeat then."""

from __future__ import annotations

import asyncio

import pytest
from tests.workers.scenes import PAY, begun, ended, serving, texts, until
from tests.workers.test_serving import on_memory

from perdure import Message, Store, UnavailableError
from perdure.clock import ManualClock
from perdure.workers import Job, driving
from perdure.workers import serving as serving_module
from perdure.workers.hold import Hold


async def nothing(_: Hold) -> None:
    """Instead of a look: what happened is heard from commits alone."""


def test_a_tool_in_a_shield_may_outlast_the_cleanup_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit has raised `Stopped`, so the time to clean up runs; the other tool is still at work."""
    monkeypatch.setattr(driving, "CHECK_SECONDS", 0.005)
    monkeypatch.setattr(driving, "CLEANUP_SECONDS", 0.005)
    monkeypatch.setattr(Hold, "check", nothing)
    paying, cancelled, told, ends = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()

    async def first(job: Job) -> None:
        with job.shield():
            await cancelled.wait()
            try:
                await job.commit(Message.tool("c-0", "Paid."))
            finally:
                told.set()

    async def second(job: Job) -> None:
        with job.shield():
            paying.set()
            await told.wait()
            try:
                await asyncio.sleep(0.1)
                ends.append("paid")
            finally:
                ends.append("over")
            await job.commit(Message.tool(PAY.id, "Paid."))

    async def handler(job: Job) -> None:
        await asyncio.gather(first(job), second(job), return_exceptions=True)

    async def body(store: Store, _: ManualClock) -> None:
        run = await begun(store, "t")
        async with serving(store, handler):
            await paying.wait()
            await store.runs.cancel(run.id)
            cancelled.set()
            await until(lambda: asyncio.sleep(0, "over" in ends))
        assert ends == ["paid", "over"]
        assert await texts(store, "t") == ["Pay.", "", "Paid.", "Paid."]

    on_memory(body)


def test_a_commit_of_an_earlier_worker_is_replayed_without_its_run() -> None:
    """With a key of the caller's. The run goes on from where it is, and the calls of that commit may have run."""
    calls: list[tuple[bool, bool, bool]] = []

    async def handler(job: Job) -> None:
        receipt = await job.commit(Message.assistant([PAY]), key="step-1")
        calls.append((receipt.replayed, receipt.run == job.run, job.uncertain(PAY)))
        if len(calls) < 3:
            raise UnavailableError("down")
        await job.commit(Message.tool(PAY.id, "Paid."), run=receipt.run.finish("Done."), key="step-2")

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            assert (await ended(store, run.id)).final_output == "Done."
        assert await texts(store, "t") == ["", "Paid."]

    on_memory(body)
    assert calls == [(False, True, False), (True, True, True), (True, True, True)]


def test_a_run_that_is_cut_off_without_a_commit_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer each time, whatever the reason."""
    pauses: list[float] = []
    leave_alone = serving_module.Service._leave_alone

    def noting(service: serving_module.Service, run_id: str) -> None:
        leave_alone(service, run_id)
        pauses.append(service._rests[run_id][1])

    monkeypatch.setattr(serving_module.Service, "_leave_alone", noting)

    async def body(store: Store, _: ManualClock) -> None:
        async def moved(job: Job) -> None:
            current = await store.runs.get(job.run.id)
            await store.commit("t", run=current.step())
            await job.commit(Message.assistant("Too late."))

        await store.runs.start("t", "clerk")
        async with serving(store, moved):
            await until(lambda: asyncio.sleep(0, len(pauses) > 3))
        assert await texts(store, "t") == []

    on_memory(body)
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.08]
