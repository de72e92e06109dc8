"""Cases: state documents. One JSON value per name, owned by a thread or a run, with rev, schema and exact contents."""

from __future__ import annotations

import datetime
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, VersionConflict
from perdure.kernel.ops import Put
from perdure.model.message import Message
from perdure.model.state import Doc, StateDoc
from perdure.testkit.helpers import HOSTILE_IDS, REFUSED_IDS, commit_texts, conflict, race
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump, untouched

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**53 + 1,
    2**63,
    -(2**70),
    0.1,
    -0.0,
    1e300,
    "",
    "text",
    'é 🙂 \u2028 \x00 \\ "',
    [],
    {},
    [[], {}, [None]],
    {"": {"": [1, {"deep": ["x", 2.5, None]}]}, "ключ": "значение"},
)


@case("state", "put-get", covers=("state.put", "state.get", "state.find", "state.list", "state.iter"))
async def case_put_get(kit: Kit) -> None:
    """What was put is read, by get, find, list and iter alike; documents are listed by name."""
    await kit.store.threads.create("t")
    made = await kit.store.state.put("t", "plan", {"steps": [1]})
    expected = StateDoc(
        thread_id="t", run_id=None, name="plan", value={"steps": [1]}, schema=1, rev=made.rev, at=kit.clock.now
    )
    equal(made, expected, "what put returns")
    equal(await kit.store.state.get("t", "plan"), expected, "get")
    equal(await kit.store.state.find("t", "plan"), expected, "find")
    other = await kit.store.state.put("t", "Alpha", 1)
    equal(list(await kit.store.state.list("t")), [other, made], "list, by name as bytes")
    equal(await collect(kit.store.state.iter("t")), [other, made], "iter")


@case("state", "missing", covers=("state.get", "state.find", "state.list", "state.put", "state.delete"))
async def case_missing(kit: Kit) -> None:
    """A missing document is not found, or None; on a missing thread every call is not found."""
    await kit.store.threads.create("t")
    state = kit.store.state
    await raises(NotFoundError, state.get("t", "plan"))
    equal(await state.find("t", "plan"), None, "find")
    equal(list(await state.list("t")), [], "list")
    for attempt in (
        state.get("no", "x"),
        state.find("no", "x"),
        state.list("no"),
        state.put("no", "x", 1),
        state.delete("no", "x"),
        collect(state.iter("no")),
    ):
        await untouched(kit.store, NotFoundError, attempt)


@case("state", "values", covers=("state.put", "state.get"))
async def case_values(kit: Kit) -> None:
    """Every JSON value comes back equal and of the same type; null is a value, not an absence."""
    await kit.store.threads.create("t")
    for i, value in enumerate(VALUES):
        made = await kit.store.state.put("t", f"v{i}", value)
        document = await kit.store.state.get("t", f"v{i}")
        equal(document.value, value, repr(value))
        equal(repr(document.value), repr(value), "to the last digit")
        equal(made, document, "what put returned")
    null = await kit.store.state.find("t", "v0")
    expect(null is not None and null.value is None, "a stored null is there")


@case("state", "not-json", covers=("state.put", "store.commit"))
async def case_not_json(kit: Kit) -> None:
    """What is not JSON is refused with its path, by put, by a commit and by a commit with a key; nothing is written."""
    await kit.store.threads.create("t")
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for bad in (float("nan"), float("-inf"), b"x", bytearray(b"x"), {1}, (1,), moment, "\ud800", {1: 1}, object()):
        value = {"a": [0, {"b": bad}]}
        error = await untouched(kit.store, InvalidError, kit.store.state.put("t", "plan", value), repr(bad))
        expect("a[1].b" in str(error), f"the path is named: {error}")
        for key in (None, "k"):
            commit = kit.store.commit("t", messages=[Message.user("x")], state={"plan": value}, key=key)
            error = await untouched(kit.store, InvalidError, commit, repr(bad))
            expect("state.plan.a[1].b" in str(error), f"the path is named: {error}")


@case("state", "depth", covers=("state.put",))
async def case_depth(kit: Kit) -> None:
    """JSON nests 64 deep and no deeper; a value that holds itself is refused like any other too deep."""
    await kit.store.threads.create("t")
    deep: Any = []
    for _ in range(limits.JSON_DEPTH - 1):
        deep = [deep]
    await kit.store.state.put("t", "plan", deep)
    equal((await kit.store.state.get("t", "plan")).value, deep, "as deep as allowed")
    await untouched(kit.store, InvalidError, kit.store.state.put("t", "plan", [deep]))
    circle: list[Any] = []
    circle.append(circle)
    await untouched(kit.store, InvalidError, kit.store.state.put("t", "plan", circle))


@case("state", "size", covers=("state.put", "store.commit"))
async def case_size(kit: Kit) -> None:
    """A document has at most 256 KB of JSON, counted in bytes."""
    await kit.store.threads.create("t")
    most = limits.STATE_BYTES
    await kit.store.state.put("t", "plan", "x" * (most - 2))
    await untouched(kit.store, InvalidError, kit.store.state.put("t", "plan", "x" * (most - 1)))
    await untouched(kit.store, InvalidError, kit.store.state.put("t", "plan", "é" * (most // 2)))
    await untouched(kit.store, InvalidError, kit.store.commit("t", state={"plan": "x" * most}))


@case("state", "names", covers=("state.put", "state.get", "state.list"))
async def case_names(kit: Kit) -> None:
    """Any legal name names its own document; an invalid name is refused by every call."""
    await kit.store.threads.create("t")
    state = kit.store.state
    for name in HOSTILE_IDS:
        await state.put("t", name, name)
    equal({doc.name: doc.value for doc in await state.list("t")}, {name: name for name in HOSTILE_IDS}, "documents")
    for name in REFUSED_IDS:
        for attempt in (
            state.put("t", name, 1),
            state.get("t", name),
            state.find("t", name),
            state.delete("t", name),
            state.put(name, "x", 1),
            state.put("t", "x", 1, run_id=name),
            state.list("t", run_id=name),
        ):
            await untouched(kit.store, InvalidError, attempt, f"{name!r:.20}")


@case("state", "rev", covers=("state.put", "state.delete"))
async def case_rev(kit: Kit) -> None:
    """Each write has its own rev; none ever comes back, also after a delete, also for the same value."""
    await kit.store.threads.create("t")
    revs = []
    for _ in range(5):
        revs.append((await kit.store.state.put("t", "plan", 1)).rev)
        revs.append((await kit.store.state.put("t", "plan", 1)).rev)
        await kit.store.state.delete("t", "plan")
    equal(len(set(revs)), len(revs), "revs")


@case("state", "if-rev", covers=("state.put",))
async def case_if_rev(kit: Kit) -> None:
    """A guarded put names the rev it replaces; a stale one is a conflict with both revs."""
    await kit.store.threads.create("t")
    first = await kit.store.state.put("t", "plan", 1)
    second = await kit.store.state.put("t", "plan", 2, if_rev=first.rev)
    stale = kit.store.state.put("t", "plan", 3, if_rev=first.rev)
    conflict(await untouched(kit.store, VersionConflict, stale), first.rev, second.rev)
    missing = kit.store.state.put("t", "other", 3, if_rev=first.rev)
    conflict(await untouched(kit.store, VersionConflict, missing), first.rev, 0)


@case("state", "if-absent", covers=("state.put",))
async def case_if_absent(kit: Kit) -> None:
    """if_rev=0 means that there must be none yet."""
    await kit.store.threads.create("t")
    made = await kit.store.state.put("t", "plan", 1, if_rev=0)
    conflict(await untouched(kit.store, VersionConflict, kit.store.state.put("t", "plan", 2, if_rev=0)), 0, made.rev)
    await kit.store.state.delete("t", "plan")
    await kit.store.state.put("t", "plan", 3, if_rev=0)
    equal((await kit.store.state.get("t", "plan")).value, 3, "free again after a delete")


@case("state", "delete", covers=("state.delete",))
async def case_delete(kit: Kit) -> None:
    """A delete is idempotent, and guarded when it names a rev."""
    await kit.store.threads.create("t")
    first = await kit.store.state.put("t", "plan", 1)
    second = await kit.store.state.put("t", "plan", 2)
    stale = kit.store.state.delete("t", "plan", if_rev=first.rev)
    conflict(await untouched(kit.store, VersionConflict, stale), first.rev, second.rev)
    await kit.store.state.delete("t", "plan", if_rev=second.rev)
    equal(await kit.store.state.find("t", "plan"), None, "gone")
    await kit.store.state.delete("t", "plan")
    await untouched(kit.store, VersionConflict, kit.store.state.delete("t", "plan", if_rev=second.rev))
    await untouched(kit.store, InvalidError, kit.store.state.delete("t", "plan", if_rev=0))


@case("state", "schema", covers=("state.put", "state.get"))
async def case_schema(kit: Kit) -> None:
    """A plain value is schema 1; a Doc says otherwise; a schema is a positive whole number."""
    await kit.store.threads.create("t")
    equal((await kit.store.state.put("t", "plan", {})).schema, 1, "plain")
    equal((await kit.store.state.put("t", "plan", Doc({"v": 2}, schema=7))).schema, 7, "a Doc")
    equal(await kit.store.state.get("t", "plan"), (await kit.store.load("t")).state["plan"], "as load sees it")
    for schema in (0, -1, 1.0, "2", None, True, 2**53):
        doc = Doc(1, schema=schema)  # type: ignore[arg-type]
        await untouched(kit.store, InvalidError, kit.store.state.put("t", "plan", doc), repr(schema))
        await untouched(kit.store, InvalidError, kit.store.commit("t", state={"plan": doc}), repr(schema))


@case("state", "opaque", covers=("state.get", "state.list", "store.load", "store.commit"))
async def case_opaque(kit: Kit) -> None:
    """A document of a name and schema that this build does not know is kept unchanged, whatever else is written."""
    store = kit.store
    await store.threads.create("t")
    foreign = Put("state", ("t", "", "from.the.future"), {"schema": 4_000, "at": 5}, b'{"x": [1, {"y": 1.50}]}')
    applied = await store.engine.transact(store.scope, [foreign])
    await store.commit("t", messages=[Message.user("x")], state={"plan": 1})
    await store.state.put("t", "plan", 2)
    await store.state.delete("t", "plan")
    document = await store.state.get("t", "from.the.future")
    equal(
        (document.value, document.schema, document.rev, document.at),
        ({"x": [1, {"y": 1.5}]}, 4_000, applied.rev, 5),
        "kept",
    )
    equal((await store.load("t")).state, {"from.the.future": document}, "load gives it back")


@case("state", "owners", covers=("state.put", "state.get", "state.list", "state.delete"))
async def case_owners(kit: Kit) -> None:
    """A thread and each of its runs own documents of the same name apart from each other."""
    one = await kit.store.runs.start("t", "agent")
    two = await kit.store.runs.start("t", "agent")
    state = kit.store.state
    await state.put("t", "plan", "thread")
    await state.put("t", "plan", "one", run_id=one.id)
    await state.put("t", "plan", "two", run_id=two.id)
    await state.put("t", "more", "one", run_id=one.id)
    equal((await state.get("t", "plan", run_id=one.id)).run_id, one.id, "the owner is on the document")
    await state.delete("t", "plan", run_id=two.id)
    owners = (None, one.id, two.id)
    documents = {owner: [(d.name, d.value) for d in await state.list("t", run_id=owner)] for owner in owners}
    expected = {None: [("plan", "thread")], one.id: [("more", "one"), ("plan", "one")], two.id: []}
    equal(documents, expected, "documents by owner")


@case("state", "run-of-thread", covers=("state.put", "state.delete"))
async def case_run_of_thread(kit: Kit) -> None:
    """Run-owned state needs a run of that very thread."""
    run = await kit.store.runs.start("t", "agent")
    await kit.store.threads.create("u")
    for thread, name in (("t", "unknown"), ("u", run.id)):
        put = kit.store.state.put(thread, "plan", 1, run_id=name)
        await untouched(kit.store, NotFoundError, put, f"run {name} in {thread}")
        delete = kit.store.state.delete(thread, "plan", run_id=name)
        await untouched(kit.store, NotFoundError, delete, f"run {name} in {thread}")


@case("state", "thread-moves", covers=("state.put", "state.delete"))
async def case_thread_moves(kit: Kit) -> None:
    """Writing state makes the thread active, and moves neither its version nor its rev."""
    await commit_texts(kit.store, "t", "a")
    before = await kit.store.threads.get("t")
    kit.clock.advance(50)
    await kit.store.state.put("t", "plan", 1)
    after = await kit.store.threads.get("t")
    equal((after.version, after.rev, after.updated_at - before.updated_at), (1, before.rev, 50), "the thread")


@case("state", "no-aliases", covers=("state.put", "state.get", "store.commit"))
async def case_no_aliases(kit: Kit) -> None:
    """What a caller does to a value before or after storing it never reaches what is stored."""
    await kit.store.threads.create("t")
    value = {"steps": [1]}
    made = await kit.store.state.put("t", "plan", value)
    value["steps"].append(2)
    made.value["steps"].append(3)
    (await kit.store.state.get("t", "plan")).value["steps"].append(4)
    (await kit.store.load("t")).state["plan"].value["steps"].append(5)
    equal((await kit.store.state.get("t", "plan")).value, {"steps": [1]}, "the stored value")


@case("state", "racing-puts", covers=("state.put",))
async def case_racing_puts(kit: Kit) -> None:
    """Of puts over the same rev, from two clients, exactly one wins; unguarded ones all land."""
    await kit.store.threads.create("t")
    first = await kit.store.state.put("t", "plan", -1)
    clients = [kit.store, await kit.second()]
    won, lost = await race(*[clients[i % 2].state.put("t", "plan", i, if_rev=first.rev) for i in range(16)])
    equal((len(won), {type(error) for error in lost}), (1, {VersionConflict}), "one winner")
    equal(await kit.store.state.get("t", "plan"), won[0], "its value stays")
    won, lost = await race(*[clients[i % 2].state.put("t", "plan", i) for i in range(16)])
    equal((len(won), len({doc.rev for doc in won}), len(lost)), (16, 16, 0), "unguarded writers never conflict")


@case("state", "gone-with-thread", covers=("state.put", "threads.delete"))
async def case_gone_with_thread(kit: Kit) -> None:
    """Deleting a thread takes its documents and those of its runs; a new thread of that id has none."""
    run = await kit.store.runs.start("t", "agent")
    await kit.store.commit("t", run=run, state={"plan": 1}, run_state={"memo": 2})
    await kit.store.threads.delete("t")
    equal((await dump(kit.store, "t"))["state"], [], "rows")
    await kit.store.threads.create("t")
    equal(list(await kit.store.state.list("t")), [], "a new thread")


@case("state", "survives-crash", covers=("state.get",), needs=("durable",))
async def case_survives_crash(kit: Kit) -> None:
    """Documents are durable, with rev, schema and time."""
    await kit.store.threads.create("t")
    made = await kit.store.state.put("t", "plan", Doc({"x": [1, None, "é"]}, schema=3))
    store = await kit.crash()
    equal(await store.state.get("t", "plan"), made, "after a crash")
    await store.state.put("t", "plan", 2, if_rev=made.rev)
