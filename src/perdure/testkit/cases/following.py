"""Cases: following one branch or a view of a thread, ending by timeout, and being closed from outside."""

from __future__ import annotations

import asyncio
import gc
from random import Random
from typing import Any

from perdure.errors import CursorExpired, InvalidError, NotFoundError, UnavailableError
from perdure.model.message import Message, MessageRecord
from perdure.stores.follower import Follower
from perdure.stores.store import Store
from perdure.testkit.helpers import REFUSED_IDS, calling, ids, reading, say, seqs
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises

FOLLOW = ("messages.follow",)
TIMEOUTS_REFUSED: tuple[Any, ...] = (-1, -0.1, float("nan"), float("inf"), True, "1", [], 2**60)
VIEWS_REFUSED: tuple[Any, ...] = ("history", "", None, 3)
LINES: tuple[dict[str, Any], ...] = ({}, {"branch": "main"})
"""All branches, and one."""
BRANCHES_REFUSED: tuple[Any, ...] = (1.5, [], "", True)


async def caught_up(store: Store, **query: Any) -> list[MessageRecord]:
    """What a follower yields until there is nothing more."""
    return await collect(store.messages.follow("t", timeout=0, **query))


async def until_end(follower: Follower[MessageRecord]) -> list[MessageRecord]:
    """What a follower yields, up to the message that says `end`."""
    records = [await anext(follower)]
    while records[-1].text != "end":
        records.append(await anext(follower))
    return records


@case("messages", "follow-branch", covers=FOLLOW)
async def case_branch(kit: Kit) -> None:
    """Of a branch: its path, inherited records included, from any seq; then what is written on it, and only that."""
    other = await kit.second()
    await say(kit.store, "t", "a", "b", "c")
    await kit.store.branches.fork("t", at="b", name="side")
    await say(kit.store, "t", "d", branch="side")
    await say(kit.store, "t", "e")
    await kit.store.branches.fork("t", at="d", name="deep", switch=True)
    for branch in ("main", "side", "deep", 1):
        path = await kit.store.messages.path("t", branch=branch)
        for after in range(6):
            expected = [record for record in path if record.seq > after]
            equal(await caught_up(kit.store, branch=branch, after_seq=after), expected, f"{branch} after {after}")
    equal(seqs(await caught_up(kit.store)), [1, 2, 3, 4, 5], "all branches")
    async with other.messages.follow("t", branch="side", after_seq=3) as live:
        equal((await anext(live)).message_id, "d", "history")
        waiting = asyncio.ensure_future(anext(live))
        await say(kit.store, "t", "x")
        await say(kit.store, "t", "y", branch="main")
        await kit.store.branches.rename("t", "side", "renamed")
        await say(kit.store, "t", "z", branch="renamed")
        record = await waiting
        equal((record.message_id, record.parent_id), ("z", "d"), "live")
    await kit.store.branches.delete("t", "renamed")
    await raises(NotFoundError, caught_up(kit.store, branch=1), "a deleted branch")
    await raises(NotFoundError, caught_up(kit.store, branch="nowhere"), "no branch")


@case("messages", "follow-branch-ahead", covers=FOLLOW)
async def case_ahead(kit: Kit) -> None:
    """A follower that begins beyond the end of its branch knows the parent of what it yields."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="side")
    await say(kit.store, "t", "b", "c", branch="main")
    follower = kit.store.messages.follow("t", branch="side", after_seq=3)
    waiting = asyncio.ensure_future(anext(follower))
    for text in "de":
        await say(kit.store, "t", text, branch="side")
    record = await waiting
    equal((record.seq, record.message_id, record.parent_id), (4, "d", "a"), "the first after 3")
    await follower.aclose()


@case("messages", "follow-random", covers=(*FOLLOW, "messages.path"))
async def case_random(kit: Kit) -> None:
    """While two clients write to several branches at once, each follower yields its line exactly, in order."""
    other = await kit.second()
    await say(kit.store, "t", *[f"m{n}" for n in range(5)])
    branches = [0, *[(await kit.store.branches.fork("t", at=f"m{n}")).id for n in (1, 3)]]
    followers = [other.messages.follow("t", branch=branch) for branch in branches]
    public = [other.messages.follow("t", branch=branch, view="external") for branch in branches]
    tasks = [asyncio.ensure_future(until_end(follower)) for follower in (*followers, *public)]
    random = Random(11)
    for turn in range(30):
        visibilities = [random.choice(["all", "internal", "audit"]) for _ in range(random.randrange(1, 4))]
        messages = [Message.user("x", visibility=visibility) for visibility in visibilities]
        await (kit.store, other)[turn % 2].commit("t", messages=messages, branch=random.choice(branches))
    for branch in branches:
        await kit.store.commit("t", messages=[Message.user("end", id=f"end-{branch}")], branch=branch)
    for number, branch in enumerate(branches):
        line = await kit.store.messages.path("t", branch=branch)
        for task, follower, expected in (
            (tasks[number], followers[number], line),
            (tasks[number + 3], public[number], [record for record in line if record.visibility == "all"]),
        ):
            equal(await task, expected, f"branch {branch}")
            follower.close()


@case("messages", "follow-external", covers=FOLLOW)
async def case_external(kit: Kit) -> None:
    """The external view leaves out what is not for all and markers, and yields calls before their results."""
    messages = [
        Message.user("u", id="u"),
        Message.user("n", id="n", visibility="internal"),
        calling("c", id="a"),
        Message.assistant("w", id="w", visibility="audit"),
    ]
    await kit.store.commit("t", messages=messages)
    equal(ids(await caught_up(kit.store, view="external")), ["u", "a"], "all branches")
    follower = kit.store.messages.follow("t", view="external", branch="main", after_seq=3)
    waiting = asyncio.ensure_future(anext(follower))
    await kit.store.commit("t", messages=[Message.retraction("c", id="x")])
    await kit.store.commit("t", messages=[Message.tool("c", "late", id="r"), Message.user("v", id="v")])
    equal([(await waiting).message_id, (await anext(follower)).message_id], ["r", "v"], "live")
    equal((await caught_up(kit.store, view="external", branch=0))[-1].parent_id, "r", "parents are those of the path")
    follower.close()


@case("messages", "follow-timeout", covers=FOLLOW)
async def case_timeout(kit: Kit) -> None:
    """Without a record for so long the iteration ends normally; hidden records do not prolong it."""
    await say(kit.store, "t", "a", "b")
    await kit.store.commit("t", messages=[Message.user("n", visibility="internal")])
    for timeout in (0, 0.0, 0.001, 0.03):
        for query in LINES:
            follower = kit.store.messages.follow("t", timeout=timeout, view="external", **query)
            equal(ids(await collect(follower)), ["a", "b"], f"timeout {timeout}")
            equal(follower.closed, True, "it has ended")
            await raises(StopAsyncIteration, anext(follower), "and stays so")


@case("messages", "follow-arguments", covers=FOLLOW)
async def case_arguments(kit: Kit) -> None:
    """Wrong arguments are refused at once, not at the first record."""
    follow = kit.store.messages.follow

    async def refused(**query: Any) -> None:
        follow(query.pop("thread_id", "t"), **query)

    for bad in (-1, 1.0, "1", True, 2**60):
        await raises(InvalidError, refused(after_seq=bad), f"after_seq {bad!r}")
    for bad in TIMEOUTS_REFUSED:
        await raises(InvalidError, refused(timeout=bad), f"timeout {bad!r}")
    for bad in VIEWS_REFUSED:
        await raises(InvalidError, refused(view=bad), f"view {bad!r}")
    for bad in BRANCHES_REFUSED:
        await raises(InvalidError, refused(branch=bad), f"branch {bad!r}")
    for bad in REFUSED_IDS:
        await raises(InvalidError, refused(thread_id=bad), f"thread {bad!r}")


@case("messages", "follow-closed", covers=FOLLOW)
async def case_closed(kit: Kit) -> None:
    """Closing from another task or thread ends the loop, whether it waits, reads or has not begun."""
    await say(kit.store, "t", "a")
    follow = kit.store.messages.follow
    for query in LINES:
        followers = [follow("t", **query) for _ in range(3)]
        tasks = await reading(*followers)
        followers[0].close()
        await followers[1].aclose()
        await asyncio.to_thread(followers[2].close)
        for task in tasks:
            expect(len(await task) <= 1, "the loop ends")
        unread = follow("t", **query)
        unread.close()
        unread.close()
        equal(await collect(unread), [], "closed before it began")
        async with follow("t", **query) as half:
            await anext(half)
        await raises(StopAsyncIteration, anext(half), "after the block")


@case("messages", "follow-cancelled", covers=FOLLOW)
async def case_cancelled(kit: Kit) -> None:
    """A cancelled wait loses nothing: the next one goes on. A second reader is refused and harms nothing."""
    await say(kit.store, "t", "a")
    for query in LINES:
        version = (await kit.store.threads.get("t")).version
        follower = kit.store.messages.follow("t", after_seq=version, **query)
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(follower))
            for _ in range(5):
                await asyncio.sleep(0)
            await raises(InvalidError, anext(follower), "two readers at once")
            waiting.cancel()
            await raises(asyncio.CancelledError, waiting)
        await say(kit.store, "t", f"after {version}", "and more")
        equal([(await anext(follower)).seq for _ in range(2)], [version + 1, version + 2], "what came since")
        await kit.store.threads.delete("t")
        await kit.store.threads.create("t")
        follower.close()


@case("messages", "follow-dropped", covers=FOLLOW)
async def case_dropped(kit: Kit) -> None:
    """Followers that are dropped, also in a cycle, end by themselves and disturb nobody."""
    await say(kit.store, "t", "a")
    for turn in range(20):
        dropped = kit.store.messages.follow("t")
        await anext(dropped)
        if turn % 2:
            dropped.itself = dropped  # type: ignore[attr-defined]
        del dropped
    gc.collect()
    await say(kit.store, "t", "b")
    equal(ids(await caught_up(kit.store)), ["a", "b"], "another follower")


@case("messages", "follow-thread-gone", covers=(*FOLLOW, "threads.delete"))
async def case_thread_gone(kit: Kit) -> None:
    """A deleted thread ends its followers with NotFoundError; a new one under its id is not taken for it."""
    await say(kit.store, "t", "a")
    waiting = await reading(kit.store.messages.follow("t"), kit.store.messages.follow("t", branch=0))
    kept_open = kit.store.messages.follow("t", branch=0)
    await anext(kept_open)
    await (await kit.second()).threads.delete("t")
    for task in waiting:
        await raises(NotFoundError, task, "a deleted thread")
    await kit.store.threads.create("t")
    await say(kit.store, "t", "x", "y")
    await raises(NotFoundError, anext(kept_open), "another thread under the same id")


@case("messages", "follow-store-closed", covers=(*FOLLOW, "store.close"), needs=("durable",))
async def case_store_closed(kit: Kit) -> None:
    """Closing the store ends its followers with UnavailableError; closing them afterwards is fine."""
    await say(kit.store, "t", "a")
    other = await kit.second()
    followers = [other.messages.follow("t"), other.messages.follow("t", branch="main")]
    tasks = await reading(*followers)
    idle = other.messages.follow("t")
    await anext(idle)
    await other.close()
    for task in tasks:
        await raises(UnavailableError, task, "a closed store")
    for follower in (*followers, idle):
        follower.close()
        await raises(StopAsyncIteration, anext(follower), "and it has ended")


@case("messages", "follow-beyond-the-end", covers=FOLLOW)
async def case_beyond(kit: Kit) -> None:
    """A seq beyond the end is of another thread, which was deleted: no record of the new one is skipped in silence."""
    await say(kit.store, "t", "a", "b", "c")
    await kit.store.branches.fork("t", at="a", name="side")
    for query in LINES:
        await raises(CursorExpired, caught_up(kit.store, after_seq=4, **query), f"{query}")
        equal(await caught_up(kit.store, after_seq=3, **query), [], f"at the end, {query}")
    drafts, runs = kit.store.runs.follow_drafts("t"), kit.store.runs.follow(thread_id="t")
    merged = drafts.merge(kit.store.messages.follow("t", after_seq=4), runs)
    await raises(CursorExpired, anext(merged), "as one of several")
    follower = kit.store.messages.follow("t", after_seq=3)
    waiting = asyncio.ensure_future(anext(follower))
    await say(kit.store, "t", "d")
    equal((await waiting).seq, 4, "the next one")
    follower.close()


@case("messages", "follow-reborn", covers=FOLLOW)
async def case_follow_reborn(kit: Kit) -> None:
    """A thread that is deleted and made again under its id is another one: following the old one ends."""
    for branch in (None, 0):
        await kit.store.commit("t", messages=[Message.user("a"), Message.user("b")])
        follower = kit.store.messages.follow("t", branch=branch)
        equal([(await anext(follower)).text for _ in range(2)], ["a", "b"], "the old thread")
        await kit.store.threads.delete("t")
        await kit.store.threads.create("t")
        await kit.store.commit("t", messages=[Message.user(str(n)) for n in range(5)])
        await raises(NotFoundError, anext(follower), f"another thread, branch {branch}")
        await follower.aclose()
        await kit.store.threads.delete("t")
        await kit.store.threads.create("t")
