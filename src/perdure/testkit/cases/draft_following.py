"""Cases: the words of an answer that is still being written, as the tabs of a conversation follow them."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.errors import InvalidError, NotFoundError
from perdure.model.draft import Draft
from perdure.model.run import Run
from perdure.stores.draft_following import draft_owner
from perdure.stores.store import Store
from perdure.testkit.cases.following import TIMEOUTS_REFUSED
from perdure.testkit.helpers import REFUSED_IDS, move
from perdure.testkit.kit import Kit, case, collect, equal, raises

DRAFTS = ("runs.follow_drafts",)


async def write(store: Store, run: Run, text: Any) -> None:
    """Show a draft, as `job.draft` of a worker does."""
    await store.profiles.put(draft_owner(run.thread_id), run.id, text, ttl_ms=60_000)


async def remove(store: Store, run: Run) -> None:
    """Take it back."""
    await store.profiles.delete(draft_owner(run.thread_id), run.id)


async def current(kit: Kit) -> list[Draft]:
    """What a tab that is opened now sees."""
    return await collect(kit.store.runs.follow_drafts("t", timeout=0))


@case("runs", "follow-drafts", covers=DRAFTS)
async def case_follow(kit: Kit) -> None:
    """A draft is yielded as it is, after each change, and as None when it has gone, whichever client writes it."""
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()
    await write(other, run, "One")
    async with kit.store.thread("t").follow_drafts() as follower:
        equal(await anext(follower), Draft(run_id=run.id, text="One"), "what is there")
        for text in ("One two", "One two three"):
            waiting = asyncio.ensure_future(anext(follower))
            await write(other, run, text)
            equal(await waiting, Draft(run_id=run.id, text=text), "a change")
        await remove(other, run)
        equal(await anext(follower), Draft(run_id=run.id, text=None), "gone")
        equal(Draft(run_id="r", text="a").to_json(), {"run_id": "r", "text": "a"}, "as JSON")
    equal(await current(kit), [], "nothing is left")


@case("runs", "follow-drafts-of-running-runs", covers=DRAFTS)
async def case_running(kit: Kit) -> None:
    """A draft that its worker could not remove is not shown once its run has ended, nor in another thread."""
    run = await kit.store.runs.start("t", "agent")
    foreign = await kit.store.runs.start("u", "agent")
    await write(kit.store, run, "half an answer")
    await kit.store.profiles.put(draft_owner("t"), foreign.id, "of another thread")
    await kit.store.profiles.put(draft_owner("t"), "no-run", "of no run")
    equal(await current(kit), [Draft(run_id=run.id, text="half an answer")], "its own only")
    await write(kit.store, run, {"not": "a text"})
    equal(await current(kit), [], "not a text")
    await write(kit.store, run, "half an answer")
    await move(kit.store, run.finish())
    equal(await current(kit), [], "the run has ended")


@case("runs", "follow-drafts-ends", covers=DRAFTS)
async def case_ends(kit: Kit) -> None:
    """It ends with the thread, and refuses one that does not exist, or belongs to another."""
    run = await kit.store.runs.start("t", "agent", resource_id="ann")
    await write(kit.store, run, "secret")
    drafts = kit.store.runs.follow_drafts
    equal([draft.text for draft in await collect(drafts("t", timeout=0, resource_id="ann"))], ["secret"], "its owner")
    await raises(NotFoundError, collect(drafts("t", timeout=0, resource_id="bob")), "another's")
    await raises(NotFoundError, collect(drafts("none", timeout=0)), "no such thread")
    async with drafts("t") as follower:
        await anext(follower)
        await kit.store.threads.delete("t")
        await kit.store.threads.create("t")
        await raises(NotFoundError, anext(follower), "another thread under its id")
    equal(await current(kit), [], "the new thread has no drafts")


@case("runs", "follow-drafts-refused", covers=DRAFTS)
async def case_refused(kit: Kit) -> None:
    """Arguments are checked at once."""
    await kit.store.threads.create("t")
    for bad in REFUSED_IDS:
        _refuse(kit, bad)
    for timeout in TIMEOUTS_REFUSED:
        _refuse(kit, "t", timeout=timeout)
    long = "t" * 256
    await kit.store.threads.create(long)
    run = await kit.store.runs.start(long, "agent")
    await write(kit.store, run, "words")
    drafts = await collect(kit.store.runs.follow_drafts(long, timeout=0))
    equal(drafts, [Draft(run_id=run.id, text="words")], "an id of any length")


def _refuse(kit: Kit, thread_id: Any, **options: Any) -> None:
    try:
        kit.store.runs.follow_drafts(thread_id, **options)
    except InvalidError:
        return
    raise InvalidError(f"{thread_id!r} {options!r} was accepted")
