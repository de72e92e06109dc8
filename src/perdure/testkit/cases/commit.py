"""Cases: commits. What a receipt says, how a commit creates a thread, what is refused whole, concurrent commits."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import failpoints, limits
from perdure.errors import (
    AlreadyExists,
    ConflictError,
    IllegalTransition,
    InvalidError,
    NotFoundError,
    VersionConflict,
)  # fmt: skip
from perdure.model.message import Message
from perdure.model.run import NewRun, RunBody
from perdure.model.run_snapshots import RunActivation, RunRequest, RunTrace
from perdure.testkit.helpers import HOSTILE_IDS, REFUSED_IDS, commit_texts, conflict, race, texts
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import dump, untouched


def child_of(parent: str | None, resource: str | None = None) -> NewRun:
    """A new run whose activation names a parent thread and a resource."""
    trace = RunTrace(parent_thread_id=parent, resource_id=resource)
    return NewRun(agent_id="agent", body=RunBody(activation=RunActivation(trace=trace)))


@case("commit", "receipt", covers=("store.commit",))
async def case_receipt(kit: Kit) -> None:
    """Versions are 1, then 3; ids in order, given ones kept, the others minted; the truth about durability."""
    first = await kit.store.commit("t", messages=[Message.user("a", id="mine")])
    equal((first.thread_id, first.version, first.seqs, first.message_ids), ("t", 1, [1], ["mine"]), "the first")
    equal((first.run, first.replayed, first.at), (None, False, kit.clock.now), "the rest of it")
    equal(first.durable, kit.store.capabilities().durability, "durable")
    kit.clock.advance(7)
    second = await commit_texts(kit.store, "t", "b", "c")
    equal((second.version, second.seqs, second.at), (3, [2, 3], kit.clock.now), "the second")
    records = await kit.store.messages.history("t")
    equal([r.message_id for r in records], first.message_ids + second.message_ids, "ids in order")
    equal({len(name) for name in second.message_ids}, {26}, "minted ids")
    equal([r.at for r in records], [first.at, second.at, second.at], "times")


@case("commit", "everything-at-once", covers=("store.commit", "store.load"))
async def case_everything_at_once(kit: Kit) -> None:
    """Messages, run, state, run state, fence and key land together, under one rev and one time."""
    await kit.store.threads.create("t")
    receipt = await kit.store.commit(
        "t",
        messages=[Message.user("q"), Message.assistant("a")],
        run=NewRun(agent_id="agent", id="r"),
        state={"plan": {"v": 1}},
        run_state={"memo": [1]},
        expect=0,
        fence=3,
        key="k",
    )
    snapshot = await kit.store.load("t")
    equal((texts(snapshot.messages), snapshot.version, snapshot.thread.fence), (["q", "a"], 2, 3), "thread")
    equal((snapshot.run, snapshot.thread.latest_run_id), (receipt.run, "r"), "run")
    equal((snapshot.state["plan"].value, snapshot.run_state["memo"].value), ({"v": 1}, [1]), "state")
    revs = {snapshot.run.rev if snapshot.run else 0, snapshot.state["plan"].rev, snapshot.run_state["memo"].rev}
    equal(len(revs), 1, "one transaction")
    equal({r.at for r in snapshot.messages} | {snapshot.state["plan"].at, receipt.at}, {kit.clock.now}, "one time")


@case("commit", "thread-touched", covers=("store.commit",))
async def case_thread_touched(kit: Kit) -> None:
    """A commit moves the thread's version and activity, never its rev."""
    before = await kit.store.threads.create("t", title="T")
    kit.clock.advance(100)
    await commit_texts(kit.store, "t", "a")
    after = await kit.store.threads.get("t")
    equal((after.rev, after.title, after.created_at), (before.rev, "T", before.created_at), "what people edit")
    equal((after.version, after.updated_at), (1, kit.clock.now), "what commits move")


@case("commit", "creates-thread", covers=("store.commit", "threads.get"))
async def case_creates_thread(kit: Kit) -> None:
    """A commit brings a missing thread into being, with or without messages, when nothing presumes it."""
    await commit_texts(kit.store, "a", "hello")
    await commit_texts(kit.store, "b", "hello", expect=0)
    await kit.store.commit("c")
    await kit.store.commit("d", state={"plan": 1}, branch=0)
    await kit.store.runs.start("e", "agent")
    versions = [(await kit.store.threads.get(name)).version for name in "abcde"]
    equal(versions, [1, 1, 0, 0, 0], "versions")
    thread = await kit.store.threads.get("a")
    equal((thread.created_at, thread.updated_at, thread.branch), (kit.clock.now, kit.clock.now, 0), "times and branch")
    equal((await kit.store.branches.current("a")).length, 1, "its main branch")


@case("commit", "takes-lineage", covers=("store.commit", "runs.start"))
async def case_takes_lineage(kit: Kit) -> None:
    """A thread created by a run takes parent and resource from the activation's trace, trimmed."""
    await kit.store.threads.create("p")
    await commit_texts(kit.store, "t", "a", run=child_of(" p ", " acme "))
    thread = await kit.store.threads.get("t")
    equal((thread.parent_thread_id, thread.resource_id), ("p", "acme"), "lineage")
    equal((await kit.store.threads.get("p")).children, 1, "the parent counts its child")
    equal([t.id for t in (await kit.store.threads.children("p")).items], ["t"], "and lists it")
    await kit.store.runs.start("u", "agent", activation=RunActivation(trace=RunTrace(parent_thread_id="p")))
    await kit.store.runs.start("v", "agent", request=RunRequest(parent_thread_id="p"))
    await commit_texts(kit.store, "w", "a", run=child_of("  ", " "))
    parents = [(await kit.store.threads.get(name)).parent_thread_id for name in "uvw"]
    equal(parents, ["p", "p", None], "start, a request's parent, and a blank one")


@case("commit", "takes-lineage-once", covers=("store.commit",))
async def case_takes_lineage_once(kit: Kit) -> None:
    """An existing thread's parent and resource are never replaced, nor filled later, by a run."""
    for name in ("p", "q", "bare"):
        await kit.store.threads.create(name)
    await commit_texts(kit.store, "t", "a", run=child_of("p", "acme"))
    before = await kit.store.threads.get("t")
    await commit_texts(kit.store, "t", "b", run=child_of("q", "other"))
    await commit_texts(kit.store, "bare", "c", run=child_of("q", "other"))
    after = await kit.store.threads.get("t")
    equal((after.parent_thread_id, after.resource_id, after.rev), ("p", "acme", before.rev), "t keeps its lineage")
    equal((await kit.store.threads.get("bare")).parent_thread_id, None, "bare stays a root")
    equal((await kit.store.threads.get("q")).children, 0, "q has no child")


@case("commit", "bad-lineage", covers=("store.commit", "runs.start"))
async def case_bad_lineage(kit: Kit) -> None:
    """A missing, deleted or own parent refuses the whole commit: no thread, no run, no message."""
    await kit.store.threads.create("gone")
    await kit.store.threads.delete("gone")
    for parent, kind in (("never", NotFoundError), ("gone", NotFoundError), ("t", InvalidError)):
        await untouched(kit.store, kind, commit_texts(kit.store, "t", "a", run=child_of(parent)), f"parent {parent}")
    equal(await kit.store.threads.find("t"), None, "no thread")


@case("commit", "presumes-thread", covers=("store.commit",))
async def case_presumes_thread(kit: Kit) -> None:
    """A commit that names a version, a run, a fence, a head, a rev or a branch does not create the thread."""
    run = await kit.store.runs.start("other", "agent")
    conflict(await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "a", expect=3)), 3, 0)
    calls = [
        commit_texts(kit.store, "t", "a", fence=1),
        commit_texts(kit.store, "t", "a", expect_head="m"),
        commit_texts(kit.store, "t", "a", expect_state={"plan": 5}),
        commit_texts(kit.store, "t", "a", branch=1),
        commit_texts(kit.store, "t", "a", branch="side"),
        commit_texts(kit.store, "t", "a", expect=0, fence=1),
    ]
    for call in calls:
        await untouched(kit.store, NotFoundError, call)
    await kit.store.threads.delete("other")
    for change in (run, run.step(), run.finish()):
        await untouched(
            kit.store, NotFoundError, commit_texts(kit.store, "other", "a", run=change), "a deleted thread's run"
        )


@case("commit", "deleted-thread", covers=("store.commit", "threads.delete", "threads.create"))
async def case_deleted_thread(kit: Kit) -> None:
    """A late commit does not revive a deleted thread; creating it anew does, from nothing."""
    await commit_texts(kit.store, "t", "old")
    await kit.store.threads.delete("t")
    for options in ({}, {"expect": 0}, {"expect": 1}, {"key": "k"}, {"run": NewRun(agent_id="a")}):
        await untouched(kit.store, NotFoundError, commit_texts(kit.store, "t", "late", **options), repr(options))
    await kit.store.threads.create("t")
    equal((await commit_texts(kit.store, "t", "new")).seqs, [1], "a new life starts at 1")
    equal(texts(await kit.store.messages.history("t")), ["new"], "its history")


@case("commit", "empty", covers=("store.commit",))
async def case_empty(kit: Kit) -> None:
    """An empty commit is a touch: no version, no seqs, but the thread exists and is active."""
    await commit_texts(kit.store, "t", "a")
    kit.clock.advance(10)
    receipt = await kit.store.commit("t")
    equal((receipt.version, receipt.seqs, receipt.message_ids), (None, [], []), "the receipt")
    thread = await kit.store.threads.get("t")
    equal((thread.version, thread.updated_at), (1, kit.clock.now), "the thread")


@case("commit", "existing-id", covers=("store.commit",))
async def case_existing_id(kit: Kit) -> None:
    """A committed message never changes: its id is refused, wherever it is; repeats in one commit too."""
    await kit.store.commit("t", messages=[Message.user("a", id="m")])
    again = [Message.user("new", id="n"), Message.user("changed", id="m")]
    error = await untouched(kit.store, AlreadyExists, kit.store.commit("t", messages=again, state={"s": 1}))
    equal(error.actual, ["m"], "the id is named")
    fork = await kit.store.branches.fork("t", at=None)
    other = kit.store.commit("t", messages=[Message.user("b", id="m")], branch=fork.id)
    await untouched(kit.store, AlreadyExists, other, "on another branch")
    twice = [Message.user("x", id="x"), Message.user("y", id="x")]
    await untouched(kit.store, InvalidError, kit.store.commit("t", messages=twice))
    await kit.store.commit("u", messages=[Message.user("b", id="m")])
    equal((await kit.store.messages.get("u", "m")).text, "b", "another thread may use it")


@case("commit", "ids", covers=("store.commit",))
async def case_ids(kit: Kit) -> None:
    """Any legal id names its own thread, message and key; anything else is refused before any I/O."""
    for name in HOSTILE_IDS:
        await kit.store.commit(name, messages=[Message.user(name, id=name)], key=name)
    for name in HOSTILE_IDS:
        equal(texts(await kit.store.messages.history(name)), [name], repr(name))
        equal((await kit.store.commit(name, messages=[Message.user(name, id=name)], key=name)).replayed, True, "key")
    for name in REFUSED_IDS:
        calls = [
            kit.store.commit(name),
            kit.store.commit("t", key=name),
            kit.store.commit("t", expect_head=name),
            kit.store.commit("t", messages=[Message.user("x", id=name)]),
        ]
        for call in calls:
            await untouched(kit.store, InvalidError, call, f"{name!r:.20}")


@case("commit", "bad-arguments", covers=("store.commit",))
async def case_bad_arguments(kit: Kit) -> None:
    """Numbers are whole and not negative; nothing is coerced."""
    await kit.store.threads.create("t")
    bad: list[Any] = [-1, 1.0, "1", True, 2**53, [1]]
    for value in bad:
        for name in ("expect", "fence"):
            await untouched(kit.store, InvalidError, kit.store.commit("t", **{name: value}), f"{name}={value!r}")
    branches: list[Any] = [-1, 1.0, True, [1]]
    for value in branches:
        await untouched(kit.store, InvalidError, kit.store.commit("t", branch=value), f"branch={value!r}")
    wrong: list[Any] = ["text", {"role": "user"}, None]
    for message in wrong:
        await untouched(kit.store, InvalidError, kit.store.commit("t", messages=[message]), repr(message))


@case("commit", "limits", covers=("store.commit",))
async def case_limits(kit: Kit) -> None:
    """1,000 messages, 4 MB a message, 8 MB a commit: what fits lands whole, what does not leaves nothing."""
    most = [Message.user("x") for _ in range(limits.COMMIT_MESSAGES)]
    equal((await kit.store.commit("t", messages=most)).version, limits.COMMIT_MESSAGES, "as many as allowed")
    await untouched(kit.store, InvalidError, kit.store.commit("t", messages=[*most, Message.user("x")]), "one more")
    large = "x" * (limits.MESSAGE_BYTES - 200)
    await commit_texts(kit.store, "u", large, large)
    equal([len(text) for text in texts(await kit.store.messages.history("u"))], [len(large)] * 2, "two of 4 MB")
    before = await kit.store.threads.get("u")
    await raises(InvalidError, commit_texts(kit.store, "u", large, large, "x" * 1_000), "more than 8 MB")
    await raises(
        InvalidError, commit_texts(kit.store, "u", "é" * (limits.MESSAGE_BYTES // 2)), "a message of more than 4 MB"
    )
    equal(await kit.store.threads.get("u"), before, "nothing of a refused commit")


@case("commit", "all-or-nothing", covers=("store.commit",))
async def case_all_or_nothing(kit: Kit) -> None:
    """Whichever part of a full commit fails, nothing of it stays: messages, run, state, key, fence, pointers, times."""
    run = await kit.store.runs.start("t", "agent", run_id="r", messages=[Message.user("a", id="m")])
    await kit.store.commit("t", state={"plan": 1}, fence=5)
    done = (await kit.store.commit("t", run=NewRun(agent_id="x", id="done"))).run
    done = (await kit.store.commit("t", run=done.finish())).run
    whole: dict[str, Any] = {
        "messages": [Message.assistant("b")],
        "run": run.step(),
        "state": {"plan": 2, "more": 1},
        "run_state": {"memo": 1},
        "key": "k",
        "fence": 6,
        "expect": 1,
        "expect_head": "m",
    }
    spoilt: list[tuple[type[ConflictError], dict[str, Any]]] = [
        (ConflictError, {"fence": 4}),
        (VersionConflict, {"expect": 0}),
        (VersionConflict, {"expect_head": "other"}),
        (IllegalTransition, {"run": done.step()}),
        (AlreadyExists, {"run": NewRun(agent_id="x", id="r")}),
        (VersionConflict, {"expect_state": {"plan": 1}}),
        (VersionConflict, {"expect_state": {"more": 1}}),
        (AlreadyExists, {"messages": [Message.assistant("b"), Message.assistant("c", id="m")]}),
    ]
    for kind, change in spoilt:
        kit.clock.advance(1)
        await untouched(kit.store, kind, kit.store.commit("t", **{**whole, **change}), repr(change)[:100])
    receipt = await kit.store.commit("t", **whole)
    equal((receipt.version, receipt.replayed), (2, False), "unspoilt, it lands")


@case("commit", "recovers", covers=("store.commit", "messages.history"))
async def case_recovers(kit: Kit) -> None:
    """Failing writers disturb no one else: readers see whole commits throughout, and the next writer goes on."""
    await commit_texts(kit.store, "t", "0")
    other = await kit.second()

    async def fail(i: int) -> None:
        await raises(VersionConflict, commit_texts(other, "t", f"bad {i}", expect=999, state={"n": i}))

    async def read() -> None:
        snapshot = await kit.store.load("t")
        equal(texts(snapshot.messages), [str(i) for i in range(snapshot.version)], "what a reader sees")
        equal(snapshot.state, {}, "no state of a failed commit")

    for i in range(1, 8):
        await asyncio.gather(
            *[fail(i) for _ in range(4)], commit_texts(kit.store, "t", str(i)), *[read() for _ in range(4)]
        )
    equal((await kit.store.threads.get("t")).version, 8, "the version")


@case("commit", "concurrent-unguarded", covers=("store.commit",))
async def case_concurrent_unguarded(kit: Kit) -> None:
    """64 commits at once, on a thread that is there and on one that is not: all land, versions exactly 1..64."""
    await kit.store.threads.create("there")
    clients = [kit.store, await kit.second()]
    for thread in ("there", "missing"):
        won, lost = await race(*[commit_texts(clients[i % 2], thread, str(i)) for i in range(64)])
        equal([str(error) for error in lost], [], f"{thread}: no conflicts")
        equal(sorted(receipt.version or 0 for receipt in won), list(range(1, 65)), f"{thread}: versions")
        records = await kit.store.messages.history(thread)
        equal([r.seq for r in records], list(range(1, 65)), f"{thread}: seqs")
        by_seq = {receipt.seqs[0]: receipt.message_ids[0] for receipt in won}
        equal({r.seq: r.message_id for r in records}, by_seq, f"{thread}: each receipt names its own seq")


@case("commit", "concurrent-guarded", covers=("store.commit",))
async def case_concurrent_guarded(kit: Kit) -> None:
    """64 commits at once that expect the same version: exactly one lands, the others learn both versions."""
    await commit_texts(kit.store, "t", "a")
    clients = [kit.store, await kit.second()]
    won, lost = await race(*[commit_texts(clients[i % 2], "t", str(i), expect=1) for i in range(64)])
    equal((len(won), len(lost)), (1, 63), "one winner")
    for error in lost:
        equal((type(error), error.expected, error.actual), (VersionConflict, 1, 2), "what the others learn")
    equal((await kit.store.threads.get("t")).version, 2, "the version")


@case("commit", "concurrent-births", covers=("store.commit",))
async def case_concurrent_births(kit: Kit) -> None:
    """Many first commits with a parent: one thread, one child counted; with expect=0 exactly one lands."""
    await kit.store.threads.create("p")
    clients = [kit.store, await kit.second()]
    won, lost = await race(*[commit_texts(clients[i % 2], "t", str(i), run=child_of("p")) for i in range(16)])
    equal((len(won), len(lost)), (16, 0), "all land")
    equal((await kit.store.threads.get("p")).children, 1, "one child")
    won, lost = await race(*[commit_texts(clients[i % 2], "u", str(i), expect=0) for i in range(16)])
    equal((len(won), {type(error) for error in lost}), (1, {VersionConflict}), "one first commit")


@case("commit", "lost-answer", covers=("store.commit",))
async def case_lost_answer(kit: Kit) -> None:
    """A process that dies before the transaction wrote nothing; one that dies after it wrote everything."""

    class Died(Exception):
        pass

    def die(name: str) -> None:
        raise Died(name)

    await kit.store.threads.create("t")
    failpoints.arm("commit.before_transact", die)
    await untouched(kit.store, Died, commit_texts(kit.store, "t", "never", key="k"))
    failpoints.arm("commit.after_transact", die)
    await raises(Died, commit_texts(kit.store, "t", "once", state={"n": 1}, key="k"))
    before = await dump(kit.store)
    again = await commit_texts(kit.store, "t", "once", state={"n": 1}, key="k")
    equal((again.replayed, again.seqs), (True, [1]), "the keyed retry gets the receipt")
    equal(await dump(kit.store), before, "and writes nothing")
    expect(texts(await kit.store.messages.history("t")) == ["once"], "one effect")
