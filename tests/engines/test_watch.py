"""Hints: they wake those who watch the topic, after the commit; polling covers other processes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from tests.engines.toys import DEADLINE, SCOPE, drive, notes, open_engine, refused, watching

from perdure.clock import ManualClock
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Heads, Put


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
        assert seen == [True, [[1]]]
        watch.close()
        watch.close()

    on_tasks(scenario)


def test_a_hint_before_the_wait_is_not_lost_and_hints_merge(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        watch = await watching(engine, "a")
        for n in range(3):
            await engine.transact(SCOPE, [Put("items", (f"{n}",), {})], ["a"])
        assert await watch.wait(DEADLINE)
        watch.close()

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
        assert await first.wait(DEADLINE)
        assert await second.wait(DEADLINE)
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
        assert await waiting

    asyncio.run(main())
