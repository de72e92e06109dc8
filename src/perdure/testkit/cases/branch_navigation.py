"""Cases: finding one's way in the tree. Checkout, variants of a message, whole trees, and the lengths of paths."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.testkit.helpers import REFUSED_IDS, ids, say
from perdure.testkit.kit import Kit, case, equal, raises
from perdure.testkit.probe import dump, overtaken, together, untouched

LENGTHS = ("branches.list", "branches.get", "branches.current", "branches.fork", "store.load")


async def lengths_agree(kit: Kit, thread_id: str = "t") -> list[int]:
    """The path lengths of all branches, which must be what the raw paths have, whoever asks."""
    fresh = await kit.second()
    listed = await fresh.branches.list(thread_id)
    counted = [len(await kit.store.messages.history(thread_id, branch=branch.id)) for branch in listed]
    equal([branch.path_length for branch in listed], counted, "the list")
    for store in (kit.store, await kit.second()):
        single = [(await store.branches.get(thread_id, branch.id)).path_length for branch in listed]
        equal(single, counted, "one by one")
    loaded = [(await fresh.load(thread_id, branch=branch.id)).branch.path_length for branch in listed]
    equal(loaded, counted, "load")
    return counted


@case("branches", "path-length", covers=LENGTHS)
async def case_path_length(kit: Kit) -> None:
    """A branch's path is what it inherits and its own; a fork says so at once."""
    await say(kit.store, "t", *"abcd")
    equal((await kit.store.branches.fork("t", at="b", name="x")).path_length, 2, "a fork in the middle")
    await say(kit.store, "t", "x1", "x2", branch="x")
    equal((await kit.store.branches.fork("t", at="x1", name="y")).path_length, 3, "a fork of a fork")
    equal((await kit.store.branches.fork("t", before="x1")).path_length, 2, "before the first of a branch")
    equal((await kit.store.branches.fork("t", at=None)).path_length, 0, "a root")
    await say(kit.store, "t", "y1", branch="y")
    equal(await lengths_agree(kit), [4, 4, 4, 2, 0], "lengths")


@case("branches", "path-length-interleaved", covers=LENGTHS)
async def case_path_length_interleaved(kit: Kit) -> None:
    """Branches that were written alternately do not confuse the count, nor does a deleted one."""
    await say(kit.store, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x")
    for n in range(60):
        await say(kit.store, "t", f"m{n}")
        await say(kit.store, "t", f"x{n}", branch="x")
    for at, expected in (("m0", 3), ("x0", 2), ("m55", 58), ("x55", 57), ("x59", 61), ("m59", 62)):
        made = await kit.store.branches.fork("t", at=at)
        equal(made.path_length, expected, f"a fork at {at}")
        await say(kit.store, "t", f"{at}-next", branch=made.id)
    await kit.store.branches.delete("t", "x")
    equal(len(await lengths_agree(kit)), 7, "living branches")


@case("branches", "path-length-reborn", covers=LENGTHS)
async def case_path_length_reborn(kit: Kit) -> None:
    """What was counted in a thread that was deleted means nothing for the next one under its id."""
    for before, after in ((["a"], ["b"]), (["y", "z", "b"], [])):
        await kit.store.threads.create("t")
        await say(kit.store, "t", *before)
        await kit.store.branches.fork("t", at=None, name="r", messages=[Message.user("r1")])
        if after:
            await say(kit.store, "t", *after)
        made = await kit.store.branches.fork("t", at="b", name="x")
        equal((made.fork_seq, made.path_length), (3, len(before) + len(after)), "the fork")
        await lengths_agree(kit)
        await kit.store.threads.delete("t")


@case("branches", "checkout-switches", covers=("branches.checkout",))
async def case_checkout_switches(kit: Kit) -> None:
    """A message at which a branch ends is reached by a switch: the current branch first, then the lowest number."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="b", name="x", messages=[Message.user("d", id="d")])
    there = await kit.store.branches.checkout("t", "d")
    equal((there.name, there.current, there.path_length), ("x", True, 3), "a switch")
    equal(await kit.store.branches.current("t"), there, "the current branch")
    before = await dump(kit.store)
    equal(await kit.store.branches.checkout("t", "d"), there, "already there")
    equal(await dump(kit.store), before, "nothing was written")
    for name in ("y", "z"):
        await kit.store.branches.fork("t", at="c", name=name)
    equal((await kit.store.branches.checkout("t", "c")).name, "main", "the lowest number")
    await kit.store.branches.switch("t", "z")
    equal((await kit.store.branches.checkout("t", "c")).name, "z", "the current one stays")
    await kit.store.branches.delete("t", "main")
    await kit.store.branches.switch("t", "x")
    equal((await kit.store.branches.checkout("t", "c")).name, "y", "not a deleted one")


@case("branches", "checkout-forks", covers=("branches.checkout",))
async def case_checkout_forks(kit: Kit) -> None:
    """A message in the middle is forked at, and the next commit continues it."""
    await say(kit.store, "t", *"abc")
    there = await kit.store.branches.checkout("t", "b", name="x")
    equal((there.id, there.name, there.current, there.head, there.path_length), (1, "x", True, "b", 2), "the fork")
    equal(await kit.store.branches.checkout("t", "b", name="y"), there, "the fork ends there: no second one")
    await say(kit.store, "t", "d")
    equal(ids(await kit.store.messages.history("t")), ["a", "b", "d"], "the path")
    equal((await kit.store.branches.checkout("t", "a")).name, "branch-2", "a name by default")


@case("branches", "checkout-refused", covers=("branches.checkout",))
async def case_checkout_refused(kit: Kit) -> None:
    """What is not there cannot be checked out, and bad names are refused before any I/O."""
    await say(kit.store, "t", "a", "b")
    checkout = kit.store.branches.checkout
    await untouched(kit.store, NotFoundError, checkout("t", "missing"))
    await untouched(kit.store, NotFoundError, checkout("missing", "a"))
    for bad in REFUSED_IDS:
        await untouched(kit.store, InvalidError, checkout("t", bad), f"message {bad!r}")
        await untouched(kit.store, InvalidError, checkout(bad, "a"), f"thread {bad!r}")
        await untouched(kit.store, InvalidError, checkout("t", "a", name=bad), f"name {bad!r}")


@case("branches", "checkout-race", covers=("branches.checkout",))
async def case_checkout_race(kit: Kit) -> None:
    """A branch that moves on between the look and the switch is not switched to: the checkout ends at its message."""
    await say(kit.store, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x", messages=[Message.user("c", id="c")])
    there, _ = await overtaken(kit, lambda s: s.branches.checkout("t", "c"), lambda s: say(s, "t", "d", branch="x"))
    equal((there.head, there.current, there.parent, there.id), ("c", True, 1, 2), "a fork at the message")
    there, _ = await overtaken(kit, lambda s: s.branches.checkout("t", "d"), lambda s: s.branches.delete("t", "x"))
    equal((there.head, there.id), ("d", 3), "the branch was deleted meanwhile")
    await together(*[kit.store.branches.checkout("t", "a") for _ in range(4)])
    equal((await kit.store.branches.current("t")).head, "a", "all of them at once")


@case("branches", "variants", covers=("branches.variants",))
async def case_variants(kit: Kit) -> None:
    """Siblings in the order of their commits: what follows on the same branch, and the first of each fork there."""
    await say(kit.store, "t", "q", "a1")
    kit.clock.advance(5)
    await kit.store.branches.fork("t", before="a1", name="x", messages=[Message.assistant("a2", id="a2")], switch=True)
    await kit.store.branches.fork("t", at="q", name="empty")
    await kit.store.branches.fork("t", before="a2", name="y", messages=[Message.assistant("a3", id="a3")])
    await say(kit.store, "t", "more")
    for asked in ("a1", "a2", "a3"):
        variants = await kit.store.branches.variants("t", asked)
        equal([v.message_id for v in variants], ["a1", "a2", "a3"], f"asked for {asked}")
        equal([v.message_id for v in variants if v.asked], [asked], "which was asked for")
        equal([(v.branch, v.current) for v in variants], [(0, False), (1, True), (3, False)], "branches")
    second = variants[1]
    equal((second.seq, second.role, second.preview, second.at), (3, "assistant", "a2", kit.clock.now), "a variant")
    only = await kit.store.branches.variants("t", "more")
    equal([(v.message_id, v.asked, v.current) for v in only], [("more", True, True)], "a message without siblings")


@case("branches", "variants-roots", covers=("branches.variants",))
async def case_variants_roots(kit: Kit) -> None:
    """First messages of roots are variants; so are continuations of a message in the middle of a branch."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", before="a", name="r", messages=[Message.user("r1", id="r1")])
    await kit.store.branches.fork("t", at="b", name="x", messages=[Message.user("x1", id="x1")])
    await kit.store.branches.fork("t", at="x1", name="xx", messages=[Message.user("x2", id="x2")])
    for asked, expected in (
        ("a", ["a", "r1"]),
        ("r1", ["a", "r1"]),
        ("b", ["b"]),
        ("c", ["c", "x1"]),
        ("x1", ["c", "x1"]),
        ("x2", ["x2"]),
    ):
        variants = await kit.store.branches.variants("t", asked)
        equal([v.message_id for v in variants], expected, f"asked for {asked}")


@case("branches", "variants-external", covers=("branches.variants",))
async def case_variants_external(kit: Kit) -> None:
    """The external view leaves out siblings that are not for all; the message that is asked about stays."""
    await kit.store.commit("t", messages=[Message.user("q", id="q"), Message.assistant("1", id="a1")])
    for name, visibility in (("a2", "internal"), ("a3", "all"), ("a4", "audit")):
        message = Message.assistant(name, id=name, visibility=visibility)
        await kit.store.branches.fork("t", at="q", switch=name == "a2", messages=[message])
    for asked, expected in (("a1", ["a1", "a3"]), ("a2", ["a1", "a2", "a3"]), ("a4", ["a1", "a3", "a4"])):
        variants = await kit.store.branches.variants("t", asked, view="external")
        equal([v.message_id for v in variants], expected, f"asked for {asked}")
        equal([v.message_id for v in variants if v.current], ["a2"] if asked == "a2" else [], "the current one")
    raw = await kit.store.branches.variants("t", "a1", view="raw")
    equal((raw, len(raw)), (await kit.store.branches.variants("t", "a1"), 4), "all of them")
    wrong: Any = "history"
    await raises(InvalidError, kit.store.branches.variants("t", "a1", view=wrong), "no such view")


@case("branches", "variants-deleted", covers=("branches.variants",))
async def case_variants_deleted(kit: Kit) -> None:
    """What only a deleted branch leads to is left out, unless asked for; a fork of it keeps it in the tree."""
    await say(kit.store, "t", "q", "a1")
    await kit.store.branches.fork("t", at="q", name="x", messages=[Message.user("x1", id="x1")])
    await kit.store.branches.fork("t", at="q", name="y", messages=[Message.user("y1", id="y1")])
    await kit.store.branches.fork("t", at="y1", name="yy")
    for name in ("x", "y"):
        await kit.store.branches.delete("t", name)
    variants = await kit.store.branches.variants("t", "a1")
    equal([(v.message_id, v.branch) for v in variants], [("a1", 0), ("y1", 3)], "reached by a living branch")
    variants = await kit.store.branches.variants("t", "x1")
    equal([(v.message_id, v.branch) for v in variants], [("a1", 0), ("x1", None), ("y1", 3)], "asked for")


@case("branches", "variants-refused", covers=("branches.variants",))
async def case_variants_refused(kit: Kit) -> None:
    """A message that is not in the thread has no variants."""
    await say(kit.store, "t", "a")
    await say(kit.store, "u", "b")
    for thread_id, message_id in (("t", "b"), ("t", "missing"), ("missing", "a")):
        await raises(NotFoundError, kit.store.branches.variants(thread_id, message_id))
    for bad in REFUSED_IDS:
        await raises(InvalidError, kit.store.branches.variants("t", bad), f"message {bad!r}")
        await raises(InvalidError, kit.store.branches.variants(bad, "a"), f"thread {bad!r}")


@case("branches", "tree", covers=("branches.tree",))
async def case_tree(kit: Kit) -> None:
    """The whole thread as data and as text: parents, labels, heads, the current line first."""
    await say(kit.store, "t", "a", "b")
    await kit.store.commit("t", messages=[Message.user("c", id="c", visibility="internal")])
    await kit.store.branches.fork("t", at="a", name="x", switch=True, messages=[Message.assistant("d\x1b[2J", id="d")])
    await kit.store.branches.fork("t", at=None, name="empty")
    await kit.store.branches.label("t", "b", "keep")
    tree = await kit.store.branches.tree("t")
    equal([(node.id, node.parent) for node in tree.nodes], [("a", None), ("b", 1), ("c", 2), ("d", 1)], "parents")
    equal([node.id for node in tree.nodes if node.current], ["a", "d"], "the current line")
    equal([node.heads for node in tree.nodes], [(), (), ("main",), ("x",)], "heads")
    equal(tree.branches, await kit.store.branches.list("t"), "branches")
    equal([node.internal for node in tree.nodes], [False, False, True, False], "internal")
    expected = [
        "• #1 user      a",
        "├─ • #4 assistant d\\x1b[2J ◂ x",
        "└─ ◦ #2 user      [keep] b",
        "   ◦ #3 user      c ‹ main",
        "◦ no messages yet ◂ empty",
    ]
    equal(tree.draw().split("\n"), expected, "the drawing")


@case("branches", "tree-deleted", covers=("branches.tree",))
async def case_tree_deleted(kit: Kit) -> None:
    """Messages that only deleted branches lead to are left out; an empty thread has a tree too."""
    await say(kit.store, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x", messages=[Message.user("c", id="c"), Message.user("d")])
    await kit.store.branches.fork("t", at="c", name="y")
    await kit.store.branches.delete("t", "x")
    tree = await kit.store.branches.tree("t")
    equal([node.id for node in tree.nodes], ["a", "b", "c"], "what is left")
    await kit.store.threads.create("new")
    equal((await kit.store.branches.tree("new")).draw(), "• no messages yet ◂ main", "an empty thread")
    await raises(NotFoundError, kit.store.branches.tree("missing"))
    for bad in REFUSED_IDS:
        await raises(InvalidError, kit.store.branches.tree(bad), f"thread {bad!r}")


@case("branches", "tree-limit", covers=("branches.tree",))
async def case_tree_limit(kit: Kit) -> None:
    """A thread with more messages than the limit is refused; one of many pages is read whole."""
    most = limits.PAGE_MAX + 5
    await kit.store.commit("t", messages=[Message.user(str(n)) for n in range(most)])
    equal(len((await kit.store.branches.tree("t")).nodes), most, "nodes")
    equal(len((await kit.store.branches.tree("t", most=None)).nodes), most, "without a limit")
    await raises(InvalidError, kit.store.branches.tree("t", most=most - 1))
    for bad in (0, -1, "9", True):
        await raises(InvalidError, kit.store.branches.tree("t", most=bad), f"most {bad!r}")  # type: ignore[arg-type]
    await kit.store.branches.fork("t", at=None, name="gone", messages=[Message.user("only here")])
    await kit.store.branches.delete("t", "gone")
    equal(len((await kit.store.branches.tree("t")).nodes), most, "without what only a deleted branch leads to")
    equal(len((await kit.store.branches.tree("t", deleted=True)).nodes), most + 1, "with it")
