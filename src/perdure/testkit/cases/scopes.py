"""Cases: scopes. The writes, deletes and sweeps of one tenant change no byte of another's, whatever their names."""

from __future__ import annotations

from perdure import limits
from perdure.audit import verify_engine
from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.model.run import NewRun
from perdure.stores.store import Origin, Store
from perdure.stores.transfer.export import export_lines, import_lines
from perdure.testkit.helpers import REFUSED_IDS, commit_texts, enqueue, move, queue_texts, texts
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump

SCOPES = (
    "default",
    "Default",
    "default ",
    "defaul",
    "default%",
    "def_ult",
    "d'efault",
    'd"efault',
    "default/t",
    "default:t",
    "a b",
    "é",
    "e\u0301",
    "\U0001f600",
    "null",
    "0",
    "x" * 64,
    "\u00e9" * 32,
)


async def live(store: Store, mark: str) -> None:
    """A life with a bit of everything, under the same ids in every scope."""
    await store.threads.create("t", title=mark, resource_id="acme", custom={"mark": mark})
    await store.threads.create("child", parent_thread_id="t")
    (one, _) = (
        await store.commit("t", messages=[Message.user(mark, id="m1"), Message.user("b", id="m2")], key="k")
    ).message_ids
    await store.branches.fork("t", at=one, name="side", switch=True)
    await store.branches.label("t", one, mark)
    run = await store.runs.start("t", "agent", run_id="r", messages=[Message.user(mark)])
    await store.commit("t", run=run.step(), state={"doc": mark}, run_state={"memo": mark}, fence=3)
    await store.pending.append("t", [Message.user(mark, id="p1"), Message.user("q", id="p2")])


async def ruin(store: Store) -> None:
    """Everything that changes, consumes, forgets or deletes."""
    run = await store.runs.get("r")
    await move(store, run.finish("x"))
    await store.pending.edit("t", "p1", Message.user("changed"))
    await store.pending.reorder("t", ["p2", "p1"])
    await store.pending.freeze("t")
    await store.branches.rename("t", "side", "other")
    await store.branches.switch("t", 0)
    await store.branches.delete("t", "other")
    await store.branches.label("t", "m1", None)
    await store.state.delete("t", "doc")
    await store.threads.update("t", title="changed", custom=None, resource_id=None)
    await store.commit("t", fence=99)
    await store.threads.delete("child")
    await store.threads.delete("t", strategy="cascade")
    await store.threads.create("t")
    await commit_texts(store, "t", "again")


@case("scope", "untouched", covers=("store.scoped",))
async def case_untouched(kit: Kit) -> None:
    """After all kinds of work and deletes in one scope, another is byte for byte what it was."""
    other = kit.store.scoped("other")
    await live(kit.store, "A")
    await live(other, "B")
    before = await dump(other, "t", "child")
    await ruin(kit.store)
    equal(await dump(other, "t", "child"), before, "the other scope")
    equal((await other.load("t")).state["doc"].value, "B", "and it reads as before")


@case("scope", "untouched-by-sweep", covers=("store.scoped",), needs=("durable",))
async def case_untouched_by_sweep(kit: Kit) -> None:
    """What housekeeping of a scope removes of old keys and tombstones is its own only."""
    other = kit.store.scoped("other")
    for store in (kit.store, other):
        await live(store, "x")
        await store.threads.create("gone")
        await store.threads.delete("gone")
    before = await dump(other, "t", "child", "gone")
    kit.clock.advance(2 * limits.KEY_RETENTION_MS)
    store = await kit.reopen()
    await kit.sweep()
    equal((await dump(store))["keys"], [], "the opened scope was swept")
    equal(await dump(store.scoped("other"), "t", "child", "gone"), before, "the other was not")


@case("scope", "same-ids", covers=("store.scoped", "threads.get", "runs.get", "messages.get", "state.get"))
async def case_same_ids(kit: Kit) -> None:
    """The same ids of threads, messages, runs, keys, branches and documents are different things in each scope."""
    stores = {name: kit.store.scoped(name) for name in ("a", "b", "c")}
    for name, store in stores.items():
        await live(store, name)
    for name, store in stores.items():
        equal((await store.threads.get("t")).title, name, "title")
        equal((await store.messages.get("t", "m1")).text, name, "message")
        equal((await store.state.get("t", "doc")).value, name, "state")
        equal((await store.state.get("t", "memo", run_id="r")).value, name, "run state")
        equal((await store.branches.labels("t"))[0].label, name, "label")
        equal((await store.pending.list("t")).items[0].message.text, name, "pending")
        replay = await store.commit("t", messages=[Message.user(name, id="m1"), Message.user("b", id="m2")], key="k")
        equal(replay.replayed, True, "its own key")


@case("scope", "names", covers=("store.scoped",))
async def case_names(kit: Kit) -> None:
    """Scopes are compared as bytes: names alike in case, spelling, pattern or prefix are strangers."""
    for name in SCOPES:
        await commit_texts(kit.store.scoped(name), "t", name)
    for name in SCOPES:
        store = kit.store.scoped(name)
        equal(store.scope, name, "its name")
        equal(texts(await store.messages.history("t")), [name], f"scope {name!r}")
        equal([t.id for t in (await store.threads.list()).items], ["t"], f"threads of {name!r}")
    await kit.store.scoped("defaul").threads.delete("t")
    equal(texts(await kit.store.messages.history("t")), ["default"], "a delete in a prefix")


@case("scope", "no-seam", covers=("store.scoped",))
async def case_no_seam(kit: Kit) -> None:
    """Scope and id never run together: ab + c is not a + bc, in threads, states and runs."""
    for scope, thread in (
        ("ab", "c"),
        ("a", "bc"),
        ("abc", "x"),
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b/c"),
        ("a/b", "c"),
    ):
        store = kit.store.scoped(scope)
        equal(await store.threads.find(thread), None, f"{scope} + {thread} is new")
        await commit_texts(store, thread, f"{scope}|{thread}", state={thread: scope})
    for scope, expected in (("a", ["b/c", "b:c", "bc"]), ("ab", ["c"]), ("a:b", ["c"]), ("a/b", ["c"])):
        store = kit.store.scoped(scope)
        equal(sorted(t.id for t in (await store.threads.list()).items), expected, f"threads of {scope}")
        for thread in expected:
            equal(texts(await store.messages.history(thread)), [f"{scope}|{thread}"], "messages")


@case("scope", "bad-names", covers=("store.scoped",))
async def case_bad_names(kit: Kit) -> None:
    """A scope is 1 to 64 bytes of text without control characters, and not blank."""
    for name in (*REFUSED_IDS, "x" * 65, "é" * 33):
        try:
            kit.store.scoped(name)
        except InvalidError:
            continue
        expect(False, f"the scope {name!r} must be refused")


@case("scope", "lists", covers=("threads.list", "runs.list", "pending.threads"))
async def case_lists(kit: Kit) -> None:
    """No list of one scope shows anything of another, filtered or not."""
    other = kit.store.scoped("other")
    await live(other, "B")
    store = kit.store
    equal((await store.threads.list()).items, [], "threads")
    equal((await store.threads.list(resource_id="acme")).items, [], "threads of a resource")
    equal((await store.threads.list(parent_thread_id="t")).items, [], "children")
    equal((await store.runs.list()).items, [], "runs")
    equal((await store.runs.list(thread_id="t", status="running")).items, [], "runs of a thread")
    equal(await collect(store.runs.iter()), [], "all runs")
    equal(list(await store.pending.threads()), [], "queues")
    equal((await store.threads.find("t"), await store.runs.find("r")), (None, None), "by id")
    for attempt in (store.load("t"), store.state.list("t"), store.pending.list("t"), store.branches.list("t")):
        await raises(NotFoundError, attempt)


@case("scope", "runs-apart", covers=("store.commit", "runs.create"))
async def case_runs_apart(kit: Kit) -> None:
    """A run of one scope cannot be moved from another, also where a thread of the same id is."""
    other = kit.store.scoped("other")
    run = await kit.store.runs.start("t", "agent", run_id="r")
    await other.threads.create("t")
    await raises(NotFoundError, other.commit("t", run=run.step()))
    await other.runs.create("t", "agent", run_id="r")
    equal(await kit.store.runs.get("r"), run, "the first scope's run")
    equal((await other.runs.get("r")).status, "created", "the other's")


@case("scope", "cascade", covers=("threads.delete",))
async def case_cascade(kit: Kit) -> None:
    """A cascade deletes the subtree in one scope only."""
    other = kit.store.scoped("other")
    for store in (kit.store, other):
        for name, parent in (("a", None), ("b", "a"), ("c", "b")):
            await store.threads.create(name, parent_thread_id=parent)
            await commit_texts(store, name, store.scope)
            await enqueue(store, name, store.scope)
    before = await dump(other, "a", "b", "c")
    await kit.store.threads.delete("a", strategy="cascade")
    equal(await dump(other, "a", "b", "c"), before, "the other scope")
    equal(await queue_texts(other, "c"), ["other"], "its deepest queue")


@case("scope", "cursors", covers=("threads.list", "runs.list"))
async def case_cursors(kit: Kit) -> None:
    """A cursor of one scope shows another scope nothing but its own rows."""
    other = kit.store.scoped("other")
    for i in range(6):
        kit.clock.advance(1)
        await kit.store.runs.create("t", "agent", run_id=f"a{i}")
        await other.runs.create("t", "agent", run_id=f"b{i}")
    cursor = (await kit.store.runs.list(limit=2, order="asc")).next_cursor
    page = await other.runs.list(order="asc", cursor=cursor)
    equal([run.id for run in page.items], ["b1", "b2", "b3", "b4", "b5"], "its own rows after that position")


@case("scope", "two-clients", covers=("store.scoped",))
async def case_two_clients(kit: Kit) -> None:
    """A scope is the same through every client: opened by name, or scoped from a client of another."""
    opened = await kit.second(scope="acme")
    scoped = kit.store.scoped("acme")
    await commit_texts(opened, "t", "a")
    await commit_texts(scoped, "t", "b")
    equal(texts(await opened.messages.history("t")), ["a", "b"], "both write to one scope")
    await scoped.commit("t", run=NewRun(agent_id="agent", id="r"))
    equal((await opened.runs.get("r")).thread_id, "t", "runs too")
    equal(await kit.store.threads.find("t"), None, "and not to the default one")
    equal(opened.scoped("default").scope, "default", "from any to any")


@case("scope", "reserved", covers=("store.scoped",))
async def case_reserved_scopes(kit: Kit) -> None:
    """A scope that begins with ~ is refused, and nothing is made of it; what is in one can be read."""
    await commit_texts(kit.store, "t", "mine")
    for name in ("~", "~x", "~default"):
        error = await raises(InvalidError, _scoped(kit.store, name), name)
        expect("reserved" in error.message and error.hint, f"what {name} is refused with: {error}")
    equal((await kit.store.engine.scopes()), ["default"], "scopes")
    for name in ("a~", "default~x"):
        await commit_texts(kit.store.scoped(name), "t", name)
    # As an older version would have left it, or a store that keeps something for itself.
    old = Store(kit.store.engine, "~x", owner=False)
    await commit_texts(old, "t", "old")
    equal(await _history(kit.store), ["mine"], "the scope beside it")
    reader = Store(kit.store.engine, owner=False, origin=Origin("the same", read_only=True))
    equal(await _history(reader.scoped("~x")), ["old"], "read-only")
    lines = [line async for line in export_lines(reader.scoped("~x"))]
    moved = kit.store.scoped("x")
    await import_lines(moved, lambda: lines)
    equal(await _history(moved), ["old"], "moved to another scope")
    equal(await verify_engine(kit.store.engine), [], "findings")


async def _scoped(store: Store, name: str) -> Store:
    return store.scoped(name)


async def _history(store: Store) -> list[str]:
    return texts((await store.load("t")).messages)
