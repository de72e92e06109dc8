"""Housekeeping costs opening nothing, remembers scopes for the engine, ends with the store, and shows its failures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.sync
from perdure import Message, UnavailableError, failpoints, limits
from perdure.clock import ManualClock
from perdure.engines.memory import open_memory
from perdure.kernel.ops import NOW, Heads, Scan
from perdure.stores import housekeeping
from perdure.stores.cleanup import Progress, sweep
from perdure.stores.housekeeping import ForkGate, Housekeeper
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.testkit.cases.clock_skew import wall_clock_off_by

DEADLINE = 60.0


def wait_until(reached: Callable[[], object]) -> None:
    ends = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < ends, "nothing happened within the deadline"
        time.sleep(0.005)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "perdure-housekeeping"]


def with_old_keys(path: Path, clock: ManualClock, count: int = 120) -> None:
    with perdure.sync.open(str(path), clock=clock, durability="process", housekeeping=False) as store:
        for number in range(count):
            store.commit("t", messages=[Message.user("x")], key=str(number))
    clock.advance(limits.KEY_RETENTION_MS + 1)


def keys_left(store: Any) -> int:
    answer = store._driver.run(store.engine.view("default", [Scan("keys")]))
    return len(answer[0])


def test_opening_returns_before_anything_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go, clock = threading.Event(), ManualClock()
    with_old_keys(tmp_path / "a.db", clock)
    real = housekeeping.sweep

    async def held(*given: Any) -> None:
        may_go.wait(DEADLINE)
        await real(*given)

    monkeypatch.setattr(housekeeping, "sweep", held)
    with perdure.sync.open(str(tmp_path / "a.db"), clock=clock) as store:
        assert store.commit("t", messages=[Message.user("y")], key="new").version == 121
        assert keys_left(store) == 121
        may_go.set()
        wait_until(lambda: keys_left(store) == 1)


def test_the_blocking_face_is_cleaned_too_and_its_thread_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    with_old_keys(tmp_path / "a.db", clock)
    with perdure.sync.open(str(tmp_path / "a.db"), clock=clock) as store:
        wait_until(lambda: keys_left(store) == 0)
        wait_until(lambda: not workers())
        store.threads.get("t")
    assert not workers()


def test_a_close_does_not_wait_for_the_rest_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_SHORTEST_REST", DEADLINE)
    monkeypatch.setattr(housekeeping, "_LONGEST_REST", DEADLINE)
    clock = ManualClock()
    with_old_keys(tmp_path / "a.db", clock)

    async def story() -> None:
        async with perdure.open(str(tmp_path / "a.db"), clock=clock) as store:
            await store.threads.get("t")
            await asyncio.to_thread(wait_until, workers)
        assert not workers()

    asyncio.run(story())


def test_read_only_and_opted_out_stores_clean_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    with_old_keys(tmp_path / "a.db", clock)
    for options in ({"read_only": True}, {"housekeeping": False}):
        with perdure.sync.open(str(tmp_path / "a.db"), clock=clock, **options) as store:  # type: ignore[arg-type]
            store.threads.get("t")
            assert not workers()
            assert keys_left(store) == 120


class Counted:
    """The memory engine, with its views counted."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.views = 0
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def blocking(self) -> None:
        return None

    async def view(self, scope: str, reads: Any) -> Any:
        if self.broken and reads[0] is NOW:
            raise UnavailableError("the disk is on fire")
        self.views += 1
        return await self._engine.view(scope, reads)


def test_a_scope_is_remembered_as_clean_by_the_engine_not_by_the_store() -> None:
    async def story() -> None:
        engine: Any = Counted(await open_memory(SCHEMA))
        store = Store(engine, housekeeper=Housekeeper(engine))
        await store.scoped("tenant").threads.create("t")
        await asyncio.gather(*[t for t in asyncio.all_tasks() if t.get_name() == "perdure-housekeeping"])
        before = engine.views
        for _ in range(10):
            await store.scoped("tenant").threads.get("t")
        assert engine.views - before == 10
        await store.close()

    asyncio.run(story())


def test_a_failure_is_shown_by_health_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLEANUP_RETRY_MS", 0)

    async def story() -> None:
        engine: Any = Counted(await open_memory(SCHEMA))
        store = Store(engine, housekeeper=Housekeeper(engine))
        engine.broken = True
        async with asyncio.timeout(DEADLINE):
            while not any("on fire" in problem for problem in (await store.health()).problems):
                await store.threads.find("t")
                await asyncio.sleep(0)
            engine.broken = False
            while any("on fire" in problem for problem in (await store.health()).problems):
                await store.threads.find("t")
                await asyncio.sleep(0)
        await store.close()

    asyncio.run(story())


def test_a_close_that_is_cancelled_can_be_repeated() -> None:
    async def story() -> None:
        engine: Any = Counted(await open_memory(SCHEMA))
        store = Store(engine, housekeeper=Housekeeper(engine))
        await store.threads.create("t")
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await store.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "perdure-housekeeping"]

    asyncio.run(story())


def test_a_wall_clock_that_jumps_expires_nothing_in_memory() -> None:
    with perdure.sync.open("memory://") as store:
        store.commit("t", messages=[Message.user("once")], key="k")
        with wall_clock_off_by(8 * 24 * 3600 * 1000):
            assert store.commit("t", messages=[Message.user("once")], key="k").replayed


def test_a_commit_succeeds_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(housekeeping, "ThreadWorker", no_thread)
    with perdure.sync.open("memory://") as store:
        assert store.commit("t", messages=[Message.user("once")]).version == 1
        assert any("can't start new thread" in problem for problem in store.health().problems)


def test_a_clock_that_went_back_hides_no_interrupted_deletion() -> None:
    async def story() -> None:
        clock, progress = ManualClock(), Progress()
        async with perdure.open("memory://", clock=clock, housekeeping=False) as store:
            for thread in ("before", "after"):
                await store.commit(thread, messages=[Message.user("secret")])
                failpoints.arm("delete.after_tombstone", "error")
                with pytest.raises(OSError, match="failpoint"):
                    await store.threads.delete(thread)
                await sweep(store._context, progress)
                clock.advance(-2 * 3600 * 1000)
            assert await store.engine.view("default", [Heads("messages", ["before", "after"])]) == [[0, 0]]

    asyncio.run(story())


def test_scopes_that_wait_are_bounded_and_not_searched() -> None:
    class Stuck(Housekeeper):
        def _try_to_start(self) -> None:
            return None

    engine: Any = None
    keeper = Stuck(engine)
    for number in range(60_000):
        keeper.visit(f"tenant-{number}")
    assert len(keeper._waiting) <= housekeeping._SCOPES_MOST


def test_a_fork_waits_until_no_thread_cleans() -> None:
    gate = ForkGate()
    gate.enter()
    gate.PATIENCE = DEADLINE
    order: list[str] = []

    def fork() -> None:
        gate.before_fork()
        order.append("forked")
        gate.after_fork_in_parent()

    forking = threading.Thread(target=fork)
    forking.start()
    order.append("a piece ended")
    gate.leave()
    forking.join(DEADLINE)
    assert order == ["a piece ended", "forked"]
    gate.enter()
    gate.after_fork_in_child()
    gate.enter()
    gate.leave()


def test_a_fork_that_waited_in_vain_lets_go_of_nothing() -> None:
    gate = ForkGate()
    gate.PATIENCE = 0.0
    gate.enter()
    gate.before_fork()
    gate.after_fork_in_parent()
    gate.leave()
    with pytest.raises(RuntimeError):
        gate.leave()
