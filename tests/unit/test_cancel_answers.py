"""`runs.cancel(answer_calls=…)`: what it reads, and what a crash in the middle leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Message, Run, Store, Ticket, ToolUse, UnavailableError
from perdure.stores import run_cancelling
from perdure.stores.branch_paths import PathRead, read_path


async def asking(store: Store, count: int) -> Run:
    """A run that waits for decisions on so many calls."""
    run = await store.runs.start("t", "agent", messages=[Message.user("Pay.")])
    calls = [ToolUse(f"c{n}", "pay", {}) for n in range(count)]
    wait = run.wait([Ticket.for_call(call) for call in calls])
    return (await store.commit("t", messages=[Message.assistant([*calls])], run=wait)).run


def test_only_what_the_run_has_written_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    async def counted(*args: Any) -> PathRead:
        path = await read_path(*args)
        read.append(len(path.entries))
        return path

    async def story() -> None:
        async with perdure.open("memory://") as store:
            await store.commit("t", messages=[Message.user("before") for _ in range(200)])
            run = await asking(store, 2)
            monkeypatch.setattr(run_cancelling, "read_path", counted)
            await store.runs.cancel(run.id, answer_calls="Not made.")
            assert await store.messages.unfinished_calls("t") == []

    asyncio.run(story())
    assert read == [1]


def test_a_stop_that_was_cut_off_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that have their answer are not answered again, and nobody makes them: they have a result."""
    perform, left = run_cancelling.perform, [1, 1]

    async def dies(*args: Any) -> Any:
        if not left:
            raise UnavailableError("the process is gone")
        left.pop()
        return await perform(*args)

    async def story() -> None:
        async with perdure.open("memory://") as store:
            run = await asking(store, 7)
            monkeypatch.setattr(run_cancelling, "_PIECE", 2)
            with monkeypatch.context() as patch:
                patch.setattr(run_cancelling, "perform", dies)
                with pytest.raises(UnavailableError):
                    await store.runs.cancel(run.id, answer_calls="Not made.")
            assert (await store.runs.get(run.id)).status == "waiting"
            assert [item.call.id for item in await store.messages.unfinished_calls("t")] == ["c4", "c5", "c6"]
            await store.runs.decide(run.id, "c0", True)
            assert (await store.runs.cancel(run.id, answer_calls="Not made.")).status == "done"
            results = [record.message.tool_call_id for record in (await store.messages.path("t"))[2:]]
            assert results == [f"c{n}" for n in range(7)]

    asyncio.run(story())
