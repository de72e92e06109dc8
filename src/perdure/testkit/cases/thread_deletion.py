"""Cases: deleting threads. The three strategies, what is deleted too, what stays, races, and a crash in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure import failpoints
from perdure.errors import AlreadyExists, HasChildren, InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.model.run import NewRun
from perdure.stores.store import Store
from perdure.stores.threads import Strategy
from perdure.testkit.cases.thread_hierarchy import chain
from perdure.testkit.helpers import calling, ids, say, small_pieces
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import Dump, belongs_to, dump, overtaken, untouched

WEEK = 7 * 24 * 3600 * 1000


class Interrupted(Exception):
    """The process dies here."""


def _interrupt(name: str) -> None:
    raise Interrupted(name)


async def furnish(store: Store, thread: str) -> None:
    """A thread with something in every table: messages on two branches, labels, pending, runs, state and keys."""
    await store.commit(
        thread,
        messages=[Message.user("q", id=f"{thread}-m1"), calling("c1", id=f"{thread}-m2")],
        run=NewRun(agent_id="agent", id=f"{thread}-run"),
        state={f"{thread}-plan": {"x": 1}},
        run_state={"scratch": [1]},
        key=f"{thread}-key",
    )
    await store.branches.fork(thread, at=f"{thread}-m1", name=f"{thread}-try", switch=True)
    await store.commit(thread, messages=[Message.user("again", id=f"{thread}-m3")])
    await store.branches.label(thread, f"{thread}-m3", f"{thread}-label")
    await store.pending.append(thread, [Message.user("later", id=f"{thread}-p1")])
    await store.threads.update(thread, title=f"{thread}-title", resource_id=f"{thread}-res", custom={thread: 1})


def expect_only_tombstone(contents: Dump, thread: str) -> None:
    """Nothing of the thread is left but a row that says that, and when, it was deleted."""
    left = belongs_to(contents, thread)
    equal(sorted(left), ["threads"], f"where {thread!r} is still named: {left!r:.1500}")
    (row,) = left["threads"]
    times = ("created_at", "deleted_at", "erased_at")
    bare = {name: value for name, value in row.columns.items() if value is not None and name not in times}
    equal((bare, row.body in (b"{}", "{}", None)), ({}, True), "the tombstone is bare")


@case("threads", "delete-missing", covers=("threads.delete",))
async def case_delete_missing(kit: Kit) -> None:
    """Deleting what is not there, or not there any more, is NotFoundError with every strategy."""
    await kit.store.threads.create("a")
    await kit.store.threads.delete("a")
    for name in ("missing", "a"):
        for strategy in ("reject", "detach", "cascade"):
            attempt = kit.store.threads.delete(name, strategy=strategy)
            await untouched(kit.store, NotFoundError, attempt, f"{strategy} {name}")
    await kit.store.threads.create("b")
    wrong: Any = "destroy"
    await untouched(kit.store, InvalidError, kit.store.threads.delete("b", strategy=wrong))


@case("threads", "delete-reject", covers=("threads.delete",))
async def case_delete_reject(kit: Kit) -> None:
    """`reject` refuses a thread with children, names them and leaves the tree alone; a leaf goes."""
    await chain(kit.store, "a", "b", "c")
    error = await untouched(kit.store, HasChildren, kit.store.threads.delete("a", strategy="reject"))
    equal(error.actual, ["b"], "the children named")
    await kit.store.threads.delete("c", strategy="reject")
    await kit.store.threads.delete("b", strategy="reject")
    equal([t.id for t in await collect(kit.store.threads.iter())], ["a"], "what is left")
    equal((await kit.store.threads.get("a")).children, 0, "children of a")


@case("threads", "delete-detach", covers=("threads.delete",))
async def case_delete_detach(kit: Kit) -> None:
    """`detach`, the default, makes direct children roots at that moment; grandchildren keep their parent."""
    await chain(kit.store, "top", "a", "b", "c")
    await kit.store.threads.create("b2", parent_thread_id="a", title="t", custom={"k": 1})
    started = kit.clock.now
    kit.clock.advance(10)
    await kit.store.threads.delete("a")
    threads = {t.id: t for t in await collect(kit.store.threads.iter())}
    equal(sorted(threads), ["b", "b2", "c", "top"], "what is left")
    equal({t.id: t.parent_thread_id for t in threads.values()}, dict.fromkeys(threads) | {"c": "b"}, "parents")
    equal({n: threads[n].updated_at - started for n in threads}, {"b": 10, "b2": 10, "c": 0, "top": 0}, "times")
    equal((threads["b2"].title, threads["b2"].custom, threads["top"].children), ("t", {"k": 1}, 0), "the rest")
    roots = {t.id for t in (await kit.store.threads.list(root=True)).items}
    equal(roots, {"b", "b2", "top"}, "roots as listed")


@case("threads", "delete-cascade", covers=("threads.delete",))
async def case_delete_cascade(kit: Kit) -> None:
    """`cascade` deletes the whole subtree and nothing else."""
    await chain(kit.store, "top", "aleph", "beth", "gimel")
    for name, parent in (("daleth", "aleph"), ("zayin", "beth"), ("sibling", "top"), ("other", None)):
        await kit.store.threads.create(name, parent_thread_id=parent)
    before = {name: await kit.store.threads.get(name) for name in ("sibling", "other")}
    await kit.store.threads.delete("aleph", strategy="cascade")
    threads = {t.id: t for t in await collect(kit.store.threads.iter())}
    equal(sorted(threads), ["other", "sibling", "top"], "what is left")
    equal({name: threads[name] for name in before}, before, "untouched threads")
    equal(threads["top"].children, 1, "children of the parent")
    contents = await dump(kit.store)
    for name in ("aleph", "beth", "gimel", "daleth", "zayin"):
        expect_only_tombstone(contents, name)


@case("threads", "delete-takes-everything", covers=("threads.delete",))
async def case_delete_everything(kit: Kit) -> None:
    """Messages, branches, labels, pending, runs, state and keys go; another thread stays as it is, byte for byte."""
    await furnish(kit.store, "keep")
    before = await dump(kit.store)
    await furnish(kit.store, "gone")
    owned = {table.replace("/gone", "") for table in belongs_to(await dump(kit.store, "gone"), "gone")}
    schema = kit.store.engine.schema
    names = {*schema.table, *schema.log} - {"profiles"}
    equal(owned, names, "the thread has something everywhere")
    await kit.store.threads.delete("gone")
    after = await dump(kit.store, "gone")
    expect_only_tombstone(after, "gone")
    after["threads"] = [row for row in after["threads"] if row.key != ("gone",)]
    equal(after, before, "the thread that stays")


@case("threads", "deleted-is-gone", covers=("threads.delete", "threads.find", "threads.get", "threads.update"))
async def case_deleted_is_gone(kit: Kit) -> None:
    """Every call that names a deleted thread is NotFoundError, through this client and another; nothing revives it."""
    other = await kit.second()
    await furnish(kit.store, "t")
    run = await other.runs.get("t-run")
    equal(len(await other.messages.history("t")), 2, "the other client has seen it")
    await kit.store.threads.delete("t")
    for store in (kit.store, other):
        equal(await store.threads.find("t"), None, "find")
        for what, call in calls_on(store, run).items():
            await untouched(kit.store, NotFoundError, call(), what)
        equal(await store.runs.find("t-run"), None, "its run")
        equal((await store.runs.list()).items, [], "runs")
        equal(await store.pending.threads(), [], "threads with pending messages")


def calls_on(store: Store, run: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """One call of each kind on the thread `t`."""
    hello = [Message.user("hello")]
    return {
        "get": lambda: store.threads.get("t"),
        "update": lambda: store.threads.update("t", title="x"),
        "delete": lambda: store.threads.delete("t"),
        "children": lambda: store.threads.children("t"),
        "as a parent": lambda: store.threads.create("new", parent_thread_id="t"),
        "list": lambda: store.messages.list("t"),
        "find": lambda: store.messages.find("t", "t-m1"),
        "range": lambda: store.messages.range("t", 1, 2),
        "history": lambda: store.messages.history("t"),
        "external": lambda: store.messages.external("t"),
        "unfinished": lambda: store.messages.unfinished_calls("t"),
        "load": lambda: store.load("t"),
        "commit": lambda: store.commit("t", messages=hello),
        "commit on a branch": lambda: store.commit("t", messages=hello, branch=1),
        "commit of a run": lambda: store.commit("t", run=run),
        "commit with a known key": lambda: store.commit("t", messages=hello, key="t-key"),
        "branches": lambda: store.branches.list("t"),
        "fork": lambda: store.branches.fork("t", at="t-m1"),
        "switch": lambda: store.branches.switch("t", 0),
        "label": lambda: store.branches.label("t", "t-m1", "x"),
        "labels": lambda: store.branches.labels("t"),
        "pending": lambda: store.pending.append("t", hello),
        "state": lambda: store.state.put("t", "t-plan", {}),
    }


@case("threads", "deleted-id-anew", covers=("threads.create", "threads.delete"))
async def case_deleted_anew(kit: Kit) -> None:
    """A deleted id can be created again, empty, also for a client that remembers the old thread's branches."""
    other = await kit.second()
    await furnish(kit.store, "t")
    equal(ids(await other.messages.history("t")), ["t-m1", "t-m3"], "the old current branch")
    await kit.store.threads.delete("t")
    made = await kit.store.threads.create("t")
    equal((made.version, made.title, made.custom, made.branch), (0, None, {}, 0), "the new thread")
    for store in (other, kit.store):
        equal(await store.messages.history("t"), [], "history")
        equal([b.name for b in await store.branches.list("t")], ["main"], "branches")
        equal((await store.branches.labels("t"), await store.state.list("t")), ([], []), "labels and state")
    receipt = await other.commit("t", messages=[Message.user("new", id="t-m1")], key="t-key")
    equal((receipt.seqs, receipt.replayed), ([1], False), "the first commit of the new thread")
    equal(ids(await kit.store.messages.history("t")), ["t-m1"], "the new history")


@case("threads", "delete-then-branch-again", covers=("threads.delete", "branches.fork", "messages.history"))
async def case_delete_branch_again(kit: Kit) -> None:
    """Branch numbers of a new life never show paths of the old one, whatever a client remembers."""
    other = await kit.second()
    for life in range(3):
        if life:
            await kit.store.threads.create("t")
        await say(kit.store, "t", f"{life}a", f"{life}b", f"{life}c")
        at = f"{life}{'abc'[life]}"
        await kit.store.branches.fork("t", at=at, switch=True)
        await say(kit.store, "t", f"{life}x")
        expected = [f"{life}{letter}" for letter in "abc"[: life + 1]] + [f"{life}x"]
        for store in (other, kit.store):
            equal(ids(await store.messages.history("t", branch=1)), expected, f"life {life}")
            equal(ids(await store.messages.history("t")), expected, f"life {life}, current")
        await kit.store.threads.delete("t")


async def _delete_during_creation(kit: Kit, strategy: Strategy, *, parent: str) -> Any:
    """The outcome of deleting `p` while another client creates a child of `parent`."""
    slow, _ = await overtaken(
        kit,
        lambda s: s.threads.delete("p", strategy=strategy),
        lambda s: s.threads.create("child", parent_thread_id=parent),
    )
    return slow


@case("threads", "delete-race-birth-reject", covers=("threads.delete", "threads.create"))
async def case_race_reject(kit: Kit) -> None:
    """A child born while its parent is being deleted with `reject`: the deletion is refused."""
    await kit.store.threads.create("p")
    slow = await _delete_during_creation(kit, "reject", parent="p")
    expect(isinstance(slow, HasChildren), f"the deletion: {slow!r}")
    equal((await kit.store.threads.get("child")).parent_thread_id, "p", "the child's parent")


@case("threads", "delete-race-birth-detach", covers=("threads.delete", "threads.create"))
async def case_race_detach(kit: Kit) -> None:
    """With `detach` the newborn child becomes a root like the others."""
    await chain(kit.store, "p", "elder")
    slow = await _delete_during_creation(kit, "detach", parent="p")
    equal(slow, None, "the deletion")
    for name in ("elder", "child"):
        equal((await kit.store.threads.get(name)).parent_thread_id, None, f"the parent of {name}")


@case("threads", "delete-race-birth-cascade", covers=("threads.delete", "threads.create"))
async def case_race_cascade(kit: Kit) -> None:
    """With `cascade` a grandchild created in between is deleted too."""
    await chain(kit.store, "p", "elder")
    slow = await _delete_during_creation(kit, "cascade", parent="elder")
    equal(slow, None, "the deletion")
    equal(await collect(kit.store.threads.iter()), [], "what is left")


@case("threads", "delete-race-move", covers=("threads.delete", "threads.update"))
async def case_race_move(kit: Kit) -> None:
    """A child that moves away while its parent is deleted with `cascade` survives."""
    await chain(kit.store, "p", "child", "grandchild")
    await kit.store.threads.create("elsewhere")
    slow, _ = await overtaken(
        kit,
        lambda s: s.threads.delete("p", strategy="cascade"),
        lambda s: s.threads.update("child", parent_thread_id="elsewhere"),
    )
    equal(slow, None, "the deletion")
    left = {t.id: t.parent_thread_id for t in await collect(kit.store.threads.iter())}
    equal(left, {"elsewhere": None, "child": "elsewhere", "grandchild": "child"}, "what is left")


@case("threads", "delete-race-swap", covers=("threads.delete", "threads.update"))
async def case_race_swap(kit: Kit) -> None:
    """One child leaves and another comes, so that the number is the same: who is there at the end is taken."""

    async def swap(store: Store) -> None:
        await store.threads.update("leaving", parent_thread_id=None)
        await store.threads.update("coming", parent_thread_id="p")

    await chain(kit.store, "p", "leaving")
    await kit.store.threads.create("coming")
    slow, _ = await overtaken(kit, lambda s: s.threads.delete("p", strategy="cascade"), swap)
    equal(slow, None, "the deletion")
    equal([t.id for t in await collect(kit.store.threads.iter())], ["leaving"], "what is left")


@case("threads", "delete-race-commit", covers=("threads.delete", "store.commit"))
async def case_race_commit(kit: Kit) -> None:
    """A commit concurrent with a deletion is deleted too, or refused; never half of it and never an orphan."""
    await say(kit.store, "left", "one")
    slow, _ = await overtaken(kit, lambda s: s.threads.delete("left"), lambda s: say(s, "left", "two"))
    equal(slow, None, "the deletion")
    expect_only_tombstone(await dump(kit.store, "left"), "left")
    await say(kit.store, "right", "one")
    slow, _ = await overtaken(kit, lambda s: say(s, "right", "two"), lambda s: s.threads.delete("right"))
    expect(isinstance(slow, NotFoundError), f"the commit: {slow!r}")
    expect_only_tombstone(await dump(kit.store, "right"), "right")


@case("threads", "delete-interrupted", covers=("threads.delete", "threads.create"), needs=("durable",))
async def case_interrupted(kit: Kit) -> None:
    """A process that dies anywhere in a deletion leaves nothing visible, and housekeeping finishes the work."""
    try:
        for number, point in enumerate(["delete.after_tombstone", *["delete.between_erasures"] * 4]):
            name = f"thread-{number}"
            await furnish(kit.store, name)
            failpoints.arm(point, _interrupt, after=max(number, 1))
            with small_pieces():
                await raises(Interrupted, kit.store.threads.delete(name), f"the crossing {number} of {point}")
            equal(await kit.store.threads.find(name), None, "invisible at once")
            await raises(NotFoundError, kit.store.commit(name, messages=[Message.user("x")]), "unwritable at once")
            await raises(AlreadyExists, kit.store.threads.create(name), "not reusable while it is being erased")
            await kit.crash()
            await kit.sweep()
            expect_only_tombstone(await dump(kit.store, name), name)
            await kit.store.threads.create(name)
            equal(await kit.store.messages.history(name), [], "a new life begins empty")
    finally:
        failpoints.disarm()


@case("threads", "delete-cascade-interrupted", covers=("threads.delete",), needs=("durable",))
async def case_cascade_interrupted(kit: Kit) -> None:
    """A cascade is atomically invisible: dying right after it hides the whole subtree."""
    try:
        names = ("aleph", "beth", "gimel")
        await chain(kit.store, *names)
        for name in names:
            await say(kit.store, name, f"{name}-m")
        failpoints.arm("delete.after_tombstone", _interrupt)
        await raises(Interrupted, kit.store.threads.delete("aleph", strategy="cascade"))
        equal(await collect(kit.store.threads.iter()), [], "what is visible")
        await kit.crash()
        await kit.sweep()
        for name in names:
            expect_only_tombstone(await dump(kit.store, name), name)
    finally:
        failpoints.disarm()


@case("threads", "tombstone-retention", covers=("threads.delete", "store.commit"), needs=("durable",))
async def case_retention(kit: Kit) -> None:
    """A tombstone refuses late commits for seven days, swept or not; after that nothing at all is left of it."""
    await say(kit.store, "left", "one")
    await kit.store.threads.delete("left")
    kit.clock.advance(WEEK - 1000)
    await kit.reopen()
    await raises(NotFoundError, say(kit.store, "left", "late"), "within the week")
    await kit.store.threads.create("unswept")
    await kit.store.threads.delete("unswept")
    kit.clock.advance(2000)
    await kit.reopen()
    await kit.sweep()
    equal(belongs_to(await dump(kit.store, "left"), "left"), {}, "after the week")
    equal((await kit.store.commit("left", messages=[Message.user("x")])).seqs, [1], "a commit makes a new thread")
    kit.clock.advance(WEEK)
    equal((await kit.store.commit("unswept", messages=[Message.user("x")])).seqs, [1], "without a sweep as well")
    equal((await kit.store.threads.get("unswept")).version, 1, "the new thread")
