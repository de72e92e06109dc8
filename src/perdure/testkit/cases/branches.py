"""Cases: creating branches and switching between them. Forks, roots, names, the list with its previews."""

from __future__ import annotations

from typing import Any

from perdure.errors import AlreadyExists, InvalidError, NotFoundError
from perdure.kernel.ops import Patch
from perdure.model.branch import Branch
from perdure.model.message import Message, Text, Thinking, ToolUse
from perdure.testkit.helpers import HOSTILE_IDS, REFUSED_IDS, fork_x, ids, path, say
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump, overtaken, together, untouched

FORK = ("branches.fork", "messages.history")


@case("branches", "main", covers=("branches.current", "branches.list", "branches.get"))
async def case_main(kit: Kit) -> None:
    """A thread is born with one branch, main, number 0, current; empty it has neither head nor length."""
    await kit.store.threads.create("t")
    fresh = Branch(
        thread_id="t",
        id=0,
        name="main",
        parent=None,
        fork_seq=0,
        head=None,
        head_seq=0,
        length=0,
        path_length=0,
        created_at=kit.clock.now,
        current=True,
        preview=None,
    )
    for branch in (
        await kit.store.branches.current("t"),
        await kit.store.branches.get("t", 0),
        await kit.store.branches.get("t", "main"),
    ):
        equal(branch, fresh, "the branch")
    equal(await kit.store.branches.list("t"), [fresh], "the list")
    equal(await path(kit), [], "its path")


@case("branches", "main-grows", covers=("branches.current", "branches.list"))
async def case_main_grows(kit: Kit) -> None:
    """Each commit moves the head: id, seq, length and preview follow."""
    for n, text in enumerate(["one", "two", "three"], 1):
        await say(kit.store, "t", text)
        main = await kit.store.branches.current("t")
        equal((main.head, main.head_seq, main.length, main.preview), (text, n, n, text), f"after {text}")


@case("branches", "fork-at", covers=FORK)
async def case_fork_at(kit: Kit) -> None:
    """A fork at a message includes it and does not switch; what is written there stays there."""
    await say(kit.store, "t", *"abc")
    kit.clock.advance(5)
    made = await kit.store.branches.fork("t", at="b", name="x")
    expected = fork_x(kit, head="b", head_seq=2, length=0, path_length=2, current=False, preview="b")
    equal(made, expected, "the new branch")
    equal((await path(kit), await path(kit, "x")), (["a", "b", "c"], ["a", "b"]), "paths")
    await say(kit.store, "t", "d", branch="x")
    equal((await path(kit), await path(kit, 1)), (["a", "b", "c"], ["a", "b", "d"]), "paths after a commit")
    grown = await kit.store.branches.get("t", "x")
    equal((grown.head, grown.head_seq, grown.length, grown.fork_seq), ("d", 4, 1, 2), "the branch after a commit")


@case("branches", "fork-before", covers=FORK)
async def case_fork_before(kit: Kit) -> None:
    """A fork before a message leaves it out, wherever it is on its branch."""
    await say(kit.store, "t", *"abc")
    for before, expected in (("c", ["a", "b"]), ("b", ["a"]), ("a", [])):
        made = await kit.store.branches.fork("t", before=before)
        equal(await path(kit, made.id), expected, f"before {before}")
    equal(await path(kit), ["a", "b", "c"], "the main branch")


@case("branches", "fork-before-first-of-branch", covers=FORK)
async def case_fork_before_first(kit: Kit) -> None:
    """Before a branch's first message means at that branch's own fork point, also after more on the parent."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="b", name="x")
    await say(kit.store, "t", "x1", "x2", branch="x")
    made = await kit.store.branches.fork("t", before="x1", name="y")
    equal((made.parent, made.fork_seq, made.head), (0, 2, "b"), "where it hangs")
    await say(kit.store, "t", "y1", branch="y")
    equal(await path(kit, "y"), ["a", "b", "y1"], "its path")


@case("branches", "fork-root", covers=FORK)
async def case_fork_root(kit: Kit) -> None:
    """Several roots are legal: at=None starts another conversation in the same thread."""
    await say(kit.store, "t", "a")
    for name in ("x", "y"):
        made = await kit.store.branches.fork("t", at=None, name=name)
        equal((made.parent, made.fork_seq, made.head, made.preview), (None, 0, None, None), "a root")
        await say(kit.store, "t", f"{name}1", f"{name}2", branch=name)
    paths = [await path(kit, name) for name in ("main", "x", "y")]
    equal(paths, [["a"], ["x1", "x2"], ["y1", "y2"]], "paths")
    equal((await kit.store.messages.get("t", "y1")).parent_id, None, "a root's first message has no parent")
    await kit.store.threads.create("empty")
    first = await kit.store.branches.fork("empty", at=None)
    equal(first.id, 1, "also in an empty thread")


@case("branches", "fork-owner", covers=FORK)
async def case_fork_owner(kit: Kit) -> None:
    """A fork hangs on the branch that owns the message, even when it is seen from another."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="b", switch=True)
    await say(kit.store, "t", "d")
    made = await kit.store.branches.fork("t", at="a")
    equal((made.parent, made.fork_seq), (0, 1), "at a message that the fork shares with main")
    made = await kit.store.branches.fork("t", at="d")
    equal((made.parent, made.fork_seq), (1, 4), "at a message of its own")
    equal(await path(kit, made.id), ["a", "b", "d"], "its path")


@case("branches", "fork-refused", covers=("branches.fork",))
async def case_fork_refused(kit: Kit) -> None:
    """Where to fork must be said once, and name a message of this thread."""
    await say(kit.store, "t", "a", "b")
    await say(kit.store, "u", "c")
    fork = kit.store.branches.fork
    await untouched(kit.store, InvalidError, fork("t"), "nowhere")
    await untouched(kit.store, InvalidError, fork("t", at="a", before="b"), "at and before")
    await untouched(kit.store, InvalidError, fork("t", at=None, before="b"), "a root, and before")
    for missing in ("missing", "c", "A"):
        await untouched(kit.store, NotFoundError, fork("t", at=missing), f"at {missing}")
        await untouched(kit.store, NotFoundError, fork("t", before=missing), f"before {missing}")
    await untouched(kit.store, NotFoundError, fork("missing", at=None), "a missing thread")
    for bad in REFUSED_IDS:
        await untouched(kit.store, InvalidError, fork("t", at=bad), f"at {bad!r}")
        await untouched(kit.store, InvalidError, fork(bad, at=None), f"thread {bad!r}")
        await untouched(kit.store, InvalidError, fork("t", at="a", name=bad), f"name {bad!r}")


@case("branches", "fork-limit", covers=("branches.fork",))
async def case_fork_limit(kit: Kit) -> None:
    """10,000 branches are the limit of a thread, and the refusal says so."""
    await say(kit.store, "t", "a")
    heads = [Patch("thread_heads", ("t",), {"branches": 9_999})]
    await kit.store.engine.transact(kit.store.scope, heads)
    equal((await kit.store.branches.fork("t", at="a")).id, 9_999, "the last one")
    error = await untouched(kit.store, InvalidError, kit.store.branches.fork("t", at="a"))
    expect("10000" in str(error), f"the limit is named: {error}")


@case("branches", "fork-switch", covers=("branches.fork", "branches.current"))
async def case_fork_switch(kit: Kit) -> None:
    """switch=True makes the new branch current in the same step."""
    await say(kit.store, "t", *"abc")
    made = await kit.store.branches.fork("t", at="a", switch=True)
    equal((made.current, (await kit.store.branches.current("t")).id), (True, 1), "current")
    await say(kit.store, "t", "d")
    equal(await path(kit), ["a", "d"], "the current path")
    equal((await kit.store.threads.get("t")).branch, 1, "the thread says so")


@case("branches", "siblings", covers=FORK)
async def case_siblings(kit: Kit) -> None:
    """Three branches at one point, and the next append is a sibling, not a continuation."""
    await say(kit.store, "t", "a", "b")
    for name in ("x", "y", "z"):
        await kit.store.branches.fork("t", at="a", name=name)
    for name in ("z", "x", "y"):
        await say(kit.store, "t", f"{name}1", branch=name)
    paths = [await path(kit, name) for name in ("main", "x", "y", "z")]
    equal(paths, [["a", "b"], ["a", "x1"], ["a", "y1"], ["a", "z1"]], "paths")
    records = (await kit.store.messages.list("t")).items
    equal([r.parent_id for r in records], [None, "a", "a", "a", "a"], "siblings")


@case("branches", "nested", covers=FORK)
async def case_nested(kit: Kit) -> None:
    """Forks of forks, each with its own messages before and after the next fork."""
    await say(kit.store, "t", "0a", "0b")
    expected = {0: ["0a", "0b"]}
    for n in range(1, 8):
        made = await kit.store.branches.fork("t", at=f"{n - 1}a")
        await say(kit.store, "t", f"{n}a", f"{n}b", branch=made.id)
        expected[n] = [*expected[n - 1][:-1], f"{n}a", f"{n}b"]
    equal({n: await path(kit, n) for n in range(8)}, expected, "paths")


@case("branches", "switch", covers=("branches.switch", "branches.current", "branches.get"))
async def case_switch(kit: Kit) -> None:
    """Switching by number or name moves commits, histories and `current`; the log is not written."""
    await say(kit.store, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x")
    for target, texts in (("x", ["a"]), (0, ["a", "b"]), (1, ["a"]), ("main", ["a", "b"])):
        switched = await kit.store.branches.switch("t", target)
        equal(switched.current, True, f"switched to {target}")
        equal([b.current for b in await kit.store.branches.list("t")].count(True), 1, "one is current")
        equal((await path(kit), (await kit.store.threads.get("t")).version), (texts, 2), f"the path of {target}")
    await kit.store.branches.switch("t", "x")
    await say(kit.store, "t", "c")
    equal((await path(kit, "x"), await path(kit, "main")), (["a", "c"], ["a", "b"]), "where the commit went")


@case("branches", "switch-no-op", covers=("branches.switch",))
async def case_switch_noop(kit: Kit) -> None:
    """Switching to the branch that is current changes nothing, not even a time."""
    await say(kit.store, "t", "a")
    before = await dump(kit.store)
    kit.clock.advance(5)
    equal((await kit.store.branches.switch("t", "main")).current, True, "the branch")
    equal(await dump(kit.store), before, "the stored data")


@case("branches", "switch-refused", covers=("branches.switch", "branches.get"))
async def case_switch_refused(kit: Kit) -> None:
    """An unknown branch is NotFoundError; what is neither number nor name is refused."""
    await say(kit.store, "t", "a")
    for missing in (1, -1, 99, "x", "MAIN", "main "):
        for call in (kit.store.branches.switch, kit.store.branches.get, kit.store.branches.delete):
            await untouched(kit.store, NotFoundError, call("t", missing), f"{call.__name__} {missing!r}")
        attempt = kit.store.commit("t", messages=[Message.user("x")], branch=missing)
        kind = InvalidError if missing == -1 else NotFoundError
        await untouched(kit.store, kind, attempt, f"commit on {missing!r}")
    wrong: Any
    for wrong in (True, 1.0, b"main", ["main"]):
        await untouched(kit.store, InvalidError, kit.store.branches.switch("t", wrong), f"{wrong!r}")
    await raises(NotFoundError, kit.store.branches.current("missing"))


@case("branches", "current-is-shared", covers=("branches.switch", "branches.current"))
async def case_current_shared(kit: Kit) -> None:
    """The current branch belongs to the thread: another client that remembers the old one follows at once."""
    other = await kit.second()
    await say(kit.store, "t", "a", "b")
    equal(ids(await other.messages.history("t")), ["a", "b"], "before")
    await kit.store.branches.fork("t", at="a", switch=True)
    equal(ids(await other.messages.history("t")), ["a"], "history")
    equal((await other.branches.current("t")).id, 1, "current")
    await say(other, "t", "c")
    equal((await path(kit, 1), await path(kit, 0)), (["a", "c"], ["a", "b"]), "its commit went to the new branch")
    await other.branches.switch("t", 0)
    await say(kit.store, "t", "d")
    equal(await path(kit, 0), ["a", "b", "d"], "and back")


@case("branches", "current-survives-reopen", covers=("branches.current",), needs=("durable",))
async def case_current_survives(kit: Kit) -> None:
    """The position in the tree outlives a close and a crash; the next append continues there."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="a", name="x", switch=True)
    equal((await (await kit.reopen()).branches.current("t")).name, "x", "after a close")
    await say(kit.store, "t", "d")
    await kit.crash()
    await say(kit.store, "t", "e")
    equal(await path(kit), ["a", "d", "e"], "after a crash")


@case("branches", "switch-race-commit", covers=("branches.switch", "store.commit"))
async def case_switch_race(kit: Kit) -> None:
    """A commit overtaken by a switch goes to the branch that is current when it lands, whole."""
    await say(kit.store, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x")
    slow, _ = await overtaken(kit, lambda s: say(s, "t", "c", "d"), lambda s: s.branches.switch("t", "x"))
    equal(slow, ["c", "d"], "the commit")
    equal((await path(kit, "x"), await path(kit, "main")), (["a", "c", "d"], ["a", "b"]), "where it went")


@case("branches", "fork-race", covers=("branches.fork",))
async def case_fork_race(kit: Kit) -> None:
    """Forks made at the same time through two clients all exist, each with its own number."""
    other = await kit.second()
    await say(kit.store, "t", "a")
    made = await together(*[(kit.store, other)[n % 2].branches.fork("t", at="a", name=f"x{n:02}") for n in range(32)])
    expect(all(isinstance(one, Branch) for one in made), f"all succeed: {made!r:.500}")
    equal(sorted(one.id for one in made), list(range(1, 33)), "numbers")
    equal(sorted(b.name for b in await other.branches.list("t")), ["main", *[f"x{n:02}" for n in range(32)]], "names")


@case("branches", "names-unique", covers=("branches.fork", "branches.rename"))
async def case_names_unique(kit: Kit) -> None:
    """A name is taken once per thread, main included; another thread has its own names."""
    await say(kit.store, "t", "a")
    await say(kit.store, "u", "a")
    fork = kit.store.branches.fork
    await fork("t", at="a", name="x")
    await fork("u", at="a", name="x")
    for name in ("x", "main"):
        await untouched(kit.store, AlreadyExists, fork("t", at="a", name=name), f"fork {name}")
    await untouched(kit.store, AlreadyExists, kit.store.branches.rename("t", "x", "main"), "rename to main")
    slow, fast = await overtaken(
        kit, lambda s: s.branches.fork("t", at="a", name="y"), lambda s: s.branches.fork("t", at="a", name="y")
    )
    expect(isinstance(slow, AlreadyExists) and isinstance(fast, Branch), f"outcomes {slow!r} and {fast!r}")


@case("branches", "names-given", covers=("branches.fork",))
async def case_default_names(kit: Kit) -> None:
    """A branch without a name gets a free one, even if the obvious one is in use."""
    await say(kit.store, "t", "a")
    for name in ("branch-1", "branch-2", "branch-3", "branch-4"):
        await kit.store.branches.fork("t", at="a", name=name)
    for _ in range(3):
        await kit.store.branches.fork("t", at="a")
    await kit.store.branches.fork("t", at="a", name="branch-9")
    await kit.store.branches.fork("t", at="a")
    names = [branch.name for branch in await kit.store.branches.list("t")]
    equal((len(names), len(set(names))), (10, 10), f"names {names}")
    await kit.store.branches.rename("t", 1, "branch-10")
    made = await kit.store.branches.fork("t", at="a")
    expect(made.id == 10 and made.name not in (*names[2:], "branch-10"), f"a free name: {made.name}")


@case("branches", "names-hostile", covers=("branches.fork", "branches.rename", "branches.get"))
async def case_names_hostile(kit: Kit) -> None:
    """Names may be any id but a bare number, and mean exactly that branch."""
    await say(kit.store, "t", "a")
    named = [name for name in HOSTILE_IDS if not name.isdigit()]
    made = {name: (await kit.store.branches.fork("t", at="a", name=name)).id for name in named}
    for name, number in made.items():
        equal((await kit.store.branches.get("t", name)).id, number, f"branch {name!r}")
    for name in (*REFUSED_IDS, "0", "17"):
        await untouched(kit.store, InvalidError, kit.store.branches.rename("t", 0, name), f"rename to {name!r}")
    await untouched(kit.store, InvalidError, kit.store.branches.fork("t", at="a", name="1"), "a number as a name")


@case("branches", "rename", covers=("branches.rename", "branches.get"))
async def case_rename(kit: Kit) -> None:
    """A renamed branch is found by its new name only and is otherwise the same; its own name again is fine."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="x")
    renamed = await kit.store.branches.rename("t", "x", "better")
    equal((renamed.id, renamed.name, renamed.head), (1, "better", "a"), "the branch")
    await raises(NotFoundError, kit.store.branches.get("t", "x"))
    equal((await kit.store.branches.rename("t", 1, "better")).name, "better", "the same name again")
    equal((await kit.store.branches.rename("t", 0, "trunk")).name, "trunk", "main may be renamed")
    await kit.store.branches.rename("t", 1, "main")
    equal([b.name for b in await kit.store.branches.list("t")], ["trunk", "main"], "the list")
    await untouched(kit.store, NotFoundError, kit.store.branches.rename("t", "x", "y"), "an unknown branch")
    await untouched(kit.store, NotFoundError, kit.store.branches.rename("missing", 0, "y"), "an unknown thread")


@case("branches", "list", covers=("branches.list", "branches.iter"))
async def case_list(kit: Kit) -> None:
    """All branches in order of creation, with head, length, preview and which is current."""
    await say(kit.store, "t", "first words", "last words")
    await kit.store.branches.fork("t", at="first words", name="x", switch=True)
    await kit.store.branches.fork("t", at=None, name="empty")
    await say(kit.store, "t", "other words")
    branches = [(b.id, b.name, b.head, b.length, b.preview, b.current) for b in await kit.store.branches.list("t")]
    expected = [
        (0, "main", "last words", 2, "last words", False),
        (1, "x", "other words", 1, "other words", True),
        (2, "empty", None, 0, None, False),
    ]
    equal(branches, expected, "the list")
    equal(await collect(kit.store.branches.iter("t")), await kit.store.branches.list("t"), "iter")
    for branch in await kit.store.branches.list("t"):
        equal(await kit.store.branches.get("t", branch.id), branch, "get and list agree")
    await raises(NotFoundError, kit.store.branches.list("missing"))


@case("branches", "previews", covers=("branches.list",))
async def case_previews(kit: Kit) -> None:
    """A preview is one line of at most 80 characters: text, else the tools called, else what a tool answered."""
    for message, preview in (
        (Message.user("  two\n\n lines\tand   space "), "two lines and space"),
        (Message.user("x" * 80), "x" * 80),
        (Message.user("x" * 81), "x" * 79 + "…"),
        (Message.assistant([Thinking("hm"), ToolUse("1", "read"), ToolUse("2", "write")]), "[read, write]"),
        (Message.assistant([Text("look:"), ToolUse("3", "read")]), "look:"),
        (Message.tool("1", "the\nanswer"), "the answer"),
        (Message.user(""), ""),
    ):
        await kit.store.commit("t", messages=[message])
        (branch,) = await kit.store.branches.list("t")
        equal(branch.preview, preview, f"{message!r:.100}")
