"""Cases: threads as a hierarchy. Which parents are accepted, what damage is reported, and who wins a race."""

from __future__ import annotations

from perdure.errors import InvalidError, NotFoundError
from perdure.kernel.ops import Delete, Op, Patch, Put
from perdure.model.message import Message
from perdure.model.run import NewRun, RunBody
from perdure.model.run_snapshots import RunActivation, RunTrace
from perdure.model.thread import Thread
from perdure.stores.store import Store
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import outcome, overtaken, together, untouched


async def chain(store: Store, *names: str) -> None:
    """Threads of which each is the child of the one before."""
    parent = None
    for name in names:
        await store.threads.create(name, parent_thread_id=parent)
        parent = name


async def parent_of(store: Store, name: str) -> str | None:
    """The stored parent."""
    return (await store.threads.get(name)).parent_thread_id


@case("threads", "parent-missing", covers=("threads.create", "threads.update", "threads.validate_parent"))
async def case_parent_missing(kit: Kit) -> None:
    """A parent that does not exist is refused by name and nothing is stored."""
    threads = kit.store.threads
    await threads.create("a")
    for attempt in (
        threads.create("b", parent_thread_id="ghost"),
        threads.update("a", parent_thread_id="ghost"),
        threads.validate_parent("a", "ghost"),
        threads.validate_parent("not yet there", "ghost"),
    ):
        error = await untouched(kit.store, NotFoundError, attempt)
        equal(str(error), "parent thread 'ghost' does not exist", "the message")


@case("threads", "parent-blank", covers=("threads.validate_parent", "threads.create"))
async def case_parent_blank(kit: Kit) -> None:
    """No parent and a blank parent are fine."""
    for blank in (None, "", "  ", "\t"):
        await kit.store.threads.validate_parent("a", blank)
        made = await kit.store.threads.create(parent_thread_id=blank)
        equal(made.parent_thread_id, None, f"parent {blank!r}")


@case("threads", "parent-self", covers=("threads.create", "threads.update", "threads.validate_parent"))
async def case_parent_self(kit: Kit) -> None:
    """A thread cannot parent itself, not even with spaces around the name."""
    threads = kit.store.threads
    await threads.create("a")
    for name in ("a", " a", "a ", "  a  "):
        for attempt in (threads.update("a", parent_thread_id=name), threads.validate_parent("a", name)):
            error = await untouched(kit.store, InvalidError, attempt, f"parent {name!r}")
            equal(str(error), "thread 'a' cannot parent itself", "the message")
        await untouched(kit.store, InvalidError, threads.create("b", parent_thread_id=name.replace("a", "b")))


@case("threads", "parent-cycle", covers=("threads.update", "threads.validate_parent"))
async def case_parent_cycle(kit: Kit) -> None:
    """A thread cannot hang under its own descendant, at any depth."""
    names = [f"t{n}" for n in range(12)]
    await chain(kit.store, *names)
    for below in names[1:]:
        for attempt in (
            kit.store.threads.update("t0", parent_thread_id=below),
            kit.store.threads.validate_parent("t0", below),
        ):
            error = await untouched(kit.store, InvalidError, attempt, f"under {below}")
            expect("cycle" in str(error), f"the message says what is wrong: {error}")


@case("threads", "validate-writes-nothing", covers=("threads.validate_parent",))
async def case_validate_writes_nothing(kit: Kit) -> None:
    """Asking whether a parent would do changes nothing, whatever the answer."""
    await chain(kit.store, "a", "b")
    await kit.store.threads.create("c")
    before = await collect(kit.store.threads.iter())
    await kit.store.threads.validate_parent("c", "b")
    await kit.store.threads.validate_parent("brand new", " b ")
    equal(await collect(kit.store.threads.iter()), before, "the threads")


@case("threads", "ancestor-damaged", covers=("threads.create", "threads.update", "threads.validate_parent"))
async def case_ancestor_damaged(kit: Kit) -> None:
    """A chain with a missing ancestor is reported as damage, not accepted and not taken for a root."""
    await chain(kit.store, "top", "middle", "low")
    await kit.store.threads.create("other")
    await kit.store.engine.transact(kit.store.scope, [Delete("threads", ("top",)), Delete("thread_heads", ("top",))])
    for attempt in (
        kit.store.threads.create("new", parent_thread_id="low"),
        kit.store.threads.update("other", parent_thread_id="middle"),
        kit.store.threads.validate_parent("other", "low"),
    ):
        error = await untouched(kit.store, NotFoundError, attempt)
        expect("damaged" in str(error) and "'top'" in str(error), f"the message names the ancestor: {error}")


@case("threads", "orphan-can-be-mended", covers=("threads.update", "threads.delete"))
async def case_orphan_mended(kit: Kit) -> None:
    """A thread whose parent was lost can be given another one, made a root, or deleted."""
    await kit.store.threads.create("top")
    for name in ("a", "b", "c"):
        await kit.store.threads.create(name, parent_thread_id="top")
    await kit.store.engine.transact(kit.store.scope, [Delete("threads", ("top",)), Delete("thread_heads", ("top",))])
    await kit.store.threads.create("new")
    equal((await kit.store.threads.update("a", parent_thread_id="new")).parent_thread_id, "new", "moved")
    equal((await kit.store.threads.update("b", parent_thread_id=None)).parent_thread_id, None, "made a root")
    await kit.store.threads.delete("c")
    equal(await kit.store.threads.find("c"), None, "deleted")


@case("threads", "cycle-in-the-data", covers=("threads.create", "threads.validate_parent"))
async def case_cycle_in_data(kit: Kit) -> None:
    """A cycle that is already stored is reported; no walk runs endlessly."""
    await chain(kit.store, "a", "b", "c")
    await kit.store.engine.transact(
        kit.store.scope, [Patch("threads", ("a",), {"parent": "c"}), Patch("thread_heads", ("a",), {"parent": "c"})]
    )
    for attempt in (
        kit.store.threads.create("new", parent_thread_id="c"),
        kit.store.threads.validate_parent("new", "b"),
    ):
        expect("cycle" in str(await untouched(kit.store, InvalidError, attempt)), "the message")


@case("threads", "hierarchy-depth", covers=("threads.create",))
async def case_depth(kit: Kit) -> None:
    """256 ancestors are walked; one more is refused with the limit named."""
    ops: list[Op] = []
    for n in range(257):
        parent = f"t{n - 1}" if n else None
        times = {"created_at": n, "updated_at": n}
        ops.append(Put("threads", (f"t{n}",), {"parent": parent, "created_at": n}, b"{}"))
        hot = {"version": 0, "branch": 0, "branches": 1, "children": 1, "born": n, "parent": parent, **times}
        ops.append(Put("thread_heads", (f"t{n}",), hot))
    await kit.store.engine.transact(kit.store.scope, ops)
    await kit.store.threads.create("fits", parent_thread_id="t255")
    error = await untouched(kit.store, InvalidError, kit.store.threads.create("deep", parent_thread_id="t256"))
    expect("256" in str(error), f"the limit is named: {error}")


@case("threads", "children-direct-only", covers=("threads.children", "threads.create", "threads.get"))
async def case_children_direct(kit: Kit) -> None:
    """Children are the direct ones, newest activity first, and counted on the parent."""
    await chain(kit.store, "a", "b", "c")
    kit.clock.advance(1)
    await kit.store.threads.create("b2", parent_thread_id="a")
    equal([t.id for t in (await kit.store.threads.children("a")).items], ["b2", "b"], "children of a")
    equal([t.id for t in (await kit.store.threads.children("c")).items], [], "children of c")
    equal([(await kit.store.threads.get(name)).children for name in ("a", "b", "c")], [2, 1, 0], "counts")
    await raises(NotFoundError, kit.store.threads.children("missing"))


@case("threads", "children-of-padded-id", covers=("threads.children",))
async def case_children_padded(kit: Kit) -> None:
    """Ids are never trimmed when they name a thread: ` a ` has no children because `a` has some."""
    await chain(kit.store, "a", "b")
    await kit.store.threads.create(" a ")
    equal((await kit.store.threads.children(" a ")).items, [], "children of the padded id")


@case("threads", "reparent", covers=("threads.update", "threads.children", "threads.list"))
async def case_reparent(kit: Kit) -> None:
    """A moved thread changes lists and counts of both parents and takes its subtree along."""
    await chain(kit.store, "old", "x", "y")
    await kit.store.threads.create("new")
    await kit.store.threads.update("x", parent_thread_id="new")
    equal([t.id for t in (await kit.store.threads.children("old")).items], [], "old children")
    equal([t.id for t in (await kit.store.threads.children("new")).items], ["x"], "new children")
    equal([(await kit.store.threads.get(n)).children for n in ("old", "new", "x")], [0, 1, 1], "counts")
    await untouched(kit.store, InvalidError, kit.store.threads.update("new", parent_thread_id="y"))
    await kit.store.threads.update("x", parent_thread_id="new", title="same parent again")
    equal((await kit.store.threads.get("new")).children, 1, "count after naming the same parent again")
    await kit.store.threads.update("x", parent_thread_id=None)
    equal((await kit.store.threads.get("new")).children, 0, "count after detaching")


async def _expect_one_move(kit: Kit, slow_move: tuple[str, str], fast_move: tuple[str, str]) -> None:
    """Two clients move a thread under a parent, (thread, parent) each; together they would make a cycle."""
    slow, fast = await overtaken(
        kit,
        lambda s: s.threads.update(slow_move[0], parent_thread_id=slow_move[1]),
        lambda s: s.threads.update(fast_move[0], parent_thread_id=fast_move[1]),
    )
    expect(isinstance(fast, Thread) and isinstance(slow, InvalidError), f"outcomes {slow!r} and {fast!r}")
    parents = [await parent_of(kit.store, thread) for thread in (slow_move[0], fast_move[0])]
    equal(parents, [None, fast_move[1]], "parents")


@case("threads", "cycle-race", covers=("threads.update",))
async def case_cycle_race(kit: Kit) -> None:
    """a under b while b goes under a, through two clients: exactly one succeeds."""
    for name in ("a", "b"):
        await kit.store.threads.create(name)
    await _expect_one_move(kit, ("a", "b"), ("b", "a"))


@case("threads", "cycle-race-deep", covers=("threads.update",))
async def case_cycle_race_deep(kit: Kit) -> None:
    """The race two levels up: the whole ancestor path is guarded, not the parent alone."""
    await chain(kit.store, "a1", "a2", "a3")
    await chain(kit.store, "b1", "b2", "b3")
    await _expect_one_move(kit, ("a1", "b3"), ("b1", "a3"))


@case("threads", "cycle-race-many", covers=("threads.update",))
async def case_cycle_race_many(kit: Kit) -> None:
    """Eight threads that all move under their neighbour at once: one of them at least is refused, no cycle stays."""
    other = await kit.second()
    names = [f"t{n}" for n in range(8)]
    for name in names:
        await kit.store.threads.create(name)
    moves = [
        (kit.store, other)[n % 2].threads.update(name, parent_thread_id=names[(n + 1) % 8])
        for n, name in enumerate(names)
    ]
    outcomes = await together(*moves)
    expect(any(not isinstance(one, Thread) for one in outcomes), "some are refused")
    expect(sum(isinstance(one, Thread) for one in outcomes) >= 1, "some succeed")
    for name in names:
        visited: set[str] = set()
        at: str | None = name
        while at is not None:
            expect(at not in visited, f"a cycle at {at}: {outcomes!r:.500}")
            visited.add(at)
            at = await parent_of(kit.store, at)


@case("threads", "parent-deleted-under-a-birth", covers=("threads.create", "threads.delete"))
async def case_parent_deleted(kit: Kit) -> None:
    """A child whose parent is deleted between look and write is not born an orphan."""
    await kit.store.threads.create("p")
    slow, _ = await overtaken(
        kit,
        lambda s: s.threads.create("child", parent_thread_id="p"),
        lambda s: s.threads.delete("p"),
    )
    expect(isinstance(slow, NotFoundError), f"the creation is refused: {slow!r}")
    equal(await kit.store.threads.find("child"), None, "the child")


@case("threads", "birth-by-commit", covers=("store.commit", "threads.get", "threads.children"))
async def case_birth_by_commit(kit: Kit) -> None:
    """A commit that creates a thread takes parent and resource from the run's trace, once, by the same rules."""
    await kit.store.threads.create("p")

    async def commit(thread: str, parent: str, resource: str | None = None) -> None:
        trace = RunTrace(parent_thread_id=parent, resource_id=resource)
        run = NewRun(agent_id="agent", body=RunBody(activation=RunActivation(trace=trace)))
        await kit.store.commit(thread, messages=[Message.user("hi")], run=run)

    await untouched(kit.store, NotFoundError, commit("a", "ghost"), "a missing parent")
    await untouched(kit.store, InvalidError, commit("a", " a "), "itself")
    await commit("a", " p ", " r ")
    thread = await kit.store.threads.get("a")
    equal((thread.parent_thread_id, thread.resource_id, thread.version), ("p", "r", 1), "the born thread")
    equal([t.id for t in (await kit.store.threads.children("p")).items], ["a"], "children of the parent")
    await kit.store.threads.create("q")
    await commit("a", "q", "other")
    thread = await kit.store.threads.get("a")
    equal((thread.parent_thread_id, thread.resource_id), ("p", "r"), "filled once, never replaced")


@case("threads", "parent-in-another-scope", covers=("threads.create", "store.scoped"))
async def case_parent_other_scope(kit: Kit) -> None:
    """A thread of another scope is neither a parent nor a child."""
    await kit.store.threads.create("p")
    other = kit.store.scoped("other")
    expect(isinstance(await outcome(other.threads.create("c", parent_thread_id="p")), NotFoundError), "refused")
    await other.threads.create("p")
    await other.threads.create("c", parent_thread_id="p")
    equal((await kit.store.threads.children("p")).items, [], "children in the first scope")
    equal((await kit.store.threads.get("p")).children, 0, "count in the first scope")
