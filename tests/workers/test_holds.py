"""How the hold on a run ends, and what it must not lose, undo or repeat then."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from tests.workers.scenes import LEASE, PAY, begun, ended, finish, leases, serving, texts, until
from tests.workers.test_serving import on_memory

from perdure import Message, Store, ToolUse, UnavailableError
from perdure.clock import ManualClock
from perdure.workers import Job, driving
from perdure.workers import serving as serving_module
from perdure.workers.hold import Hold
from perdure.workers.job import INTERRUPTED
from perdure.workers.lease import claim
from perdure.workers.trouble import RetryOn


async def nothing(_: Hold) -> None:
    """Instead of a look: what happened is heard from commits alone."""


def test_the_next_run_learns_of_a_call_that_was_cut_off() -> None:
    """A worker died in a tool, and the run was stopped before another took over: nobody will answer the call."""

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent", messages=[Message.user("Pay.")])
        await store.commit("t", messages=[Message.assistant([PAY])], run=run.step())
        await store.runs.cancel(run.id)
        await store.runs.start("t", "agent", messages=[Message.user("And?")], run_id="next")
        histories: list[list[str]] = []

        async def handler(job: Job) -> None:
            views = (await job.history(), await job.history(interrupted="?"), await job.history(interrupted=None))
            histories.extend([each.result_text for each in view if each.role == "tool"] for view in views)
            await job.commit(Message.assistant([ToolUse("own", "pay", {})]))
            histories.append([each.result_text for each in await job.history() if each.role == "tool"])
            await job.commit(run=job.run.finish())

        async with serving(store, handler):
            await ended(store, "next")
        assert histories == [[INTERRUPTED], ["?"], [], [INTERRUPTED]], "its own call is not cut off"

    on_memory(scene)


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


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_tool_that_exits_fails_its_run_and_not_the_worker(in_thread: bool) -> None:
    async def handler(job: Job) -> None:
        if job.run.id == "poison":
            await asyncio.to_thread(sys.exit, 2) if in_thread else sys.exit(2)
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        for run_id in ("poison", "good"):
            await store.runs.start(run_id, "clerk", run_id=run_id)
        async with serving(store, handler, concurrency=1):
            outcome = (await ended(store, "poison")).outcome
            assert (await ended(store, "good")).final_output == "Done."
        assert outcome is not None
        assert (outcome.termination.type, outcome.termination.detail) == ("error", "SystemExit: 2")

    on_memory(body)


@pytest.mark.parametrize("run_id", ["r" * 256, "é" * 128])
def test_a_run_with_the_longest_id_is_driven(run_id: str) -> None:
    async def handler(job: Job) -> None:
        await job.commit(Message.assistant("One."))
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        await store.runs.start("t", "clerk", run_id=run_id)
        async with serving(store, handler):
            assert (await ended(store, run_id)).final_output == "Done."
        assert await texts(store, "t") == ["One.", "Done."]

    on_memory(body)


def test_a_claim_or_release_that_is_cancelled_leaves_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the store was about to write, or had written already."""

    async def body(store: Store, _: ManualClock) -> None:
        async def cancelled(name: str, work: Any, *, before: bool) -> None:
            reached, go_on, call = asyncio.Event(), asyncio.Event(), getattr(store.profiles, name)

            async def slow(*args: Any, **options: Any) -> Any:
                if before:
                    reached.set()
                    await go_on.wait()
                result = await call(*args, **options)
                reached.set()
                await go_on.wait()
                return result

            with monkeypatch.context() as patch:
                patch.setattr(store.profiles, name, slow)
                task = asyncio.create_task(work())
                await reached.wait()
                task.cancel()
                await asyncio.sleep(0)
                go_on.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await leases(store) == []

        for before in (True, False):
            await cancelled("put", lambda: claim(store, "r", "worker", LEASE), before=before)
            lease = await claim(store, "r", "worker", LEASE)
            assert lease is not None
            await cancelled("delete", lease.release, before=before)

    on_memory(body)


@pytest.mark.parametrize(
    "retry_on",
    [(TimeoutError, ConnectionError), lambda error: isinstance(error, ConnectionError)],
    ids=["classes", "function"],
)
def test_errors_that_the_caller_names_pass_too(retry_on: RetryOn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "FIRST_PAUSE", 0.001)
    calls: list[str] = []

    async def handler(job: Job) -> None:
        calls.append(job.run.id)
        if len(calls) < 3:
            raise ConnectionResetError("the model hung up")
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, retry_on=retry_on):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(body)
    assert len(calls) == 3


def test_an_internal_answer_is_no_final_output() -> None:
    """Browsers are sent the final output."""

    async def handler(job: Job) -> None:
        await job.answer(Message.assistant("The plan.", visibility="internal"))

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            run = await ended(store, run.id)
        assert (run.final_output, await texts(store, "t")) == (None, ["The plan."])

    on_memory(body)
