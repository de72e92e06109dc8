"""How the hold on a run ends, and what it must not lose, undo or repeat then."""

from __future__ import annotations

import asyncio

import pytest
from tests.workers.scenes import PAY, begun, serving, texts, until
from tests.workers.test_serving import on_memory

from perdure import Message, Store
from perdure.clock import ManualClock
from perdure.workers import Job, driving
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
