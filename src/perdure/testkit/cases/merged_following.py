"""Cases: several followers merged into one. A tab shows messages, runs and drafts in a single loop."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.errors import InvalidError, NotFoundError
from perdure.model.draft import Draft
from perdure.model.message import Message, MessageRecord
from perdure.model.profile import ProfileChange
from perdure.model.run import Run
from perdure.stores.follower import Follower
from perdure.testkit.cases.following import TIMEOUTS_REFUSED
from perdure.testkit.helpers import move, say
from perdure.testkit.kit import Kit, case, collect, equal, raises

FOLLOWS = ("messages.follow", "runs.follow", "profiles.follow")


def tab(kit: Kit, timeout: float | None = None) -> Follower[Any]:
    """Everything that a tab shows of thread "t"."""
    chat = kit.store.thread("t")
    return chat.follow(view="external").merge(chat.follow_runs(), kit.store.profiles.follow("draft:t"), timeout=timeout)


def brief(change: MessageRecord | Run | Draft | ProfileChange) -> str:
    """What came, in a word."""
    if isinstance(change, Draft):
        return f"draft {change.text}"
    if isinstance(change, MessageRecord):
        return change.text
    if isinstance(change, Run):
        return change.status
    return "no draft" if change.profile is None else f"draft {change.profile.value}"


@case("messages", "follow-merged", covers=FOLLOWS)
async def case_merged(kit: Kit) -> None:
    """Messages, runs and documents arrive as they come, each follower's in its own order; closing ends all."""
    await kit.store.threads.create("t")
    other = await kit.second()
    async with tab(kit) as follower:
        first = asyncio.ensure_future(anext(follower))
        run = await other.runs.start("t", "agent", messages=[Message.user("hello")])
        equal({brief(await first), brief(await anext(follower))}, {"hello", "running"}, "a run started")
        for text in ("H", "Hi"):
            await other.profiles.put("draft:t", run.id, text)
            equal(brief(await anext(follower)), f"draft {text}", "words as they come")
        await other.profiles.delete("draft:t", run.id)
        equal(brief(await anext(follower)), "no draft", "the draft is gone")
        await move(other, run.finish())
        equal(brief(await anext(follower)), "done", "the run is done")
        waiting = asyncio.ensure_future(anext(follower, None))
        await asyncio.sleep(0)
        follower.close()
        equal(await waiting, None, "closed while it waits")
    equal(await collect(follower), [], "it stays closed")


@case("messages", "follow-all", covers=(*FOLLOWS[:2], "runs.follow_drafts"))
async def case_follow_all(kit: Kit) -> None:
    """One call follows all that a tab shows of a branch: what people may see, its runs, and no other branch's."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("q", id="q")])
    chat = kit.store.thread("t", resource_id=None)
    page = await chat.page()
    await chat.append(Message.user("note", visibility="internal"))
    async with chat.follow_all(branch=page.branch, after_seq=page.after_seq) as follower:
        equal(brief(await anext(follower)), "running", "the open run")
        await chat.append(Message.assistant("a"), run=run.finish())
        equal([brief(await anext(follower)) for _ in range(2)], ["a", "done"], "the answer, then the end")
    fork = await chat.fork(before="q", messages=[Message.user("other")])
    for branch, words in ((page.branch, ["q", "a", "done"]), (fork.id, ["other"])):
        records = await collect(chat.follow_all(branch=branch, timeout=0))
        equal([brief(each) for each in records], words, f"branch {branch}")
    records = await collect(chat.follow_all(timeout=0))
    equal([brief(each) for each in records], ["q", "a", "other", "done"], "all branches")


@case("messages", "follow-merged-complete", covers=FOLLOWS)
async def case_complete(kit: Kit) -> None:
    """A reader that is cancelled again and again misses nothing, and no follower starves another."""
    expected: list[str] = []
    texts: list[str] = []
    await kit.store.threads.create("t")
    async with tab(kit) as follower:
        for n in range(12):
            await say(kit.store, "t", f"m{n}")
            await kit.store.profiles.put("draft:t", f"k{n:02}", n)
            expected += [f"m{n}", f"draft {n}"]
            for _ in range(2):
                reading = asyncio.ensure_future(anext(follower))
                await asyncio.sleep(0)
                if n % 3 == 0 and reading.cancel():
                    await asyncio.wait([reading])
                if not reading.cancelled():
                    texts.append(brief(await reading))
        while len(texts) < len(expected):
            texts.append(brief(await anext(follower)))
    equal(sorted(texts), sorted(expected), "each exactly once")
    for kind in ("m", "draft"):
        of_kind = [text for text in texts if text.startswith(kind)]
        equal(of_kind, [text for text in expected if text.startswith(kind)], f"{kind} in order")


@case("messages", "follow-merged-order", covers=FOLLOWS)
async def case_order(kit: Kit) -> None:
    """What was committed together arrives in the order of the followers: the answer before the end of its run."""
    await kit.store.threads.create("t")
    async with tab(kit) as follower:
        for n in range(10):
            run = await kit.store.runs.start("t", "agent", messages=[Message.user(f"q{n}")])
            changes = [brief(await anext(follower)) for _ in range(2)]
            equal(changes, [f"q{n}", "running"], "the question, then the run")
            reading = asyncio.ensure_future(anext(follower))
            await asyncio.sleep(0)
            await kit.store.commit("t", messages=[Message.assistant(f"a{n}")], run=run.finish())
            equal([brief(await reading), brief(await anext(follower))], [f"a{n}", "done"], "the answer, then the end")


@case("messages", "follow-merged-behind", covers=FOLLOWS)
async def case_behind(kit: Kit) -> None:
    """However far behind a tab is, a run that is done comes after its answer."""
    chat = kit.store.thread("t")
    for n in range(5):
        await chat.append(*[Message.user(f"{n}-{i}") for i in range(100)])
    run = await chat.start("agent", messages=[Message.user("question")])
    await chat.append(Message.assistant("answer"), run=run.finish())
    equal([brief(change) for change in await collect(tab(kit, timeout=0))][-2:], ["answer", "done"], "at the end")


@case("messages", "follow-merged-fair", covers=FOLLOWS)
async def case_fair(kit: Kit) -> None:
    """A follower that always has something new does not hold up the others."""
    await say(kit.store, "t", "m0")
    await kit.store.profiles.put("draft:t", "k", 1)
    async with tab(kit) as follower:
        texts: list[str] = []
        while not any(text.startswith("draft") for text in texts) and len(texts) < 20:
            texts.append(brief(await anext(follower)))
            await say(kit.store, "t", f"m{len(texts)}")
    equal("draft 1" in texts, True, f"the draft arrived among {texts}")


@case("messages", "follow-merged-ends", covers=FOLLOWS)
async def case_ends(kit: Kit) -> None:
    """It ends by its timeout, when all followers have ended, and with the error of one."""
    store = kit.store
    await say(store, "t", "one")
    equal([brief(change) for change in await collect(tab(kit, timeout=0))], ["one"], "timeout")
    runs = [await store.runs.start("t", "agent") for _ in range(2)]
    merged = store.runs.follow(runs[0].id).merge(store.runs.follow(runs[1].id))
    for run in runs:
        await move(store, run.finish())
    equal([(run.id, run.status) async for run in merged], [(run.id, "done") for run in runs], "all have ended")
    equal(merged.closed, True, "closed")
    async with tab(kit) as follower:
        equal({brief(await anext(follower)), brief(await anext(follower))}, {"one", "done"}, "what is there")
        await store.threads.delete("t")
        await raises(NotFoundError, anext(follower), "the thread was deleted")
        equal(follower.closed, True, "an error closes it")


@case("messages", "follow-merged-refused", covers=FOLLOWS)
async def case_refused(kit: Kit) -> None:
    """Only followers that nobody reads, without a timeout of their own; a refusal leaves them as they were."""
    await say(kit.store, "t", "one")
    chat = kit.store.thread("t")
    follower, runs = chat.follow(), chat.follow_runs()
    wrong: list[Any] = ["t", None, chat, chat.follow(timeout=1), follower]
    for bad in wrong:
        _refuse(follower, runs, bad)
    for timeout in TIMEOUTS_REFUSED:
        _refuse(follower, runs, timeout=timeout)
    equal((await anext(follower)).text, "one", "it can still be read")
    merged = follower.merge(runs, timeout=0)
    _refuse(merged, chat.follow())
    _refuse(chat.follow(), merged)
    await raises(InvalidError, anext(follower), "it belongs to the merged one")
    _refuse(runs, chat.follow())
    equal(await collect(merged), [], "nothing new")


def _refuse(follower: Follower[Any], *others: Any, **options: Any) -> None:
    try:
        follower.merge(*others, **options)
    except InvalidError:
        return
    raise InvalidError(f"{others!r} {options!r} was accepted")
