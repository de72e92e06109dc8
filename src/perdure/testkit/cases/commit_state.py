"""Cases: state inside commits. Written, removed and guarded in the same transaction as the messages it belongs to."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError, NotFoundError, VersionConflict
from perdure.model.message import Message
from perdure.model.state import REMOVE, Doc
from perdure.testkit.helpers import commit_texts, conflict, race
from perdure.testkit.kit import Kit, case, equal
from perdure.testkit.probe import untouched


@case("state", "in-commit", covers=("store.commit", "state.list"))
async def case_in_commit(kit: Kit) -> None:
    """A commit writes any number of documents; those it does not name stay as they are."""
    await kit.store.commit("t", state={"a": 1, "b": Doc({"x": 2}, schema=5), "c": None})
    first = {doc.name: doc for doc in await kit.store.state.list("t")}
    equal({n: (d.value, d.schema) for n, d in first.items()}, {"a": (1, 1), "b": ({"x": 2}, 5), "c": (None, 1)}, "docs")
    equal(len({doc.rev for doc in first.values()}), 1, "one transaction, one rev")
    await kit.store.commit("t", messages=[Message.user("x")], state={"a": 9})
    after = {doc.name: doc for doc in await kit.store.state.list("t")}
    equal((after["a"].value, after["b"], after["c"]), (9, first["b"], first["c"]), "only what was named moved")


@case("state", "remove-in-commit", covers=("store.commit",))
async def case_remove_in_commit(kit: Kit) -> None:
    """REMOVE deletes in the commit; what is not there is fine."""
    await kit.store.commit("t", state={"a": 1, "b": 2})
    await kit.store.commit("t", state={"a": REMOVE, "never": REMOVE, "c": 3})
    equal([doc.name for doc in await kit.store.state.list("t")], ["b", "c"], "documents")


@case("state", "run-state-in-commit", covers=("store.commit", "state.list"))
async def case_run_state_in_commit(kit: Kit) -> None:
    """run_state belongs to the commit's run: one that is new, one that moves, one that only associates."""
    run = await kit.store.runs.start("t", "agent")
    run = (await kit.store.commit("t", run=run.step(), run_state={"a": 1, "b": 1}, state={"a": "thread"})).run
    await kit.store.commit("t", run=run, run_state={"b": REMOVE, "c": 3})
    equal(
        [(d.name, d.value) for d in await kit.store.state.list("t", run_id=run.id)], [("a", 1), ("c", 3)], "the run's"
    )
    equal([(d.name, d.value) for d in await kit.store.state.list("t")], [("a", "thread")], "the thread's")
    await untouched(kit.store, InvalidError, kit.store.commit("t", run_state={"a": 1}), "run_state without a run")


@case("state", "shared-by-branches", covers=("store.commit", "store.load"))
async def case_shared_by_branches(kit: Kit) -> None:
    """Thread-owned state is one for all branches."""
    receipt = await commit_texts(kit.store, "t", "a", "b", state={"plan": 1})
    fork = await kit.store.branches.fork("t", at=receipt.message_ids[0])
    await kit.store.commit("t", messages=[Message.user("c")], branch=fork.id, state={"plan": 2})
    for branch in (0, fork.id):
        equal((await kit.store.load("t", branch=branch)).state["plan"].value, 2, f"seen from branch {branch}")


@case("state", "expect-state", covers=("store.commit",))
async def case_expect_state(kit: Kit) -> None:
    """A guarded document must have that very rev: to be replaced, to be removed, or only to be relied upon."""
    await kit.store.commit("t", state={"plan": 1, "other": 1})
    old = await kit.store.state.get("t", "plan")
    await commit_texts(kit.store, "t", "a", state={"plan": 2}, expect_state={"plan": old.rev})
    new = await kit.store.state.get("t", "plan")
    for state in ({"plan": 3}, {"plan": REMOVE}, {"other": 3}, None):
        options: dict[str, Any] = {"state": state, "expect_state": {"plan": old.rev}}
        error = await untouched(kit.store, VersionConflict, commit_texts(kit.store, "t", "b", **options), repr(state))
        conflict(error, old.rev, new.rev)
    await commit_texts(kit.store, "t", "relied upon", expect_state={"plan": new.rev})
    equal(await kit.store.state.get("t", "plan"), new, "a guard alone writes nothing")
    await commit_texts(kit.store, "t", "removed", state={"plan": REMOVE}, expect_state={"plan": new.rev})
    equal(await kit.store.state.find("t", "plan"), None, "removed")
    gone = commit_texts(kit.store, "t", "c", state={"plan": 3}, expect_state={"plan": new.rev})
    conflict(await untouched(kit.store, VersionConflict, gone), new.rev, None)


@case("state", "expect-absent", covers=("store.commit",))
async def case_expect_absent(kit: Kit) -> None:
    """None means that the document must not exist, and that this commit writes it."""
    await kit.store.threads.create("t")
    await commit_texts(kit.store, "t", "a", state={"plan": 1}, expect_state={"plan": None})
    made = await kit.store.state.get("t", "plan")
    again = commit_texts(kit.store, "t", "b", state={"plan": 2}, expect_state={"plan": None})
    conflict(await untouched(kit.store, VersionConflict, again), None, made.rev)
    unwritten = commit_texts(kit.store, "t", "b", expect_state={"other": None})
    await untouched(kit.store, InvalidError, unwritten, "a guard of absence without a write")
    removed = commit_texts(kit.store, "t", "b", state={"other": REMOVE}, expect_state={"other": None})
    await untouched(kit.store, InvalidError, removed, "a guard of absence with a removal")
    await commit_texts(kit.store, "new", "a", state={"plan": 1}, expect_state={"plan": None})
    equal((await kit.store.threads.get("new")).version, 1, "a guard of absence lets a thread be created")


@case("state", "expect-state-shape", covers=("store.commit",))
async def case_expect_state_shape(kit: Kit) -> None:
    """Guards are revs of named documents; on a missing thread a rev cannot hold."""
    await kit.store.threads.create("t")
    bad: list[dict[Any, Any]] = [{"plan": "1"}, {"plan": 1.0}, {"plan": True}, {"": 1}, {5: 1}]
    for guard in bad:
        await untouched(kit.store, InvalidError, kit.store.commit("t", expect_state=guard), repr(guard))
    await untouched(kit.store, NotFoundError, commit_texts(kit.store, "never", "a", expect_state={"plan": 5}))


@case("state", "racing-guards", covers=("store.commit",))
async def case_racing_guards(kit: Kit) -> None:
    """Of commits that guard the same document, exactly one lands, with its message."""
    await kit.store.commit("t", state={"plan": -1})
    rev = (await kit.store.state.get("t", "plan")).rev
    clients = [kit.store, await kit.second()]
    calls = [
        commit_texts(clients[i % 2], "t", str(i), state={"plan": i}, expect_state={"plan": rev}) for i in range(16)
    ]
    won, lost = await race(*calls)
    equal((len(won), {type(error) for error in lost}), (1, {VersionConflict}), "one winner")
    snapshot = await kit.store.load("t")
    equal(
        [r.text for r in snapshot.messages], [str(snapshot.state["plan"].value)], "message and document of one commit"
    )


@case("state", "bad-state", covers=("store.commit",))
async def case_bad_state(kit: Kit) -> None:
    """One bad document refuses the whole commit."""
    await kit.store.threads.create("t")
    for name in ("", "x" * 257, "a\x00b"):
        commit = commit_texts(kit.store, "t", "a", state={"fine": 1, name: 2})
        await untouched(kit.store, InvalidError, commit, f"name {name!r:.10}")
    run = await kit.store.runs.start("t", "agent")
    commit = commit_texts(kit.store, "t", "a", run=run, run_state={"fine": 1, "bad": float("nan")})
    await untouched(kit.store, InvalidError, commit, "a bad run document")
