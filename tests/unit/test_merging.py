"""What a merged follower must not lose, whatever the moment at which its reader is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from perdure.stores import merging
from perdure.stores.merging import Merged


class Scripted:
    """A member that hears of a change when the test says so."""

    closed = False
    behind = False

    def __init__(self, news: str = "news", *, once: bool = False) -> None:
        self.once = once
        self.heard = asyncio.Event()
        self.looks = 0
        self.news = news
        self.before_look: Callable[[], None] | None = None

    def close(self) -> None:
        self.closed = True

    def subscribe(self) -> None:
        pass

    async def look(self, *, fresh: bool) -> list[str]:
        self.looks += 1
        if self.before_look is not None:
            self.before_look()
        heard = self.heard.is_set()
        if self.once:
            self.heard.clear()
        return [self.news] if heard else []

    async def wait(self, seconds: float | None) -> None:
        await self.heard.wait()


def test_a_wait_that_is_cancelled_as_it_ends_is_not_forgotten() -> None:
    async def story() -> None:
        member, silent = Scripted(), Scripted()
        merged = Merged([member, silent])
        assert await merged.read(fresh=False) == []
        waiting = asyncio.ensure_future(merged.wait(None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        member.heard.set()
        waiting.cancel()  # in the same turn of the loop
        with suppress(asyncio.CancelledError):
            await waiting
        assert await merged.read(fresh=False) == ["news"]
        assert (member.looks, silent.looks) == (2, 1)

    asyncio.run(story())


def test_a_wait_that_is_cancelled_while_it_cleans_up_is_not_forgotten() -> None:
    """The waits of the others take a turn of the loop to end; a heartbeat may cut in just then."""

    async def story(turns: int) -> bool:
        member, silent = Scripted(), Scripted()
        merged = Merged([member, silent])
        await merged.read(fresh=False)
        waiting = asyncio.ensure_future(merged.wait(None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        member.heard.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert await merged.read(fresh=False) == ["news"], turns
        return cancelled

    assert [asyncio.run(story(turns)) for turns in range(8)].count(True) >= 3


def test_a_busy_member_does_not_put_off_the_regular_looks_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_LOOK_AGAIN", 0.05)

    async def story() -> None:
        busy, quiet = Scripted(), Scripted()
        merged = Merged([busy, quiet])
        busy.heard.set()
        async with asyncio.timeout(30):
            while quiet.looks < 3:
                assert await merged.read(fresh=False) == ["news"]
                await merged.wait(None)
                await asyncio.sleep(0.001)
        assert busy.looks > quiet.looks

    asyncio.run(story())


def test_what_was_committed_before_an_answer_comes_before_it() -> None:
    """The draft is taken back and the answer committed while what is to be yielded first is looked for."""

    async def story() -> None:
        drafts, messages, runs = [Scripted(news, once=True) for news in ("no draft", "answer", "done")]
        merged = Merged([drafts, messages, runs])
        assert await merged.read(fresh=False) == []
        runs.heard.set()

        def commit() -> None:
            drafts.heard.set()
            messages.heard.set()
            messages.before_look = None

        messages.before_look = commit
        await merged.wait(None)
        assert [await merged.read(fresh=False) for _ in range(3)] == [["no draft"], ["answer"], ["done"]]

    asyncio.run(story())


def test_only_who_heard_something_is_looked_at() -> None:
    async def story() -> None:
        members = [Scripted() for _ in range(3)]
        merged = Merged(members)
        await merged.read(fresh=False)
        members[1].heard.set()
        await merged.wait(None)
        assert await merged.read(fresh=False) == ["news"]
        assert [member.looks for member in members] == [2, 2, 1], "and whoever comes before it"
        members[1].heard.clear()
        assert await merged.read(fresh=True) == []
        assert [member.looks for member in members] == [3, 3, 2]

    asyncio.run(story())


def test_no_task_is_left_behind() -> None:
    async def story() -> None:
        members = [Scripted() for _ in range(3)]
        merged = Merged(members)
        members[0].heard.set()
        await merged.wait(None)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        merged.close()
        assert all(member.closed for member in members)
        await merged.wait(None)

    asyncio.run(story())
