"""Cases: a thread's tree of branches. Parents of messages, labels, deleted branches, deep forks, navigation, damage."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

from perdure.errors import CorruptError
from perdure.kernel.ops import Delete, Op, Patch
from perdure.model.message import Message
from perdure.stores.store import Store
from perdure.testkit.helpers import calling, ids, parents, path, say, seqs
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump

PARENTS = (
    "messages.list",
    "messages.range",
    "messages.get",
    "messages.find",
    "messages.history",
    "messages.external",
    "messages.iter",
)


async def weave(store: Store) -> dict[str, str | None]:
    """Three branches and a second root, written to in turn; returns every message's true parent."""
    await say(store, "t", "a", "b")
    await store.branches.fork("t", at="a", name="x")
    await store.branches.fork("t", at="b", name="y")
    await store.branches.fork("t", at=None, name="z")
    expected: dict[str, str | None] = {"a": None, "b": "a"}
    heads: dict[str, str | None] = {"main": "b", "x": "a", "y": "b", "z": None}
    for turn in range(4):
        for branch in ("x", "main", "z", "y"):
            name = f"{branch}{turn}"
            message = Message.user(
                name, id=name, visibility="internal" if turn % 2 else "all", run_id="r" if branch == "y" else "s"
            )
            await store.commit("t", messages=[message], branch=branch)
            expected[name], heads[branch] = heads[branch], name
    return expected


@case("branches", "parents-everywhere", covers=PARENTS)
async def case_parents(kit: Kit) -> None:
    """Parents are implicit and right in every reading: windows, filters, pages, ranges, ids, paths, tails."""
    true = await weave(kit.store)
    reads = kit.store.messages
    views = [
        (await reads.list("t")).items,
        (await reads.list("t", order="desc")).items,
        (await reads.list("t", after_seq=7, before_seq=13)).items,
        (await reads.list("t", visibility="internal")).items,
        (await reads.list("t", visibility="external", order="desc")).items,
        (await reads.list("t", run_id="r")).items,
        await collect(reads.iter("t", run_id="s")),
        await reads.range("t", 6, 11),
        [await reads.get("t", name) for name in true],
        [record for name in true if (record := await reads.find("t", name)) is not None],
    ]
    for branch in ("main", "x", "y", "z"):
        views += [await reads.history("t", branch=branch), await reads.history("t", branch=branch, limit=3)]
        views += [await reads.external("t", branch=branch), await reads.history("t", branch=branch, upto=9)]
    for n, records in enumerate(views):
        expect(records, f"reading {n} has records")
        equal(parents(records), {r.message_id: true[r.message_id] for r in records}, f"parents in reading {n}")
    pages = [page async for page in _pages(kit.store, 1)]
    equal({name: parent for page in pages for name, parent in page.items()}, true, "one by one")


async def _pages(store: Store, limit: int) -> AsyncIterator[dict[str, str | None]]:
    cursor: str | None = None
    while True:
        page = await store.messages.list("t", limit=limit, cursor=cursor)
        yield parents(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


@case("branches", "interleaved", covers=("messages.history", "messages.list", "branches.list"))
async def case_interleaved(kit: Kit) -> None:
    """Branches written to in turn keep their own order; seqs rise over all of them together."""
    true = await weave(kit.store)
    equal(await path(kit, "main"), ["a", "b", "main0", "main1", "main2", "main3"], "main")
    equal(await path(kit, "x"), ["a", "x0", "x1", "x2", "x3"], "x")
    equal(await path(kit, "y"), ["a", "b", "y0", "y1", "y2", "y3"], "y")
    equal(await path(kit, "z"), ["z0", "z1", "z2", "z3"], "z")
    equal(seqs((await kit.store.messages.list("t")).items), list(range(1, len(true) + 1)), "seqs")
    equal([b.length for b in await kit.store.branches.list("t")], [6, 4, 4, 4], "lengths")


@case("branches", "random-tree", covers=("branches.fork", "messages.history", "store.commit"))
async def case_random_tree(kit: Kit) -> None:
    """A few hundred random forks and appends: every path is what walking the parents gives."""
    chance = random.Random(20_260_101)
    true: dict[str, str | None] = {}
    heads: dict[int, str | None] = {0: None}
    await kit.store.threads.create("t")
    for n in range(250):
        if chance.random() < 0.3 and true:
            at = chance.choice([None, *true])
            made = await kit.store.branches.fork("t", at=at)
            heads[made.id] = at
        branch, name = chance.choice(list(heads)), f"m{n}"
        await say(kit.store, "t", name, branch=branch)
        true[name], heads[branch] = heads[branch], name
    for branch, head in heads.items():
        walked: list[str] = []
        while head is not None:
            walked.append(head)
            head = true[head]
        equal(await path(kit, branch), walked[::-1], f"the path of branch {branch}")


@case("branches", "fork-of-forks", covers=("branches.fork", "messages.history", "store.load"))
async def case_deep(kit: Kit) -> None:
    """300 forks of forks: the deepest history is read whole, by every client, in order and in full."""
    await say(kit.store, "t", "m0")
    for n in range(1, 301):
        made = await kit.store.branches.fork("t", at=f"m{n - 1}")
        await say(kit.store, "t", f"m{n}", f"aside{n}", branch=made.id)
    other = await kit.second()
    expected = [f"m{n}" for n in range(301)] + ["aside300"]
    for store in (kit.store, other):
        equal(ids(await store.messages.history("t", branch=300)), expected, "the deepest path")
        equal(ids(await store.messages.history("t", branch=300, limit=3)), expected[-3:], "its tail")
        equal(ids(await store.messages.history("t", branch=150)), [*expected[:151], "aside150"], "one half way")
    await kit.store.branches.switch("t", 300)
    equal(ids((await other.load("t")).messages), expected, "loaded")


@case("branches", "deep-without-messages", covers=("branches.fork", "messages.history"))
async def case_deep_empty(kit: Kit) -> None:
    """Forks of forks that were never written to lead straight to the message they were made at."""
    await say(kit.store, "t", "a", "b")
    for _ in range(5):
        await kit.store.branches.fork("t", at="a", switch=True)
    equal(await path(kit), ["a"], "the path")
    await say(kit.store, "t", "c")
    equal((await kit.store.messages.get("t", "c")).parent_id, "a", "the parent of what comes next")


@case("branches", "navigate-user", covers=("branches.fork", "messages.get", "store.commit"))
async def case_navigate_user(kit: Kit) -> None:
    """Going back to a user message: the branch ends before it, its text is at hand, the new turn is its sibling."""
    await say(kit.store, "t", "q1")
    await kit.store.commit("t", messages=[Message.assistant("a1", id="a1")])
    await say(kit.store, "t", "q2")
    target = await kit.store.messages.get("t", "q2")
    await kit.store.branches.fork("t", before="q2", switch=True)
    equal((await path(kit), target.text), (["q1", "a1"], "q2"), "the path and the text to edit")
    await say(kit.store, "t", "q2 again")
    equal((await kit.store.messages.get("t", "q2 again")).parent_id, target.parent_id, "siblings")


@case("branches", "navigate-root", covers=("branches.fork", "store.commit"))
async def case_navigate_root(kit: Kit) -> None:
    """Going back to the very first user message leaves an empty path, and the next append is another root."""
    await say(kit.store, "t", "q1", "q2")
    await kit.store.branches.fork("t", before="q1", switch=True)
    equal(await path(kit), [], "the path")
    await say(kit.store, "t", "q0")
    equal((await kit.store.messages.get("t", "q0")).parent_id, None, "another root")


@case("branches", "navigate-other", covers=("branches.fork", "branches.switch"))
async def case_navigate_other(kit: Kit) -> None:
    """Going to an answer: the branch ends with it; going to another branch's head is a switch, and adds nothing."""
    await say(kit.store, "t", "q1")
    await kit.store.commit("t", messages=[Message.assistant("a1", id="a1")])
    await say(kit.store, "t", "q2")
    await kit.store.branches.fork("t", at="a1", name="x", switch=True)
    equal(await path(kit), ["q1", "a1"], "the path")
    log = (await kit.store.messages.list("t")).items
    await kit.store.branches.switch("t", "main")
    equal((await path(kit), (await kit.store.messages.list("t")).items), (["q1", "a1", "q2"], log), "and back")


@case("branches", "summary-on-fork", covers=("branches.fork", "store.commit", "messages.history"))
async def case_branch_summary(kit: Kit) -> None:
    """A summary of the branch left behind hangs at the destination: under an answer, under a parent, or as a root."""
    await say(kit.store, "t", "q1", "q2", "q3")
    points: list[tuple[dict[str, Any], list[str]]]
    points = [({"at": "q2"}, ["q1", "q2"]), ({"before": "q2"}, ["q1"]), ({"before": "q1"}, [])]
    for where, expected in points:
        made = await kit.store.branches.fork("t", **where, switch=True)
        name = f"S{made.id}"
        await kit.store.commit("t", messages=[Message.summary("what was tried", 3, 3, id=name)])
        await say(kit.store, "t", f"next{made.id}")
        equal(await path(kit), [*expected, name, f"next{made.id}"], f"the path after {where}")
        parent = (await kit.store.messages.get("t", name)).parent_id
        equal(parent, expected[-1] if expected else None, "what the summary hangs under")
    equal(await path(kit, "main"), ["q1", "q2", "q3"], "the branch left behind")


@case("branches", "context-follows-current", covers=("messages.history", "branches.switch", "store.load"))
async def case_context(kit: Kit) -> None:
    """A mixed tree with tools, a compaction and a branch summary: each branch's context is its own."""
    await kit.store.commit(
        "t",
        messages=[
            Message.user("q", id="q"),
            calling("c", id="a"),
            Message.tool("c", id="r"),
            Message.user("v", id="v"),
        ],
    )
    await kit.store.branches.fork("t", at="a", name="x")
    await kit.store.commit("t", messages=[Message.tool("c", "other", id="rx"), Message.user("w", id="w")], branch="x")
    await kit.store.commit("t", messages=[Message.summary("s", 1, 3, id="S")])
    equal(await path(kit), ["S", "v"], "the main branch, compacted")
    equal(await path(kit, "x"), ["q", "a", "rx", "w"], "the other branch, whole")
    await kit.store.branches.switch("t", "x")
    equal(ids((await kit.store.load("t")).messages), ["q", "a", "rx", "w"], "loaded")
    await kit.store.branches.fork("t", at="a", name="open", switch=True)
    equal(await path(kit), ["q"], "a branch that ends in an open call")


@case("branches", "damage-is-reported", covers=("messages.history", "messages.list"))
async def case_damage(kit: Kit) -> None:
    """A branch whose parent is missing, or which is its own ancestor, is reported, not read in part or endlessly."""
    await say(kit.store, "t", "a")
    for n in range(1, 4):
        await kit.store.branches.fork("t", at="a")
        await say(kit.store, "t", f"b{n}", branch=n)
        await kit.store.branches.fork("t", at=f"b{n}")
    damage: list[Op] = [Patch("branches", ("t", 1), {"parent": 2, "fork_seq": 0})]
    await kit.store.engine.transact(kit.store.scope, damage)
    fresh = await kit.second()
    await raises(CorruptError, fresh.messages.history("t", branch=2), "its own ancestor")
    await kit.store.engine.transact(kit.store.scope, [Delete("branches", ("t", 1))])
    fresh = await kit.second()
    error = await raises(CorruptError, fresh.messages.history("t", branch=2), "a missing parent")
    expect("'t'" in error.where, f"the thread is named: {error}")


@case("branches", "many-threads-same-numbers", covers=("branches.fork", "messages.history"))
async def case_many_threads(kit: Kit) -> None:
    """Branch numbers belong to their thread: the same number in two threads is two branches, also when remembered."""
    for thread, at in (("t", "a"), ("u", "b")):
        await say(kit.store, thread, "a", "b", "c")
        await kit.store.branches.fork(thread, at=at, switch=True)
        await say(kit.store, thread, f"{thread}-end")
    for _ in range(2):
        equal(ids(await kit.store.messages.history("t", branch=1)), ["a", "t-end"], "thread t")
        equal(ids(await kit.store.messages.history("u", branch=1)), ["a", "b", "u-end"], "thread u")


@case("branches", "fork-writes-one-row", covers=("branches.fork",))
async def case_fork_cheap(kit: Kit) -> None:
    """Forking copies no message: whatever the length of the thread, one branch row is added."""
    await say(kit.store, "t", *[f"m{n}" for n in range(50)])
    before = await dump(kit.store)
    await kit.store.branches.fork("t", at="m49")
    after = await dump(kit.store)
    equal(len(after["branches"]) - len(before["branches"]), 1, "branch rows")
    same = [table for table in before if table not in ("branches", "thread_heads")]
    equal({table: after[table] for table in same}, {table: before[table] for table in same}, "everything else")


@case("branches", "tree-survives", covers=("branches.list", "branches.labels", "messages.history"), needs=("durable",))
async def case_tree_survives(kit: Kit) -> None:
    """Branches, labels, deleted pointers and paths come back after a close and after a crash."""
    await weave(kit.store)
    await kit.store.branches.label("t", "x2", "here")
    await kit.store.branches.delete("t", "z")

    async def everything() -> Any:
        branches = await kit.store.branches.list("t")
        paths = [ids(await kit.store.messages.history("t", branch=branch.id)) for branch in branches]
        return branches, paths, await kit.store.branches.labels("t")

    before = await everything()
    await kit.reopen()
    equal(await everything(), before, "after a close")
    await kit.crash()
    equal(await everything(), before, "after a crash")
