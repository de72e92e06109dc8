"""Cases: `load`. Thread, branch, history, version, latest run and state from one snapshot, during concurrent writes."""

from __future__ import annotations

import asyncio

from perdure.errors import InvalidError, NotFoundError
from perdure.kernel.ops import Get, Heads, ReadOp
from perdure.model.message import Message, ToolUse
from perdure.model.run import NewRun
from perdure.stores.store import Store
from perdure.testkit.helpers import REFUSED_IDS, commit_texts, move, texts
from perdure.testkit.kit import Kit, case, equal, expect, raises


@case("load", "whole", covers=("store.load",))
async def case_whole(kit: Kit) -> None:
    """A load equals what the stores return one by one."""
    await kit.store.threads.create("t", title="T", custom={"x": 1})
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("q")])
    await kit.store.commit(
        "t", messages=[Message.assistant("a")], run=run.step(), state={"plan": 1, "b": 2}, run_state={"memo": 3}
    )
    snapshot = await kit.store.load("t")
    equal(snapshot.thread, await kit.store.threads.get("t"), "thread")
    branch = await kit.store.branches.current("t")
    branch_fields = (
        snapshot.branch.id,
        snapshot.branch.name,
        snapshot.branch.head,
        snapshot.branch.length,
        snapshot.branch.current,
    )
    equal(branch_fields, (branch.id, branch.name, branch.head, branch.length, True), "branch")
    equal(snapshot.messages, await kit.store.messages.history("t"), "messages")
    equal((snapshot.version, snapshot.run), (2, await kit.store.runs.get(run.id)), "version and run")
    equal(list(snapshot.state.values()), list(await kit.store.state.list("t")), "state")
    equal(list(snapshot.run_state.values()), list(await kit.store.state.list("t", run_id=run.id)), "run state")


@case("load", "empty", covers=("store.load",))
async def case_empty(kit: Kit) -> None:
    """A thread without messages, runs or state loads as just that."""
    thread = await kit.store.threads.create("t")
    snapshot = await kit.store.load("t")
    equal(
        (snapshot.thread, snapshot.messages, snapshot.version, snapshot.run), (thread, [], 0, None), "an empty thread"
    )
    equal((snapshot.state, snapshot.run_state, snapshot.branch.id), ({}, {}, 0), "the rest")


@case("load", "missing", covers=("store.load",))
async def case_missing(kit: Kit) -> None:
    """A missing or deleted thread, and a missing branch, are not found; an invalid id is refused."""
    await raises(NotFoundError, kit.store.load("never"))
    await commit_texts(kit.store, "t", "a")
    for branch in (7, "nowhere"):
        await raises(NotFoundError, kit.store.load("t", branch=branch), repr(branch))
    await kit.store.threads.delete("t")
    await raises(NotFoundError, kit.store.load("t"))
    for name in REFUSED_IDS:
        await raises(InvalidError, kit.store.load(name), f"{name!r:.20}")


@case("load", "version-is-raw-count", covers=("store.load",))
async def case_version_is_raw_count(kit: Kit) -> None:
    """The version counts everything ever committed, although the history is smaller: folded, retracted, branched."""
    await commit_texts(kit.store, "t", "a", "b", "c")
    await kit.store.commit("t", messages=[Message.summary("abc", 1, 3)])
    await kit.store.commit("t", messages=[Message.assistant([ToolUse(id="c", name="f")]), Message.retraction("c")])
    await kit.store.branches.fork("t", at=None, name="side")
    await commit_texts(kit.store, "t", "elsewhere", branch="side")
    snapshot = await kit.store.load("t")
    equal((texts(snapshot.messages), snapshot.version), (["abc"], 7), "the view and the version")
    await commit_texts(kit.store, "t", "next", expect=snapshot.version)


@case("load", "branch", covers=("store.load",))
async def case_branch(kit: Kit) -> None:
    """The current branch, or the one asked for by number or name, with its own head."""
    (one, _) = (await commit_texts(kit.store, "t", "a", "b")).message_ids
    fork = await kit.store.branches.fork("t", at=one, name="side")
    (last,) = (await commit_texts(kit.store, "t", "c", branch="side")).message_ids
    equal(texts((await kit.store.load("t")).messages), ["a", "b"], "current")
    for branch in (fork.id, "side"):
        snapshot = await kit.store.load("t", branch=branch)
        equal(
            (texts(snapshot.messages), snapshot.branch.head, snapshot.branch.current),
            (["a", "c"], last, False),
            repr(branch),
        )
    await kit.store.branches.switch("t", "side")
    snapshot = await kit.store.load("t")
    equal(
        (texts(snapshot.messages), snapshot.branch.id, snapshot.thread.branch),
        (["a", "c"], fork.id, fork.id),
        "switched",
    )


@case("load", "run-state", covers=("store.load",))
async def case_run_state(kit: Kit) -> None:
    """The latest run comes with its own state only: what a resume needs."""
    old = await kit.store.runs.start("t", "agent")
    await kit.store.commit("t", run=old.wait(), run_state={"memo": "old", "more": 1})
    new = await kit.store.runs.start("t", "agent")
    equal((await kit.store.load("t")).run_state, {}, "a fresh run has none")
    await kit.store.commit("t", run=new.wait(), run_state={"memo": "new"})
    snapshot = await kit.store.load("t")
    equal(
        (snapshot.run.id if snapshot.run else "", snapshot.run_state["memo"].value), (new.id, "new"), "the latest run's"
    )
    equal(list(snapshot.run_state), ["memo"], "and nothing of the other")
    waiting = await kit.store.runs.get(old.id)
    await move(kit.store, waiting.resume())
    snapshot = await kit.store.load("t")
    equal({name: doc.value for name, doc in snapshot.run_state.items()}, {"memo": "old", "more": 1}, "resumed")
    created = await kit.store.runs.create("t", "agent")
    snapshot = await kit.store.load("t")
    equal((snapshot.run, snapshot.run_state, snapshot.thread.open_run_id), (created, {}, old.id), "latest is not open")


@case("load", "second-client", covers=("store.load",))
async def case_second_client(kit: Kit) -> None:
    """A client that loaded before sees forks, switches and commits of another at its next load."""
    (one, _) = (await commit_texts(kit.store, "t", "a", "b")).message_ids
    other = await kit.second()
    equal(texts((await other.load("t")).messages), ["a", "b"], "before")
    await kit.store.branches.fork("t", at=one, switch=True)
    await commit_texts(kit.store, "t", "c")
    equal(texts((await other.load("t")).messages), ["a", "c"], "after a fork and a switch")
    await kit.store.branches.switch("t", 0)
    await commit_texts(kit.store, "t", "d")
    equal(texts((await other.load("t")).messages), ["a", "b", "d"], "and back")


@case("load", "another-life", covers=("store.load", "threads.delete"))
async def case_another_life(kit: Kit) -> None:
    """A client that knew a thread and its branches reads the new one of that id, not the memory of the old."""
    (one, _) = (await commit_texts(kit.store, "t", "a", "b")).message_ids
    await kit.store.branches.fork("t", at=one, switch=True)
    await commit_texts(kit.store, "t", "c")
    other = await kit.second()
    equal(texts((await other.load("t")).messages), ["a", "c"], "the first life")
    await kit.store.threads.delete("t")
    await kit.store.threads.create("t")
    first = (await commit_texts(kit.store, "t", "x", "y")).message_ids[0]
    equal(texts((await other.load("t")).messages), ["x", "y"], "the second life")
    await kit.store.branches.fork("t", at=first, switch=True)
    await commit_texts(kit.store, "t", "z")
    for store in (other, kit.store):
        snapshot = await store.load("t")
        equal(
            (texts(snapshot.messages), snapshot.branch.id, snapshot.run, snapshot.state),
            (["x", "z"], 1, None, {}),
            "its branch",
        )
    await commit_texts(other, "t", "w")
    equal(texts((await kit.store.load("t")).messages), ["x", "z", "w"], "and writes to it")


@case("load", "one-snapshot", covers=("store.load",))
async def case_one_snapshot(kit: Kit) -> None:
    """Under a racing writer every load is of one commit: version, messages, run and both states agree."""
    start = await kit.store.commit("t", run=NewRun(agent_id="agent"), state={"n": 0}, run_state={"n": 0})
    reader, written, loads = await kit.second(), asyncio.Event(), 0

    async def write() -> None:
        run = start.run
        for i in range(1, 61):
            if run is not None:
                await asyncio.sleep(0)
                messages = [Message.assistant(str(i))]
                run = (
                    await kit.store.commit("t", messages=messages, run=run.step(), state={"n": i}, run_state={"n": i})
                ).run
        written.set()

    async def read(store: Store) -> None:
        nonlocal loads
        while not written.is_set():
            snapshot = await store.load("t")
            loads += 1
            n = snapshot.version
            counts = (
                len(snapshot.messages),
                snapshot.thread.version,
                snapshot.branch.length,
                snapshot.run.steps if snapshot.run else -1,
            )
            equal(counts, (n, n, n, n), "messages, thread, branch and run of one commit")
            equal((snapshot.state["n"].value, snapshot.run_state["n"].value), (n, n), "state of the same commit")
            await asyncio.sleep(0)

    await asyncio.gather(write(), read(reader), read(reader), read(kit.store))
    expect(loads > 0, "there were reads")
    equal((await reader.load("t")).version, 60, "the end")


@case("load", "long-view", covers=("store.load",))
async def case_long_view(kit: Kit) -> None:
    """However many reads a view holds, all of them are of one moment."""
    await commit_texts(kit.store, "t", "0")
    other, written = await kit.second(), asyncio.Event()
    reads: list[ReadOp] = [Get("thread_heads", [("t",)]), Heads("messages", ["t"])] * 150

    async def write() -> None:
        for i in range(1, 61):
            await commit_texts(kit.store, "t", str(i))
        written.set()

    async def look() -> None:
        while not written.is_set():
            answers = await other.engine.view(other.scope, reads)
            versions = {row["version"] for (row,) in answers[::2]} | {head for (head,) in answers[1::2]}
            equal(len(versions), 1, f"moments in one view, which saw versions {sorted(versions)}")
            await asyncio.sleep(0)

    await asyncio.gather(write(), look())


@case("load", "one-snapshot-switching", covers=("store.load", "branches.switch"))
async def case_one_snapshot_switching(kit: Kit) -> None:
    """Under a client that switches branches every load is wholly of the branch it names as current."""
    await commit_texts(kit.store, "t", "0", "0")
    fork = await kit.store.branches.fork("t", at=None)
    await commit_texts(kit.store, "t", str(fork.id), branch=fork.id)
    other, switched = await kit.second(), asyncio.Event()

    async def switch() -> None:
        for i in range(40):
            branch = (fork.id, 0)[i % 2]
            await kit.store.branches.switch("t", branch)
            await commit_texts(kit.store, "t", str(branch))
            await asyncio.sleep(0)
        switched.set()

    async def read() -> None:
        while not switched.is_set():
            snapshot = await other.load("t")
            equal(
                (snapshot.thread.branch, snapshot.branch.current),
                (snapshot.branch.id, True),
                "the branch is the current one",
            )
            equal(set(texts(snapshot.messages)), {str(snapshot.branch.id)}, "its messages only")
            equal(len(snapshot.messages), snapshot.branch.length, "all of them")
            await asyncio.sleep(0)

    await asyncio.gather(switch(), read(), read())


@case("load", "survives-crash", covers=("store.load",), needs=("durable",))
async def case_survives_crash(kit: Kit) -> None:
    """After a crash a load is what it was: the run can be resumed from it."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("q")])
    await kit.store.commit("t", messages=[Message.assistant("a")], run=run.wait(), state={"s": 1}, run_state={"r": 2})
    before = await kit.store.load("t")
    store = await kit.crash()
    after = await store.load("t")
    equal(after, before, "the load after a crash")
    if after.run is not None:
        equal((await move(store, after.run.resume())).status, "running", "it resumes")
