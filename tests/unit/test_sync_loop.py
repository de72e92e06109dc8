"""The blocking face of an engine that suspends: one loop in one thread per store, on a stand-in and on real servers."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

import perdure.sync
from perdure import Message, NotFoundError, OutcomeUnknown, UnavailableError, UnsupportedError, opening
from perdure.engines.memory import open_memory
from perdure.kernel.engine import Engine, Health, Hints, Watch
from perdure.kernel.ops import Applied

SERVERS = ("postgres", "mysql", "redis")
URL = "suspending://"


class Suspending:
    """A memory engine that gives way before every answer, as one does that waits for a network."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def waited(*given: Any, **named: Any) -> Any:
            assert asyncio.get_running_loop() is self._loop, "used on another loop than it was opened on"
            await asyncio.sleep(0)
            return await found(*given, **named)

        return waited

    def blocking(self) -> None:
        return None

    async def transact(self, *given: Any) -> Applied:
        applied = await self._inner.transact(*given)
        if answers_are_lost:
            waiting.append(asyncio.current_task())
            await asyncio.Event().wait()
        return applied

    async def health(self) -> Health:
        if self.closed:
            raise UnavailableError("closed")
        # Whoever asks waits until the store is closed or the question is withdrawn.
        waiting.append(asyncio.current_task())
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watching:
        return Watching(self._inner.watch(scope, topics))

    async def close(self) -> None:
        self.closed = True
        await self._inner.close()


class Watching:
    """A watcher of the inner engine that says when somebody waits for it."""

    def __init__(self, inner: Watch) -> None:
        self._inner = inner

    async def wait(self, timeout: float) -> Hints:
        waiting.append(asyncio.current_task())
        return await self._inner.wait(timeout)

    def add(self, scope: str, topics: Sequence[str]) -> None:
        self._inner.add(scope, topics)

    def remove(self, scope: str, topics: Sequence[str]) -> None:
        self._inner.remove(scope, topics)

    def close(self) -> None:
        self._inner.close()


waiting: list[Any] = []
answers_are_lost: list[bool] = []


@pytest.fixture(autouse=True)
def suspending(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in, found by its URL like any engine of a server; and no thread of ours stays behind."""
    module = ModuleType("perdure.engines.suspending")

    async def open_engine(url: str, schema: Any, *, clock: Any, **options: Any) -> Suspending:
        if "broken" in url:
            raise UnavailableError("no such server")
        return Suspending(await open_memory(schema, clock=clock))

    module.open_engine = open_engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(opening._SERVERS, "suspending", "suspending")
    waiting.clear()
    answers_are_lost.clear()
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "perdure-sync"] == []


def url_of(name: str) -> str:
    if name == "stand-in":
        return URL
    try:
        return asyncio.run(fresh_database(server(name), "sync"))
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


@pytest.fixture(params=("stand-in", *SERVERS))
def url(request: pytest.FixtureRequest) -> str:
    return url_of(request.param)


def test_a_representative_day(url: str) -> None:
    with perdure.sync.open(url) as store:
        thread = store.threads.create("t", title="Ünï 🦆", custom={"n": 1.5})
        assert store.threads.get("t") == thread
        run = store.runs.start("t", "planner", messages=[Message.user("Hello")])
        receipt = store.commit("t", messages=[Message.assistant("Hi")], run=run.finish(), state={"plan": [1]}, key="k")
        again = store.commit("t", messages=[Message.assistant("Hi")], run=run.finish(), state={"plan": [1]}, key="k")
        assert (receipt.version, again.replayed, again.message_ids) == (2, True, receipt.message_ids)
        branch = store.branches.fork("t", at=receipt.message_ids[0], name="other", switch=True)
        assert [found.name for found in store.branches.list("t")] == ["main", branch.name]
        store.pending.append("t", [Message.user("later")])
        assert len(store.pending.list("t").items) == 1
        snapshot = store.load("t")
        assert ([r.text for r in snapshot.messages], snapshot.state["plan"].value) == (["Hello", "Hi"], [1])
        assert [r.seq for r in store.messages.iter("t")] == [1, 2]
        assert store.scoped("other").threads.find("t") is None
        with pytest.raises(NotFoundError):
            store.threads.get("nobody")
        store.threads.delete("t")
        assert [found.id for found in store.threads.iter()] == []


def test_many_threads_share_one_store(url: str) -> None:
    with perdure.sync.open(url) as store:
        store.threads.create("shared")

        def work(worker: int) -> list[int]:
            return [s for i in range(10) for s in store.commit("shared", messages=[Message.user(f"{worker}/{i}")]).seqs]

        with ThreadPoolExecutor(8) as pool:
            seqs = [seq for found in pool.map(work, range(8)) for seq in found]
        assert sorted(seqs) == list(range(1, 81))


def test_iterators_and_follow(url: str) -> None:
    with perdure.sync.open(url) as store:
        for i in range(3):
            store.commit("t", messages=[Message.user(str(i))])
        live = store.messages.follow("t", after_seq=1)
        assert [next(live).seq, next(live).seq] == [2, 3]
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(next, live)
            store.commit("t", messages=[Message.user("late")])
            assert late.result(timeout=60).text == "late"
        live.close()
        abandoned = store.messages.follow("t", after_seq=0)
        assert next(abandoned).seq == 1
    abandoned.close()
    with pytest.raises(UnavailableError, match="closed"):
        next(store.messages.follow("t", after_seq=0))


def test_two_stores_have_a_thread_each_and_closing_ends_it() -> None:
    with perdure.sync.open(URL) as one, perdure.sync.open(URL) as two:
        assert [t.name for t in threading.enumerate()].count("perdure-sync") == 2
        one.scoped("other").close()
        assert one.threads.find("t") is two.threads.find("t") is None
        one.close()
        one.close()
        with pytest.raises(UnavailableError, match="the store is closed"):
            one.threads.find("t")
        assert two.threads.find("t") is None


def test_a_failed_open_leaves_no_thread() -> None:
    with pytest.raises(UnavailableError, match="no such server"):
        perdure.sync.open("suspending://broken")


def test_errors_keep_their_trace() -> None:
    with perdure.sync.open(URL) as store:
        try:
            store.threads.get("nobody")
        except NotFoundError as error:
            told = "".join(traceback.format_tb(error.__traceback__))
    assert "stores/threads.py" in told.replace(os.sep, "/")
    assert __file__ in told


def test_a_running_loop_is_refused() -> None:
    async def open_inside() -> None:
        perdure.sync.open(URL)

    with pytest.raises(UnsupportedError, match="event loop"):
        asyncio.run(open_inside())

    with perdure.sync.open(URL) as store:

        async def use_inside() -> None:
            store.threads.find("t")

        with pytest.raises(UnsupportedError, match="event loop"):
            asyncio.run(use_inside())


def test_a_pool_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="pool belongs to the event loop"):
        perdure.sync.open(URL, pool=object())  # type: ignore[arg-type]


def test_a_forked_child_is_refused() -> None:
    with perdure.sync.open(URL) as store:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store.threads.find("t")
                answer = b"served"
            except UnsupportedError as error:
                answer = str(error).encode()
            except BaseException as error:  # noqa: BLE001 - the child reports whatever it meets
                answer = repr(error).encode()[:200]
            os.write(write, answer)
            os._exit(0)
        os.waitpid(child, 0)
        told = os.read(read, 300)
        assert b"before the fork" in told
        assert b"only after the fork" in told
        os.close(read)
        os.close(write)
        assert store.threads.find("t") is None


def until(condition: Any) -> None:
    done = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("it never came to that")


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C as soon as the call in this block waits for something."""

    def interrupt() -> None:
        until(lambda: waiting)
        os.kill(os.getpid(), signal.SIGINT)

    waiting.clear()
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    interrupter.join()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_cancels_the_call_and_the_store_goes_on() -> None:
    with perdure.sync.open(URL) as store:
        with interrupted():
            store.health()
        assert waiting[0].cancelled()
        assert store.commit("t", messages=[Message.user("still here")]).version == 1


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_iterator() -> None:
    with perdure.sync.open(URL) as store:
        store.commit("t", messages=[Message.user("one")])
        live = store.messages.follow("t")
        assert next(live).seq == 1
        seen: Sequence[Any] = []
        with interrupted():
            seen = list(live)
        assert (list(live), seen) == ([], [])
        assert store.threads.get("t").version == 1


def test_a_read_that_waits_is_told_when_the_store_is_closed() -> None:
    store = perdure.sync.open(URL)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(store.health)
        until(lambda: waiting)
        store.close()
        with pytest.raises(UnavailableError, match="the store is closed"):
            asked.result(timeout=60)


def test_a_write_that_waits_when_the_store_is_closed_may_have_landed() -> None:
    store = perdure.sync.open(URL)
    answers_are_lost.append(True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(store.commit, "t", messages=[Message.user("landed")], key="k")
        until(lambda: waiting)
        store.close()
        with pytest.raises(OutcomeUnknown, match=r"may have landed.*same key"):
            asked.result(timeout=60)


def test_an_iterator_that_waits_is_told_when_the_store_is_closed() -> None:
    store = perdure.sync.open(URL)
    store.commit("t", messages=[Message.user("one")])
    live = store.messages.follow("t")
    assert next(live).seq == 1
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(next, live)
        until(lambda: waiting)
        store.close()
        with pytest.raises(UnavailableError, match="closed"):
            asked.result(timeout=60)


def test_another_thread_ends_a_blocked_follower(url: str) -> None:
    with perdure.sync.open(url) as store:
        store.commit("t", messages=[Message.user("one")])
        followers = [store.messages.follow("t", branch=branch) for branch in (None, "main", None)]
        with ThreadPoolExecutor(3) as pool:
            assert [next(follower).text for follower in followers] == ["one"] * 3
            asked = [pool.submit(list, follower) for follower in followers]
            if url == URL:
                until(lambda: len(waiting) >= 3)
            for follower in followers:
                follower.close()
            assert [task.result(timeout=60) for task in asked] == [[], [], []]
        assert [record.text for record in store.messages.follow("t", timeout=0.01)] == ["one"]
        dropped = store.messages.follow("t")
        assert next(dropped).text == "one"
        del dropped
        if url == URL:
            hub = store.engine._inner._hub  # type: ignore[attr-defined]
            until(lambda: not hub.is_watched)
