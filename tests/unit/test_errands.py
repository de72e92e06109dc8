"""Blocking work in a thread of its own: its outcome goes to whoever waits, or to `discard`, and never nowhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from perdure.kernel.threads import run_in_thread

DEADLINE = 60.0


def errands() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "perdure-errand"]


def wait_for_the_threads() -> None:
    for thread in errands():
        thread.join(DEADLINE)
    assert errands() == []


def test_results_and_errors_reach_the_task() -> None:
    discarded: list[object] = []

    async def main() -> None:
        assert await run_in_thread(threading.get_ident, discarded.append) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await run_in_thread(lambda: 1 / 0, discarded.append)

    asyncio.run(main())
    assert discarded == []


def test_a_result_that_comes_after_the_cancel_is_discarded() -> None:
    discarded: list[object] = []
    may_go = threading.Event()

    async def main() -> None:
        waiting = asyncio.create_task(run_in_thread(lambda: may_go.wait(DEADLINE), discarded.append))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        may_go.set()

    asyncio.run(main())
    wait_for_the_threads()
    assert discarded == [True]


def test_a_result_that_was_on_its_way_through_the_loop_is_discarded() -> None:
    discarded: list[object] = []

    async def main() -> None:
        waiting = asyncio.create_task(run_in_thread(lambda: "late", discarded.append))
        await asyncio.sleep(0)
        wait_for_the_threads()  # the result is posted, and the loop has had no turn to deliver it
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    wait_for_the_threads()
    assert discarded == ["late"]


def test_a_result_whose_loop_was_closed_is_discarded() -> None:
    discarded: list[object] = []
    may_go = threading.Event()

    async def begin() -> Coroutine[Any, Any, bool]:
        waiting = run_in_thread(lambda: may_go.wait(DEADLINE), discarded.append)
        waiting.send(None)
        return waiting

    abandoned = asyncio.run(begin())
    may_go.set()
    wait_for_the_threads()
    abandoned.close()
    wait_for_the_threads()
    assert discarded == [True]


def test_without_a_thread_the_work_is_done_on_the_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert asyncio.run(run_in_thread(threading.get_ident)) == threading.get_ident()


def test_a_cancelled_wait_does_not_wait_for_the_work() -> None:
    may_go = threading.Event()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_in_thread(lambda: may_go.wait(DEADLINE)), 0.01)

    asyncio.run(main())
    assert errands()
    may_go.set()
    wait_for_the_threads()
