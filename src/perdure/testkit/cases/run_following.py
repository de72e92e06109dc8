"""Cases: `runs.follow` of one run: the run now, then its changes, the last one always, until it is done or closed.

Those of a whole thread are in `thread_run_following`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.errors import InvalidError, NotFoundError, UnavailableError
from perdure.model.message import Message
from perdure.model.tickets import Ticket
from perdure.testkit.cases.following import TIMEOUTS_REFUSED
from perdure.testkit.helpers import REFUSED_IDS, move, reading
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises

FOLLOW = ("runs.follow",)


@case("runs", "follow", covers=FOLLOW)
async def case_follow(kit: Kit) -> None:
    """The run as it is comes first, then each change that another client commits; the loop ends with the run."""
    other = await kit.second()
    run = await kit.store.runs.create("t", "agent")
    follower = other.runs.follow(run.id)
    equal(await anext(follower), run, "as it is")
    changes: list[Any] = [
        lambda run: run.begin(),
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
    await raises(StopAsyncIteration, anext(follower), "after the end")
    equal((follower.closed, await collect(other.runs.follow(run.id))), (True, [run]), "a run that is done already")


@case("runs", "follow-merged", covers=FOLLOW)
async def case_merged(kit: Kit) -> None:
    """Of changes that come faster than they are read, some may be left out, but order and the last are kept."""
    other = await kit.second()
    run = await kit.store.runs.start("t", "agent")
    (task,) = await reading(other.runs.follow(run.id))
    for _ in range(20):
        run = await move(kit.store, run.step())
    run = await move(kit.store, run.finish())
    states = await task
    steps = [state.steps for state in states]
    equal((states[-1], steps), (run, sorted(steps)), "the last state, and the order")
    equal({state.status for state in states[:-1]}, {"running"}, "it is done once")
    equal(len({state.rev for state in states}), len(states), "no state comes twice")
    follower = kit.store.runs.follow((await kit.store.runs.start("t", "agent", run_id="r")).id)
    await anext(follower)
    await kit.store.runs.cancel("r")
    equal([state.status for state in await collect(follower)], ["done"], "what happened while nobody read")


@case("runs", "follow-timeout", covers=FOLLOW)
async def case_timeout(kit: Kit) -> None:
    """Without a change for so long the loop ends; messages of others do not prolong it. Bad arguments are refused."""
    run = await kit.store.runs.start("t", "agent")
    for timeout in (0, 0.01):
        follower = kit.store.runs.follow(run.id, timeout=timeout)
        equal((await collect(follower), follower.closed), ([run], True), f"timeout {timeout}")

    async def refused(run_id: Any = "r", timeout: Any = None) -> None:
        kit.store.runs.follow(run_id, timeout=timeout)

    for bad in TIMEOUTS_REFUSED:
        await raises(InvalidError, refused(timeout=bad), f"timeout {bad!r}")
    for bad in REFUSED_IDS:
        await raises(InvalidError, refused(bad), f"run {bad!r}")


@case("runs", "follow-closed", covers=FOLLOW)
async def case_closed(kit: Kit) -> None:
    """Closing from another task or thread ends the loop; a cancelled wait loses nothing; one task reads at a time."""
    run = await kit.store.runs.start("t", "agent")
    followers = [kit.store.runs.follow(run.id) for _ in range(3)]
    tasks = await reading(*followers)
    followers[0].close()
    await followers[1].aclose()
    await asyncio.to_thread(followers[2].close)
    for task in tasks:
        expect(len(await task) <= 1, "the loop ends")
    unread = kit.store.runs.follow(run.id)
    unread.close()
    equal(await collect(unread), [], "closed before it began")
    async with kit.store.runs.follow(run.id) as follower:
        equal(await anext(follower), run, "as it is")
        waiting = asyncio.ensure_future(anext(follower))
        for _ in range(5):
            await asyncio.sleep(0)
        await raises(InvalidError, anext(follower), "two readers at once")
        waiting.cancel()
        await raises(asyncio.CancelledError, waiting)
        stepped = await move(kit.store, run.step())
        equal(await anext(follower), stepped, "what came since")
    await raises(StopAsyncIteration, anext(follower), "after the block")


@case("runs", "follow-gone", covers=(*FOLLOW, "threads.delete"))
async def case_gone(kit: Kit) -> None:
    """A deleted thread ends it with NotFoundError, and so does another run that has the id since."""
    await raises(NotFoundError, anext(kit.store.runs.follow("nobody")), "no such run")
    run = await kit.store.runs.start("t", "agent", run_id="r")
    (waiting,) = await reading(kit.store.runs.follow(run.id))
    idle = kit.store.runs.follow(run.id)
    await anext(idle)
    await (await kit.second()).threads.delete("t")
    await raises(NotFoundError, waiting, "a deleted thread")
    await kit.store.threads.create("t")
    await kit.store.runs.start("t", "agent", run_id="r")
    await raises(NotFoundError, anext(idle), "another run under the same id")


@case("runs", "follow-store-closed", covers=(*FOLLOW, "store.close"), needs=("durable",))
async def case_store_closed(kit: Kit) -> None:
    """Closing the store ends its followers with UnavailableError."""
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()
    (task,) = await reading(other.runs.follow(run.id))
    await other.close()
    await raises(UnavailableError, task, "a closed store")
