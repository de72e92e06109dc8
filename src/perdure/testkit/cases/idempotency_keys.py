"""Cases: idempotency keys. The same key with the same content has one effect and one receipt, for seven days.

A key makes a commit safe to retry if its answer was lost, so a replay must work after a crash, from another client, and
whatever has changed since.
"""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import IllegalTransition, KeyReused, StaleClaim, VersionConflict
from perdure.model.message import Message, ToolUse
from perdure.model.receipt import Receipt, RunReceipt
from perdure.model.run import NewRun, RunBody
from perdure.model.state import REMOVE, Doc
from perdure.stores.store import Store
from perdure.testkit.helpers import commit_texts, move, race, texts
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import dump, overtaken, untouched


def same(again: Receipt, first: Receipt, what: str) -> None:
    """A replay returns the first receipt."""
    equal(again.replayed, True, f"{what}: replayed")
    fields = (again.thread_id, again.version, again.message_ids, again.seqs, again.at, again.durable)
    equal(fields, (first.thread_id, first.version, first.message_ids, first.seqs, first.at, first.durable), what)


async def full(store: Store, thread: str = "t") -> Receipt:
    """A keyed commit with a new run, messages and state, built afresh at every call: nothing in it has an id."""
    return await store.commit(
        thread,
        messages=[Message.user("q"), Message.assistant([ToolUse(id="c", name="f", input={"x": 1, "y": [2]})])],
        run=NewRun(agent_id="agent", body=RunBody(metadata={"a": 1, "b": 2})),
        state={"plan": {"v": 1, "w": 2}, "old": REMOVE},
        run_state={"memo": Doc([1], schema=2)},
        key="k",
    )


@case("commit", "key-replay", covers=("store.commit",))
async def case_key_replay(kit: Kit) -> None:
    """A repeated keyed commit returns the first receipt and writes nothing, however often and from whichever client."""
    first = await full(kit.store)
    equal((first.replayed, first.version), (False, 2), "the first")
    kit.clock.advance(60_000)
    before = await dump(kit.store)
    other = await kit.second()
    for store in (kit.store, other, kit.store):
        again = await full(store)
        same(again, first, "a replay")
        equal(again.run, first.run, "with its run")
    equal(await dump(kit.store), before, "nothing was written")


@case("commit", "key-replay-reopened", covers=("store.commit",), needs=("durable",))
async def case_key_replay_reopened(kit: Kit) -> None:
    """A key holds after a close and after a crash."""
    first = await full(kit.store)
    same(await full(await kit.reopen()), first, "after a close")
    same(await full(await kit.crash()), first, "after a crash")
    equal((await kit.store.threads.get("t")).version, 2, "one effect")


@case("commit", "key-replay-stale", covers=("store.commit",))
async def case_key_replay_stale(kit: Kit) -> None:
    """A replay does not care that fence, expect or the run's record are stale now, nor whether they were given."""
    run = await kit.store.runs.start("t", "agent")
    first = await commit_texts(kit.store, "t", "a", run=run.step(), expect=0, fence=1, key="k")
    await commit_texts(kit.store, "t", "b", fence=7)
    moved = (await kit.store.runs.get(run.id)).finish()
    await kit.store.commit("t", run=moved)
    for options in ({"expect": 0, "fence": 1}, {"expect": 55}, {"fence": 0}, {}):
        same(await commit_texts(kit.store, "t", "a", run=run.step(), key="k", **options), first, repr(options))


@case("commit", "key-run-as-is", covers=("store.commit",))
async def case_key_run_as_is(kit: Kit) -> None:
    """A replay returns the run that its commit left: one that moved since carries the rev of then, and is refused."""
    first = await full(kit.store)
    run = first.run
    expect(run is not None, "the first receipt carries its run")
    if run is not None:
        equal((await full(kit.store)).run, run, "the run, unchanged")
        moved = await move(kit.store, run.step())
        again = (await full(kit.store)).run
        equal(again and (again.steps, again.rev), (moved.steps, run.rev), "the run after another change")
        if again is not None:
            await raises(VersionConflict, move(kit.store, again.step()), "a worker that was overtaken")
        await move(kit.store, moved.finish())


@case("commit", "key-reused", covers=("store.commit",))
async def case_key_reused(kit: Kit) -> None:
    """The same key with any other content is refused, and the first commit stays."""
    run = await kit.store.runs.start("t", "agent")
    base: dict[str, Any] = {"messages": [Message.user("a")], "run": run.step(), "state": {"s": 1}, "key": "k"}
    first = await kit.store.commit("t", **base)
    fork = await kit.store.branches.fork("t", at=first.message_ids[0])
    changes: list[dict[str, Any]] = [
        {"messages": [Message.user("b")]},
        {"messages": [Message.user("a"), Message.user("a")]},
        {"messages": []},
        {"messages": [Message.assistant("a")]},
        {"messages": [Message.user("a", visibility="internal")]},
        {"messages": [Message.user("a", id="named")]},
        {"messages": [Message.user("a", metadata={"x": 1})]},
        {"run": run.step(output_tokens=1)},
        {"run": run.finish()},
        {"run": run},
        {"run": None},
        {"run": NewRun(agent_id="x")},
        {"state": {"s": 2}},
        {"state": {"s": Doc(1, schema=2)}},
        {"state": {"s": REMOVE}},
        {"state": {"s": 1, "more": 1}},
        {"state": None},
        {"run_state": {"memo": 1}},
        {"branch": fork.id},
    ]
    for change in changes:
        await untouched(kit.store, KeyReused, kit.store.commit("t", **{**base, **change}), repr(change)[:80])
    same(await kit.store.commit("t", **base), first, "the first still replays")


@case("commit", "key-owner-of-state", covers=("store.commit",))
async def case_key_owner_of_state(kit: Kit) -> None:
    """State of the thread and state of a new run are different content, though the run's id is not known before."""
    new = NewRun(agent_id="agent")
    await kit.store.commit("t", run=new, state={"doc": 1}, key="k")
    await untouched(kit.store, KeyReused, kit.store.commit("t", run=new, run_state={"doc": 1}, key="k"))
    both = kit.store.commit("t", run=new, state={"doc": 1}, run_state={"doc": 1}, key="k")
    await untouched(kit.store, KeyReused, both)


@case("commit", "key-new-run", covers=("store.commit",))
async def case_key_new_run(kit: Kit) -> None:
    """Every word of a new run counts in the fingerprint."""
    base = NewRun(agent_id="agent", parent_run_id="p", body=RunBody(session_id="s", metadata={"a": 1}))
    first = await kit.store.commit("t", run=base, key="k")
    others = [
        NewRun(agent_id="other", parent_run_id="p", body=base.body),
        NewRun(agent_id="agent", parent_run_id="q", body=base.body),
        NewRun(agent_id="agent", parent_run_id="p", status="created", body=base.body),
        NewRun(agent_id="agent", parent_run_id="p", id="named", body=base.body),
        NewRun(agent_id="agent", parent_run_id="p", body=RunBody(session_id="s", metadata={"a": 2})),
        NewRun(agent_id="agent", parent_run_id="p"),
    ]
    for new in others:
        await untouched(kit.store, KeyReused, kit.store.commit("t", run=new, key="k"), repr(new))
    same(await kit.store.commit("t", run=base, key="k"), first, "the first still replays")


@case("commit", "key-ignores-order", covers=("store.commit",))
async def case_key_ignores_order(kit: Kit) -> None:
    """Equal JSON is the same content, in whichever order its objects were filled."""

    def options(names: str) -> dict[str, Any]:
        thing = {name: dict.fromkeys(names, 1) for name in names}
        call = Message.assistant([ToolUse(id="c", name="f", input=thing)], metadata=thing)
        new = NewRun(agent_id="agent", body=RunBody(metadata=thing))
        return {"messages": [call], "run": new, "state": dict.fromkeys(names, thing), "key": "k"}

    first = await kit.store.commit("t", **options("abc"))
    same(await kit.store.commit("t", **options("cab")), first, "another order")


@case("commit", "key-expires", covers=("store.commit",))
async def case_key_expires(kit: Kit) -> None:
    """A key is kept for seven days by the clock; then the same key commits anew, other content too."""
    first = await commit_texts(kit.store, "t", "a", key="k")
    kit.clock.advance(limits.KEY_RETENTION_MS)
    same(await commit_texts(kit.store, "t", "a", key="k"), first, "to the last millisecond")
    kit.clock.advance(1)
    second = await commit_texts(kit.store, "t", "b", key="k")
    equal((second.replayed, second.version), (False, 2), "a new commit")
    same(await commit_texts(kit.store, "t", "b", key="k"), second, "the key is the new commit's now")
    await untouched(kit.store, KeyReused, commit_texts(kit.store, "t", "a", key="k"))


@case("commit", "key-expired-guards", covers=("store.commit",))
async def case_key_expired_guards(kit: Kit) -> None:
    """An expired key no longer protects: the other guards apply again."""
    run = await kit.store.runs.start("t", "agent")
    await commit_texts(kit.store, "t", "a", run=run.finish(), expect=0, fence=3, key="k")
    await kit.store.commit("t", fence=4)
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    await untouched(
        kit.store, StaleClaim, commit_texts(kit.store, "t", "a", run=run.finish(), expect=0, fence=3, key="k")
    )
    await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "a", run=run.finish(), expect=0, key="k"))
    await untouched(kit.store, IllegalTransition, commit_texts(kit.store, "t", "a", run=run.finish(), key="k"))


@case("commit", "key-expired-and-swept", covers=("store.commit",))
async def case_key_expired_and_swept(kit: Kit) -> None:
    """An expired key that housekeeping removes while it is being replaced blocks nothing."""
    await commit_texts(kit.store, "t", "a", key="k")
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    # The first try finds the expired key; the second, which would replace it, is overtaken by the sweep.
    slow, _ = await overtaken(kit, lambda s: commit_texts(s, "t", "b", key="k"), lambda _: kit.sweep(), passes=1)
    expect(isinstance(slow, Receipt), f"the commit goes through: {slow}")
    equal((slow.replayed, slow.version), (False, 2), "a new commit")
    same(await commit_texts(kit.store, "t", "b", key="k"), slow, "under its key")


@case("commit", "key-clock-back", covers=("store.commit",))
async def case_key_clock_back(kit: Kit) -> None:
    """A clock that jumps back does not make a key forget, nor one that jumped forth and back."""
    first = await commit_texts(kit.store, "t", "a", key="k")
    for jump in (-10 * limits.KEY_RETENTION_MS, 10 * limits.KEY_RETENTION_MS, 1_000):
        kit.clock.advance(jump)
        same(await commit_texts(kit.store, "t", "a", key="k"), first, f"after a jump of {jump}")


@case("commit", "key-per-thread", covers=("store.commit",))
async def case_key_per_thread(kit: Kit) -> None:
    """A key belongs to its thread."""
    await commit_texts(kit.store, "t", "a", key="k")
    other = await commit_texts(kit.store, "u", "b", key="k")
    equal((other.replayed, other.version), (False, 1), "another thread")
    equal(
        (await commit_texts(kit.store, "t", "a", key="l")).version, 2, "another key of the same content commits again"
    )


@case("commit", "key-gone-with-thread", covers=("store.commit", "threads.delete"))
async def case_key_gone_with_thread(kit: Kit) -> None:
    """Keys are deleted with their thread: a new thread of that id knows none of them."""
    await commit_texts(kit.store, "t", "old", key="k")
    await kit.store.threads.delete("t")
    equal((await dump(kit.store, "t"))["keys"], [], "rows")
    await kit.store.threads.create("t")
    again = await commit_texts(kit.store, "t", "new", key="k")
    equal((again.replayed, again.version), (False, 1), "a new commit")


@case("commit", "key-without-messages", covers=("store.commit",))
async def case_key_without_messages(kit: Kit) -> None:
    """A keyed commit without messages replays too: no version, no seqs, one effect."""
    first = await kit.store.commit("t", state={"n": 1}, key="k")
    rev = (await kit.store.state.get("t", "n")).rev
    again = await kit.store.commit("t", state={"n": 1}, key="k")
    same(again, first, "state alone")
    equal((again.version, again.seqs), (None, []), "no messages")
    equal((await kit.store.state.get("t", "n")).rev, rev, "written once")
    empty = await kit.store.commit("t", key="empty")
    same(await kit.store.commit("t", key="empty"), empty, "nothing at all")


@case("commit", "key-not-used-up", covers=("store.commit",))
async def case_key_not_used_up(kit: Kit) -> None:
    """A refused commit does not use its key up, and leaves no trace of it."""
    await commit_texts(kit.store, "t", "a")
    await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "b", expect=0, key="k"))
    receipt = await commit_texts(kit.store, "t", "c", expect=1, key="k")
    equal((receipt.replayed, receipt.version), (False, 2), "the key was free, also for other content")


@case("commit", "key-with-ids", covers=("store.commit",))
async def case_key_with_ids(kit: Kit) -> None:
    """A keyed commit whose messages bring their ids replays; it does not stumble over them."""
    messages = [Message.user("a", id="m1"), Message.summary("s", 1, 1, id="m2")]
    first = await kit.store.commit("t", messages=messages, key="k")
    same(await kit.store.commit("t", messages=messages, key="k"), first, "the same ids")
    await commit_texts(kit.store, "t", "more")
    same(await kit.store.commit("t", messages=messages, key="k"), first, "later")


@case("commit", "key-named-branch", covers=("store.commit", "branches.rename"))
async def case_key_named_branch(kit: Kit) -> None:
    """A keyed commit to a branch by name replays, also when the branch is called otherwise now, or is gone."""
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    await kit.store.branches.fork("t", at=one, name="side")
    first = await commit_texts(kit.store, "t", "b", branch="side", key="k")
    same(await commit_texts(kit.store, "t", "b", branch="side", key="k"), first, "the same name")
    await kit.store.branches.rename("t", "side", "other")
    same(await commit_texts(kit.store, "t", "b", branch="side", key="k"), first, "renamed")
    await kit.store.branches.delete("t", "other")
    same(await commit_texts(kit.store, "t", "b", branch="side", key="k"), first, "deleted")


@case("commit", "key-other-branch-now", covers=("store.commit", "branches.switch"))
async def case_key_other_branch_now(kit: Kit) -> None:
    """A keyed commit to the current branch replays after a switch, and does not land on the new branch."""
    first = await commit_texts(kit.store, "t", "a", key="k")
    await kit.store.branches.fork("t", at=None, switch=True)
    for store in (kit.store, await kit.second()):
        same(await commit_texts(store, "t", "a", key="k"), first, "after a switch")
    equal(texts(await kit.store.messages.history("t")), [], "nothing on the new branch")


@case("commit", "key-concurrent", covers=("store.commit",))
async def case_key_concurrent(kit: Kit) -> None:
    """Many tries under one key at once, also as the thread's first: one effect, the same receipt for all."""
    clients = [kit.store, await kit.second()]
    won, lost = await race(*[full(clients[i % 2]) for i in range(24)])
    equal([str(error) for error in lost], [], "none is refused")
    equal([receipt.replayed for receipt in won].count(False), 1, "one did it")
    first = next(receipt for receipt in won if not receipt.replayed)
    for receipt in won:
        if receipt.replayed:
            same(receipt, first, "the others")
    equal((await kit.store.threads.get("t")).version, 2, "one effect")
    equal(len((await kit.store.runs.list()).items), 1, "one run")


@case("commit", "key-concurrent-contents", covers=("store.commit",))
async def case_key_concurrent_contents(kit: Kit) -> None:
    """Different contents under one key at once: one lands, the others learn that the key is in use."""
    await kit.store.threads.create("t")
    clients = [kit.store, await kit.second()]
    won, lost = await race(*[commit_texts(clients[i % 2], "t", str(i), key="k") for i in range(16)])
    equal((len(won), {type(error) for error in lost}), (1, {KeyReused}), "one winner")
    equal((await kit.store.threads.get("t")).version, 1, "one effect")


@case("commit", "keys-of-a-chain", covers=("store.commit",))
async def case_keys_of_a_chain(kit: Kit) -> None:
    """An agent that repeats its whole chain of keyed steps from the start changes nothing and ends where it was."""

    async def chain(store: Store) -> list[RunReceipt]:
        start = await store.commit("t", messages=[Message.user("q")], run=NewRun(agent_id="a", id="r"), key="0")
        receipts, run = [start], start.run
        for i in range(1, 4):
            change = run.step(output_tokens=i) if i < 3 else run.finish("done")
            receipts.append(await store.commit("t", messages=[Message.assistant(str(i))], run=change, key=str(i)))
            run = receipts[-1].run
        return receipts

    first = await chain(kit.store)
    before = await dump(kit.store)
    for again, once in zip(await chain(await kit.second()), first, strict=True):
        same(again, once, f"version {once.version}")
    equal(await dump(kit.store), before, "nothing was written")
