"""A tool ends after its run was stopped: the model of every branch that has the call learns what it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.workers.scenes import LEASE, PAY, begun, ended, finish, serving
from tests.workers.test_serving import on_memory

from perdure import Extra, Message, MessageRecord, Store, ToolResult, ToolUse
from perdure.clock import ManualClock
from perdure.stores.messages import Messages
from perdure.workers import Job
from perdure.workers.late_results import with_late_results


@pytest.mark.parametrize("again", ["before", "after", "deleted before", "deleted after"])
def test_a_late_result_is_known_on_other_branches(again: str) -> None:
    results: list[list[str]] = []

    async def handler(job: Job) -> None:
        results.append([record.result_text for record in await job.history() if record.role == "tool"])
        await finish(job)

    async def scene(store: Store, _: ManualClock) -> None:
        paying = await store.runs.start("t", "payer", messages=[Message.user("Pay.")])
        call = Message.assistant([ToolUse("c", "pay", {})])
        paying = (await store.commit("t", messages=[call], run=paying.step())).run
        await store.runs.cancel(paying.id)
        async with serving(store, handler, agent_id="clerk"):
            asked = await store.runs.start("t", "clerk", messages=[Message.user("Did you pay?")])
            await ended(store, asked.id)
            if again == "after":
                await store.commit("t", messages=[Message.tool("c", "paid 80")], branch=0)
            repeated = await store.runs.rerun(asked.id)
            await ended(store, repeated.id)
            if again in ("before", "deleted after"):
                await store.commit("t", messages=[Message.tool("c", "paid 80")], branch=0)
            if again.startswith("deleted"):
                await store.branches.delete("t", 0)
            last = await store.runs.start("t", "clerk", messages=[Message.user("And now?")])
            await ended(store, last.id)

    on_memory(scene)
    unknown = ["The call was interrupted: it may or may not have taken effect."]
    known = ["paid 80"]
    expected = {
        "before": [unknown, unknown, known],
        "after": [unknown, known, known],
        "deleted before": [unknown] * 3,
        "deleted after": [unknown, unknown, known],
    }
    assert results == expected[again]


@pytest.mark.parametrize("limit", [None, 4])
def test_a_result_that_comes_after_another_answer_is_shown_behind_it(limit: int | None) -> None:
    """To the model: people see both results where they are, and a view that does not ask for it shows the first."""

    async def scene(store: Store, clock: ManualClock) -> None:
        paying, go_on, late = asyncio.Event(), asyncio.Event(), asyncio.Event()
        histories: list[list[MessageRecord]] = []

        async def pays(job: Job) -> None:
            paying.set()
            await go_on.wait()
            try:
                await job.commit(Message.tool(PAY.id, "Paid 40."))
            finally:
                late.set()

        async def answers(job: Job) -> None:
            if await job.unfinished_calls():
                await job.commit(Message.tool(PAY.id, "Unknown.", is_error=True))
            else:
                histories.append(await job.history(limit=limit))
                histories.append(await job.history(limit=limit, interrupted=None))
            await finish(job)

        run = await begun(store, "t")
        async with serving(store, pays):
            await paying.wait()
            clock.advance(LEASE)
            async with serving(store, answers):
                await ended(store, run.id)
            go_on.set()
            await late.wait()
        async with serving(store, answers):
            await ended(store, (await store.runs.start("t", "clerk", messages=[Message.user("And?")])).id)
        shown = [[record.result_text for record in each if record.role == "tool"] for each in histories]
        assert shown == [["Unknown.\nLater, the call returned this result:\nPaid 40."], ["Unknown."]]
        (result,) = [block for record in histories[0] for block in record.message.content if type(block) is ToolResult]
        assert not result.is_error
        external = [record.result_text for record in await store.messages.external("t") if record.role == "tool"]
        assert external == ["Unknown.", "Paid 40."]

    on_memory(scene)


def test_a_late_result_is_shown_behind_no_answer_to_a_newer_call() -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        late = Message.tool(PAY.id, "Paid 40.", extra=Extra(late=True))
        answer, call = Message.tool(PAY.id, "Unknown."), Message.assistant([PAY])
        await store.commit("t", messages=[call, answer, call, late, late])
        history = await store.messages.history("t", interrupted="?")
        assert [record.result_text for record in history if record.role == "tool"] == [
            "Unknown.",
            "Paid 40.\nLater, the call returned this result:\nPaid 40.",
        ]

    on_memory(scene)


def test_a_late_result_without_a_place_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its branch was deleted while the tool was at work."""

    async def scene(store: Store, _: ManualClock) -> None:
        paying, go_on = asyncio.Event(), asyncio.Event()

        async def pays(job: Job) -> None:
            with job.shield():
                paying.set()
                await go_on.wait()
                await job.commit(Message.tool(PAY.id, "Paid 40."))

        run = await begun(store, "t")
        async with serving(store, pays, agent_id="clerk"):
            await paying.wait()
            await store.runs.rerun(run.id, messages=[Message.user("Pay?")], agent_id="other")
            await store.branches.delete("t", "main")
            go_on.set()
        (line,) = [record.getMessage() for record in caplog.records if "a late result" in record.getMessage()]
        assert line.startswith(f"a late result of run {run.id!r} is not stored: NotFoundError: branch 0")

    on_memory(scene)


def test_looking_for_a_late_result_reads_no_more_than_what_follows_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        await store.commit("t", messages=[Message.user("before") for _ in range(100)])
        await store.commit("t", messages=[Message.assistant([PAY]), Message.user("after")])
        history = await store.messages.history("t", interrupted="?", run_id="none")
        reads: list[int] = []
        read = Messages.range

        async def counted(self: Messages, *args: Any) -> Any:
            records = await read(self, *args)
            reads.append(len(records))
            return records

        monkeypatch.setattr(Messages, "range", counted)
        monkeypatch.setattr(Messages, "path", None)
        assert await with_late_results(store, history) == history
        assert reads == [2]

    on_memory(scene)
