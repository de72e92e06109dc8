"""Cases: `if_idle`. A run is started only while no other run of the thread is running or waiting."""

from __future__ import annotations

from typing import Any

from perdure.errors import AlreadyExists, InvalidError, StaleClaim, ThreadBusy, VersionConflict
from perdure.model.message import Message
from perdure.model.run import NewRun
from perdure.testkit.helpers import race
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import overtaken, untouched


async def refused(kit: Kit, thread: str, run_id: str, status: str) -> None:
    """Starting and creating are refused, in words that name the run, and nothing is written."""
    for begin in (kit.store.runs.start, kit.store.runs.create):
        attempt = begin(thread, "agent", if_idle=True, messages=[Message.user("x")])
        error = await untouched(kit.store, ThreadBusy, attempt, f"{run_id} is {status}")
        equal((type(error), error.actual, error.retryable), (ThreadBusy, run_id, False), "the conflict")
        expect(f"{run_id!r} is {status}" in str(error), f"the run is named: {error}")


@case("runs", "if-idle", covers=("runs.start", "runs.create"))
async def case_if_idle(kit: Kit) -> None:
    """Refused while a run is running or waiting; one that has not begun, or is done, is not in the way."""
    store = kit.store
    run = await store.runs.start("t", "agent", run_id="r1", if_idle=True, messages=[Message.user("q")])
    equal((run.status, run.input.range.to_seq if run.input and run.input.range else 0), ("running", 1), "a new thread")
    await refused(kit, "t", "r1", "running")
    waiting = (await store.commit("t", run=run.wait())).run
    await refused(kit, "t", "r1", "waiting")
    await store.commit("t", run=waiting.cancel())
    created = await store.runs.create("t", "agent", run_id="r2", if_idle=True)
    equal(created.status, "created", "after the end")
    third = await store.runs.start("t", "agent", run_id="r3", if_idle=True)
    await store.commit("t", run=third.finish())
    await store.commit("t", run=created.begin())
    await refused(kit, "t", "r2", "running")
    equal((await store.runs.start("u", "agent", if_idle=True)).status, "running", "another thread is idle")
    await raises(InvalidError, store.runs.start("t", "agent", if_idle=1))  # type: ignore[arg-type]


@case("runs", "if-idle-many", covers=("runs.start",))
async def case_if_idle_many(kit: Kit) -> None:
    """Exact for any number of runs, where the thread's pointers know only one."""
    store = kit.store
    first = await store.runs.start("t", "agent", run_id="first")
    await store.commit("t", run=first.wait())
    second = await store.runs.start("t", "agent", run_id="second")
    await store.commit("t", run=second.finish())
    thread = await store.threads.get("t")
    equal((thread.active_run_id, thread.open_run_id), (None, None), "no pointer shows the run that waits")
    await refused(kit, "t", "first", "waiting")


@case("runs", "if-idle-guards", covers=("runs.start",))
async def case_if_idle_guards(kit: Kit) -> None:
    """The other guards of a start hold as well, and come first; the current branch is the right one."""
    store = kit.store
    await store.commit("t", messages=[Message.user("a", id="a"), Message.user("b")])
    await store.commit("t", fence=5)
    await store.branches.fork("t", at="a", name="try", switch=True)
    await untouched(store, VersionConflict, store.runs.start("t", "agent", if_idle=True, expect=1))
    await untouched(store, StaleClaim, store.runs.start("t", "agent", if_idle=True, fence=4))
    other = await kit.second()
    run = await other.runs.start("t", "agent", if_idle=True, expect=2, fence=6, messages=[Message.user("c")])
    equal((run.branch, (await store.threads.get("t")).fence), (1, 6), "on the current branch")
    await store.commit("t", run=run.finish())
    await untouched(store, AlreadyExists, store.runs.start("t", "agent", run_id=run.id, if_idle=True))
    named = await store.runs.start("t", "agent", if_idle=True, branch="main", messages=[Message.user("d")])
    equal(named.branch, 0, "on the branch that was named")


@case("runs", "if-idle-race", covers=("runs.start",))
async def case_if_idle_race(kit: Kit) -> None:
    """Of many starts at the same time exactly one succeeds, on a new thread and on an old one."""
    clients = [kit.store, await kit.second()]
    for turn in range(4):
        name = f"t{turn % 2}"
        won, lost = await race(
            *[clients[n % 2].runs.start(name, "agent", run_id=f"r{turn}-{n}", if_idle=True) for n in range(8)]
        )
        equal((len(won), len(lost)), (1, 7), "one wins")
        equal({error.actual for error in lost}, {won[0].id}, "and the others learn which")
        await kit.store.commit(name, run=won[0].finish())
    runs = await collect(kit.store.runs.iter())
    equal(len(runs), 4, "one run each time")


@case("runs", "if-idle-overtaken", covers=("runs.start",))
async def case_if_idle_overtaken(kit: Kit) -> None:
    """A run that appears, resumes or ends between the look and the write is seen."""
    await kit.store.commit("t", messages=[Message.user("x")])
    slow, fast = await overtaken(
        kit,
        lambda s: s.runs.start("t", "agent", run_id="slow", if_idle=True),
        lambda s: s.commit("t", run=NewRun(agent_id="agent", id="fast")),
    )
    equal((type(slow), getattr(slow, "actual", None)), (ThreadBusy, "fast"), "a start in between")
    running: Any = fast.run
    await kit.store.commit("t", run=running.finish())
    slow, fast = await overtaken(
        kit,
        lambda s: s.runs.start("t", "agent", run_id="patient", if_idle=True, messages=[Message.user("y")]),
        lambda s: s.commit("t", messages=[Message.user("chatter")]),
    )
    equal((slow.status, slow.input.range.from_seq, fast.version), ("running", 3, 2), "a plain commit is no obstacle")


@case("runs", "if-idle-key", covers=("runs.start",))
async def case_if_idle_key(kit: Kit) -> None:
    """A repeated start returns its own run, even while that is what keeps the thread busy."""
    options: dict[str, Any] = {"if_idle": True, "key": "k", "messages": [Message.user("x")]}
    first = await kit.store.runs.start("t", "agent", **options)
    again = await kit.store.runs.start("t", "agent", **options)
    equal((again.id, again.status), (first.id, "running"), "the same run")
    options["if_idle"] = False
    equal((await kit.store.runs.start("t", "agent", **options)).id, first.id, "a guard is not content")
    await refused(kit, "t", first.id, "running")
