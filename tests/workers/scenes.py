"""What workers must do on every engine: each scene gets a kit with a store, more clients of it, and a clock to move.

Nothing here waits for time to pass: a lease expires when the scene moves the clock, and everything else is a condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from perdure import Message, Run, Store, Ticket, ToolUse, VersionConflict
from perdure.testkit.kit import Kit
from perdure.workers import LEASES, Job, Stopped, serve

LOOKING: set[str] = set()
"""The scenes whose worker looks for stops from outside; in the others it hears of them from its commits alone."""
SCENES: dict[str, Callable[[Kit], Coroutine[Any, Any, None]]] = {}
LEASE = 30_000
PAY = ToolUse("c-1", "pay", {"amount": 40})


def scene(body: Callable[[Kit], Coroutine[Any, Any, None]]) -> Callable[[Kit], Coroutine[Any, Any, None]]:
    SCENES[body.__name__] = body
    return body


def looking(body: Callable[[Kit], Coroutine[Any, Any, None]]) -> Callable[[Kit], Coroutine[Any, Any, None]]:
    LOOKING.add(body.__name__)
    return body


@asynccontextmanager
async def serving(
    store: Store, handler: Callable[[Job], Coroutine[Any, Any, None]], **options: Any
) -> AsyncIterator[None]:
    """Serve while the block runs, then stop and let the handlers end."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve(store, handler, stop=stop, poll_ms=5, lease_ms=LEASE, **options))
    try:
        yield
    finally:
        stop.set()
        await task


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; the kit's deadline ends a wait for one that never comes true."""
    while not await condition():  # noqa: ASYNC110 - what it waits for is in the store
        await asyncio.sleep(0.005)


async def ended(store: Store, run_id: str) -> Run:
    async for run in store.runs.follow(run_id):
        if run.status == "done":
            return run
    raise AssertionError("the run was never done")


async def texts(store: Store, thread_id: str) -> list[str]:
    return [record.text or record.result_text for record in await store.messages.path(thread_id)]


async def leases(store: Store) -> list[str]:
    return [profile.key async for profile in store.profiles.iter(LEASES)]


async def finish(job: Job) -> None:
    await job.commit(Message.assistant("Done."), run=job.run.finish("Done."))


async def begun(store: Store, thread_id: str) -> Run:
    """A run that another worker has left in the middle of a tool."""
    run = await store.runs.start(thread_id, "clerk", messages=[Message.user("Pay.")])
    return (await store.commit(thread_id, messages=[Message.assistant([PAY])], run=run.step())).run


@scene
async def created_and_running_runs_are_driven(kit: Kit) -> None:
    store = kit.store
    started = await store.runs.start("t-1", "clerk", messages=[Message.user("Go.")])
    created = await store.runs.create("t-2", "clerk", messages=[Message.user("Go.")])
    foreign = await store.runs.start("t-3", "other")
    async with serving(store, finish, agent_id="clerk"):
        for run in (started, created):
            assert (await ended(store, run.id)).final_output == "Done."
    assert await store.runs.get(foreign.id) == foreign
    assert await texts(store, "t-2") == ["Go.", "Done."]
    assert await leases(store) == []


@scene
async def several_workers_share_the_runs(kit: Kit) -> None:
    calls: list[str] = []

    async def handler(job: Job) -> None:
        calls.append(job.run.id)
        await job.commit(Message.assistant("One."))
        await finish(job)

    other = await kit.second()
    runs = [await kit.store.runs.start(f"t-{n}", "clerk") for n in range(12)]
    async with serving(kit.store, handler, concurrency=3), serving(other, handler, concurrency=3):
        for run in runs:
            await ended(kit.store, run.id)
    assert sorted(calls) == sorted(run.id for run in runs)
    for n in range(12):
        assert await texts(kit.store, f"t-{n}") == ["One.", "Done."]


@scene
async def a_decision_resumes_the_run(kit: Kit) -> None:
    uncertain: list[bool] = []

    async def handler(job: Job) -> None:
        if calls := await job.unfinished_calls():
            uncertain.extend(job.uncertain(call) for call in calls)
            answer = "Paid." if job.decision(PAY) == {"approved": True} else "No."
            await job.commit(*[Message.tool(call.id, answer) for call in calls])
            await finish(job)
        else:
            await job.commit(Message.assistant([PAY]))
            await job.ask(PAY, message="Really?")

    store = kit.store
    run = await store.runs.start("t", "clerk")
    async with serving(store, handler):
        async for record in store.runs.follow(run.id):
            if record.open_tickets:
                assert record.waiting is not None
                assert (record.waiting.reason, record.waiting.message) == ("tool_permission", "Really?")
                await store.runs.decide(run.id, PAY.id, {"approved": True})
    assert uncertain == [False]
    assert await texts(store, "t") == ["", "Paid.", "Done."]


@scene
async def a_run_of_a_dead_worker_is_picked_up_when_its_lease_ends(kit: Kit) -> None:
    """Not sooner, and the call it was at is uncertain; a call of this job is not."""
    picked: list[tuple[str, bool]] = []
    again = ToolUse("c-2", "pay", {"amount": 1})

    async def handler(job: Job) -> None:
        if job.run.agent_id == "clerk":
            (call,) = await job.unfinished_calls()
            picked.append((call.id, job.uncertain(call)))
            await job.commit(Message.tool(call.id, "It may have been paid."), Message.assistant([again]))
            (call,) = await job.unfinished_calls()
            picked.append((call.id, job.uncertain(call)))
            await job.commit(Message.tool(call.id, "Paid."))
        await finish(job)

    store = await kit.second()
    run = await begun(store, "t")
    await store.profiles.put(LEASES, run.id, {"worker": "dead"}, if_rev=0, ttl_ms=LEASE)
    async with serving(store, handler):
        kit.clock.advance(LEASE - 1)
        await ended(store, (await store.runs.start("t-2", "other")).id)
        assert await store.runs.get(run.id) == run
        kit.clock.advance(1)
        await ended(store, run.id)
    assert picked == [("c-1", True), ("c-2", False)]


@scene
async def a_worker_that_was_replaced_writes_nothing_but_results(kit: Kit) -> None:
    hanging, go_on = asyncio.Event(), asyncio.Event()
    stopped: list[str] = []

    async def slow(job: Job) -> None:
        hanging.set()
        await go_on.wait()
        try:
            await job.commit(Message.tool(PAY.id, "Paid 40."), Message.assistant("A was here."), run=job.run.finish())
        except Stopped as error:
            stopped.append(str(error))
            raise

    async def quick(job: Job) -> None:
        assert job.uncertain(PAY)
        await job.commit(Message.tool(PAY.id, "Unknown."), Message.assistant("B was here."), run=job.run.finish())

    other = await kit.second()
    run = await begun(kit.store, "t")
    async with serving(kit.store, slow):
        await hanging.wait()
        kit.clock.advance(LEASE)
        async with serving(other, quick):
            done = await ended(other, run.id)
        go_on.set()
        await until(lambda: _is(bool(stopped)))
    assert stopped == [f"run {run.id!r} was finished by another process"]
    assert await kit.store.runs.get(run.id) == done
    assert await texts(kit.store, "t") == ["Pay.", "", "Unknown.", "B was here.", "Paid 40."]
    history = [record.text or record.result_text for record in await kit.store.messages.history("t")]
    assert history == ["Pay.", "", "Unknown.", "B was here."]


@scene
async def picking_up_a_run_shuts_out_its_last_worker(kit: Kit) -> None:
    """Before the successor has committed anything of its own."""
    events = {name: asyncio.Event() for name in ("a-hangs", "a-goes-on", "b-hangs", "b-goes-on")}
    stopped: list[str] = []

    async def handler(job: Job, name: str) -> None:
        events[f"{name}-hangs"].set()
        await events[f"{name}-goes-on"].wait()
        try:
            await job.commit(Message.assistant(f"{name} was here."), run=job.run.finish())
        except Stopped as error:
            stopped.append(f"{name}: {error}")
            raise

    other = await kit.second()
    run = await begun(kit.store, "t")
    async with serving(kit.store, partial(handler, name="a")):
        await events["a-hangs"].wait()
        kit.clock.advance(LEASE)
        async with serving(other, partial(handler, name="b")):
            await events["b-hangs"].wait()
            events["a-goes-on"].set()
            await until(lambda: _is(bool(stopped)))
            events["b-goes-on"].set()
            await ended(other, run.id)
    assert stopped == [f"a: another worker has taken over run {run.id!r}"]
    assert await texts(kit.store, "t") == ["Pay.", "", "b was here."]


async def _is(value: bool) -> bool:
    return value


@scene
@looking
async def a_cancelled_run_stops_a_model_that_hangs(kit: Kit) -> None:
    asked, ends = asyncio.Event(), list[str]()

    async def handler(job: Job) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(f"{job.stopped} {job.run.status}")

    run = await kit.store.runs.start("t", "clerk")
    async with serving(kit.store, handler):
        await asked.wait()
        cancelled = await (await kit.second()).runs.cancel(run.id, "enough")
        await until(lambda: _is(bool(ends)))
    assert ends == ["True done"]
    assert await kit.store.runs.get(run.id) == cancelled
    assert await leases(kit.store) == []


@scene
@looking
async def a_shielded_tool_ends_and_its_result_is_stored(kit: Kit) -> None:
    paying, noticed = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> None:
        await job.commit(Message.assistant([PAY]))
        with job.shield():
            paying.set()
            await until(lambda: _is(job.stopped))
            noticed.set()
            await asyncio.sleep(0)
            await job.commit(Message.tool(PAY.id, "Paid."))
        raise AssertionError("commit has raised Stopped")

    run = await kit.store.runs.start("t", "clerk")
    async with serving(kit.store, handler):
        await paying.wait()
        await kit.store.runs.cancel(run.id)
        await noticed.wait()
        await until(lambda: _has(kit.store, "t", 2))
    assert await texts(kit.store, "t") == ["", "Paid."]
    assert await kit.store.messages.unfinished_calls("t") == []
    outcome = (await kit.store.runs.get(run.id)).outcome
    assert outcome is not None
    assert outcome.termination.type == "cancelled"


@scene
@looking
async def a_second_shield_right_after_the_first_is_kept_too(kit: Kit) -> None:
    paying, ends = asyncio.Event(), list[str]()

    async def handler(job: Job) -> None:
        with job.shield():
            paying.set()
            await until(lambda: _is(job.stopped))
            for _ in range(20):  # until the driver waits for the end of this shield
                await asyncio.sleep(0)
        with job.shield():
            try:
                await asyncio.sleep(0.05)
                ends.append("paid")
            finally:
                ends.append("over")
            await job.commit(Message.tool(PAY.id, "Paid."))

    run = await begun(kit.store, "t")
    async with serving(kit.store, handler):
        await paying.wait()
        await kit.store.runs.cancel(run.id)
        await until(lambda: _is("over" in ends))
    assert ends == ["paid", "over"]
    assert await texts(kit.store, "t") == ["Pay.", "", "Paid."]


async def _has(store: Store, thread_id: str, count: int) -> bool:
    return len(await texts(store, thread_id)) == count


@scene
async def a_handler_that_fails_does_not_hold_up_others(kit: Kit) -> None:
    async def handler(job: Job) -> None:
        if job.run.id == "1-poison":
            raise RuntimeError("the model is on fire")
        if job.run.id != "2-lazy":
            await finish(job)

    store, ids, details = kit.store, ("1-poison", "2-lazy", "3-good"), []
    for run_id in ids:
        await store.runs.start(run_id, "clerk", run_id=run_id)
    async with serving(store, handler, concurrency=1):
        await ended(store, ids[-1])
    for run_id in ids:
        outcome = (await store.runs.get(run_id)).outcome
        assert outcome is not None
        details.append((outcome.termination.type, (outcome.termination.detail or "")[:40]))
    assert details == [
        ("error", "RuntimeError: the model is on fire"),
        ("error", "the handler returned, but the run was st"),
        ("natural_end", ""),
    ]


@scene
async def after_a_pause_from_outside_a_call_is_uncertain(kit: Kit) -> None:
    """A tool may have been at work when the run was paused. After a wait of a job, a call is certain."""
    paying, paused, uncertain = asyncio.Event(), asyncio.Event(), list[bool]()
    again = ToolUse("c-2", "pay", {"amount": 1})

    async def handler(job: Job) -> None:
        calls = await job.unfinished_calls()
        uncertain.extend(job.uncertain(call) for call in calls)
        if not calls:
            await job.commit(Message.assistant([PAY]))
            paying.set()
            await paused.wait()
            await job.commit(Message.assistant("Too late."))
        elif calls == [PAY]:
            await job.commit(Message.tool(PAY.id, "Unknown."), Message.assistant([again]))
            await job.commit(run=job.run.wait([Ticket(ticket_id="budget")]))
        else:
            await job.commit(Message.tool(again.id, "Paid."))
            await finish(job)

    store = kit.store
    run = await store.runs.start("t", "clerk")
    async with serving(store, handler):
        await paying.wait()
        await store.commit("t", run=(await store.runs.get(run.id)).wait([Ticket(ticket_id="budget")]))
        paused.set()
        async for record in store.runs.follow(run.id):
            for ticket in record.open_tickets:
                await store.runs.decide(run.id, ticket.ticket_id, True)
    assert uncertain == [True, False]
    assert await texts(store, "t") == ["", "Unknown.", "", "Paid.", "Done."]


@scene
async def a_late_result_is_not_for_a_new_thread_with_the_same_id(kit: Kit) -> None:
    assert await _late_texts(kit, None) == ["Another conversation."]


@scene
async def a_late_result_is_not_for_a_new_run_with_the_same_id(kit: Kit) -> None:
    assert await _late_texts(kit, "r") == ["Another conversation."]


async def _late_texts(kit: Kit, new_run_id: str | None) -> list[str]:
    """The texts of a thread that was made again while a tool of its old run was at work."""
    paying, ended_, gone, ends = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[Run | None]()

    async def handler(job: Job) -> None:
        with job.shield():
            paying.set()
            await ended_.wait()
            for message in (Message.assistant("Too late."), Message.tool(PAY.id, "Paid.")):
                try:
                    await job.commit(message)
                except Stopped as error:
                    ends.append(error.run)
                await gone.wait()

    store = kit.store
    await store.runs.start("t", "clerk", run_id="r")
    async with serving(store, handler, agent_id="clerk"):
        await paying.wait()
        await store.runs.cancel("r")
        ended_.set()
        await until(lambda: _is(bool(ends)))
        await store.threads.delete("t")
        kit.clock.advance(1)
        messages = [Message.user("Another conversation.")]
        await store.threads.create("t")
        await store.runs.start("t", "other", run_id=new_run_id, messages=messages)
        gone.set()
        await until(lambda: _is(len(ends) == 2))
    assert ends[0] is not None
    assert ends[1] is None
    return await texts(store, "t")


@scene
async def a_deleted_thread_stops_its_handler(kit: Kit) -> None:
    begun_, ends = asyncio.Event(), list[Run | None]()

    async def handler(job: Job) -> None:
        begun_.set()
        await until(lambda: _is(bool(gone)))
        try:
            await job.commit(Message.tool(PAY.id, "Paid."))
        except Stopped as error:
            ends.append(error.run)
            raise

    gone: list[bool] = []
    await kit.store.runs.start("t", "clerk")
    async with serving(kit.store, handler):
        await begun_.wait()
        await kit.store.threads.delete("t")
        gone.append(True)
        await until(lambda: _is(bool(ends)))
    assert ends == [None]
    assert await kit.store.threads.find("t") is None
    assert await leases(kit.store) == []


@scene
async def the_guards_of_a_handler_are_its_own(kit: Kit) -> None:
    """A version that the handler expected in vain is no stop; a stale change of the run is refused as well."""
    errors: list[Any] = []

    async def handler(job: Job) -> None:
        old = job.run.step()
        await job.commit(Message.assistant("One."))
        for options in ({"expect": 99}, {"run": old}):
            try:
                await job.commit(Message.assistant("Two."), **options)
            except VersionConflict as error:
                errors.append((job.stopped, error.actual))
        await finish(job)

    run = await kit.store.runs.start("t", "clerk")
    async with serving(kit.store, handler):
        await ended(kit.store, run.id)
    assert [stopped for stopped, _ in errors] == [False, False]
    assert await texts(kit.store, "t") == ["One.", "Done."]


async def approving(store: Store, run_id: str) -> list[tuple[str, Any]]:
    """Approve what the run asks for until it is done; returns the tickets."""
    asked: list[tuple[str, Any]] = []
    async for run in store.runs.follow(run_id):
        for ticket in run.open_tickets:
            asked.append((ticket.ticket_id, ticket.arguments))
            await store.runs.decide(run_id, ticket.ticket_id, {"approved": True, "by": "eve"})
            for earlier, _ in asked[-2:-1]:  # a client that repeats its last click decides nothing new
                assert (await store.runs.decide(run_id, earlier, {"approved": True, "by": "eve"})).id == run_id
    return asked


def payment(amount: int) -> ToolUse:
    return ToolUse("functions.pay:0", "pay", {"amount": amount})


async def ask_and_pay(job: Job, amounts: Sequence[int], paid: list[tuple[int, bool]]) -> None:
    """The loop of an agent whose model gives every call the same id."""
    while job.run.status == "running":
        calls = await job.unfinished_calls()
        done = [record for record in await job.history() if record.role == "tool"]
        if asked := [call for call in calls if job.decision(call) is None]:
            await job.ask(*asked)
        elif calls:
            paid += [(call.input["amount"], job.approved(call)) for call in calls]
            await job.commit(*[Message.tool(call.id, f"Paid {call.input['amount']}.") for call in calls])
        elif len(done) < len(amounts):
            await job.answer(Message.assistant([payment(amounts[len(done)])]))
        else:
            await job.answer(Message.assistant("Done."))


@scene
async def an_approval_is_for_one_call_only(kit: Kit) -> None:
    """Even if a later call has the same id, and the same arguments."""
    paid: list[tuple[int, bool]] = []
    amounts = (5, 999, 999)
    run = await kit.store.runs.start("t", "clerk")
    async with serving(kit.store, partial(ask_and_pay, amounts=amounts, paid=paid)):
        asked = await approving(kit.store, run.id)
    names = ("functions.pay:0", "functions.pay:0~2", "functions.pay:0~3")
    assert asked == [(name, {"amount": amount}) for name, amount in zip(names, amounts, strict=True)]
    assert paid == [(amount, True) for amount in amounts]
    history = [record.result_text for record in await kit.store.messages.history("t") if record.role == "tool"]
    assert history == ["Paid 5.", "Paid 999.", "Paid 999."]
    assert (await kit.store.runs.get(run.id)).final_output == "Done."


@scene
async def an_approval_outlives_the_worker_but_not_its_call(kit: Kit) -> None:
    """A worker dies after the resume, and another one after it has committed the result and a new call."""
    decisions: list[Any] = []
    deaths = [asyncio.Event(), asyncio.Event()]

    async def dying(job: Job) -> None:
        (call,) = await job.unfinished_calls()
        decisions.append((call.input["amount"], job.approved(call), job.approved(call.id)))
        if not deaths[0].is_set():
            deaths[0].set()
        else:
            await job.commit(Message.tool(call.id, "Paid."), Message.assistant([payment(5)]))
            decisions.append(job.decision(payment(5)))
            deaths[1].set()
        await asyncio.Event().wait()

    store = kit.store
    run = await store.runs.start("t", "clerk")
    wait = run.wait([Ticket.for_call(payment(5), decision={"approved": True})])
    await store.commit("t", messages=[Message.assistant([payment(5)])], run=wait)
    for death in deaths:
        task = asyncio.create_task(serve(store, dying, poll_ms=5, lease_ms=LEASE))
        await death.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    paid: list[tuple[int, bool]] = []
    async with serving(await kit.second(), partial(ask_and_pay, amounts=(5, 5), paid=paid)):
        assert await approving(store, run.id) == [("functions.pay:0~2", {"amount": 5})]
    assert decisions == [(5, True, True), (5, True, True), None]
    assert paid == [(5, True)]


@scene
async def a_late_result_answers_no_later_call(kit: Kit) -> None:
    """A worker that was replaced inside a tool stores its result, but not as that of a new call with the same id."""
    hanging, go_on, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(job: Job) -> None:
        assert await job.unfinished_calls() == [PAY]
        hanging.set()
        await go_on.wait()
        try:
            await job.commit(Message.tool(PAY.id, "Paid 40."))
        finally:
            stopped.set()

    async def quick(job: Job) -> None:
        await job.commit(Message.tool(PAY.id, "Unknown."), Message.assistant([PAY]))
        go_on.set()
        await stopped.wait()
        assert await job.unfinished_calls() == [PAY]
        await job.commit(Message.tool(PAY.id, "Paid again."), run=job.run.finish())

    run = await begun(kit.store, "t")
    async with serving(kit.store, slow):
        await hanging.wait()
        kit.clock.advance(LEASE)
        async with serving(await kit.second(), quick):
            done = await ended(kit.store, run.id)
    assert done.outcome is not None
    assert done.outcome.termination.type == "natural_end"
    assert await texts(kit.store, "t") == ["Pay.", "", "Unknown.", "", "Paid again."]
