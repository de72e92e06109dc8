"""Cases: freezing. Pending messages become part of the log, with the run that reads them, in one transaction.

A freeze is a commit, so everything that guards a commit guards it: expect, fence, key, the run's rev. What it adds is
the queue: consumed exactly once, and left alone by every refusal.
"""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import (
    AlreadyExists,
    IllegalTransition,
    InvalidError,
    KeyReused,
    SelectionConflict,
    StaleClaim,
    VersionConflict,
)  # fmt: skip
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode
from perdure.model.run import NewRun
from perdure.model.run_snapshots import SeqRange
from perdure.model.tickets import Ticket
from perdure.testkit.helpers import commit_texts, conflict, enqueue, queue_texts, race, texts
from perdure.testkit.kit import Kit, case, equal, expect
from perdure.testkit.probe import dump, untouched

STEP = DeliveryMode(boundary="next_step")


@case("pending", "freeze", covers=("pending.freeze",))
async def case_freeze(kit: Kit) -> None:
    """Frozen messages continue the log in queue order, keep their ids, and have no producer; the queue is empty."""
    await commit_texts(kit.store, "t", "one", "two")
    names = await enqueue(kit.store, "t", "three", "four")
    kit.clock.advance(5)
    receipt = await kit.store.pending.freeze("t")
    equal((receipt.version, receipt.seqs, receipt.message_ids), (4, [3, 4], names), "the receipt")
    equal((receipt.run, receipt.replayed, receipt.at), (None, False, kit.clock.now), "the rest of it")
    records = await kit.store.messages.history("t")
    equal(texts(records), ["one", "two", "three", "four"], "the history")
    equal(records[2].message.id, names[0], "the id stays")
    equal((records[2].run_id, records[2].at), (None, kit.clock.now), "no run produced it; it was committed now")
    equal(await queue_texts(kit.store, "t"), [], "the queue is empty")


@case("pending", "freeze-partly", covers=("pending.freeze",))
async def case_freeze_partly(kit: Kit) -> None:
    """What a boundary does not take stays in order, with dense positions and untouched revisions."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "new")
    await enqueue(kit.store, "t", "step", mode=STEP)
    await enqueue(kit.store, "t", "newer")
    await kit.store.pending.freeze("t", boundary="next_step")
    equal(await queue_texts(kit.store, "t"), ["new", "newer"], "the rest, in order, with dense positions")
    revisions = [item.revision for item in (await kit.store.pending.list("t")).items]
    equal(revisions, [1, 1], "their revisions are untouched")
    await enqueue(kit.store, "t", "last")
    equal(await queue_texts(kit.store, "t"), ["new", "newer", "last"], "an append continues behind them")


@case("pending", "freeze-stale-version", covers=("pending.freeze",))
async def case_freeze_stale_version(kit: Kit) -> None:
    """A freeze that expects another version consumes nothing."""
    await commit_texts(kit.store, "t", "a", "b")
    await enqueue(kit.store, "t", "c")
    error = await untouched(kit.store, VersionConflict, kit.store.pending.freeze("t", expect=1))
    conflict(error, 1, 2)
    equal((await kit.store.pending.freeze("t", expect=2)).seqs, [3], "the right version freezes")


@case("pending", "freeze-bad-boundary", covers=("pending.freeze",))
async def case_freeze_bad_boundary(kit: Kit) -> None:
    """An unknown boundary is refused."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    bad: list[Any] = ["later", "", None, 3]
    for boundary in bad:
        await untouched(kit.store, InvalidError, kit.store.pending.freeze("t", boundary=boundary), repr(boundary))


@case("pending", "freeze-new-run", covers=("pending.freeze",))
async def case_freeze_new_run(kit: Kit) -> None:
    """A freeze with a new run writes both: input range, pointers, no producer on the input."""
    await commit_texts(kit.store, "t", "before")
    await enqueue(kit.store, "t", "a", "b")
    receipt = await kit.store.pending.freeze("t", run=NewRun(agent_id="agent", id="r"))
    run = await kit.store.runs.get("r")
    equal(receipt.run, run, "the receipt carries the stored run")
    expect(run.input is not None and run.input.range == SeqRange(2, 3), f"the run's input range: {run.input}")
    equal((run.status, run.output), ("running", None), "it runs and produced nothing yet")
    thread = await kit.store.threads.get("t")
    equal((thread.active_run_id, thread.latest_run_id), ("r", "r"), "the pointers")
    equal([r.run_id for r in await kit.store.messages.history("t")], [None, None, None], "input has no producer")


@case("pending", "freeze-run-taken", covers=("pending.freeze",))
async def case_freeze_duplicate_run(kit: Kit) -> None:
    """A freeze whose run id is taken consumes nothing."""
    await kit.store.runs.start("other", "agent", run_id="r")
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    again = kit.store.pending.freeze("t", run=NewRun(agent_id="agent", id="r"))
    await untouched(kit.store, AlreadyExists, again)


@case("pending", "freeze-resumes-run", covers=("pending.freeze",))
async def case_freeze_resumes_run(kit: Kit) -> None:
    """A freeze may resume a waiting run with the answer it waited for, in one transaction."""
    run = await kit.store.runs.start("t", "agent")
    waiting = (await kit.store.commit("t", run=run.wait([Ticket(ticket_id="k")]))).run
    expect(waiting is not None, "the run waits")
    if waiting is None:
        return
    await enqueue(kit.store, "t", "the answer", mode=DeliveryMode(boundary="resume_input"))
    receipt = await kit.store.pending.freeze("t", boundary="resume_input", run=waiting.resume())
    equal(receipt.seqs, [1], "the answer is committed")
    resumed = await kit.store.runs.get(run.id)
    equal((resumed.status, resumed.waiting), ("running", None), "and the run goes on")
    equal(resumed, receipt.run, "as the receipt says")


@case("pending", "freeze-stale-run", covers=("pending.freeze",))
async def case_freeze_stale_run(kit: Kit) -> None:
    """A freeze under a stale or finished run consumes nothing."""
    run = await kit.store.runs.start("t", "agent")
    moved = (await kit.store.commit("t", run=run.step())).run
    await enqueue(kit.store, "t", "a", mode=STEP)
    stale = kit.store.pending.freeze("t", boundary="next_step", run=run.step())
    await untouched(kit.store, VersionConflict, stale, "a stale change")
    same = kit.store.pending.freeze("t", boundary="next_step", run=run)
    await untouched(kit.store, VersionConflict, same, "a stale run that only associates")
    if moved is not None:
        await kit.store.commit("t", run=moved.finish())
    done = kit.store.pending.freeze("t", boundary="next_step", run=run.step())
    await untouched(kit.store, IllegalTransition, done, "a run that is done")


@case("pending", "freeze-nothing", covers=("pending.freeze",))
async def case_freeze_nothing(kit: Kit) -> None:
    """With nothing to take a freeze writes nothing but the step of a run that goes on."""
    await kit.store.threads.create("t")
    receipt = await kit.store.pending.freeze("t")
    equal((receipt.version, receipt.seqs, receipt.run), (None, [], None), "nothing at all is fine")
    run = await kit.store.runs.start("t", "agent", run_id="r")
    receipt = await kit.store.pending.freeze("t", boundary="next_step", run=run.step())
    equal((receipt.version, receipt.seqs), (None, []), "a step without new input")
    equal((await kit.store.runs.get("r")).steps, 1, "the step is written")


@case("pending", "freeze-nothing-new-run", covers=("pending.freeze",))
async def case_freeze_nothing_new_run(kit: Kit) -> None:
    """A freeze that takes nothing starts no run: the caller learns that there was nothing, and nothing changes."""
    await kit.store.threads.create("t")
    freeze = kit.store.pending.freeze
    error = await untouched(kit.store, SelectionConflict, freeze("t", run=NewRun(agent_id="agent", id="r")), "empty")
    conflict(error, None, [])
    expected = freeze("t", run=NewRun(agent_id="agent"), expect_ids=[])
    conflict(await untouched(kit.store, SelectionConflict, expected, "expected to be empty"), [], [])
    await enqueue(kit.store, "t", "later", mode=DeliveryMode(boundary="new_run"))
    early = freeze("t", boundary="next_step", run=NewRun(agent_id="agent"))
    await untouched(kit.store, SelectionConflict, early, "a boundary that takes nothing of the queue")
    staged = freeze("t", boundary="next_step", messages=[Message.user("now")], run=NewRun(agent_id="agent"))
    await untouched(kit.store, SelectionConflict, staged, "what was to be queued first is not queued either")
    receipt = await freeze("t", run=NewRun(agent_id="agent", id="r"))
    equal((receipt.seqs, receipt.run is not None), ([1], True), "the boundary that takes it starts the run")


@case("pending", "freeze-nothing-replayed", covers=("pending.freeze",))
async def case_freeze_nothing_replayed(kit: Kit) -> None:
    """A keyed freeze is repeated with the receipt of its first run, though the queue is empty by then."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "once")
    for client in (kit.store, kit.store, await kit.second()):
        receipt = await client.pending.freeze("t", run=NewRun(agent_id="agent", id="r"), key="k")
        equal((receipt.seqs, receipt.run.id), ([1], "r"), "the first receipt")
    other = kit.store.pending.freeze("t", run=NewRun(agent_id="agent"), key="another")
    await untouched(kit.store, SelectionConflict, other, "another key")


@case("pending", "workers-race-for-a-queue", covers=("pending.freeze",))
async def case_workers_race(kit: Kit) -> None:
    """Workers that race for one queue: one run with all the input, and a conflict for every other worker."""
    clients = [kit.store, await kit.second()]
    for turn in range(6):
        thread = f"t{turn}"
        await kit.store.threads.create(thread)
        await enqueue(kit.store, thread, "a", "b")
        fence = 1 if turn % 2 else None
        runs = [c.pending.freeze(thread, run=NewRun(agent_id="agent"), fence=fence) for c in clients * 2]
        won, lost = await race(*runs)
        equal([receipt.seqs for receipt in won], [[1, 2]], "one worker got the input")
        equal([type(error) for error in lost], [SelectionConflict] * 3, "the others learned that it was gone")
        made = (await kit.store.runs.list(thread_id=thread)).items
        equal([run.id for run in made], [won[0].run.id], "one run")


@case("pending", "freeze-selection-conflict", covers=("pending.freeze",))
async def case_freeze_selection_conflict(kit: Kit) -> None:
    """A selection other than the one the caller saw is a conflict that carries both lists."""
    await kit.store.threads.create("t")
    a, b = await enqueue(kit.store, "t", "a", "b")
    for expected_ids in ([a], [b, a], [a, b, "c"], []):
        call = kit.store.pending.freeze("t", expect_ids=expected_ids, run=NewRun(agent_id="agent"))
        conflict(await untouched(kit.store, SelectionConflict, call), expected_ids, [a, b])
    receipt = await kit.store.pending.freeze("t", expect_ids=[a, b])
    equal(receipt.message_ids, [a, b], "the selection that was seen is frozen")
    equal((await kit.store.pending.freeze("t", expect_ids=[])).seqs, [], "an expected empty selection")


@case("pending", "consumed", covers=("pending.edit", "pending.retract", "pending.reorder"))
async def case_consumed(kit: Kit) -> None:
    """What was frozen can be neither edited, retracted nor reordered: it is already consumed."""
    await kit.store.threads.create("t")
    a, b = await enqueue(kit.store, "t", "a", "b")
    await kit.store.pending.freeze("t")
    (c,) = await enqueue(kit.store, "t", "c")
    pending = kit.store.pending
    calls = [
        pending.edit("t", a, Message.user("x")),
        pending.edit("t", a, Message.user("x"), if_revision=1),
        pending.retract("t", b),
        pending.reorder("t", [a, b]),
        pending.reorder("t", [a]),
        pending.reorder("t", [c, b]),
    ]
    for call in calls:
        error = await untouched(kit.store, InvalidError, call)
        expect("consumed" in str(error), f"the error says why: {error}")


@case("pending", "append-and-freeze", covers=("pending.freeze",))
async def case_append_and_freeze(kit: Kit) -> None:
    """Appended and frozen at once: behind what waited, consumed exactly once."""
    await kit.store.threads.create("t")
    (a,) = await enqueue(kit.store, "t", "a")
    receipt = await kit.store.pending.freeze(
        "t", messages=[Message.user("b", id="b"), Message.user("c")], run=NewRun(agent_id="agent", id="r")
    )
    equal(receipt.message_ids[:2], [a, "b"], "what waited comes first")
    equal(texts(await kit.store.messages.history("t")), ["a", "b", "c"], "the log")
    equal(await queue_texts(kit.store, "t"), [], "each is consumed once")
    equal(list(await kit.store.pending.threads()), [], "nothing waits")


@case("pending", "append-and-freeze-stays", covers=("pending.freeze",))
async def case_append_and_freeze_stays(kit: Kit) -> None:
    """What is appended and not taken by the boundary stays in the queue, in order."""
    run = await kit.store.runs.start("t", "agent")
    await enqueue(kit.store, "t", "step", mode=STEP)
    await enqueue(kit.store, "t", "new")
    late = [Message.user("x", id="x"), Message.user("y", id="y")]
    await kit.store.pending.freeze("t", boundary="next_step", run=run, messages=late, mode=DeliveryMode())
    equal(texts(await kit.store.messages.history("t")), ["step"], "what the boundary takes")
    equal(await queue_texts(kit.store, "t"), ["new", "x", "y"], "what stays, in order")


@case("pending", "append-and-freeze-fails", covers=("pending.freeze",))
async def case_append_and_freeze_fails(kit: Kit) -> None:
    """Any refusal, a selection conflict included, leaves no pending message and no run; the retry works."""
    await commit_texts(kit.store, "t", "said")
    await kit.store.commit("t", run=NewRun(agent_id="agent", id="taken"), fence=5)
    await enqueue(kit.store, "t", "a")
    fresh = [Message.user("new", id="new")]
    freeze = kit.store.pending.freeze
    await untouched(kit.store, VersionConflict, freeze("t", messages=fresh, expect=0), "a stale version")
    attempt = freeze("t", messages=fresh, run=NewRun(agent_id="agent", id="taken"))
    await untouched(kit.store, AlreadyExists, attempt, "a run id that is taken")
    await untouched(kit.store, StaleClaim, freeze("t", messages=fresh, fence=4), "an old fence")
    chosen = freeze("t", messages=fresh, run=NewRun(agent_id="agent"), expect_ids=["new"])
    await untouched(kit.store, SelectionConflict, chosen, "another selection")
    receipt = await freeze("t", messages=fresh, run=NewRun(agent_id="agent", id="r"))
    equal(len(receipt.seqs), 2, "the retry is not a duplicate")


@case("pending", "append-and-freeze-known", covers=("pending.freeze",))
async def case_append_and_freeze_known(kit: Kit) -> None:
    """Known ids and bad shapes are refused as in append."""
    await kit.store.commit("t", messages=[Message.user("said", id="said")])
    await kit.store.pending.append("t", [Message.user("queued", id="queued")])
    freeze = kit.store.pending.freeze
    await untouched(kit.store, AlreadyExists, freeze("t", messages=[Message.user("x", id="queued")]))
    await untouched(kit.store, InvalidError, freeze("t", messages=[Message.user("x", id="said")]))
    bad = [Message(role="tool", content=[])]
    await untouched(kit.store, InvalidError, freeze("t", messages=bad), "a bad shape")


@case("pending", "freeze-branch", covers=("pending.freeze",))
async def case_freeze_branch(kit: Kit) -> None:
    """A freeze goes to its run's branch, else to the current one."""
    receipt = await commit_texts(kit.store, "t", "a", "b")
    run = await kit.store.runs.start("t", "agent")
    fork = await kit.store.branches.fork("t", at=receipt.message_ids[0], switch=True)
    await enqueue(kit.store, "t", "for the run", mode=STEP)
    await kit.store.pending.freeze("t", boundary="next_step", run=run)
    equal(texts(await kit.store.messages.history("t", branch=0)), ["a", "b", "for the run"], "the run's branch")
    await enqueue(kit.store, "t", "for the current line")
    await kit.store.pending.freeze("t")
    equal(texts(await kit.store.messages.history("t", branch=fork.id)), ["a", "for the current line"], "the fork")


@case("pending", "freeze-fence", covers=("pending.freeze",))
async def case_freeze_fence(kit: Kit) -> None:
    """A freeze under an old fence takes nothing; a fenced one raises the fence."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    await kit.store.pending.freeze("t", fence=7, boundary="interrupt")
    equal((await kit.store.threads.get("t")).fence, 7, "the fence rises, whatever was taken")
    conflict(await untouched(kit.store, StaleClaim, kit.store.pending.freeze("t", fence=6)), 6, 7)
    equal((await kit.store.pending.freeze("t", fence=7)).seqs, [1], "the claim itself goes on")


@case("pending", "freeze-key", covers=("pending.freeze",))
async def case_freeze_key(kit: Kit) -> None:
    """A keyed freeze has one effect: later tries, from any client and whatever changed since, get the first receipt."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")

    async def attempt(store: Any) -> Any:
        new = NewRun(agent_id="agent")
        return await store.pending.freeze("t", messages=[Message.user("b")], run=new, expect=0, fence=3, key="k")

    first = await attempt(kit.store)
    await commit_texts(kit.store, "t", "later", fence=9)
    await enqueue(kit.store, "t", "not for the replay")
    before = await dump(kit.store)
    for store in (kit.store, await kit.second()):
        again = await attempt(store)
        equal((again.message_ids, again.seqs, again.version), (first.message_ids, [1, 2], 2), "the first receipt")
        equal((again.replayed, again.at, again.run.id), (True, first.at, first.run.id), "replayed")
    equal(await dump(kit.store), before, "a replay writes nothing")


@case("pending", "freeze-key-reused", covers=("pending.freeze",))
async def case_freeze_key_reused(kit: Kit) -> None:
    """The same key with another boundary, message, mode or run is refused."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    freeze = kit.store.pending.freeze
    await freeze("t", messages=[Message.user("b")], key="k")
    others = [
        freeze("t", messages=[Message.user("B")], key="k"),
        freeze("t", key="k"),
        freeze("t", messages=[Message.user("b")], boundary="interrupt", key="k"),
        freeze("t", messages=[Message.user("b")], mode=STEP, key="k"),
        freeze("t", messages=[Message.user("b")], run=NewRun(agent_id="x"), key="k"),
        kit.store.commit("t", messages=[Message.user("b")], key="k"),
    ]
    for call in others:
        await untouched(kit.store, KeyReused, call)


@case("pending", "freeze-key-expired", covers=("pending.freeze",))
async def case_freeze_key_expired(kit: Kit) -> None:
    """After a week the key freezes anew, and takes what waits then."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    await kit.store.pending.freeze("t", key="k")
    await enqueue(kit.store, "t", "b")
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    receipt = await kit.store.pending.freeze("t", key="k")
    equal((receipt.replayed, receipt.seqs), (False, [2]), "after a week the key freezes anew, what waits now")
    equal(await queue_texts(kit.store, "t"), [], "and consumes it")


@case("pending", "freeze-key-refused", covers=("pending.freeze",))
async def case_freeze_key_refused(kit: Kit) -> None:
    """A refused freeze does not use its key up."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    refused = kit.store.pending.freeze("t", expect=5, key="k")
    await untouched(kit.store, VersionConflict, refused)
    receipt = await kit.store.pending.freeze("t", expect=0, key="k")
    equal((receipt.replayed, receipt.seqs), (False, [1]), "a refusal does not use the key up")


@case("pending", "concurrent-freezes", covers=("pending.freeze",))
async def case_concurrent_freezes(kit: Kit) -> None:
    """Freezes from two clients at once consume each message exactly once, in order."""
    await kit.store.threads.create("t")
    clients = [kit.store, await kit.second()]
    one = DeliveryMode(granularity="one")
    names = [name for i in range(16) for name in await enqueue(kit.store, "t", str(i), mode=one)]
    won, lost = await race(*[clients[i % 2].pending.freeze("t") for i in range(20)])
    equal([str(error) for error in lost], [], "unguarded freezes never conflict")
    consumed = [name for receipt in won for name in receipt.message_ids]
    equal(sorted(consumed), sorted(names), "each was taken once")
    records = await kit.store.messages.history("t")
    equal([(r.seq, r.text) for r in records], [(i + 1, str(i)) for i in range(16)], "in order, without gaps")


@case("pending", "concurrent-same-key", covers=("pending.freeze",))
async def case_concurrent_same_key(kit: Kit) -> None:
    """Many freezes under one key at once: one effect, one receipt for all."""
    await kit.store.threads.create("t")
    clients = [kit.store, await kit.second()]
    message = [Message.user("once", id="m")]
    won, lost = await race(*[clients[i % 2].pending.freeze("t", messages=message, key="k") for i in range(12)])
    equal([str(error) for error in lost], [], "every caller gets the receipt")
    equal([r.replayed for r in won].count(False), 1, "one did it")
    equal({(tuple(r.seqs), tuple(r.message_ids)) for r in won}, {((1,), ("m",))}, "the same receipt")


@case("pending", "freeze-races-append", covers=("pending.freeze", "pending.append"))
async def case_freeze_races_append(kit: Kit) -> None:
    """A freeze racing appends loses nothing: each message is committed or still waits."""
    await kit.store.threads.create("t")
    other = await kit.second()
    calls: list[Any] = [other.pending.append("t", [Message.user(str(i))]) for i in range(16)]
    calls[4:4] = [kit.store.pending.freeze("t") for _ in range(4)]
    _, lost = await race(*calls)
    equal([str(error) for error in lost], [], "neither side conflicts")
    there = texts(await kit.store.messages.history("t")) + await queue_texts(kit.store, "t")
    equal(sorted(there, key=int), [str(i) for i in range(16)], "each is committed or still waits, once")


@case("pending", "freeze-what-fits", covers=("pending.freeze",))
async def case_freeze_what_fits(kit: Kit) -> None:
    """A batch larger than a commit may be is taken in parts."""
    await kit.store.threads.create("t")
    large = "x" * (limits.MESSAGE_BYTES - 200)
    for _ in range(3):
        await enqueue(kit.store, "t", large)
    equal((await kit.store.pending.freeze("t")).seqs, [1, 2], "as much as a commit may carry")
    equal((await kit.store.pending.freeze("t")).seqs, [3], "the rest next time")
