"""`serve` on its own: outages, stops, what it refuses, which runs it finds, and what its leases do."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.workers.scenes import LEASE, PAY, begun, ended, finish, leases, serving, texts, until

import perdure
import perdure.sync
from perdure import (
    IncompleteStream,
    InvalidError,
    Message,
    OutcomeUnknown,
    Store,
    Ticket,
    ToolUse,
    UnavailableError,
    Usage,
    Waiting,
)
from perdure.clock import ManualClock
from perdure.workers import LEASES, Job, driving, finding, serve
from perdure.workers.calls import Calls
from perdure.workers.finding import Finder
from perdure.workers.lease import claim

DEADLINE = 40


def on_memory(body: Callable[[Store, ManualClock], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        clock = ManualClock()
        async with asyncio.timeout(DEADLINE), perdure.open("memory://", clock=clock, housekeeping=False) as store:
            await body(store, clock)

    asyncio.run(run())


def failing(call: Callable[..., Any], *errors: Exception, after: bool = False) -> Callable[..., Any]:
    """The call, which raises each of the errors once: instead of its work, or after it."""
    left = list(errors)

    @functools.wraps(call)
    async def fails(*args: Any, **options: Any) -> Any:
        if left and not after:
            raise left.pop(0)
        result = await call(*args, **options)
        if left:
            raise left.pop(0)
        return result

    return fails


def test_an_outage_is_survived_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure.workers")

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        outage = [UnavailableError("down"), UnavailableError("down"), UnavailableError("down")]
        monkeypatch.setattr(store.runs, "list", failing(store.runs.list, *outage))
        async with serving(store, finish):
            await ended(store, run.id)

    on_memory(body)
    assert [record.levelname for record in caplog.records if "listed" in record.msg] == ["WARNING", "INFO"]


def test_a_closed_store_ends_it() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        await store.close()
        with pytest.raises(UnavailableError):
            await serve(store, finish)

    on_memory(body)


@pytest.mark.parametrize("name", ["commit", "profiles.put", "runs.find"])
def test_trouble_while_a_run_is_picked_up_is_no_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        where, _, call = name.rpartition(".")
        holder = getattr(store, where) if where else store
        monkeypatch.setattr(holder, call, failing(getattr(holder, call), UnavailableError("down")))
        async with serving(store, finish):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(body)


@pytest.mark.parametrize("error", [UnavailableError("down"), ExceptionGroup("two", [UnavailableError("down")])])
def test_a_handler_that_meets_trouble_is_called_again(error: Exception) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        handler = failing(finish, error)
        async with serving(store, handler):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(body)


def test_a_commit_whose_answer_was_lost_takes_effect_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(job: Job) -> None:
        store = stores[0]
        with monkeypatch.context() as patch:
            patch.setattr(store, "commit", failing(store.commit, OutcomeUnknown("lost", rev=1), after=True))
            await job.commit(Message.assistant("One."))
        await finish(job)

    stores: list[Store] = []

    async def body(store: Store, _: ManualClock) -> None:
        stores.append(store)
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            assert (await ended(store, run.id)).steps == 1
        assert await texts(store, "t") == ["One.", "Done."]

    on_memory(body)


def test_steps_at_the_same_time_take_turns() -> None:
    async def handler(job: Job) -> None:
        await asyncio.gather(*[job.commit(Message.assistant("Step.")) for _ in range(5)])
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            assert (await ended(store, run.id)).steps == 5

    on_memory(body)


def test_a_stop_during_a_look_takes_no_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        stop, listed = asyncio.Event(), store.runs.list

        async def stopping(**options: Any) -> Any:
            stop.set()
            return await listed(**options)

        monkeypatch.setattr(store.runs, "list", stopping)
        await serve(store, finish, stop=stop)
        assert await store.runs.get(run.id) == run

    on_memory(body)


def test_stop_lets_handlers_end_and_takes_no_more_work() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        working, go_on, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(job: Job) -> None:
            working.set()
            await go_on.wait()
            for _ in range(200):
                await asyncio.sleep(0)
            await finish(job)

        run = await store.runs.start("t", "clerk")
        task = asyncio.create_task(serve(store, handler, stop=stop, poll_ms=5))
        await working.wait()
        stop.set()
        late = await store.runs.start("late", "clerk")
        go_on.set()
        await task
        assert (await store.runs.get(run.id)).status == "done"
        assert await store.runs.get(late.id) == late
        assert await leases(store) == []

    on_memory(body)


@pytest.mark.parametrize("cancelled", [True, False])
def test_what_is_cut_off_stays_running_for_the_next_worker(cancelled: bool) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        working, stop = asyncio.Event(), asyncio.Event()

        async def hangs(_: Job) -> None:
            working.set()
            await asyncio.Event().wait()

        run = await begun(store, "t")
        task = asyncio.create_task(serve(store, hangs, stop=stop, poll_ms=5, drain_ms=0))
        await working.wait()
        if cancelled:
            task.cancel()
        stop.set()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert (outcome is not None) is cancelled
        assert (await store.runs.get(run.id)).status == "running"
        assert await leases(store) == []

        async def handler(job: Job) -> None:
            assert job.uncertain(PAY)
            await finish(job)

        async with serving(store, handler):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(body)


def test_a_lost_lease_cancels_the_handler() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        working, ends = asyncio.Event(), list[bool]()

        async def hangs(job: Job) -> None:
            working.set()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(job.stopped)

        run = await store.runs.start("t", "clerk")
        stop = asyncio.Event()
        task = asyncio.create_task(serve(store, hangs, stop=stop, poll_ms=5, lease_ms=500))
        await working.wait()
        lease = await store.profiles.put(LEASES, run.id, "another worker")
        await until(lambda: asyncio.sleep(0, bool(ends)))
        stop.set()
        await task
        assert ends[0]
        assert await store.profiles.get(LEASES, run.id) == lease
        assert (await store.runs.get(run.id)).status == "running"

    on_memory(body)


def test_a_renewal_whose_answer_was_lost_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        lease = await claim(store, "r", "worker", LEASE)
        assert lease is not None
        assert await claim(store, "r", "other", LEASE) is None
        with monkeypatch.context() as patch:
            patch.setattr(store.profiles, "put", failing(store.profiles.put, OutcomeUnknown("lost", rev=1), after=True))
            with pytest.raises(OutcomeUnknown):
                await lease._renew()
        clock.advance(LEASE - 1)
        await lease._renew()
        clock.advance(LEASE - 1)
        assert await leases(store) == ["r"]
        await lease.release()
        assert await leases(store) == []
        patch.setattr(store.profiles, "put", failing(store.profiles.put, OutcomeUnknown("lost", rev=1), after=True))
        assert await claim(store, "r", "worker", LEASE) is not None

    on_memory(body)


def test_a_call_that_may_have_run_is_still_uncertain_after_a_wait() -> None:
    """Unless somebody was asked about it, or it was answered."""
    calls = [ToolUse(name, "pay", {}) for name in ("forgotten", "asked", "answered")]
    uncertain: list[list[bool]] = []

    async def handler(job: Job) -> None:
        uncertain.append([job.uncertain(call) for call in calls])
        if len(uncertain) < 3:
            result = Message.tool("answered", "Unknown.")
            ticket = Ticket.for_call(calls[1]) if len(uncertain) == 1 else Ticket(ticket_id="another")
            await job.commit(*[result][: 2 - len(uncertain)], run=job.run.wait([ticket]))
        else:
            await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        run = (await store.commit("t", messages=[Message.assistant([*calls])], run=run.step())).run
        async with serving(store, handler):
            async for record in store.runs.follow(run.id):
                for ticket in record.open_tickets:
                    await store.runs.decide(run.id, ticket.ticket_id, True)

    on_memory(body)
    assert uncertain == [[True, True, True], [True, False, False], [True, False, False]]


@pytest.mark.parametrize("pages", [1, 2, 10])
def test_a_look_finds_the_oldest_runs_and_reaches_all_pages(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_PAGES", pages)
    monkeypatch.setattr(finding, "LONGEST_LOOK", 3600)

    async def body(store: Store, clock: ManualClock) -> None:
        for n in range(450):
            run = await store.runs.start(f"w-{n}", "clerk", run_id=f"w-{n}")
            decision = True if n == 420 else None
            clock.advance(1)
            await store.commit(run.thread_id, run=run.wait([Ticket(ticket_id="x", decision=decision)]))
        finder = Finder(store, "clerk")
        looks = [[run.id for run in await finder.look(8, set())] for _ in range(4)]
        assert (
            looks
            == {
                1: [[], [], ["w-420"], []],
                2: [[], ["w-420"], [], ["w-420"]],
                10: [["w-420"], ["w-420"], [], []],
            }[pages]
        )
        await store.profiles.put(LEASES, "w-420", 1)
        for n in range(210):
            clock.advance(1)
            await store.runs.create(f"n-{n}", "clerk", run_id=f"n-{n}")
        await store.runs.create("o", "other", run_id="o")
        await store.profiles.put(LEASES, "n-1", 1)
        finder = Finder(store, "clerk")
        assert [run.id for run in await finder.look(2, {"n-0"})] == ["n-2", "n-3"]
        assert [run.id for run in await finder.look(2, set())] == ["n-0", "n-2"]
        rest = {f"n-{n}" for n in range(190)}
        assert len(await finder.look(20, rest)) == 10
        assert [run.id for run in await finder.look(20, rest)] == [f"n-{n}" for n in range(200, 210)]

    on_memory(body)


def test_a_backlog_of_one_status_does_not_hide_older_runs_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if they are far behind runs that others work on, and there are always more created runs than hands."""
    monkeypatch.setattr(finding, "MOST_PAGES", 1)

    async def body(store: Store, clock: ManualClock) -> None:
        for n in range(201):
            await store.runs.start(f"r-{n}", "clerk", run_id=f"r-{n}")
            clock.advance(1)
            await (store.profiles.put(LEASES, f"r-{n}", 1) if n < 200 else asyncio.sleep(0))
        for n in range(5):
            await store.runs.create(f"c-{n}", "clerk", run_id=f"c-{n}")
            clock.advance(1)
        finder = Finder(store, None)
        looks = [[run.id for run in await finder.look(2, set())] for _ in range(2)]
        assert looks == [["c-0", "c-1"], ["r-200", "c-0"]]

    on_memory(body)


@pytest.mark.parametrize("seconds", [0, 3600])
def test_a_look_that_takes_long_reads_no_further_page(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LONGEST_LOOK", seconds)

    async def body(store: Store, clock: ManualClock) -> None:
        for n in range(201):
            await store.runs.create(f"c-{n}", "clerk" if n == 200 else "other")
            clock.advance(1)
        finder = Finder(store, "clerk")
        assert [len(await finder.look(2, set())) for _ in range(2)] == ([1, 1] if seconds else [0, 1])

    on_memory(body)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1_001}, "concurrency must be at most"),
        ({"poll_ms": 0}, "poll_ms"),
        ({"lease_ms": 499}, "lease_ms"),
        ({"lease_ms": 86_400_001}, "lease_ms must be at most"),
        ({"drain_ms": -1}, "drain_ms"),
        ({"retries": -1}, "retries"),
        ({"retry_on": OSError}, "retry_on must be a tuple of exception classes"),
        ({"retry_on": (KeyboardInterrupt,)}, "retry_on must be a tuple of exception classes"),
        ({"retry_on": finish}, "retry_on must not be an async function"),
        ({"max_takeovers": -1}, "max_takeovers"),
        ({"max_takeovers": 101}, "max_takeovers must be at most"),
        ({"agent_id": ""}, "agent_id"),
        ({"worker": ""}, "worker"),
        ({"handler": print}, "asyncio.to_thread"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        with pytest.raises(InvalidError, match=message):
            await serve(store, options.pop("handler", finish), **options)

    on_memory(body)


def test_a_blocking_store_is_refused() -> None:
    with perdure.sync.open("memory://") as store, pytest.raises(InvalidError, match="async store"):
        asyncio.run(serve(store, finish))  # type: ignore[arg-type]


def test_wrong_arguments_of_a_job_are_refused() -> None:
    errors: list[str] = []

    async def handler(job: Job) -> None:
        foreign = (await runs[0].runs.start("other", "none")).step()
        calls: list[Any] = [
            lambda: job.commit(run=job.run),  # type: ignore[arg-type]
            lambda: job.commit(run=foreign),
            job.ask,
            lambda: asyncio.to_thread(job.uncertain, "c-1"),  # type: ignore[arg-type]
        ]
        for call in calls:
            with pytest.raises(InvalidError) as caught:
                await call()
            errors.append(str(caught.value.hint))
        await finish(job)

    runs: list[Store] = []

    async def body(store: Store, _: ManualClock) -> None:
        runs.append(store)
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, agent_id="clerk"):
            await ended(store, run.id)

    on_memory(body)
    assert errors == [
        "run=job.run.step()",
        "run=job.run.step()",
        "job.ask(call)",
        "a call of job.unfinished_calls()",
    ]


def cut_off() -> IncompleteStream:
    return IncompleteStream("the stream was cut off")


def test_an_error_that_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it takes, if there is progress in between. What was called before the error may have run."""
    monkeypatch.setattr(driving, "FIRST_PAUSE", 0.001)
    uncertain: list[bool] = []

    async def handler(job: Job) -> None:
        for call in await job.unfinished_calls():
            uncertain.append(job.uncertain(call))
            await job.commit(Message.tool(call.id, "Unknown."))
        if job.run.steps < 6:
            await job.commit(Message.assistant([PAY]))
            raise cut_off() if job.run.steps < 4 else ExceptionGroup("two", [cut_off(), cut_off()])
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, retries=1):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(body)
    assert uncertain == [True, True, True]


def test_an_error_that_does_not_pass_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "FIRST_PAUSE", 0.001)
    calls: dict[str, int] = {}

    async def handler(job: Job) -> None:
        calls[job.run.id] = calls.get(job.run.id, 0) + 1
        raise ExceptionGroup("two", [cut_off(), ValueError("bug")]) if job.run.id == "bug" else cut_off()

    async def body(store: Store, _: ManualClock) -> None:
        for run_id in ("cut", "bug"):
            await store.runs.start(run_id, "clerk", run_id=run_id)
        async with serving(store, handler):
            outcomes = [(await ended(store, run_id)).outcome for run_id in ("cut", "bug")]
        assert ["IncompleteStream" in str(outcome) for outcome in outcomes] == [True, False]
        async with serving(store, handler, retries=0):
            await ended(store, (await store.runs.start("none", "clerk", run_id="none")).id)

    on_memory(body)
    assert calls == {"cut": 7, "bug": 1, "none": 1}


def test_a_lost_lease_lets_a_shielded_tool_end() -> None:
    """Its result is stored without the run."""

    async def body(store: Store, _: ManualClock) -> None:
        paying, ends = asyncio.Event(), list[str]()

        async def pays(job: Job) -> None:
            with job.shield():
                paying.set()
                await until(lambda: asyncio.sleep(0, job.stopped))
                await asyncio.sleep(0.05)
                ends.append("paid")
                await job.commit(Message.tool(PAY.id, "Paid."), Message.assistant("Done."), run=job.run.finish())

        run = await begun(store, "t")
        stop = asyncio.Event()
        task = asyncio.create_task(serve(store, pays, stop=stop, poll_ms=5, lease_ms=500))
        await paying.wait()
        await store.profiles.put(LEASES, run.id, "another worker")
        await until(lambda: asyncio.sleep(0, bool(ends)))
        stop.set()
        await task
        assert await texts(store, "t") == ["Pay.", "", "Paid."]
        assert (await store.runs.get(run.id)).status == "running"

    on_memory(body)


@pytest.mark.parametrize(
    ("decision", "approved"),
    [
        (True, True),
        ({"approved": True, "by": "eve"}, True),
        ({"approved": False}, False),
        ({"approved": "yes"}, False),
        ({"by": "eve"}, False),
        ("yes", False),
        (1, False),
        (False, False),
    ],
)
def test_what_counts_as_an_approval(decision: Any, approved: bool) -> None:
    answers: list[Any] = []

    async def handler(job: Job) -> None:
        answers.extend((job.decision(PAY), job.approved(PAY), job.approved("own"), job.approved("other"), job.store))
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await begun(store, "t")
        tickets = [Ticket.for_call(PAY, decision=decision), Ticket(ticket_id="own", decision=decision)]
        await store.commit("t", run=run.wait(tickets))
        async with serving(store, handler):
            await ended(store, run.id)
        assert answers == [decision, approved, approved, False, store]

    on_memory(body)


def test_a_ticket_with_an_id_of_its_own_is_about_one_call_too() -> None:
    answers: list[Any] = []

    async def handler(job: Job) -> None:
        calls = await job.unfinished_calls()
        if not calls and job.run.steps < 5:
            ticket = Ticket(ticket_id=f"own-{job.run.steps}", tool_call_id=PAY.id, arguments="Really?")
            await job.commit(Message.assistant([PAY]), run=job.run.wait([ticket], steps=1))
        elif calls:
            answers.append((job.decision(PAY), job.decision("own-1"), job.decision("own-3")))
            await job.commit(Message.tool(PAY.id, "Paid."))
            answers.append((job.decision(PAY), job.decision("own-1"), job.decision("own-3")))
        if job.run.status == "running":
            await (finish(job) if job.run.steps > 3 else handler(job))

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        run = (await store.commit("t", run=run.step())).run
        async with serving(store, handler):
            async for record in store.runs.follow(run.id):
                for ticket in record.open_tickets:
                    await store.runs.decide(run.id, ticket.ticket_id, ticket.ticket_id)

    on_memory(body)
    assert answers == [("own-1", "own-1", None), (None, None, None), ("own-3", None, "own-3"), (None, None, None)]


def test_a_ticket_that_lost_its_number_still_has_it_in_its_id() -> None:
    """A run that is almost too large keeps nothing of a ticket but its ids and the decision."""
    long = ToolUse("é" * 128, "pay", {})
    records = [Message.assistant([call]) for call in (PAY, PAY, long, long)]
    calls = Calls()
    calls.add(records)
    numbered = calls.numbered([Ticket.for_call(PAY, decision=True), Ticket.for_call(long, decision=True)])
    assert [ticket.ticket_id for ticket in numbered] == ["c-1~2", "é" * 127 + "~2"]
    brief = [Ticket(ticket_id=t.ticket_id, tool_call_id=t.tool_call_id, decision=t.decision) for t in numbered]
    assert calls.decision(Waiting(reason="x", tickets=brief), PAY) is True
    assert calls.decision(Waiting(reason="x", tickets=[Ticket.for_call(PAY, decision=True)]), PAY) is None


def test_an_answer_is_a_step_or_the_end() -> None:
    async def handler(job: Job) -> None:
        usage = Usage(input_tokens=3, output_tokens=2)
        with pytest.raises(InvalidError, match="assistant"):
            await job.answer(Message.user("Hi."))
        receipt = await job.answer(Message.assistant([PAY], usage=usage), state={"plan": {"next": 1}})
        assert receipt.run.status == "running"
        await job.commit(Message.tool(PAY.id, "Paid."))
        await job.answer(Message.assistant("Done.", usage=usage))

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            run = await ended(store, run.id)
        assert (run.final_output, run.steps, run.input_tokens, run.output_tokens) == ("Done.", 2, 6, 4)
        assert (await store.state.get("t", "plan")).value == {"next": 1}

    on_memory(body)
