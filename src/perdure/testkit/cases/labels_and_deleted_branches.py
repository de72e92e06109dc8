"""Cases: labels on messages, and deleted branches: a pointer goes, the messages stay."""

from __future__ import annotations

from typing import Any

from perdure.errors import ConflictError, InvalidError, NotFoundError
from perdure.model.branch import Label
from perdure.model.message import Message
from perdure.testkit.helpers import REFUSED_IDS, ids, path, say
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import overtaken, untouched


@case("branches", "label", covers=("branches.label", "branches.labels"))
async def case_label(kit: Kit) -> None:
    """Labels: set, last wins, cleared with None, in the order of messages, with seq and time."""
    await say(kit.store, "t", *"abc")
    equal(await kit.store.branches.labels("t"), [], "none yet")
    await kit.store.branches.label("t", "c", "end")
    kit.clock.advance(5)
    await kit.store.branches.label("t", "a", "start")
    expected = [Label("a", 1, "start", kit.clock.now), Label("c", 3, "end", kit.clock.now - 5)]
    equal(await kit.store.branches.labels("t"), expected, "two labels")
    await kit.store.branches.label("t", "a", "beginning")
    equal([one.label for one in await kit.store.branches.labels("t")], ["beginning", "end"], "the last wins")
    await kit.store.branches.label("t", "a", None)
    await kit.store.branches.label("t", "b", None)
    equal([one.message_id for one in await kit.store.branches.labels("t")], ["c"], "cleared")


@case("branches", "label-refused", covers=("branches.label", "branches.labels"))
async def case_label_refused(kit: Kit) -> None:
    """A label needs a message of this thread and a text that is an id; an empty one is refused, not a removal."""
    await say(kit.store, "t", "a")
    await say(kit.store, "u", "c")
    for missing in ("missing", "c"):
        await untouched(kit.store, NotFoundError, kit.store.branches.label("t", missing, "x"), missing)
        await untouched(kit.store, NotFoundError, kit.store.branches.label("t", missing, None), missing)
    await untouched(kit.store, NotFoundError, kit.store.branches.label("missing", "a", "x"))
    await raises(NotFoundError, kit.store.branches.labels("missing"))
    for bad in REFUSED_IDS:
        await untouched(kit.store, InvalidError, kit.store.branches.label("t", "a", bad), f"label {bad!r}")
        await untouched(kit.store, InvalidError, kit.store.branches.label("t", bad, "x"), f"message {bad!r}")


@case("branches", "label-never-in-context", covers=("branches.label", "messages.history", "messages.list"))
async def case_label_context(kit: Kit) -> None:
    """Labels are not part of the tree: no message, no head, no version, no view changes, and forks share them."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="b", name="x")

    async def views() -> list[Any]:
        return [
            await kit.store.messages.history("t"),
            (await kit.store.messages.list("t")).items,
            await kit.store.messages.external("t"),
            await kit.store.branches.list("t"),
            await kit.store.threads.get("t"),
        ]

    before = await views()
    for name in "abc":
        await kit.store.branches.label("t", name, f"label {name}")
    equal(await views(), before, "every view")
    await say(kit.store, "t", "d", branch="x")
    on_path = set(await path(kit, "x"))
    labels = [one.label for one in await kit.store.branches.labels("t") if one.message_id in on_path]
    equal(labels, ["label a", "label b"], "labels of the fork's path")


@case("branches", "delete", covers=("branches.delete", "branches.list", "messages.list"))
async def case_delete(kit: Kit) -> None:
    """Deleting a branch removes the pointer only: its messages stay in the log, its children go on."""
    await say(kit.store, "t", *"ab")
    await kit.store.branches.fork("t", at="a", name="x")
    await say(kit.store, "t", "x1", "x2", branch="x")
    await kit.store.branches.fork("t", at="x1", name="y")
    await say(kit.store, "t", "y1", branch="y")
    raw = (await kit.store.messages.list("t")).items
    await kit.store.branches.delete("t", "x")
    equal((await kit.store.messages.list("t")).items, raw, "the log")
    equal([b.name for b in await kit.store.branches.list("t")], ["main", "y"], "the list")
    equal(await path(kit, "y"), ["a", "x1", "y1"], "the child's path")
    await say(kit.store, "t", "y2", branch="y")
    equal((await kit.store.messages.get("t", "x2")).parent_id, "x1", "a message of the deleted branch")
    equal((await kit.store.branches.get("t", "y")).parent, 1, "its parent's number")


@case("branches", "delete-refused", covers=("branches.delete",))
async def case_delete_refused(kit: Kit) -> None:
    """The current branch cannot be deleted; an unknown or deleted one is NotFoundError."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="x")
    error = await untouched(kit.store, ConflictError, kit.store.branches.delete("t", "main"))
    expect("switch" in str(error), f"the error says what to do: {error}")
    await kit.store.branches.delete("t", "x")
    for gone in ("x", 1):
        for call in (kit.store.branches.delete, kit.store.branches.switch, kit.store.branches.get):
            await untouched(kit.store, NotFoundError, call("t", gone), f"{call.__name__} {gone!r}")
        attempt = kit.store.commit("t", messages=[Message.user("x")], branch=gone)
        await untouched(kit.store, NotFoundError, attempt, f"commit on {gone!r}")
        await raises(NotFoundError, kit.store.messages.history("t", branch=gone))
        await untouched(kit.store, NotFoundError, kit.store.branches.rename("t", gone, "z"), f"rename {gone!r}")


@case("branches", "delete-frees-name", covers=("branches.delete", "branches.fork"))
async def case_delete_frees_name(kit: Kit) -> None:
    """A deleted branch's name is free, its number never comes back."""
    await say(kit.store, "t", "a")
    for n in range(1, 4):
        equal((await kit.store.branches.fork("t", at="a", name="x")).id, n, "a new number")
        await kit.store.branches.delete("t", "x")


@case("branches", "delete-main", covers=("branches.delete", "messages.history"))
async def case_delete_main(kit: Kit) -> None:
    """Even main can go when another branch is current; its messages still carry the others."""
    other = await kit.second()
    await say(other, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x", switch=True)
    await kit.store.branches.delete("t", 0)
    for store in (other, kit.store):
        equal(ids(await store.messages.history("t")), ["a"], "the current path")
        await raises(NotFoundError, store.messages.history("t", branch=0))
    await say(other, "t", "c")
    equal(ids((await kit.store.load("t")).messages), ["a", "c"], "after a commit by a client that knew main")


@case("branches", "deleted-still-reachable", covers=("branches.fork", "branches.delete", "messages.history"))
async def case_deleted_reachable(kit: Kit) -> None:
    """What is on a deleted branch can still be read up to any message, forked from and labelled."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="x")
    await say(kit.store, "t", "x1", "x2", branch="x")
    await kit.store.branches.delete("t", "x")
    equal(await path(kit, upto="x2"), ["a", "x1", "x2"], "the path to its last message")
    made = await kit.store.branches.fork("t", at="x2", name="again")
    equal((await path(kit, "again"), made.parent), (["a", "x1", "x2"], 1), "a fork at its head")
    equal(await path(kit, (await kit.store.branches.fork("t", before="x1")).id), ["a"], "a fork before it")
    await kit.store.branches.label("t", "x2", "kept")


@case("branches", "delete-race-switch", covers=("branches.delete", "branches.switch"))
async def case_delete_race(kit: Kit) -> None:
    """A branch that becomes current while it is being deleted survives; one that is deleted cannot become current."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="x")
    slow, _ = await overtaken(kit, lambda s: s.branches.delete("t", "x"), lambda s: s.branches.switch("t", "x"))
    expect(isinstance(slow, ConflictError), f"the deletion: {slow!r}")
    equal((await kit.store.branches.current("t")).name, "x", "current")
    await kit.store.branches.switch("t", "main")
    slow, _ = await overtaken(kit, lambda s: s.branches.switch("t", "x"), lambda s: s.branches.delete("t", "x"))
    expect(isinstance(slow, NotFoundError), f"the switch: {slow!r}")
    equal((await kit.store.branches.current("t")).name, "main", "current")


@case("branches", "delete-race-commit", covers=("branches.delete", "store.commit"))
async def case_delete_race_commit(kit: Kit) -> None:
    """A commit on a branch that is deleted in between is refused whole."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="x")
    slow, _ = await overtaken(kit, lambda s: say(s, "t", "b", branch="x"), lambda s: s.branches.delete("t", "x"))
    expect(isinstance(slow, NotFoundError), f"the commit: {slow!r}")
    equal(await kit.store.messages.find("t", "b"), None, "its message")
