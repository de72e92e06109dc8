"""Hints: they wake those who watch the topic, after the commit; polling covers other processes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import (
    DEADLINE,
    SCOPE,
    SERVERS,
    drive,
    empty_place,
    notes,
    open_at,
    open_engine,
    refused,
    watching,
)

from perdure.clock import ManualClock
from perdure.errors import InvalidError
from perdure.kernel.engine import EVERYTHING, FIXED_TOPICS, Engine, Topic, Watch
from perdure.kernel.ops import Heads, Put
from perdure.kernel.validate import Kernel


def test_a_hint_wakes_its_watchers_after_the_commit(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        watch = await watching(engine, "a", "b")
        seen: list[Any] = []

        async def wait() -> None:
            seen.append(await watch.wait(DEADLINE))
            seen.append(await engine.view(SCOPE, [Heads("notes", ["t"])]))

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        await engine.transact(SCOPE, [notes("t", "x")], ["b", "c"])
        await waiting
        assert seen == [{(SCOPE, "b")}, [[1]]]
        watch.close()
        watch.close()

    on_tasks(scenario)


def test_a_hint_before_the_wait_is_not_lost_and_hints_merge(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        watch = await watching(engine, "a")
        for n in range(3):
            await engine.transact(SCOPE, [Put("items", (f"{n}",), {})], ["a"])
        assert await watch.wait(DEADLINE) == {(SCOPE, "a")}
        assert await watch.wait(0) == set()
        watch.close()
        assert await watch.wait(DEADLINE) is EVERYTHING

    on_tasks(scenario)


def test_other_topics_scopes_and_conflicts_do_not_wake(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        watch = await watching(engine, "a")
        await engine.transact(SCOPE, [Put("items", ("x",), {})], ["b"])
        await engine.transact("other", [Put("items", ("x",), {})], ["a"])
        await refused(engine.transact(SCOPE, [notes("t", "x", expect=7)], ["a"]))
        assert not await watch.wait(0)
        watch.close()
        await engine.transact(SCOPE, [Put("items", ("x",), {})], ["a"])

    on_tasks(scenario)


def test_a_blocking_watcher_is_woken_by_a_task_of_another_thread(tmp_path: Path, clock: ManualClock) -> None:
    for kind in ("memory", "sqlite"):
        engine = drive(open_engine(kind, tmp_path, clock))
        view = engine.blocking()
        assert view is not None
        watch = view.watch(SCOPE, ["a"])
        assert not drive(watch.wait(0))
        writer = threading.Thread(target=lambda e=engine: asyncio.run(e.transact(SCOPE, [notes("t", "x")], ["a"])))
        writer.start()
        assert drive(watch.wait(DEADLINE))
        writer.join()
        watch.close()
        drive(view.close())


def test_a_commit_of_another_connection_wakes_everybody(tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        here = await open_engine("sqlite", tmp_path, clock)
        there = await open_engine("sqlite", tmp_path, clock)
        first, second = here.watch(SCOPE, ["a"]), here.watch("other", ["b"])
        assert not await first.wait(0.1)
        await there.transact(SCOPE, [notes("t", "x")], ["a"])
        assert await first.wait(DEADLINE) is EVERYTHING
        assert await second.wait(DEADLINE) is EVERYTHING
        first.close()
        await there.transact(SCOPE, [notes("t", "y")])
        assert await second.wait(DEADLINE)
        second.close()
        # Watched again after a pause in which nobody polled.
        await there.transact(SCOPE, [notes("t", "z")])
        third = here.watch(SCOPE, ["a"])
        await there.transact(SCOPE, [notes("t", "zz")])
        assert await third.wait(DEADLINE)
        await here.close()
        await there.close()

    asyncio.run(main())


def test_own_commits_do_not_wake_other_topics(tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        engine = await open_engine("sqlite", tmp_path, clock)
        watch = engine.watch(SCOPE, ["a"])
        for n in range(30):
            await engine.transact(SCOPE, [notes("t", f"{n}")], ["b"])
        assert not await watch.wait(0.2)
        watch.close()
        await engine.close()

    asyncio.run(main())


def test_closing_the_store_ends_a_wait(tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        engine = await open_engine("sqlite", tmp_path, clock)
        watch = engine.watch(SCOPE, ["a"])
        waiting = asyncio.create_task(watch.wait(DEADLINE))
        await asyncio.sleep(0)
        await engine.close()
        assert await waiting is EVERYTHING

    asyncio.run(main())


async def quiet(watch: Watch) -> None:
    """Wait until what a new subscription may still be rung for has passed."""
    while await watch.wait(0.5):
        pass


def test_a_subscription_grows_and_shrinks(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        watch = await watching(engine, "a")
        watch.add("other", ["b", "c"])
        await quiet(watch)
        for scope, topic in ((SCOPE, "a"), ("other", "a"), ("other", "b"), (SCOPE, "b"), ("other", "c")):
            await engine.transact(scope, [Put("items", ("x",), {})], [topic])
        assert await heard(watch, 3) == {(SCOPE, "a"), ("other", "b"), ("other", "c")}
        watch.remove("other", ["b"])
        watch.remove(SCOPE, ["a", "never"])
        for scope, topic in ((SCOPE, "a"), ("other", "b"), ("other", "c")):
            await engine.transact(scope, [Put("items", ("x",), {})], [topic])
        assert await heard(watch, 1) == {("other", "c")}
        assert not await watch.wait(0)
        watch.close()

    on_tasks(scenario)


async def heard(watch: Watch, count: int) -> set[Topic]:
    """So many topics, however the hints arrive."""
    topics: set[Topic] = set()
    while len(topics) < count:
        hints = await watch.wait(DEADLINE)
        assert hints is not EVERYTHING
        assert hints, "nothing came"
        topics |= hints
    return topics


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_another_engine_says_what_it_changed_or_that_it_cannot(kind: str, tmp_path: Path, clock: ManualClock) -> None:
    """Two engines on one store, as two processes have them: named topics, those of every scope too."""

    async def main() -> None:
        place = await empty_place(kind, tmp_path)
        here, there = [await open_at(kind, place, clock) for _ in range(2)]
        one, every = await watching(here, "a", "b"), here.watch(None, ["mailbox", "config"])
        await quiet(one)
        await quiet(every)
        await there.transact("other", [Put("items", ("x",), {})], ["mailbox", "outbox", "a"])
        await there.transact(SCOPE, [Put("items", ("x",), {})], ["b", "mailbox"])
        if kind == "sqlite":
            assert await one.wait(DEADLINE) is EVERYTHING
            assert await every.wait(DEADLINE) is EVERYTHING
        else:
            assert await heard(one, 1) == {(SCOPE, "b")}
            assert await heard(every, 2) == {("other", "mailbox"), (SCOPE, "mailbox")}
            await here.transact("third", [Put("items", ("x",), {})], ["config"])
            assert await heard(every, 1) == {("third", "config")}
            every.close()
            await there.transact("other", [Put("items", ("x",), {})], ["mailbox"])
        for engine in (here, there):
            await engine.close()

    asyncio.run(main())


def test_a_fixed_topic_is_heard_in_every_scope(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        kernel = Kernel(engine)
        every = kernel.watch(None, sorted(FIXED_TOPICS))
        await quiet(every)
        await engine.transact("one", [Put("items", ("x",), {})], ["mailbox"])
        await engine.transact("two", [Put("items", ("x",), {})], ["schedules", "thread:t"])
        assert await heard(every, 2) == {("one", "mailbox"), ("two", "schedules")}
        every.close()
        for topics in (["thread:t"], ["mailbox", "a"]):
            with pytest.raises(InvalidError, match="every scope"):
                kernel.watch(None, topics)

    on_tasks(scenario)
