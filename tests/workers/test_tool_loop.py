"""`job.use_tools`: asks first, runs each tool once, and leaves the rest to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.workers.scenes import LEASE, ended, serving, texts
from tests.workers.test_serving import on_memory

from perdure import InvalidError, Message, Store, ToolUse
from perdure.clock import ManualClock
from perdure.workers import LEASES, Job
from perdure.workers.tool_loop import CUT_OFF, DENIED

LOOK, PAY = ToolUse("c-1", "look", {"n": 1}), ToolUse("c-2", "pay", {"amount": 40})


class Agent:
    """A loop with a model that says what the test wrote down, and two tools that note their calls."""

    def __init__(self, *answers: Message, **options: Any) -> None:
        self.answers = list(answers)
        self.ran: list[str] = []
        self.ends: list[bool] = []
        self.options = options
        self.tools: dict[str, Callable[..., Any]] = {"look": self.look, "pay": self.pay}

    def look(self, n: int) -> str:
        self.ran.append(f"look {n}")
        return f"seen {n}"

    async def pay(self, amount: int) -> str:
        self.ran.append(f"pay {amount}")
        return f"paid {amount}"

    async def __call__(self, job: Job) -> None:
        while more := await job.use_tools(self.tools, **self.options):
            await job.answer(self.answers.pop(0))
        self.ends.append(more)


def calling(*calls: ToolUse) -> Message:
    return Message.assistant(list(calls))


async def decide(store: Store, run_id: str, value: Any) -> None:
    """Wait until the run asks, and give this answer to all that it asks about."""
    async for run in store.runs.follow(run_id):
        for ticket in run.open_tickets:
            await store.runs.decide(run_id, ticket.ticket_id, value)
        if run.open_tickets:
            return


def test_tools_run_one_after_the_other_and_the_model_goes_on() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        agent = Agent(calling(LOOK, PAY), calling(ToolUse("c-3", "fly", {})), Message.assistant("Done."))
        run = await store.runs.start("t", "clerk", messages=[Message.user("Go.")])
        async with serving(store, agent):
            done = await ended(store, run.id)
        assert (done.final_output, done.steps) == ("Done.", 5)
        assert (agent.ran, agent.ends) == (["look 1", "pay 40"], [False])
        assert await texts(store, "t") == ["Go.", "", "seen 1", "paid 40", "", "there is no tool 'fly'", "Done."]

    on_memory(body)


@pytest.mark.parametrize("ask", [{"pay"}, lambda call: call.input.get("amount", 0) > 30], ids=["names", "function"])
@pytest.mark.parametrize(
    ("decision", "result", "ran"),
    [({"approved": True}, "paid 40", ["look 1", "pay 40"]), ({"approved": False}, DENIED, ["look 1"])],
)
def test_people_are_asked_before_any_tool_runs(ask: Any, decision: Any, result: str, ran: list[str]) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        agent = Agent(calling(LOOK, PAY), Message.assistant("Done."), ask=ask)
        run = await store.runs.start("t", "clerk")
        async with serving(store, agent):
            async for waiting in store.runs.follow(run.id):
                if waiting.open_tickets:
                    break
            assert agent.ran == []
            assert [ticket.tool_name for ticket in waiting.open_tickets] == ["pay"]
            await decide(store, run.id, decision)
            await ended(store, run.id)
        assert (agent.ran, agent.ends) == (ran, [False, False])
        assert await texts(store, "t") == ["", "seen 1", result, "Done."]

    on_memory(body)


@pytest.mark.parametrize(
    ("repeatable", "results", "ran"),
    [
        ((), [CUT_OFF, "paid 40"], ["pay 40"]),
        ({"look"}, ["seen 1", "paid 40"], ["look 1", "pay 40"]),
        (lambda call: call.input == {"n": 1}, ["seen 1", "paid 40"], ["look 1", "pay 40"]),
    ],
    ids=["none", "names", "function"],
)
def test_after_a_crash_an_uncertain_call_is_made_again_only_if_that_does_no_harm(
    repeatable: Any, results: Sequence[str], ran: list[str]
) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        agent = Agent(Message.assistant("Done."), repeatable=repeatable)
        run = await store.runs.start("t", "clerk")
        await store.commit("t", messages=[calling(LOOK, PAY)], run=run.step())
        await store.profiles.put(LEASES, run.id, {"worker": "dead"}, if_rev=0, ttl_ms=LEASE)
        clock.advance(LEASE)
        async with serving(store, agent, in_order=True):
            await ended(store, run.id)
        assert agent.ran == ran
        assert await texts(store, "t") == ["", *results, "Done."]

    on_memory(body)


def test_a_crash_after_the_approval_repeats_nothing() -> None:
    """The decision is still known to the next worker; the call that may have been made is not made again."""

    async def body(store: Store, clock: ManualClock) -> None:
        agent = Agent(calling(PAY), Message.assistant("Done."), ask={"pay"}, cut_off="Who knows.")
        paying = asyncio.Event()

        async def hangs(amount: int) -> None:
            paying.set()
            await asyncio.Event().wait()

        agent.tools["pay"] = hangs
        run = await store.runs.start("t", "clerk")
        async with serving(store, agent, drain_ms=0):
            await decide(store, run.id, True)
            await paying.wait()
        clock.advance(LEASE)
        agent.tools["pay"] = agent.pay
        async with serving(store, agent):
            await ended(store, run.id)
        assert agent.ran == []
        assert await texts(store, "t") == ["", "Who knows.", "Done."]

    on_memory(body)


def test_a_stop_ends_the_loop_and_keeps_the_result_of_the_tool() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        agent = Agent(calling(LOOK, PAY), Message.assistant("Done."))
        run = await store.runs.start("t", "clerk")

        async def looks(n: int) -> str:
            await store.runs.cancel(run.id)
            return f"seen {n}"

        agent.tools["look"] = looks
        async with serving(store, agent):
            await ended(store, run.id)
        assert (agent.ran, agent.ends) == ([], [])
        assert await texts(store, "t") == ["", "seen 1"]

    on_memory(body)


TOOLS = {"pay": print}


@pytest.mark.parametrize(
    ("tools", "options", "message"),
    [
        ([print], {}, "tools must be a dict of functions by name"),
        ({"pay": "print"}, {}, "tools must be a dict of functions by name"),
        (TOOLS, {"ask": "pay"}, "ask must be names of tools or a function"),
        (TOOLS, {"ask": {"pai"}}, "ask names 'pai', which is not among the tools"),
        (TOOLS, {"ask": None}, "ask must be names of tools or a function"),
        (TOOLS, {"repeatable": ["pay", "look"]}, "repeatable names 'look', which is not among the tools"),
        (TOOLS, {"denied": 5}, "denied must be text"),
        (TOOLS, {"cut_off": None}, "cut_off must be text"),
    ],
)
def test_a_loop_that_cannot_be_right_is_refused(tools: Any, options: dict[str, Any], message: str) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        errors: list[str] = []

        async def handler(job: Job) -> None:
            try:
                await job.use_tools(tools, **options)
            except InvalidError as error:
                errors.append(str(error))
            await job.commit(run=job.run.finish())

        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            await ended(store, run.id)
        assert [message in error for error in errors] == [True]

    on_memory(body)


def test_a_function_that_answers_in_other_words_counts_by_its_truth() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        chosen: Callable[[ToolUse], Any] = partial(dict.get, {"pay": 1})
        agent = Agent(calling(LOOK), Message.assistant("Done."), ask=lambda call: chosen(call.name))
        run = await store.runs.start("t", "clerk")
        async with serving(store, agent):
            await ended(store, run.id)
        assert agent.ran == ["look 1"]

    on_memory(body)
