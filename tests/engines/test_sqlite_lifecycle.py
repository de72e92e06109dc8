"""Opening and closing that is cut short or repeated: no thread and no file stays open behind anybody's back."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure import Message, Store, UnavailableError
from perdure.engines.sqlite.connections.database import Database
from perdure.engines.sqlite.connections.forks import registry
from perdure.engines.sqlite.migrate import prepare

DEADLINE = 60.0


def threads() -> list[str]:
    """Threads of stores; the one that starts servers for tests is not theirs."""
    names = [thread.name for thread in threading.enumerate() if thread.name != "perdure-test-servers"]
    return sorted(name for name in names if name.startswith("perdure"))


def open_files(path: Path) -> list[str]:
    """What this process has open at the path or beside it."""
    return [target for target in every_open_file() if target.startswith(str(path))]


def every_open_file() -> list[str]:
    """What this process has open."""
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            targets.append(str(entry.readlink()))
    return targets


async def until(reached: Callable[[], object]) -> None:
    ends = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < ends, f"threads {threads()}, on record {registry.connections}"
        await asyncio.sleep(0.005)


async def nothing_is_left(path: Path) -> None:
    await until(lambda: not threads() and not registry.connections)
    if sys.platform == "linux":
        assert open_files(path) == []


async def opened_or_cancelled(task: asyncio.Task[perdure.Store]) -> bool:
    """Wait for the end of an open; a store that was delivered all the same is its caller's to close."""
    try:
        store = await task
    except asyncio.CancelledError:
        return False
    await store.close()
    return True


async def open_store(path: Path, *, read_only: bool = False) -> perdure.Store:
    return await perdure.open(str(path), durability="process", read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_cancelled_open_leaves_nothing_open(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "cd.db"

    async def main() -> None:
        await (await open_store(path)).close()
        for number in range(40):
            task = asyncio.create_task(open_store(path, read_only=read_only))
            for _ in range(number % 6):
                await asyncio.sleep(0)
            task.cancel()
            await opened_or_cancelled(task)
        await nothing_is_left(path)

    asyncio.run(main())


def test_an_open_that_is_cancelled_when_it_is_done_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result may wait in the loop already when the task is cancelled: it must not be lost there."""
    path, ready = tmp_path / "late.db", threading.Event()
    real = Database.__init__

    def announced(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        ready.set()

    monkeypatch.setattr(Database, "__init__", announced)

    async def main() -> None:
        for _ in range(20):
            ready.clear()
            task = asyncio.create_task(open_store(path))
            await asyncio.sleep(0)
            assert ready.wait(DEADLINE)  # blocks the loop: whatever is delivered comes in its next turn
            task.cancel()
            await opened_or_cancelled(task)
        await nothing_is_left(path)

    asyncio.run(main())


def test_an_open_that_times_out_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, may_go = tmp_path / "slow.db", threading.Event()
    real = prepare

    def held(*given: object) -> None:
        may_go.wait(DEADLINE)
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("perdure.engines.sqlite.open.prepare", held)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(open_store(path), 0.05)
        may_go.set()
        await nothing_is_left(path)
        async with perdure.open(str(path)) as store:
            await store.commit("t", messages=[Message.user("x")])

    asyncio.run(main())


_FORK_AFTER_CANCELLED_OPENS = """
import asyncio, os, sys, threading, time
import perdure, perdure.sync
path = sys.argv[1]

async def open_store():
    return await perdure.open(path)

async def main():
    for number in range(12):
        task = asyncio.create_task(open_store())
        for _ in range(number % 6):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            pass
    ends = time.monotonic() + 60
    while any(thread.name.startswith("perdure") for thread in threading.enumerate()) and time.monotonic() < ends:
        await asyncio.sleep(0.005)

asyncio.run(main())
if (child := os.fork()) == 0:
    with perdure.sync.open(path) as store:
        store.commit("t", messages=[perdure.Message.user("from the child")])
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_after_cancelled_opens_may_open_the_file(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _FORK_AFTER_CANCELLED_OPENS, str(tmp_path / "forked.db")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_close_that_was_cancelled_may_be_called_again(tmp_path: Path) -> None:
    path = tmp_path / "again.db"

    async def main() -> None:
        for turns in range(12):
            store = await open_store(path)
            await store.commit("t", messages=[Message.user("x")])
            closing = asyncio.create_task(store.close())
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await store.close()
            with pytest.raises(UnavailableError, match="closed"):
                await store.threads.get("t")
            await nothing_is_left(path)
        async with perdure.open(str(path)) as store:
            assert (await store.threads.get("t")).version == 12

    asyncio.run(main())


def test_a_cancelled_close_still_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, begun, may_go = tmp_path / "held.db", threading.Event(), threading.Event()
    real = Database.close

    def held(database: Database) -> None:
        begun.set()
        may_go.wait(DEADLINE)
        real(database)

    async def main() -> None:
        store = await open_store(path)
        monkeypatch.setattr(Database, "close", held)
        closing = asyncio.create_task(store.close())
        await until(begun.is_set)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        may_go.set()
        await nothing_is_left(path)

    asyncio.run(main())


def test_closes_at_the_same_time_all_wait_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "both.db"

    async def main() -> None:
        for _ in range(10):
            store = await open_store(path)
            writes = [asyncio.create_task(store.commit("t", messages=[Message.user("x")])) for _ in range(5)]
            await asyncio.sleep(0)
            await asyncio.gather(*[store.close() for _ in range(4)])
            assert not registry.connections
            await asyncio.gather(*writes, return_exceptions=True)
            await nothing_is_left(path)

    asyncio.run(main())


def test_a_store_may_be_used_by_one_loop_after_another_and_leaves_no_counter_open(tmp_path: Path) -> None:
    def counters() -> int:
        gc.collect()
        return len([target for target in every_open_file() if "eventfd" in target])

    before = counters()
    store = asyncio.run(opened(tmp_path / "x.db"))
    for number in range(5):
        asyncio.run(commit(store, f"m-{number}"))
        assert len(store.engine._turns) == 1  # type: ignore[attr-defined]
    asyncio.run(store.close())
    assert counters() == before


async def opened(path: Path) -> Store:
    return await perdure.open(str(path), housekeeping=False)


async def commit(store: Store, text: str) -> None:
    await store.commit("t", messages=[Message.user(text)])
    assert (await store.messages.history("t"))[-1].message.text == text
