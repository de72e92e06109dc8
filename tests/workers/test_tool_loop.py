"""`job.use_tools`: asks first, runs each tool once, and leaves the rest to the model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
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


def test_what_a_person_has_denied_is_not_done_whatever_ask_says_by_then() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        limit = 30
        agent = Agent(calling(PAY), Message.assistant("Done."), ask=lambda call: call.input["amount"] > limit)
        run = await store.runs.start("t", "clerk")
        async with serving(store, agent):
            async for waiting in store.runs.follow(run.id):
                if waiting.open_tickets:
                    break
            limit = 50
            await decide(store, run.id, False)
            await ended(store, run.id)
        assert agent.ran == []
        assert await texts(store, "t") == ["", DENIED, "Done."]

    on_memory(body)


def test_nobody_is_asked_about_a_call_that_may_have_been_made() -> None:
    """A yes would not say whether that happened: the call would be made again."""

    async def body(store: Store, clock: ManualClock) -> None:
        agent = Agent(Message.assistant("Done."), ask={"pay"})
        run = await store.runs.start("t", "clerk")
        await store.commit("t", messages=[calling(PAY)], run=run.step())
        clock.advance(1)
        async with serving(store, agent):
            await ended(store, run.id)
        assert (agent.ran, agent.ends) == ([], [False])
        assert await texts(store, "t") == ["", CUT_OFF, "Done."]

    on_memory(body)


def test_a_tool_that_takes_too_long_is_not_started_again() -> None:
    """The handler gives up waiting; the thread of the tool goes on."""

    async def body(store: Store, _: ManualClock) -> None:
        ran: list[int] = []
        begun, goes_on = threading.Event(), threading.Event()

        def pay(amount: int) -> str:
            ran.append(amount)
            begun.set()
            goes_on.wait(60)
            return "paid"

        async def impatient(job: Job) -> None:
            await job.commit(calling(PAY))
            waits = asyncio.create_task(job.use_tools({"pay": pay}))
            while not begun.is_set():  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(0.005)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            (call,) = await job.unfinished_calls()
            assert job.uncertain(call)
            assert await job.use_tools({"pay": pay})
            assert await job.unfinished_calls() == []
            await job.commit(run=job.run.finish())

        run = await store.runs.start("t", "clerk")
        async with serving(store, impatient):
            done = await ended(store, run.id)
        goes_on.set()
        assert done.outcome is not None
        assert done.outcome.termination.type == "natural_end"
        assert ran == [40]
        assert await texts(store, "t") == ["", CUT_OFF]

    on_memory(body)


def test_two_loops_at_once_take_turns() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        agent = Agent()

        async def handler(job: Job) -> None:
            await job.commit(calling(LOOK, PAY))
            assert await asyncio.gather(*[job.use_tools(agent.tools) for _ in range(2)]) == [True, True]
            await job.commit(run=job.run.finish())

        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            await ended(store, run.id)
        assert agent.ran == ["look 1", "pay 40"]

    on_memory(body)


def test_a_decision_is_not_forgotten_when_more_is_asked() -> None:
    """The second question is about the other call alone, and the first answer still holds."""

    async def body(store: Store, _: ManualClock) -> None:
        names, asked = {"look"}, list[list[str]]()
        agent = Agent(calling(LOOK, PAY), Message.assistant("Done."), ask=lambda call: call.name in names)
        run = await store.runs.start("t", "clerk")
        async with serving(store, agent):
            async for waiting in store.runs.follow(run.id):
                if waiting.open_tickets:
                    asked.append([ticket.tool_name or "" for ticket in waiting.open_tickets])
                    names.add("pay")
                    for ticket in waiting.open_tickets:
                        await store.runs.decide(run.id, ticket.ticket_id, ticket.tool_name == "pay")
        assert asked == [["look"], ["pay"]]
        assert agent.ran == ["pay 40"]
        assert await texts(store, "t") == ["", DENIED, "paid 40", "Done."]

    on_memory(body)


async def never(call: ToolUse) -> bool:
    return False


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
        (TOOLS, {"repeatable": never}, "repeatable must not be an async function"),
        (TOOLS, {"repeatable": {"pay": False}}, "repeatable must be names of tools or a function"),
        (TOOLS, {"ask": [["pay"]]}, "ask names ['pay'], which is not among the tools"),
        (TOOLS, {"denied": "\ud800"}, "denied"),
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


def test_other_words_than_true_and_false_are_taken_to_be_careful() -> None:
    """Whatever is true asks a person, and only True lets a tool run twice."""

    async def twice(store: Store, clock: ManualClock) -> None:
        agent = Agent(Message.assistant("Done."), repeatable=lambda call: "yes")
        run = await store.runs.start("t", "clerk")
        await store.commit("t", messages=[calling(LOOK)], run=run.step())
        clock.advance(1)
        async with serving(store, agent):
            await ended(store, run.id)
        assert agent.ran == []

    on_memory(twice)

    async def body(store: Store, _: ManualClock) -> None:
        words: dict[str, Any] = {"pay": "yes"}
        agent = Agent(calling(LOOK, PAY), Message.assistant("Done."), ask=lambda call: words.get(call.name))
        run = await store.runs.start("t", "clerk")
        async with serving(store, agent):
            await decide(store, run.id, True)
            await ended(store, run.id)
        assert agent.ran == ["look 1", "pay 40"]

    on_memory(body)
