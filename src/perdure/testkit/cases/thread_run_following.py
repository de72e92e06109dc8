"""Cases: `runs.follow` of a thread: its open runs and the latest, then every run that starts, changes or ends."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, UnavailableError
from perdure.model.message import Message
from perdure.model.run import Run
from perdure.model.tickets import Ticket
from perdure.stores.follower import Follower
from perdure.testkit.cases.following import TIMEOUTS_REFUSED
from perdure.testkit.cases.run_following import FOLLOW
from perdure.testkit.helpers import REFUSED_IDS, move, reading, say
from perdure.testkit.kit import Kit, case, collect, equal, raises

MANY = limits.PAGE_MAX + 10


async def current(kit: Kit) -> list[Run]:
    """What a new follower of the thread yields at once."""
    return await collect(kit.store.runs.follow(thread_id="t", timeout=0))


async def next_runs(follower: Follower[Run], count: int) -> list[Run]:
    """The next states, as many as are expected."""
    return [await anext(follower) for _ in range(count)]


def statuses(runs: list[Run]) -> dict[str, str]:
    """The status of each run, by id."""
    return {run.id: run.status for run in runs}


@case("runs", "follow-thread-branch", covers=FOLLOW)
async def case_branch(kit: Kit) -> None:
    """With a branch: the latest run is the latest on it, whatever happened on others since."""
    first = await kit.store.runs.start("t", "agent", messages=[Message.user("one", id="one")])
    first = await move(kit.store, first.fail("no"))
    fork = await kit.store.branches.fork("t", before="one", messages=[Message.user("two")])
    second = await move(kit.store, (await kit.store.runs.start("t", "agent", branch=fork.id)).finish())
    async with kit.store.thread("t").follow_runs(branch=0) as follower:
        equal(await anext(follower), first, "the latest on it")
        third = await kit.store.runs.start("t", "agent", branch=fork.id)
        equal(await anext(follower), third, "a new one on another")
    for branch, expected in ((0, [first, third]), (fork.id, [third]), (7, [third]), (None, [third])):
        runs = await collect(kit.store.runs.follow(thread_id="t", branch=branch, timeout=0))
        equal(runs, expected, f"branch {branch}")
    equal(await collect(kit.store.runs.follow(thread_id="t", branch=fork.id, timeout=0)), [third], second.id)
    for wrong in (-1, "main", True):
        _refuse_branch(kit, thread_id="t", branch=wrong)
    _refuse_branch(kit, run_id=first.id, branch=0)


def _refuse_branch(kit: Kit, **options: Any) -> None:
    try:
        kit.store.runs.follow(**options)
    except InvalidError:
        return
    raise InvalidError(f"{options!r} was accepted")


@case("runs", "follow-thread", covers=(*FOLLOW, "runs.decide"))
async def case_follow(kit: Kit) -> None:
    """A client that knows the thread alone sees a run of another client start, wait, be decided, go on and end."""
    await kit.store.threads.create("t")
    other = await kit.second()
    follower = other.thread("t").follow_runs()
    waiting = asyncio.ensure_future(anext(follower))
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("hello")])
    equal(await waiting, run, "started")
    changes: list[Any] = [
        lambda run: run.step(output_tokens=1),
        lambda run: run.wait([Ticket(ticket_id="k")]),
        lambda run: run.decide("k", True),
        lambda run: run.resume(),
        lambda run: run.finish("bye"),
    ]
    for change in changes:
        waiting = asyncio.ensure_future(anext(follower))
        await kit.store.commit("t", messages=[Message.user("not of the run")])
        run = await move(kit.store, change(run))
        equal(await waiting, run, run.status)
    following = await kit.store.runs.create("t", "agent")
    equal((await anext(follower), follower.closed), (following, False), "it does not end with a run")


@case("runs", "follow-thread-now", covers=FOLLOW)
async def case_now(kit: Kit) -> None:
    """The open runs come first, oldest first, and the latest run even if it is done; not what ended before."""
    await kit.store.threads.create("t")
    equal(await current(kit), [], "no run")
    for run_id in ("z", "y"):
        await kit.store.runs.start("t", "agent", run_id=run_id)
        await kit.store.runs.cancel(run_id)
    equal(statuses(await current(kit)), {"y": "done"}, "the latest run")
    waits = await kit.store.runs.start("t", "agent", run_id="x")
    waits = await move(kit.store, waits.wait())
    runs = [waits, *[await kit.store.runs.create("t", "agent", run_id=run_id) for run_id in "wv"]]
    runs.append(await kit.store.runs.start("t", "agent", run_id="u"))
    runs.sort(key=lambda run: (run.created_at, run.id))
    await kit.store.runs.start("elsewhere", "agent", run_id="of another thread")
    equal(await current(kit), runs, "the open runs")
    done = await kit.store.runs.cancel("u")
    equal(await current(kit), [done if run.id == "u" else run for run in runs], "the latest run is done")


@case("runs", "follow-thread-between", covers=FOLLOW)
async def case_between(kit: Kit) -> None:
    """Runs that start and end between two looks come as done, each once, whatever their ids; so does an older one."""
    other = await kit.second()
    await kit.store.runs.start("t", "agent", run_id="old")
    follower = other.runs.follow(thread_id="t", timeout=0.2)
    equal(statuses([await anext(follower)]), {"old": "running"}, "as it is")
    for run_id in ("m", "z", "a"):
        await kit.store.runs.start("t", "agent", run_id=run_id)
        await kit.store.runs.cancel(run_id)
    equal(statuses(await next_runs(follower, 3)), dict.fromkeys("mza", "done"), "what nobody looked at")
    await kit.store.runs.start("t", "agent", run_id="b")
    await kit.store.runs.cancel("old")
    equal(statuses(await next_runs(follower, 2)), {"old": "done", "b": "running"}, "not the latest, and ended")
    equal(await collect(follower), [], "nothing comes twice")


@case("runs", "follow-thread-later", covers=FOLLOW)
async def case_later(kit: Kit) -> None:
    """A run that was created long ago is still followed to its end, and what ended long ago never comes again."""
    for run_id in ("a", "b", "c"):
        await kit.store.runs.start("t", "agent", run_id=run_id)
    follower = (await kit.second()).runs.follow(thread_id="t", timeout=0.2)
    equal(statuses(await next_runs(follower, 3)), dict.fromkeys("abc", "running"), "as they are")
    for ended, started in (("a", "d"), ("c", "e"), ("b", "f")):
        kit.clock.advance(60_000)
        await kit.store.runs.start("t", "agent", run_id=started)
        equal(statuses([await anext(follower)]), {started: "running"}, f"{started} is new")
        kit.clock.advance(60_000)
        await kit.store.runs.cancel(ended)
        equal(statuses([await anext(follower)]), {ended: "done"}, f"{ended} has ended")
    equal(await collect(follower), [], "nothing comes twice")


@case("runs", "follow-thread-branches", covers=FOLLOW)
async def case_branches(kit: Kit) -> None:
    """Runs on two branches are followed together."""
    await say(kit.store, "t", "a")
    side = await kit.store.branches.fork("t", at="a", name="side")
    follower = (await kit.second()).runs.follow(thread_id="t")
    states: dict[str, list[tuple[int, str]]] = {"one": [], "two": []}
    runs = [
        await kit.store.runs.start("t", "agent", run_id="one"),
        await kit.store.runs.start("t", "agent", run_id="two", branch="side"),
    ]
    for change in (None, lambda run: run.wait(), lambda run: run.resume(), lambda run: run.finish()):
        runs = runs if change is None else [await move(kit.store, change(run)) for run in runs]
        for run in await next_runs(follower, 2):
            states[run.id].append((run.branch, run.status))
    story = ("running", "waiting", "running", "done")
    equal(states, {"one": [(0, s) for s in story], "two": [(side.id, s) for s in story]}, "both")


@case("runs", "follow-thread-many", covers=FOLLOW)
async def case_many(kit: Kit) -> None:
    """More runs than a page holds: all of them, open or new, each once."""
    await kit.store.runs.start("t", "agent", run_id="first")
    follower = (await kit.second()).runs.follow(thread_id="t", timeout=0.2)
    equal(statuses([await anext(follower)]), {"first": "running"}, "as it is")
    ids = {f"r{number}" for number in range(MANY)}
    for run_id in sorted(ids, reverse=True):
        await kit.store.runs.create("t", "agent", run_id=run_id)
    equal(statuses(await next_runs(follower, MANY)), dict.fromkeys(ids, "created"), "new")
    equal(statuses(await current(kit)), {"first": "running", **dict.fromkeys(ids, "created")}, "open")
    for run_id in ids:
        await kit.store.runs.cancel(run_id)
    equal(statuses(await next_runs(follower, MANY)), dict.fromkeys(ids, "done"), "ended")
    equal(await collect(follower), [], "nothing comes twice")


@case("runs", "follow-thread-gone", covers=(*FOLLOW, "threads.delete"))
async def case_gone(kit: Kit) -> None:
    """A deleted thread ends it with NotFoundError, and so does another thread that has the id since."""
    await raises(NotFoundError, anext(kit.store.runs.follow(thread_id="nobody")), "no such thread")
    await kit.store.runs.start("t", "agent", run_id="r")
    (waiting,) = await reading(kit.store.runs.follow(thread_id="t"))
    idle = kit.store.runs.follow(thread_id="t")
    await anext(idle)
    await (await kit.second()).threads.delete("t")
    await raises(NotFoundError, waiting, "a deleted thread")
    await kit.store.threads.create("t")
    await kit.store.runs.start("t", "agent", run_id="r")
    await raises(NotFoundError, anext(idle), "another thread under the same id")


@case("runs", "follow-thread-refused", covers=FOLLOW)
async def case_refused(kit: Kit) -> None:
    """Both arguments or neither, and bad ones, are refused at once; a cancelled wait loses nothing."""

    async def follow(*args: Any, **options: Any) -> None:
        kit.store.runs.follow(*args, **options)

    for error in (
        await raises(InvalidError, follow(), "neither"),
        await raises(InvalidError, follow("r", thread_id="t"), "both"),
    ):
        equal("thread_id=" in (error.hint or ""), True, "the hint")
    for bad in TIMEOUTS_REFUSED:
        await raises(InvalidError, follow(thread_id="t", timeout=bad), f"timeout {bad!r}")
    for bad in REFUSED_IDS:
        await raises(InvalidError, follow(thread_id=bad), f"thread {bad!r}")
    await kit.store.threads.create("t")
    async with kit.store.runs.follow(thread_id="t") as follower:
        waiting = asyncio.ensure_future(anext(follower))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
        await raises(asyncio.CancelledError, waiting)
        run = await kit.store.runs.start("t", "agent")
        equal(await anext(follower), run, "what came since")
    await raises(StopAsyncIteration, anext(follower), "after the block")


@case("runs", "follow-thread-store-closed", covers=(*FOLLOW, "store.close"), needs=("durable",))
async def case_store_closed(kit: Kit) -> None:
    """Closing the store ends its followers with UnavailableError."""
    await kit.store.runs.start("t", "agent")
    other = await kit.second()
    (task,) = await reading(other.runs.follow(thread_id="t"))
    await other.close()
    await raises(UnavailableError, task, "a closed store")
