"""Cases: write races. One client has planned its write, another one finishes first, then the first one continues.

This stages the worst interleaving every time: the plan rests on something that is no longer true, and the store must
plan again, or refuse with the current reason; it must never write from the stale plan.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from perdure.errors import IllegalTransition, InvalidError, NotFoundError, StaleClaim, VersionConflict
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode
from perdure.model.run import NewRun, RunBody
from perdure.model.run_snapshots import RunActivation, RunTrace
from perdure.stores.store import Store
from perdure.testkit.helpers import commit_texts, conflict, enqueue, queue_texts, texts
from perdure.testkit.kit import CaseFailed, Kit, case, equal
from perdure.testkit.probe import Act, dump, overtaken


def refused(outcome: Any, kind: type[Exception], what: str) -> Any:
    """The overtaken call must have been refused like this."""
    if not isinstance(outcome, kind):
        raise CaseFailed(f"{what}: expected {kind.__name__}, got {outcome!r:.300}")
    return outcome


def done(outcome: Any, what: str) -> Any:
    """The overtaken call must have succeeded."""
    if isinstance(outcome, Exception):
        raise CaseFailed(f"{what}: expected a result, got {outcome!r:.300}")
    return outcome


def speaker(thread: str, text: str, **options: Any) -> Act:
    """A call that commits a text."""

    async def speak(store: Store) -> Any:
        return await commit_texts(store, thread, text, **options)

    return speak


@case("pending", "overtaken-append", covers=("pending.append",))
async def case_overtaken_append(kit: Kit) -> None:
    """An append overtaken by another comes after it."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "first")
    slow, fast = await overtaken(kit, lambda s: enqueue(s, "t", "slow", "slower"), lambda s: enqueue(s, "t", "fast"))
    done(slow, "the slow append")
    done(fast, "the fast append")
    equal(await queue_texts(kit.store, "t"), ["first", "fast", "slow", "slower"], "the queue")


@case("pending", "overtaken-append-consumed", covers=("pending.append",))
async def case_overtaken_append_consumed(kit: Kit) -> None:
    """An append whose id is committed in between finds it consumed."""
    await kit.store.threads.create("t")
    message = [Message.user("x", id="m")]
    slow, _ = await overtaken(
        kit, lambda s: s.pending.append("t", message), lambda s: s.commit("t", messages=[Message.user("y", id="m")])
    )
    refused(slow, InvalidError, "the slow append")
    equal(await queue_texts(kit.store, "t"), [], "nothing waits")


@case("pending", "overtaken-edit", covers=("pending.edit",))
async def case_overtaken_edit(kit: Kit) -> None:
    """An edit overtaken by a freeze finds its message consumed; the log keeps what was frozen."""
    await kit.store.threads.create("t")
    (name,) = await enqueue(kit.store, "t", "a")
    slow, _ = await overtaken(
        kit, lambda s: s.pending.edit("t", name, Message.user("changed")), lambda s: s.pending.freeze("t")
    )
    refused(slow, InvalidError, "the slow edit")
    equal(texts(await kit.store.messages.history("t")), ["a"], "the log")


@case("pending", "overtaken-reorder", covers=("pending.reorder",))
async def case_overtaken_reorder(kit: Kit) -> None:
    """A reorder overtaken by an append no longer names everything."""
    await kit.store.threads.create("t")
    a, b = await enqueue(kit.store, "t", "a", "b")
    slow, _ = await overtaken(kit, lambda s: s.pending.reorder("t", [b, a]), lambda s: enqueue(s, "t", "c"))
    conflict(refused(slow, VersionConflict, "the slow reorder"), 2, 3)
    equal(await queue_texts(kit.store, "t"), ["a", "b", "c"], "the queue")


@case("pending", "overtaken-retract", covers=("pending.retract",))
async def case_overtaken_retract(kit: Kit) -> None:
    """A retract overtaken by another leaves dense positions and the right messages."""
    await kit.store.threads.create("t")
    a, b, _ = await enqueue(kit.store, "t", "a", "b", "c")
    slow, _ = await overtaken(kit, lambda s: s.pending.retract("t", b), lambda s: s.pending.retract("t", a))
    done(slow, "the slow retract")
    equal(await queue_texts(kit.store, "t"), ["c"], "the queue")


@case("pending", "overtaken-freeze", covers=("pending.freeze",))
async def case_overtaken_freeze(kit: Kit) -> None:
    """A freeze takes the queue as it is when it lands: edited, shortened, lengthened or already taken."""
    changes: dict[str, tuple[Any, list[str]]] = {
        "edit": (lambda s, t, name: s.pending.edit(t, name, Message.user("A")), ["A", "b"]),
        "retract": (lambda s, t, name: s.pending.retract(t, name), ["b"]),
        "append": (lambda s, t, name: enqueue(s, t, "c"), ["a", "b", "c"]),
        "freeze": (lambda s, t, name: s.pending.freeze(t), ["a", "b"]),
    }
    for thread, (change, expected) in changes.items():
        await kit.store.threads.create(thread)
        names = await enqueue(kit.store, thread, "a", "b")
        fast = partial(change, t=thread, name=names[0])
        slow, other = await overtaken(kit, partial(frozen, thread=thread), fast)
        done(slow, f"a freeze overtaken by {thread}")
        done(other, thread)
        equal(texts(await kit.store.messages.history(thread)), expected, f"overtaken by {thread}")
        equal(await queue_texts(kit.store, thread), [], f"the queue after {thread}")


async def frozen(store: Store, thread: str) -> Any:
    """Freeze a thread's queue."""
    return await store.pending.freeze(thread)


@case("pending", "overtaken-freeze-run", covers=("pending.freeze",))
async def case_overtaken_freeze_run(kit: Kit) -> None:
    """A freeze for a run that ended in between takes nothing: what was meant for it keeps waiting."""
    run = await kit.store.runs.start("t", "agent")
    await enqueue(kit.store, "t", "a", mode=DeliveryMode(boundary="next_step"))
    slow, _ = await overtaken(
        kit,
        lambda s: s.pending.freeze("t", boundary="next_step", run=run.step()),
        lambda s: s.commit("t", run=run.finish()),
    )
    refused(slow, IllegalTransition, "the slow freeze")
    equal(await queue_texts(kit.store, "t"), ["a"], "it waits")


@case("commit", "overtaken-switch", covers=("store.commit",))
async def case_overtaken_switch(kit: Kit) -> None:
    """A commit to the current branch lands on the branch that is current when it lands."""
    (one,) = (await commit_texts(kit.store, "t", "a")).message_ids
    slow, fork = await overtaken(
        kit, lambda s: commit_texts(s, "t", "b"), lambda s: s.branches.fork("t", at=one, name="side", switch=True)
    )
    done(slow, "the slow commit")
    equal(texts(await kit.store.messages.history("t", branch=fork.id)), ["a", "b"], "the new branch")
    equal(texts(await kit.store.messages.history("t", branch=0)), ["a"], "the old one")


@case("commit", "overtaken-delete", covers=("store.commit", "state.put", "pending.append"))
async def case_overtaken_delete(kit: Kit) -> None:
    """Nothing is written to a thread that was deleted in between, by any call."""
    writers: list[Any] = [
        lambda s, t: commit_texts(s, t, "late", key="k"),
        lambda s, t: s.commit(t),
        lambda s, t: s.runs.start(t, "agent", messages=[Message.user("late")]),
        lambda s, t: s.state.put(t, "doc", 1),
        lambda s, t: s.pending.append(t, [Message.user("late")]),
        lambda s, t: s.pending.freeze(t, messages=[Message.user("late")]),
    ]
    for i, write in enumerate(writers):
        thread = f"t{i}"
        await commit_texts(kit.store, thread, "a")
        slow, _ = await overtaken(kit, partial(write, t=thread), partial(erased, thread=thread))
        refused(slow, NotFoundError, f"writer {i}")
        held = await dump(kit.store, thread)
        left = {table: rows for table, rows in held.items() if rows and table != "threads"}
        equal(left, {}, f"writer {i} left nothing")


async def erased(store: Store, thread: str) -> None:
    """Delete a thread."""
    await store.threads.delete(thread)


@case("commit", "overtaken-birth", covers=("store.commit",))
async def case_overtaken_birth(kit: Kit) -> None:
    """Two first commits: both land, one after the other; with expect=0 the slower one is refused."""
    for passes in (0, 1):
        thread = f"t{passes}"
        slow, _ = await overtaken(kit, speaker(thread, "slow"), speaker(thread, "fast"), passes=passes)
        equal(done(slow, "the slow commit").version, 2, "it comes second")
    late, _ = await overtaken(kit, speaker("u", "slow", expect=0), speaker("u", "fast"), passes=1)
    conflict(refused(late, VersionConflict, "a first commit that expects nothing"), 0, 1)


@case("commit", "overtaken-parent", covers=("store.commit", "threads.delete"))
async def case_overtaken_parent(kit: Kit) -> None:
    """A thread is not created under a parent that was deleted in between."""
    await kit.store.threads.create("p")
    trace = RunTrace(parent_thread_id="p")
    new = NewRun(agent_id="agent", id="r", body=RunBody(activation=RunActivation(trace=trace)))
    late, _ = await overtaken(kit, lambda s: s.commit("t", run=new), lambda s: s.threads.delete("p"), passes=1)
    refused(late, NotFoundError, "the slow birth")
    equal((await kit.store.threads.find("t"), await kit.store.runs.find("r")), (None, None), "neither thread nor run")


@case("commit", "overtaken-fence", covers=("store.commit",))
async def case_overtaken_fence(kit: Kit) -> None:
    """A claim that is superseded between planning and writing writes nothing."""
    await kit.store.threads.create("t")
    slow, _ = await overtaken(kit, lambda s: commit_texts(s, "t", "zombie", fence=1), lambda s: s.commit("t", fence=2))
    conflict(refused(slow, StaleClaim, "the slow commit"), 1, 2)
    equal((await kit.store.threads.get("t")).version, 0, "nothing was said")


@case("commit", "overtaken-key", covers=("store.commit",))
async def case_overtaken_key(kit: Kit) -> None:
    """A retry that is overtaken by the first try gets its receipt."""
    for thread in ("t", "missing"):
        if thread == "t":
            await kit.store.threads.create(thread)
        once = speaker(thread, "once", key="k")
        slow, fast = await overtaken(kit, once, once, passes=int(thread == "missing"))
        equal((done(slow, "the slow try").replayed, fast.replayed), (True, False), f"{thread}: who did it")
        equal(slow.message_ids, fast.message_ids, f"{thread}: one receipt")
        equal((await kit.store.threads.get(thread)).version, 1, f"{thread}: one effect")


@case("state", "overtaken", covers=("state.put", "store.commit"))
async def case_state_overtaken(kit: Kit) -> None:
    """A guarded write that is overtaken is refused with the rev of now; a guarded birth of a document too."""
    await kit.store.threads.create("t")
    first = await kit.store.state.put("t", "doc", 0)
    slow, fast = await overtaken(
        kit, lambda s: s.state.put("t", "doc", "slow", if_rev=first.rev), lambda s: s.state.put("t", "doc", "fast")
    )
    conflict(refused(slow, VersionConflict, "the slow put"), first.rev, fast.rev)
    late, made = await overtaken(
        kit,
        lambda s: commit_texts(s, "t", "x", state={"new": "slow"}, expect_state={"new": None}),
        lambda s: s.state.put("t", "new", "fast"),
    )
    conflict(refused(late, VersionConflict, "the slow commit"), None, made.rev)
    equal((await kit.store.threads.get("t")).version, 0, "nothing was said")


@case("branches", "overtaken-by-another-life", covers=("branches.fork", "branches.label"))
async def case_overtaken_by_another_life(kit: Kit) -> None:
    """A fork or a label planned on a thread that is deleted and made anew says nothing about the new one."""

    async def live_again(store: Store) -> None:
        await store.threads.delete("t")
        await store.threads.create("t")
        await commit_texts(store, "t", "new")

    for act in (
        lambda s: s.branches.fork("t", at="old", name="side"),
        lambda s: s.branches.label("t", "old", "mine"),
    ):
        await kit.store.commit("t", messages=[Message.user("old", id="old")])
        slow, _ = await overtaken(kit, act, live_again)
        refused(slow, NotFoundError, "the slow call")
        equal([branch.name for branch in await kit.store.branches.list("t")], ["main"], "the branches")
        equal(await kit.store.branches.labels("t"), [], "the labels")
