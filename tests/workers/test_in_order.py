"""`in_order`, the promise of a handler: after a crash only the first call without a result is uncertain."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workers.scenes import ended, finish, serving
from tests.workers.test_processes import wait_for
from tests.workers.test_serving import cut_off, on_memory

import perdure.sync
from perdure import Message, Store, Ticket, ToolUse
from perdure.clock import ManualClock
from perdure.workers import Job, driving

CALLS = [ToolUse(f"c-{n}", "pay", {"n": n}) for n in range(3)]


async def left(store: Store, run_id: str) -> None:
    """A run that another worker has left with three calls, of which the first has its result."""
    run = await store.runs.start(run_id, "clerk", run_id=run_id)
    messages = [Message.assistant([*CALLS]), Message.tool("c-0", "Paid.")]
    await store.commit(run_id, messages=messages, run=run.step())


@pytest.mark.parametrize("in_order", [True, False])
def test_only_the_first_call_without_a_result_is_uncertain(in_order: bool) -> None:
    uncertain: dict[str, list[bool]] = {}

    async def handler(job: Job) -> None:
        calls = await job.unfinished_calls()
        uncertain[job.run.id] = [job.uncertain(call) for call in calls]
        for call in calls:
            await job.commit(Message.tool(call.id, "Paid."))
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        await left(store, "crashed")
        await left(store, "paused")
        paused = (await store.runs.get("paused")).wait([Ticket(ticket_id="x", decision=True)])
        await store.commit("paused", run=paused)
        async with serving(store, handler, in_order=in_order):
            for run_id in ("crashed", "paused"):
                await ended(store, run_id)

    on_memory(body)
    assert uncertain == {run_id: [True, not in_order] for run_id in ("crashed", "paused")}


def test_the_doubt_moves_on_with_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler is cut off in each of its tools; what it committed before is not in doubt."""
    monkeypatch.setattr(driving, "FIRST_PAUSE", 0.001)
    attempts: list[list[bool]] = []

    async def handler(job: Job) -> None:
        calls = await job.unfinished_calls()
        attempts.append([job.uncertain(call) for call in calls])
        if not calls and job.run.steps == 0:
            await job.answer(Message.assistant([*CALLS]))
            raise cut_off()
        if calls:
            await job.commit(Message.tool(calls[0].id, "Unknown."))
            raise cut_off()
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, in_order=True):
            await ended(store, run.id)

    on_memory(body)
    assert attempts == [[], [True, False, False], [True, False], [True], []]


def test_a_doubt_outlives_a_wait() -> None:
    answers: list[list[bool]] = []

    async def handler(job: Job) -> None:
        answers.append([job.uncertain(call) for call in CALLS[1:]])
        if len(answers) == 1:
            await job.commit(run=job.run.wait([Ticket(ticket_id="x")]))
        else:
            await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        await left(store, "r")
        async with serving(store, handler, in_order=True):
            async for run in store.runs.follow("r"):
                for ticket in run.open_tickets:
                    await store.runs.decide("r", ticket.ticket_id, True)

    on_memory(body)
    assert answers == [[True, False]] * 2


@pytest.mark.parametrize("promise", ["in_order", ""])
def test_a_worker_is_killed_inside_the_first_of_three_tools(promise: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    command = [sys.executable, "-m", "tests.workers.process", url, str(ledger), promise]

    def words() -> list[str]:
        return [line.split()[-1] for line in ledger.read_text().splitlines()]

    with perdure.sync.open(url) as store:
        store.runs.start("t", "clerk", run_id="hangs-at-first", messages=[Message.user("Pay.")])
        for condition in (lambda: words() == ["ran"], lambda: store.runs.get("hangs-at-first").status == "done"):
            worker = subprocess.Popen(command)
            try:
                wait_for(condition)
            finally:
                worker.kill()
                worker.wait()
    later = "certain" if promise else "uncertain"
    assert words() == ["ran", "uncertain", later, later]


def test_the_promise_is_a_flag() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        with pytest.raises(perdure.InvalidError, match="in_order"):
            async with asyncio.timeout(5), serving(store, finish, in_order="yes"):
                await asyncio.sleep(0)

    on_memory(body)
