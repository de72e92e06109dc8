"""The waker: reads do not depend on the number of followers, and nothing is lost when hints, reads or tasks fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scale.followers import CountingEngine

import perdure.sync
from perdure import Message, MessageRecord, NotFoundError, UnavailableError, limits
from perdure.engines.memory import open_memory
from perdure.kernel.engine import Engine, Hints
from perdure.stores import waker_rounds
from perdure.stores.feeds import Feed, Seat
from perdure.stores.follower import Follower
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store

PATIENCE = 30.0


class Deaf(CountingEngine):
    """An engine whose hints are all lost, and whose views fail when they are told to."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.failing = False
        self.waits = 0

    async def view(self, *arguments: Any) -> Any:
        if self.failing:
            raise UnavailableError("gone for a while")
        return await super().view(*arguments)

    def watch(self, scope: str | None, topics: Sequence[str]) -> Deafened:
        return Deafened(self)


class Deafened:
    """A subscription that hears nothing."""

    def __init__(self, engine: Deaf) -> None:
        self._engine = engine

    async def wait(self, timeout: float) -> Hints:
        self._engine.waits += 1
        await asyncio.sleep(timeout)
        return frozenset()

    def add(self, scope: str, topics: Sequence[str]) -> None:
        return None

    def remove(self, scope: str, topics: Sequence[str]) -> None:
        return None

    def close(self) -> None:
        return None


def on_memory(story: Callable[[Store, Any], Coroutine[Any, Any, None]], wrapper: Any = CountingEngine) -> None:
    async def main() -> None:
        inner = await open_memory(SCHEMA)
        engine = wrapper(inner)
        store = Store(engine, owner=False)
        async with asyncio.timeout(PATIENCE):
            await story(store, engine)
        await inner.close()

    asyncio.run(main())


async def texts(follower: Follower[MessageRecord], count: int) -> list[str]:
    return [(await anext(follower)).text for _ in range(count)]


async def all_wait(followers: Sequence[Any]) -> None:
    while not all(follower._member._waiter.seat.waiting for follower in followers):  # noqa: ASYNC110 - seats have no event
        await asyncio.sleep(0)


def test_reads_do_not_depend_on_the_number_of_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker_rounds, "_POLL", 10 * PATIENCE)
    views: dict[int, int] = {}

    def story_of(count: int) -> Callable[[Store, CountingEngine], Coroutine[Any, Any, None]]:
        async def story(store: Store, engine: CountingEngine) -> None:
            for thread in range(20):
                await store.commit(f"t{thread}", messages=[Message.user("old")])
            followers = [store.messages.follow(f"t{n % 20}", branch=None if n % 40 < 20 else 0) for n in range(count)]
            assert await asyncio.gather(*(texts(follower, 1) for follower in followers)) == [["old"]] * count
            before = engine.views
            for turn in range(5):
                tasks = [asyncio.ensure_future(texts(follower, 1)) for follower in followers]
                await all_wait(followers)
                for thread in range(20):
                    await store.commit(f"t{thread}", messages=[Message.user(f"new {turn}")])
                assert await asyncio.gather(*tasks) == [[f"new {turn}"]] * count
            views[count] = engine.views - before
            for follower in followers:
                follower.close()

        return story

    for count in (40, 400):
        on_memory(story_of(count))
    assert views[40] == views[400], "reads of threads, not of followers"


@pytest.mark.parametrize("query", [{}, {"branch": "main"}, {"view": "external"}], ids=("all", "branch", "external"))
def test_followers_complete_although_every_hint_is_lost(query: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker_rounds, "_POLL", 0.01)

    async def story(store: Store, engine: Deaf) -> None:
        await store.commit("t", messages=[Message.user("a")])
        followers = [store.messages.follow("t", **query) for _ in range(10)]
        tasks = [asyncio.ensure_future(texts(follower, 8)) for follower in followers]
        for text in "bcdefgh":
            await asyncio.sleep(0.005)
            await store.commit("t", messages=[Message.user(text)])
        assert await asyncio.gather(*tasks) == [list("abcdefgh")] * 10
        waiting = [asyncio.ensure_future(anext(follower)) for follower in followers]
        await all_wait(followers)
        await store.threads.delete("t")
        assert {type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)} == {NotFoundError}

    on_memory(story, Deaf)


def test_a_deleted_branch_is_noticed_although_every_hint_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker_rounds, "_POLL", 0.01)

    async def story(store: Store, engine: Deaf) -> None:
        receipt = await store.commit("t", messages=[Message.user("a")])
        await store.branches.fork("t", at=receipt.message_ids[0], name="side")
        side, main = store.messages.follow("t", branch="side"), store.messages.follow("t", branch=0)
        assert [await texts(side, 1), await texts(main, 1)] == [["a"], ["a"]]
        waiting = [asyncio.ensure_future(anext(follower)) for follower in (side, main)]
        await all_wait((side, main))
        await store.branches.delete("t", "side")
        with pytest.raises(NotFoundError, match="branch 1"):
            await waiting[0]
        await store.commit("t", messages=[Message.user("b")])
        assert (await waiting[1]).text == "b"
        main.close()

    on_memory(story, Deaf)


def test_who_waits_gets_the_error_of_the_shared_read_and_who_does_not_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker_rounds, "_POLL", 0.01)

    async def story(store: Store, engine: Deaf) -> None:
        await store.commit("t", messages=[Message.user("a")])
        followers = [store.messages.follow("t") for _ in range(5)]
        idle = store.messages.follow("t")
        for follower in (*followers, idle):
            await texts(follower, 1)
        tasks = [asyncio.ensure_future(anext(follower)) for follower in followers]
        await all_wait(followers)
        engine.failing = True
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error) for error in errors} == {UnavailableError}
        assert len({id(error) for error in errors}) == 5, "an error each"
        assert all(follower.closed for follower in followers)
        waits = engine.waits
        while engine.waits < waits + 3:  # noqa: ASYNC110 - it counts
            await asyncio.sleep(0)
        engine.failing = False
        await store.commit("t", messages=[Message.user("b")])
        assert await texts(idle, 1) == ["b"]
        idle.close()

    on_memory(story, Deaf)


def test_a_follower_behind_the_tail_reads_for_itself() -> None:
    async def story(store: Store, engine: CountingEngine) -> None:
        await store.commit("t", messages=[Message.user("0")])
        slow, quick = store.messages.follow("t"), store.messages.follow("t", branch=0)
        assert [await texts(slow, 1), await texts(quick, 1)] == [["0"], ["0"]]
        task = asyncio.ensure_future(texts(quick, 1_000))
        for start in range(1, 1_001, 100):
            await store.commit("t", messages=[Message.user(str(n)) for n in range(start, start + 100)])
            await asyncio.sleep(0.002)
        expected = [str(n) for n in range(1, 1_001)]
        assert await task == expected
        feed = slow._member._waiter._feed  # type: ignore[attr-defined]
        assert len(feed.entries) <= limits.FOLLOW_TAIL
        assert await texts(slow, 1_000) == expected
        slow.close()
        quick.close()

    on_memory(story)


def test_followers_of_branches_share_reads_and_get_their_own_records() -> None:
    async def story(store: Store, engine: CountingEngine) -> None:
        receipt = await store.commit("t", messages=[Message.user("root")])
        await store.branches.fork("t", at=receipt.message_ids[0], name="side")
        followers = [store.messages.follow("t", branch=branch) for branch in ("main", "side")]
        for follower in followers:
            assert await texts(follower, 1) == ["root"]
        parents = receipt.message_ids * 2
        for turn in range(5):
            tasks = [asyncio.ensure_future(anext(follower)) for follower in followers]
            await all_wait(followers)
            for branch in ("side", "main"):
                await store.commit("t", messages=[Message.user(f"{branch} {turn}")], branch=branch)
            records = await asyncio.gather(*tasks)
            assert [record.text for record in records] == [f"main {turn}", f"side {turn}"]
            assert [record.parent_id for record in records] == parents
            parents = [record.message_id for record in records]
        for follower in followers:
            follower.close()

    on_memory(story)


def test_a_tail_is_bounded_in_number_and_in_bytes() -> None:
    feed = Feed(None, "t")  # type: ignore[arg-type]
    feed.begin(1, 0)

    def grow(count: int, size: int) -> None:
        rest = ("user", 0, "all", None, None, 0, b"x" * size)
        entries = [(feed.head + n, 0, f"m{n}", *rest) for n in range(1, count + 1)]
        feed.extend(entries, {entry[0]: None for entry in entries}, {})

    grow(100, 10)
    feed.trim()
    assert (len(feed.entries), feed.head, feed.size) == (0, 100, 0), "nobody needs them"
    feed.seats.add(Seat(100))
    for _ in range(5):
        grow(100, 10)
    assert (len(feed.entries), feed.entries[0][0][0], feed.head) == (limits.FOLLOW_TAIL, 345, 600)
    assert feed.after(100) is None
    assert feed.after(600) == feed.after(700) == []
    batch = feed.after(344)
    assert batch is not None
    assert [shared[0][0] for shared in batch] == list(range(345, 345 + 32))
    grow(3, 400_000)
    assert (len(feed.entries), feed.size <= limits.FOLLOW_TAIL_BYTES, feed.room) == (2, True, 2)
    assert len(feed.after(601) or ()) == 1, "not many bytes at once, either"


def test_followers_survive_a_cancelled_waker() -> None:
    async def story(store: Store, engine: CountingEngine) -> None:
        await store.commit("t", messages=[Message.user("a")])
        follower = store.messages.follow("t")
        assert await texts(follower, 1) == ["a"]
        for text in "bcd":
            task = asyncio.ensure_future(texts(follower, 1))
            await all_wait([follower])
            follower._member._waiter._waker._task.cancel()  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            await store.commit("t", messages=[Message.user(text)])
            assert await task == [text]
        follower.close()
        assert follower._member._waiter._waker._watch is None  # type: ignore[attr-defined]

    on_memory(story)


def test_loops_and_plain_threads_follow_the_same_engine(tmp_path: Path) -> None:
    """Each loop has a waker of its own, and plain threads share one."""
    with perdure.sync.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.commit("t", messages=[Message.user("0")])
        seen: list[list[str]] = []
        ready = threading.Barrier(5, timeout=PATIENCE)

        def plain() -> None:
            with store.messages.follow("t") as follower:
                lines = [next(follower).text]
                ready.wait()
                lines += [next(follower).text for _ in range(50)]
            seen.append(lines)

        def looped() -> None:
            async def main() -> None:
                async with perdure.open(f"sqlite:///{tmp_path / 'store.db'}") as own:
                    follower = own.messages.follow("t")
                    lines = await texts(follower, 1)
                    ready.wait()
                    seen.append(lines + await texts(follower, 50))
                    follower.close()

            asyncio.run(main())

        threads = [threading.Thread(target=target) for target in (plain, plain, looped, looped)]
        for thread in threads:
            thread.start()
        ready.wait()
        for number in range(1, 51):
            store.commit("t", messages=[Message.user(str(number))])
        for thread in threads:
            thread.join()
        assert seen == [[str(number) for number in range(51)]] * 4


def test_one_engine_serves_the_followers_of_several_loops() -> None:
    engine = asyncio.run(open_memory(SCHEMA))
    store = Store(engine)
    ready = threading.Barrier(4, timeout=PATIENCE)
    seen: list[list[str]] = []

    def looped() -> None:
        async def main() -> None:
            follower = store.messages.follow("t")
            lines = await texts(follower, 1)
            ready.wait()
            seen.append(lines + await texts(follower, 100))
            follower.close()

        asyncio.run(main())

    asyncio.run(store.commit("t", messages=[Message.user("0")]))
    threads = [threading.Thread(target=looped) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()

    async def write() -> None:
        for number in range(1, 101):
            await store.commit("t", messages=[Message.user(str(number))])

    asyncio.run(write())
    for thread in threads:
        thread.join()
    assert seen == [[str(number) for number in range(101)]] * 3
    asyncio.run(store.close())
