"""Cases: the words of an answer that is still being written, as the tabs of a conversation follow them."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import failpoints, limits
from perdure.errors import InvalidError, NotFoundError
from perdure.model.draft import Draft
from perdure.model.message import Message, ToolUse
from perdure.model.run import Run
from perdure.model.tickets import Ticket
from perdure.stores.drafts import draft_key, draft_owner, draft_value
from perdure.stores.store import Store
from perdure.testkit.cases.following import TIMEOUTS_REFUSED
from perdure.testkit.helpers import REFUSED_IDS, Died, die, move, small_pieces
from perdure.testkit.kit import Kit, case, collect, equal, raises

DRAFTS = ("runs.follow_drafts",)


async def write(store: Store, run: Run, text: Any) -> None:
    """Show a draft, as `job.draft` of a worker does."""
    await put(store, run, draft_value(run.id, text))


async def put(store: Store, run: Run, value: Any, ttl_ms: int = 60_000) -> None:
    """Store a value where the draft of a run belongs."""
    await store.profiles.put(draft_owner(run.thread_id), draft_key(run.rev), value, ttl_ms=ttl_ms)


async def remove(store: Store, run: Run) -> None:
    """Take it back."""
    await store.profiles.delete(draft_owner(run.thread_id), draft_key(run.rev))


def draft(run: Run, text: str | None) -> Draft:
    """What a follower yields."""
    return Draft(run_id=run.id, branch=run.branch, text=text)


async def current(kit: Kit) -> list[Draft]:
    """What a tab that is opened now sees."""
    return await collect(kit.store.runs.follow_drafts("t", timeout=0))


@case("runs", "follow-drafts", covers=DRAFTS)
async def case_follow(kit: Kit) -> None:
    """A draft is yielded as it is, after each change, and as None when it has gone, whichever client writes it."""
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()
    await write(other, run, "One")
    async with kit.store.thread("t").follow_drafts() as follower:
        equal(await anext(follower), draft(run, "One"), "what is there")
        for text in ("One two", "One two three"):
            waiting = asyncio.ensure_future(anext(follower))
            await write(other, run, text)
            equal(await waiting, draft(run, text), "a change")
        await remove(other, run)
        equal(await anext(follower), draft(run, None), "gone")
        json = {"run_id": "r", "branch": 2, "text": "a"}
        equal(Draft(run_id="r", branch=2, text="a").to_json(), json, "as JSON")
    equal(await current(kit), [], "nothing is left")


@case("runs", "follow-drafts-of-running-runs", covers=DRAFTS)
async def case_running(kit: Kit) -> None:
    """A draft that its worker could not remove is not shown once its run has moved or ended, nor in another thread."""
    run = await kit.store.runs.start("t", "agent")
    foreign = await kit.store.runs.start("u", "agent")
    await write(kit.store, run, "half an answer")
    profiles = kit.store.profiles
    await profiles.put(draft_owner("t"), draft_key(foreign.rev), draft_value(foreign.id, "of another thread"))
    await profiles.put(draft_owner("t"), "1", draft_value("no-run", "of no run"))
    await profiles.put(draft_owner("t"), "2", draft_value(run.id, "of an older rev"))
    equal(await current(kit), [draft(run, "half an answer")], "its own only")
    for wrong in ("a text", {"run_id": run.id, "text": 5}, draft_value("no-run", "of no run")):
        await put(kit.store, run, wrong)
        equal(await current(kit), [], "no draft of this run")
    await write(kit.store, run, "half an answer")
    run = await move(kit.store, run.step())
    equal(await current(kit), [], "the answer is committed")
    await write(kit.store, run, "another half")
    equal(await current(kit), [draft(run, "another half")], "the next one")
    await move(kit.store, run.finish())
    equal(await current(kit), [], "the run has ended")


@case("runs", "follow-drafts-of-a-branch", covers=DRAFTS)
async def case_branch(kit: Kit) -> None:
    """A tab that shows one branch is sent the drafts of that branch only."""
    first = await kit.store.runs.start("t", "agent", messages=[Message.user("Go.")])
    branch = await kit.store.branches.fork("t", before=await first_id(kit), switch=True)
    second = await kit.store.runs.start("t", "agent", messages=[Message.user("Go on.")])
    for run in (first, second):
        await write(kit.store, run, f"on {run.branch}")
    for run, number in ((first, 0), (second, branch.id)):
        drafts = await collect(kit.store.runs.follow_drafts("t", branch=number, timeout=0))
        equal(drafts, [draft(run, f"on {number}")], "of one branch")
    equal(len(await current(kit)), 2, "of all branches")


async def first_id(kit: Kit) -> str:
    """The id of the first message."""
    return (await kit.store.messages.list("t")).items[0].message_id


@case("runs", "cancel-keeps-draft", covers=("runs.cancel",))
async def case_cancel_keeps(kit: Kit) -> None:
    """The words that a stopped run shows become a message of it, in the same transaction and before what comes next."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("Go.")])
    await write(kit.store, run, "Half an ans")
    ended = await kit.store.runs.cancel(run.id, "stop", keep_draft=True)
    equal((ended.status, ended.outcome and ended.outcome.termination.type), ("done", "cancelled"), "the run")
    again = await kit.store.runs.cancel(run.id, keep_draft=True)
    equal(again.rev, ended.rev, "a second stop keeps nothing twice")
    await kit.store.runs.start("t", "agent", messages=[Message.user("Next.")])
    history = await kit.store.messages.history("t")
    equal([record.text for record in history], ["Go.", "Half an ans", "Next."], "in order")
    equal((history[1].message.stop_reason, history[1].run_id), ("cancelled", run.id), "whose it is")


@case("runs", "cancel-answers-calls", covers=("runs.cancel",))
async def case_cancel_answers(kit: Kit) -> None:
    """A run that is stopped while it asks: the calls that it asks about get a result, and only those."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("Pay.")])
    calls = [ToolUse(f"c{n}", "pay", {}) for n in range(4)]
    messages = [Message.assistant([*calls]), Message.tool("c0", "paid")]
    run = await move(kit.store, run.wait([Ticket.for_call(call) for call in calls[:3]]), messages=messages)
    await kit.store.runs.decide(run.id, "c1", True)
    await kit.store.runs.cancel(run.id, answer_calls="Not made.")
    results = [(record.message.tool_call_id, record.result_text) for record in await kit.store.messages.path("t")][2:]
    equal(results, [("c0", "paid"), ("c1", "Not made."), ("c2", "Not made.")], "those with a ticket")
    left = [item.call.id for item in await kit.store.messages.unfinished_calls("t")]
    equal(left, ["c3"], "which nobody was asked about")
    page = await kit.store.messages.page("t")
    equal(page.items[-1].message.tool_call_id, "c2", "people see them")
    other = await kit.store.runs.start("t", "agent")
    await kit.store.commit("t", messages=[Message.assistant([ToolUse("d", "pay", {})])], run=other.step())
    await kit.store.runs.cancel(other.id, answer_calls="Not made.")
    equal(len(await kit.store.messages.path("t")), 6, "a running run may have made its calls")
    for wrong in (1, b"x", "\ud800", "x" * limits.CALL_ANSWER_BYTES):
        text: Any = wrong
        await raises(InvalidError, kit.store.runs.cancel(run.id, answer_calls=text), f"{wrong!r}")


@case("runs", "cancel-answers-many-calls", covers=("runs.cancel",))
async def case_cancel_answers_many(kit: Kit) -> None:
    """However many calls a run asks about, and whatever their answer, it ends, and each call has its result."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("Pay.")])
    calls = [ToolUse(f"c{n}", "pay", {}) for n in range(limits.COMMIT_MESSAGES + 1)]
    tickets = [Ticket.for_call(call) for call in calls]
    await move(kit.store, run.wait(tickets), messages=[Message.assistant([*calls])])
    text = "x" * (limits.CALL_ANSWER_BYTES - 2)
    ended = await kit.store.runs.cancel(run.id, answer_calls=text)
    equal(ended.outcome and ended.outcome.termination.type, "cancelled", "the run")
    equal(ended.output and ended.output.count, len(calls) + 1, "its output")
    path = await kit.store.messages.path("t")
    equal([record.message.tool_call_id for record in path[2:]], [call.id for call in calls], "each once")
    equal({record.result_text for record in path[2:]}, {text}, "the answer")


@case("runs", "cancel-keeps-own-draft", covers=("runs.cancel",))
async def case_cancel_keeps_own(kit: Kit) -> None:
    """Nothing is kept of an answer that is committed already, of what has expired, or unless it is asked for."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("Go.")])
    await write(kit.store, run, "The answ")
    run = await move(kit.store, run.step(), messages=[Message.assistant("The answer.")])
    await kit.store.runs.cancel(run.id, keep_draft=True)
    second = await kit.store.runs.start("t", "agent")
    await put(kit.store, second, draft_value(second.id, "old words"), ttl_ms=1)
    kit.clock.advance(1_000)
    await kit.store.runs.cancel(second.id, keep_draft=True)
    third = await kit.store.runs.start("t", "agent")
    await write(kit.store, third, "not asked for")
    await kit.store.runs.cancel(third.id)
    fourth = await kit.store.runs.start("t", "agent")
    await put(kit.store, fourth, draft_value(third.id, "of another run"))
    await kit.store.runs.cancel(fourth.id, keep_draft=True)
    equal([record.text for record in await kit.store.messages.history("t")], ["Go.", "The answer."], "nothing more")


@case("runs", "follow-drafts-among-many", covers=DRAFTS)
async def case_many(kit: Kit) -> None:
    """Whatever dead workers left, the draft of a running run is found, and nothing else is."""
    for n in range(250):
        await kit.store.profiles.put(draft_owner("t"), f"{n}", draft_value(f"run-{n}", "left behind"), ttl_ms=60_000)
    run = await kit.store.runs.start("t", "agent")
    await write(kit.store, run, "words")
    equal(await current(kit), [draft(run, "words")], "the only one")


@case("runs", "follow-drafts-ends", covers=DRAFTS)
async def case_ends(kit: Kit) -> None:
    """It ends with the thread, and refuses one that does not exist, or belongs to another."""
    run = await kit.store.runs.start("t", "agent", resource_id="ann")
    await write(kit.store, run, "secret")
    drafts = kit.store.runs.follow_drafts
    equal([draft.text for draft in await collect(drafts("t", timeout=0, resource_id="ann"))], ["secret"], "its owner")
    await raises(NotFoundError, collect(drafts("t", timeout=0, resource_id="bob")), "another's")
    await raises(NotFoundError, collect(drafts("none", timeout=0)), "no such thread")
    async with drafts("t") as follower:
        await anext(follower)
        await kit.store.threads.delete("t")
        await kit.store.threads.create("t")
        await raises(NotFoundError, anext(follower), "another thread under its id")
    equal(await current(kit), [], "the new thread has no drafts")


@case("threads", "delete-erases-drafts", covers=("threads.delete",))
async def case_erased(kit: Kit) -> None:
    """The drafts of a thread go with it, and those of its children with `cascade`; others stay."""
    await kit.store.threads.create("child", parent_thread_id=(await kit.store.threads.create("t")).id)
    long = "t" * 256
    for thread in ("t", "child", "other", long):
        for number in range(3):
            await write(kit.store, await kit.store.runs.start(thread, "agent"), f"secret {number}")
    await kit.store.profiles.put("draft", "t", "of the application")
    with small_pieces():
        for thread in ("t", long):
            await kit.store.threads.delete(thread, strategy="cascade")
    left = [len(await collect(kit.store.profiles.iter(draft_owner(name)))) for name in ("t", "child", long, "other")]
    equal(left, [0, 0, 0, 3], "drafts")
    equal(len(await collect(kit.store.profiles.iter("draft"))), 1, "another owner")


@case("threads", "delete-erases-drafts-later", covers=("threads.delete",), needs=("durable",))
async def case_erased_later(kit: Kit) -> None:
    """Also if the process dies before it has erased them."""
    await write(kit.store, await kit.store.runs.start("t", "agent"), "secret")
    try:
        failpoints.arm("delete.after_tombstone", die)
        await raises(Died, kit.store.threads.delete("t"))
    finally:
        failpoints.disarm()
    await kit.crash()
    await kit.sweep()
    equal(await collect(kit.store.profiles.iter(draft_owner("t"))), [], "drafts")


@case("runs", "follow-drafts-refused", covers=DRAFTS)
async def case_refused(kit: Kit) -> None:
    """Arguments are checked at once."""
    await kit.store.threads.create("t")
    for bad in REFUSED_IDS:
        _refuse(kit, bad)
    for branch in (-1, "main", True, 1.0):
        _refuse(kit, "t", branch=branch)
    for timeout in TIMEOUTS_REFUSED:
        _refuse(kit, "t", timeout=timeout)
    long = "t" * 256
    await kit.store.threads.create(long)
    run = await kit.store.runs.start(long, "agent")
    await write(kit.store, run, "words")
    drafts = await collect(kit.store.runs.follow_drafts(long, timeout=0))
    equal(drafts, [draft(run, "words")], "an id of any length")


def _refuse(kit: Kit, thread_id: Any, **options: Any) -> None:
    try:
        kit.store.runs.follow_drafts(thread_id, **options)
    except InvalidError:
        return
    raise InvalidError(f"{thread_id!r} {options!r} was accepted")
