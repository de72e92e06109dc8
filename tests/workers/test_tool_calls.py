"""`job.call_tool`: whatever comes of a tool is a result that can be stored."""

from __future__ import annotations

import asyncio
import enum
import os
import threading
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from tests.workers.scenes import ended, finish, serving
from tests.workers.test_serving import on_memory

import perdure
from perdure import InvalidError, Message, Store, ToolUse, UnavailableError
from perdure.clock import ManualClock
from perdure.workers import Job, Stopped, call_key
from perdure.workers.hold import NOT_MADE
from perdure.workers.tool_calls import result_of


def call(arguments: Any = None) -> ToolUse:
    return ToolUse("c", "tool", {} if arguments is None else arguments)


def outcome(message: Message) -> tuple[str, bool]:
    """The text of a result, and whether it is an error."""
    data = message.to_json()["content"][0]
    return message.result_text, data.get("is_error", False)


def ran(function: Any, arguments: Any = None) -> tuple[str, bool]:
    return outcome(asyncio.run(result_of(call(arguments), function, "key")))


def test_what_a_tool_returns_is_its_result() -> None:
    async def twice(n: int) -> int:
        return 2 * n

    def stop() -> None:
        raise StopIteration

    assert ran(lambda: "Sunny, 24 °C") == ("Sunny, 24 °C", False)
    assert ran(lambda city: {"city": city, "sun": True}, {"city": "Kyoto"}) == ('{"city": "Kyoto", "sun": true}', False)
    assert ran(lambda: None) == ("", False)
    assert ran(twice, {"n": 2}) == ("4", False)
    assert ran(partial(twice, 3)) == ("6", False), "a plain callable that returns an awaitable"
    assert ran(lambda: threading.current_thread() is threading.main_thread()) == ("false", False)
    assert ran(None) == ("there is no tool 'tool'", True)
    assert ran(lambda: 1 / 0) == ("ZeroDivisionError: division by zero", True)
    assert ran(stop) == ("RuntimeError: the tool raised StopIteration()", True)
    assert ran(lambda: {1, 2}) == (
        "'tool' has run, but its result is not JSON: Object of type set is not JSON serializable",
        True,
    )
    text, failed = ran(lambda city: city, {"town": "Kyoto"})
    assert (failed, "town" in text) == (True, True)


class State(enum.StrEnum):
    PAID = "paid"


class Undescribed(Exception):
    def __str__(self) -> str:
        raise AttributeError("the response is gone")


class Lazy(dict[str, int]):
    def items(self) -> Any:
        raise KeyError("the connection is closed")


def test_no_tool_can_end_the_run_by_what_it_returns_or_raises() -> None:
    def fails() -> None:
        raise Undescribed

    async def cancels_a_part_of_itself() -> None:
        part = asyncio.create_task(asyncio.sleep(0))
        part.cancel()
        await part

    def is_cancelled() -> None:
        raise asyncio.CancelledError

    assert ran(lambda: State.PAID) == ("paid", False)
    assert type(ran(lambda: State.PAID)[0]) is str
    assert ran(fails) == ("Undescribed: the error cannot be described", True)
    assert ran(lambda: Lazy(a=1)) == (
        "'tool' has run, but its result is not JSON: 'the connection is closed'",
        True,
    )
    for cancelled in (cancels_a_part_of_itself, is_cancelled):
        assert ran(cancelled) == ("CancelledError: a part of the tool was cancelled", True)


def test_whoever_cancels_the_handler_cancels_its_tool() -> None:
    async def story() -> None:
        working = asyncio.Event()

        async def works() -> None:
            working.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(result_of(call(), works, "key"))
        await working.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())


def test_a_word_of_an_enum_is_stored() -> None:
    async def story() -> str:
        async with perdure.open("memory://") as store:
            await store.commit("t", messages=[await result_of(call(), lambda: State.PAID, "key")])
            return (await store.messages.list("t")).items[0].result_text

    assert asyncio.run(story()) == "paid"


def test_arguments_that_are_no_object_are_for_the_model_to_read() -> None:
    wrong: Any = ToolUse("c", "tool", "not JSON {")  # type: ignore[arg-type]
    assert outcome(asyncio.run(result_of(wrong, lambda: "x", "key"))) == (
        "the arguments of 'tool' must be a JSON object",
        True,
    )


@pytest.mark.parametrize("text", ["x" * 5_000_000, "\0" * 1_000_000, "é" * 3_000_000, "a\ud83db", "\ud83d\ude00"])
def test_every_result_can_be_stored(text: str) -> None:
    async def story() -> str:
        async with perdure.open("memory://") as store:
            await store.commit("t", messages=[await result_of(call(), lambda: text, "key")])
            return (await store.messages.list("t")).items[0].result_text

    stored = asyncio.run(story())
    if len(text) < 10:
        assert stored in ("a\ufffdb", "😀")
    else:
        assert stored.endswith("too long to be stored.")
        assert stored.startswith(text[:500_000])


def test_a_job_runs_tools() -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent", messages=[Message.user("Go.")])

        async def handler(job: Job) -> None:
            for each in await job.unfinished_calls():
                await job.commit(await job.call_tool(each, lambda **arguments: arguments))
                await finish(job)
                return
            wrong: Any = "c"
            with pytest.raises(InvalidError):
                await job.call_tool(wrong, None)
            with pytest.raises(InvalidError):
                await job.call_tool(call(), wrong)
            await job.commit(Message.assistant([ToolUse("c", "tool", {"a": 1})]))
            await handler(job)

        async with serving(store, handler):
            await ended(store, run.id)
        history = await store.messages.history("t")
        assert [record.result_text for record in history if record.role == "tool"] == ['{"a": 1}']

    on_memory(scene)


def test_tools_that_block_do_not_wait_for_each_other() -> None:
    """Nor does the process with its host names: the default threads of asyncio are few, and shared."""
    together = min(32, (os.cpu_count() or 1) + 4) + 2
    barrier = threading.Barrier(together)

    async def story() -> None:
        async with asyncio.timeout(60):
            results = await asyncio.gather(
                *[result_of(call(), lambda: barrier.wait(60) >= 0, "key") for _ in range(together)]
            )
        assert {outcome(result) for result in results} == {("true", False)}

    asyncio.run(story())


def test_a_tool_in_a_thread_has_the_context_of_its_handler() -> None:
    user: ContextVar[str] = ContextVar("user")

    async def story() -> Message:
        user.set("ann")
        return await result_of(call(), user.get, "key")

    assert outcome(asyncio.run(story())) == ("ann", False)


def test_what_comes_of_a_tool_is_dropped_when_nobody_waits_any_more() -> None:
    begun, ends = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        ends.wait(60)

    async def story() -> None:
        task = asyncio.create_task(result_of(call(), slow, "key"))
        while not begun.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(story())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "perdure tool"]
    ends.set()
    thread.join(60)
    assert not thread.is_alive()


def test_no_tool_is_run_once_the_run_is_stopped() -> None:
    ran: list[str] = []

    async def body(store: Store, _: ManualClock) -> None:
        run, ends = await store.runs.start("t", "clerk"), asyncio.Event()

        async def handler(job: Job) -> None:
            try:
                with job.shield():
                    await store.runs.cancel(run.id)
                    with suppress(Stopped):
                        await job.commit(Message.assistant("x"))
                    await job.call_tool(call(), lambda: ran.append("ran"))
            finally:
                ends.set()

        async with serving(store, handler):
            await ends.wait()

    on_memory(body)
    assert ran == []


def test_a_call_has_one_key_whoever_makes_it() -> None:
    """The same after a crash, and no other call of any run has it, whatever its id."""
    keys: list[str] = []

    def pay() -> None:
        keys.append(call_key())

    async def look() -> None:
        await asyncio.sleep(0)
        keys.append(call_key())

    async def body(store: Store, clock: ManualClock) -> None:
        async def dies(job: Job) -> None:
            await job.commit(Message.assistant([ToolUse("c", "pay", {})]))
            (made,) = await job.unfinished_calls()
            await job.call_tool(made, pay)
            raise UnavailableError("it never got to the commit")

        async def goes_on(job: Job) -> None:
            (made,) = await job.unfinished_calls()
            await job.commit(await job.call_tool(made, pay))
            again = Message.assistant([ToolUse("c", "pay", {}), ToolUse("d", "look", {})])
            await job.commit(again)
            await asyncio.gather(job.call_tool(again.tool_calls[0], pay), job.call_tool(again.tool_calls[1], look))
            await job.commit(run=job.run.finish())

        handlers = [dies, goes_on]

        async def handler(job: Job) -> None:
            await handlers.pop(0)(job)

        async with serving(store, handler):
            run = await store.runs.start("t", "clerk")
            await ended(store, run.id)
            handlers += [dies, goes_on]
            run = await store.runs.start("u", "clerk")
            await ended(store, run.id)

    on_memory(body)
    assert keys[0] == keys[1]
    assert keys[4] == keys[5]
    assert len(set(keys)) == 6
    assert {len(key) for key in keys} == {64}
    with pytest.raises(InvalidError, match="only inside a tool"):
        call_key()


def test_what_a_tool_did_is_stored_although_another_one_was_not_started() -> None:
    """A handler that runs the tools of an answer together is stopped before it has started all of them."""
    calls = [ToolUse("c-1", "pay", {}), ToolUse("c-2", "pay", {})]

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")

        async def handler(job: Job) -> None:
            await job.commit(Message.assistant(list(calls)))
            stopped = asyncio.Event()

            async def pay() -> str:
                await store.runs.cancel(run.id)
                with suppress(Stopped):
                    await job.commit(Message.assistant("x"))
                stopped.set()
                await asyncio.sleep(0)
                return "paid"

            async def later() -> Message:
                await stopped.wait()
                return await job.call_tool(calls[1], pay)

            with job.shield():
                await job.commit(*await asyncio.gather(job.call_tool(calls[0], pay), later()))

        async with serving(store, handler):
            await ended(store, run.id)
        assert [record.result_text for record in await store.messages.path("t")] == ["", "paid", NOT_MADE]

    on_memory(body)
