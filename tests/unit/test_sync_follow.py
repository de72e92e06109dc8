"""Following without `await`: a blocked loop is ended from another thread, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import perdure.sync
from perdure import InvalidError, Message, NotFoundError, UnavailableError
from perdure.engines.shared.hints import HintHub
from perdure.stores import waiting

PATIENCE = 60


@pytest.fixture(params=("memory://", "sqlite:///{path}"), ids=("memory", "sqlite"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.sync.Store]:
    with perdure.sync.open(str(request.param).format(path=tmp_path / "store.db")) as opened:
        opened.commit("t", messages=[Message.user("one")])
        yield opened


def hub_of(store: perdure.sync.Store) -> HintHub:
    engine: Any = store.engine
    hub = engine._engine._hub if hasattr(engine, "_engine") else engine._database.hub
    assert isinstance(hub, HintHub)
    return hub


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came to that")


def reading(pool: ThreadPoolExecutor, store: perdure.sync.Store, **query: Any) -> tuple[Any, Future[list[str]]]:
    """A follower that a thread reads to its end, and has caught up with."""
    follower = store.messages.follow("t", **query)
    texts: list[str] = []

    def read() -> list[str]:
        texts.extend(record.text for record in follower)
        return texts

    task = pool.submit(read)
    until(lambda: texts == ["one"])
    return follower, task


@pytest.mark.parametrize("query", [{}, {"branch": "main", "view": "external"}], ids=("all", "branch"))
def test_another_thread_ends_a_blocked_loop(store: perdure.sync.Store, query: dict[str, Any]) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(20) as pool:
        pairs = [reading(pool, store, **query) for _ in range(20)]
        for follower, _ in pairs:
            follower.close()
            follower.close()
        for follower, task in pairs:
            assert task.result(timeout=PATIENCE) == ["one"]
            assert follower.closed
            assert list(follower) == []
        assert not hub_of(store).is_watched
    until(lambda: threading.active_count() <= before)


def test_closing_wakes_a_reader_that_would_wait_for_ever(store: perdure.sync.Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        follower, task = reading(pool, store)
        until(lambda: follower._inner._member._waiter.seat.waiting)
        follower.close()
        try:
            assert task.result(timeout=PATIENCE) == ["one"]
        finally:
            follower._inner._member._waiter.seat.ring()


def test_closing_races_with_everything_a_reader_does(store: perdure.sync.Store) -> None:
    with ThreadPoolExecutor(2) as pool:
        for turn in range(50):
            follower = store.messages.follow("t", branch=None if turn % 2 else "main")
            task = pool.submit(list, follower)
            if turn % 3:
                store.commit("t", messages=[Message.user("more")])
            follower.close()
            task.result(timeout=PATIENCE)
    assert not hub_of(store).is_watched


def test_a_block_a_timeout_and_an_end(store: perdure.sync.Store) -> None:
    with store.messages.follow("t") as follower:
        assert next(follower).text == "one"
        assert hub_of(store).is_watched
    assert not hub_of(store).is_watched
    assert [record.text for record in store.messages.follow("t", timeout=0)] == ["one"]
    assert [record.text for record in store.messages.follow("t", timeout=0.01, branch="main")] == ["one"]
    assert not hub_of(store).is_watched
    with pytest.raises(InvalidError, match="timeout"):
        store.messages.follow("t", timeout=-1)
    with pytest.raises(NotFoundError):
        next(store.messages.follow("nobody"))


def test_a_dropped_follower_leaves_no_subscription(store: perdure.sync.Store) -> None:
    for turn in range(10):
        follower: Any = store.messages.follow("t")
        assert next(follower).text == "one"
        if turn % 2:
            follower.itself = follower
        assert hub_of(store).is_watched
        del follower
        gc.collect()
        assert not hub_of(store).is_watched


def test_closing_the_store_tells_the_blocked_loop(store: perdure.sync.Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        follower, task = reading(pool, store)
        store.close()
        with pytest.raises(UnavailableError, match="closed"):
            task.result(timeout=PATIENCE)
        follower.close()
        assert list(follower) == []


def test_a_second_reader_is_refused_and_harms_nothing(store: perdure.sync.Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        follower, task = reading(pool, store)
        until(follower._inner._member.reading.locked)
        with pytest.raises(InvalidError, match="read already"):
            next(follower)
        store.commit("t", messages=[Message.user("two")])
        store.threads.delete("t")
        with pytest.raises(NotFoundError):
            task.result(timeout=PATIENCE)


def test_a_run_is_followed_to_its_end(store: perdure.sync.Store) -> None:
    run = store.runs.start("t", "agent")
    with ThreadPoolExecutor(2) as pool:
        follower = store.runs.follow(run.id)
        assert next(follower) == run
        task = pool.submit(list, follower)
        run = store.commit("t", run=run.finish()).run
        assert task.result(timeout=PATIENCE) == [run]
        other = store.runs.follow(store.runs.start("t", "agent").id)
        states: list[perdure.Run] = []
        blocked = pool.submit(lambda: states.extend(other))
        until(lambda: len(states) == 1)
        other.close()
        blocked.result(timeout=PATIENCE)
    assert not hub_of(store).is_watched
    assert [state.status for state in store.runs.follow(run.id, timeout=0)] == ["done"]


def test_a_run_is_followed_although_every_hint_is_lost(
    store: perdure.sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_LOOK_AGAIN", 0.01)
    monkeypatch.setattr(HintHub, "ring", lambda *_: None)
    run = store.runs.start("t", "agent")
    with ThreadPoolExecutor(1) as pool:
        follower = store.runs.follow(run.id)
        assert next(follower) == run
        task = pool.submit(list, follower)
        store.runs.cancel(run.id)
        assert [state.status for state in task.result(timeout=PATIENCE)] == ["done"]


def test_a_forked_child_closes_nothing_of_its_parent(store: perdure.sync.Store) -> None:
    follower = store.messages.follow("t")
    assert next(follower).text == "one"
    child = os.fork()
    if child == 0:
        try:
            follower.close()
            del follower
            gc.collect()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent looks at the status
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert hub_of(store).is_watched
    store.commit("t", messages=[Message.user("two")])
    assert next(follower).text == "two"
    follower.close()
