"""The blocking buffered writer: the same promises, kept by a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure.sync
from perdure import InvalidError, Message, NotFoundError
from perdure.engines.memory import MemoryEngine
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store as AsyncStore
from perdure.sync.driver import LoopDriver

NEVER = 3_600_000
DEADLINE = 30.0


@contextmanager
def _on_a_loop() -> Iterator[perdure.sync.Store]:
    """A store whose calls run on a background loop, as on a server."""
    driver = LoopDriver()
    with perdure.sync.Store(AsyncStore(MemoryEngine(SCHEMA)), driver) as store:
        yield store


@pytest.fixture(params=("memory", "sqlite", "loop"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.sync.Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'store.db'}"}
    with _on_a_loop() if request.param == "loop" else perdure.sync.open(urls[request.param]) as opened:
        yield opened


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it never came true")
        time.sleep(0.001)


def stored(store: perdure.sync.Store, thread_id: str = "t") -> list[str]:
    return [record.text for record in store.messages.iter(thread_id)]


def test_appends_are_acknowledged_before_they_are_stored(store: perdure.sync.Store) -> None:
    with store.buffered("t", every_ms=NEVER) as writer:
        names = writer.append(Message.user("a"), Message.user("b", id="mine"))
        assert [message.id for message in writer.waiting] == names
        assert names[1] == "mine"
        assert store.threads.find("t") is None
        receipt = writer.flush()
        assert receipt is not None
        assert (receipt.message_ids, receipt.version) == (names, 2)
        assert writer.flush() is None
        writer.append(Message.user("c"))
    assert stored(store) == ["a", "b", "c"]
    with pytest.raises(InvalidError, match="closed"):
        writer.append(Message.user("late"))


def test_a_thread_flushes_what_is_due(store: perdure.sync.Store) -> None:
    with store.buffered("t", most=2, every_ms=NEVER) as writer:
        writer.append(Message.user("0"))
        writer.append(Message.user("1"))
        until(lambda: not writer.waiting)
    with store.buffered("t", most=100, every_ms=1) as writer:
        for n in (2, 3):
            writer.append(Message.user(str(n)))
            until(lambda: not writer.waiting)
    with store.buffered("t", most=2, every_ms=1) as writer:
        for n in range(4, 60):
            writer.append(Message.user(str(n)))
            assert len(writer.waiting) <= 4
    assert stored(store) == [str(n) for n in range(60)]


def test_a_failure_in_the_background_is_heard_of(store: perdure.sync.Store) -> None:
    store.commit("t", messages=[Message.user("first")])
    writer = store.buffered("t", most=1, every_ms=NEVER, branch="missing")
    writer.append(Message.user("a"))

    def appended() -> bool:
        writer.append(Message.user("b"))
        return False

    with pytest.raises(NotFoundError):
        until(appended)
    assert writer.waiting[0].text == "a"
    with pytest.raises(NotFoundError):
        writer.flush()
    with pytest.raises(NotFoundError), writer:
        pass
    store.branches.fork("t", at=None, name="missing")
    count = len(writer.waiting)
    receipt = writer.flush()
    assert receipt is not None
    assert len(receipt.seqs) == count


def test_a_block_that_raises_is_flushed_and_keeps_its_error(store: perdure.sync.Store) -> None:
    def block(writer: perdure.sync.BufferedWriter, text: str) -> None:
        with writer:
            writer.append(Message.user(text))
            raise KeyError

    with pytest.raises(KeyError):
        block(store.buffered("t", every_ms=NEVER), "a")
    assert stored(store) == ["a"]
    writer = store.buffered("t", branch="missing", every_ms=NEVER)
    with pytest.raises(KeyError) as raised:
        block(writer, "b")
    assert "1 buffered message" in raised.value.__notes__[0]
    assert [message.text for message in writer.waiting] == ["b"]


def test_many_threads_share_one_writer(store: perdure.sync.Store) -> None:
    with store.buffered("t", most=5, every_ms=1) as writer, ThreadPoolExecutor(4) as pool:
        for name in "abcd":
            pool.submit(lambda name=name: [writer.append(Message.user(f"{name}{n}")) for n in range(25)])
    texts = stored(store)
    assert len(texts) == 100
    for name in "abcd":
        assert [text for text in texts if text.startswith(name)] == [f"{name}{n}" for n in range(25)]


def test_the_async_writer_needs_no_loop_to_be_made() -> None:
    async def scenario() -> None:
        async with AsyncStore(MemoryEngine(SCHEMA)) as store, store.buffered("t") as writer:
            assert await writer.append() == []
            assert await writer.flush() is None

    asyncio.run(scenario())
