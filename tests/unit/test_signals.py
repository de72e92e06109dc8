"""A signal for a task: rung before, while and after it waits, and waits that end early."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.kernel.signals import LoopSignal


def test_a_ring_is_remembered_until_the_next_wait() -> None:
    async def story() -> None:
        signal = LoopSignal()
        assert not await signal.wait(0.001)
        signal.ring()
        signal.ring()
        assert await signal.wait(None)
        assert not await signal.wait(0.001), "two rings are one"

    asyncio.run(story())


@pytest.mark.parametrize("timeout", [None, 60])
def test_any_thread_may_wake_it(timeout: float | None) -> None:
    async def story() -> None:
        signal = LoopSignal()
        waiting = asyncio.create_task(signal.wait(timeout))
        await asyncio.sleep(0)
        threading.Thread(target=signal.ring).start()
        assert await waiting

    asyncio.run(story())


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_wait_that_is_cancelled_loses_no_ring(timeout: float | None) -> None:
    async def story() -> None:
        signal = LoopSignal()
        for rings in (False, True):
            waiting = asyncio.create_task(signal.wait(timeout))
            await asyncio.sleep(0)
            if rings:
                signal.ring()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await signal.wait(0.001) is rings

    asyncio.run(story())


def test_a_ring_after_the_loop_was_closed_is_nothing() -> None:
    async def made() -> LoopSignal:
        return LoopSignal()

    asyncio.run(made()).ring()
