"""Cases: decisions on tickets. They are recorded while the run waits, are final, and stay readable after the resume.

A worker may conclude from the status alone what happened: a run that waits has started no tool, and of several workers
that resume it, one succeeds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import ConflictError, IllegalTransition, InvalidError, NotFoundError, VersionConflict
from perdure.model.faithful import Extra
from perdure.model.message import Message
from perdure.model.run import NewRun, Run, RunBody
from perdure.model.tickets import Ticket, Waiting
from perdure.stores.store import Store
from perdure.testkit.helpers import conflict, move, paged_ids, race
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import overtaken, untouched

VALUES: list[Any] = [True, False, 0, 1, 1.5, "", "no", [], [None, {"a": "ü"}], {}, {"approved": True, "note": None}]


async def asking(store: Store, *names: str) -> Run:
    """A run of thread t that waits for tickets of these ids; the call of `a` is `call-a`."""
    run = await store.runs.start("t", "agent")
    tickets = [Ticket(ticket_id=name, tool_call_id=f"call-{name}", extra=Extra(colour=name)) for name in names]
    return await move(store, run.wait(tickets, reason="tool_permission", message="may I?"))


@case("runs", "decide", covers=("runs.decide",))
async def case_decide(kit: Kit) -> None:
    """A decision of any kind is stored on its ticket alone; the run waits on, and is ready once all are decided."""
    waiting = await asking(kit.store, *(f"k{i}" for i in range(len(VALUES))))
    run = waiting
    for i, value in enumerate(VALUES):
        expect(not run.ready, f"{i} of {len(VALUES)} decided")
        run = await kit.store.runs.decide(run.id, f"k{i}", value)
        equal((run.status, repr(run.decision(f"k{i}"))), ("waiting", repr(value)), "the receipt")
    stored = await (await kit.second()).runs.get(run.id)
    equal((stored, stored.ready), (run, True), "as stored")
    equal(repr([stored.decision(f"call-k{i}") for i in range(len(VALUES))]), repr(VALUES), "by the ids of the calls")
    tickets = [msgspec.structs.replace(ticket, decision=None) for ticket in stored.tickets]
    equal(tickets, waiting.tickets, "the tickets are otherwise as they were")
    equal((stored.waiting and stored.waiting.message, stored.decision("nobody")), ("may I?", None), "the rest")


@case("runs", "list-ready", covers=("runs.list", "runs.iter"))
async def case_list_ready(kit: Kit) -> None:
    """`ready` lists the waiting runs whose tickets all have decisions, with other filters and page by page."""
    runs = [await asking(kit.store, "a", "b") for _ in range(4)]
    await asking(kit.store)
    await kit.store.runs.start("t", "agent")
    for i, run in enumerate(runs):
        kit.clock.advance(1)
        await kit.store.runs.decide(run.id, "a", True)
        if i:
            await kit.store.runs.decide(run.id, "b", False)
    ready = [run.id for run in runs[1:]]

    async def names(**filters: Any) -> list[str]:
        return [run.id async for run in kit.store.runs.iter(order="asc", ready=True, **filters)]

    equal((await names(), await names(status="waiting"), await names(thread_id="t")), (ready,) * 3, "filters")
    equal(await names(agent_id="nobody"), [], "another agent")
    equal(await paged_ids(partial(kit.store.runs.list, ready=True), 2), sorted(ready, reverse=True), "pages")
    equal(len((await kit.store.runs.list(ready=False)).items), 6, "no filter")
    await move(kit.store, (await kit.store.runs.get(ready[0])).resume())
    equal(await names(), ready[1:], "one was resumed")
    page = await kit.store.runs.list(ready=True, limit=1)
    other = kit.store.runs.list(status="waiting", cursor=page.next_cursor)
    await raises(InvalidError, other, "a cursor of another query")
    for wrong in ({"status": "running"}, {"status": "done"}, {"ready": 1}):
        options: dict[str, Any] = {"ready": True, **wrong}
        await raises(InvalidError, kit.store.runs.list(**options), f"{options}")


@case("runs", "waiting-hints", covers=("store.commit",))
async def case_waiting_hints(kit: Kit) -> None:
    """Whoever goes on with a run that waits is advised to resume it."""
    run = await asking(kit.store, "a")
    for change in (run.begin(), run.step(), run.finish(), run):
        await kit.store.runs.decide(run.id, "a", True)
        error = await raises(ConflictError, kit.store.commit("t", run=change), f"{change}")
        expect("run.resume()" in (error.hint or ""), f"the hint: {error.hint}")
    error = await raises(VersionConflict, kit.store.commit("t", run=run.cancel()), "an end")
    expect("run.resume()" not in (error.hint or ""), f"the hint of an end: {error.hint}")


@case("runs", "decide-change", covers=("store.commit",))
async def case_decide_change(kit: Kit) -> None:
    """A commit carries a decision with messages and state, and refuses it on a stale record."""
    run = await asking(kit.store, "a", "b")
    change, late = run.decide("a", "yes"), run.decide("b", "yes")
    receipt = await kit.store.commit("t", messages=[Message.user("yes")], run=change, state={"by": "eve"})
    equal((receipt.run.decision("a"), receipt.run.decision("b"), receipt.run.ready), ("yes", None, False), "decided")
    await untouched(kit.store, VersionConflict, kit.store.commit("t", run=late), "the other ticket, on an old record")
    await move(kit.store, receipt.run.decide("b", "no"))
    equal((await kit.store.runs.get(run.id)).ready, True, "both")


@case("runs", "decide-again", covers=("runs.decide",))
async def case_decide_again(kit: Kit) -> None:
    """The same decision again changes nothing, before the resume, after it and after the end; another is refused."""
    store = kit.store
    run = await store.runs.decide((await asking(store, "a", "b")).id, "a", {"x": 1, "y": [True]})
    for ending in (None, "resume", "step", "finish"):
        if ending is not None:
            run = await move(store, getattr(run, ending)())
        equal(await store.runs.decide(run.id, "a", {"y": [True], "x": 1}), run, f"the same decision, {run.status}")
        for other in (False, {"x": 1, "y": [1]}, {"x": 1}, {"x": 1.0, "y": [True]}):
            error = await untouched(store, VersionConflict, store.runs.decide(run.id, "a", other), f"{other}")
            equal(repr((error.expected, error.actual)), repr((other, {"x": 1, "y": [True]})), "both decisions")


@case("runs", "decide-refusals", covers=("runs.decide",))
async def case_decide_refusals(kit: Kit) -> None:
    """No such run or ticket is not found, a run that is done is past deciding, null and what is not JSON is invalid."""
    store = kit.store
    run = await asking(store, "a", "b")
    await untouched(store, NotFoundError, store.runs.decide(run.id, "call-a", True), "a call's id is not the ticket's")
    await untouched(store, NotFoundError, store.runs.decide("nobody", "a", True), "no such run")
    bad: list[Any] = [None, {1: 2}, float("nan"), (1,), object(), "\ud800"]
    for value in bad:
        await untouched(store, InvalidError, store.runs.decide(run.id, "a", value), repr(value))
    for name in ("", 5, None):
        await untouched(store, InvalidError, store.runs.decide(run.id, name, True), repr(name))  # type: ignore[arg-type]
    resumed = await move(store, (await store.runs.decide(run.id, "a", True)).resume())
    await untouched(store, NotFoundError, store.runs.decide(run.id, "b", True), "it no longer waits for b")
    await move(store, resumed.finish())
    conflict(await untouched(store, IllegalTransition, store.runs.decide(run.id, "b", True)), "waiting", "done")
    cancelled = await store.runs.cancel((await asking(store, "c")).id)
    await untouched(store, IllegalTransition, store.runs.decide(cancelled.id, "c", True), "cancelled while it waited")


@case("runs", "decide-overtaken", covers=("runs.decide",))
async def case_decide_overtaken(kit: Kit) -> None:
    """Whatever others do to the run meanwhile, no decision is lost, and none lands on a run that went on."""
    run = await asking(kit.store, "a", "b")
    ours, _ = await overtaken(
        kit, lambda store: store.runs.decide(run.id, "a", 1), lambda store: store.runs.decide(run.id, "b", 2)
    )
    equal((ours.decision("a"), ours.decision("b"), ours.ready), (1, 2, True), "both decisions")
    other = await asking(kit.store, "a", "b")
    late, resumed = await overtaken(
        kit, lambda store: store.runs.decide(other.id, "a", 1), lambda store: store.commit("t", run=other.resume())
    )
    expect(isinstance(late, NotFoundError), f"the run was resumed without it: {late!r}")
    equal(await kit.store.runs.get(other.id), resumed.run, "the resumed run")
    won, lost = await race(*(kit.store.runs.decide(ours.id, "a", value) for value in (1, 1, 2)))
    equal((len(won), [type(error) for error in lost]), (2, [VersionConflict]), "the first decision stays")


@case("runs", "resume-claims", covers=("store.commit", "runs.decide"))
async def case_resume_claims(kit: Kit) -> None:
    """Of several workers that see a run ready, one resumes it; it reads the decisions, and so does whoever follows."""
    run = await kit.store.runs.decide((await asking(kit.store, "a")).id, "a", "approved")
    other = await kit.second()
    expect((await other.runs.get(run.id)).ready, "ready for every worker")
    stores = [kit.store, other]
    won, lost = await race(*(stores[i % 2].commit("t", run=run.resume()) for i in range(6)))
    equal((len(won), {isinstance(error, ConflictError) for error in lost}), (1, {True}), "one worker")
    resumed = won[0].run
    equal((resumed.ready, resumed.waiting, resumed.decision("call-a")), (False, None, "approved"), "resumed")
    stepped = await move(kit.store, resumed.step())
    equal(stepped.body.resumed_from, run.waiting, "the wait that ended, after a step")
    equal(await other.runs.get(run.id), stepped, "as stored")


@case("runs", "resumed-from-last", covers=("store.commit",))
async def case_resumed_from_last(kit: Kit) -> None:
    """Only the last wait is kept: a new wait hides its own tickets' earlier decisions, a resume replaces the rest."""
    run = await kit.store.runs.decide((await asking(kit.store, "a", "b")).id, "a", 1)
    run = await move(kit.store, run.resume())
    run = await move(kit.store, run.wait([Ticket(ticket_id="a"), Ticket(ticket_id="c", decision="auto")]))
    equal([run.decision(name) for name in ("a", "b", "c")], [None, None, "auto"], "the new wait")
    run = await move(kit.store, (await kit.store.runs.decide(run.id, "a", 2)).resume())
    equal([run.decision(name) for name in ("a", "call-a", "c")], [2, None, "auto"], "the last wait alone")
    run = await move(kit.store, run.finish())
    equal((await kit.store.runs.get(run.id)).decision("a"), 2, "after the end")
    made = NewRun(agent_id="x", body=RunBody(resumed_from=Waiting(reason="user_input")))
    await untouched(kit.store, InvalidError, kit.store.commit("t", run=made), "a new run was never resumed")


@case("runs", "resumed-from-large", covers=("store.commit", "runs.decide"))
async def case_resumed_from_large(kit: Kit) -> None:
    """However large a wait is, the run resumes and waits again: what does not fit of the ended wait is left out."""
    run = await kit.store.runs.start("t", "agent")
    text = "x" * (limits.RUN_BYTES * 3 // 5)
    run = await move(kit.store, run.wait([Ticket(ticket_id="a", tool_call_id="c", arguments=text)]))
    run = await move(kit.store, (await kit.store.runs.decide(run.id, "a", "yes")).resume())
    equal(run.body.resumed_from and run.body.resumed_from.tickets[0].arguments, text, "it fits")
    run = await move(kit.store, run.wait([Ticket(ticket_id="b", arguments=text)]))
    equal(run.decision("c"), "yes", "the decision stays where the arguments do not fit")
    equal((await kit.store.runs.get(run.id)).body, run.body, "as stored")
    run = await move(kit.store, run.wait([Ticket(ticket_id="b", arguments="x" * (limits.RUN_BYTES - 120))]))
    equal((await kit.store.runs.get(run.id), run.body.resumed_from), (run, None), "no room at all")
    huge = kit.store.runs.decide(run.id, "b", "x" * 200)
    await untouched(kit.store, InvalidError, huge, "a decision that does not fit")
    await move(kit.store, run.resume())


@case("runs", "decide-deleted", covers=("runs.decide",))
async def case_decide_deleted(kit: Kit) -> None:
    """A run of a deleted thread is not found."""
    run = await asking(kit.store, "a")
    await kit.store.threads.delete("t")
    await raises(NotFoundError, kit.store.runs.decide(run.id, "a", True), "deleted")
