"""The delivery: outcomes reach an event loop from any thread, whichever way it is woken."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from typing import Any

import pytest

from perdure.engines.shared.outcome_delivery import OutcomeDelivery

DEADLINE = 10.0


class BlindLoop(asyncio.SelectorEventLoop):
    """A loop that cannot watch descriptors, as the default one on Windows."""

    def add_reader(self, *_: Any) -> None:
        raise NotImplementedError


def _in_thread(delivery: OutcomeDelivery, outcomes: list[Any]) -> None:
    thread = threading.Thread(target=delivery.deliver, args=(outcomes,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("make_loop", [asyncio.SelectorEventLoop, BlindLoop])
def test_results_and_errors_arrive_and_cancelled_tasks_are_left_alone(make_loop: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        delivery = OutcomeDelivery(loop)
        result, error, cancelled = loop.create_future(), loop.create_future(), loop.create_future()
        cancelled.cancel()
        _in_thread(delivery, [(cancelled, 0, None), (result, 7, None), (error, None, KeyError("x"))])
        async with asyncio.timeout(DEADLINE):
            assert await result == 7
            with pytest.raises(KeyError):
                await error
        delivery.stop_listening()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


def test_what_many_threads_bring_arrives_while_the_loop_stops_listening() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        delivery = OutcomeDelivery(loop)
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(400)]

        def deliver(mine: list[asyncio.Future[int]]) -> None:
            for future in mine:
                delivery.deliver([(future, 1, None)])

        threads = [threading.Thread(target=deliver, args=(futures[at::4],)) for at in range(4)]
        for thread in threads:
            thread.start()
        await futures[20]
        delivery.stop_listening()
        async with asyncio.timeout(DEADLINE):
            assert sum(await asyncio.gather(*futures)) == len(futures)
        for thread in threads:
            thread.join()

    asyncio.run(main())


def test_an_outcome_for_a_closed_loop_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    delivery, future = OutcomeDelivery(loop), loop.create_future()
    loop.close()
    delivery.deliver([(future, 1, None)])
    assert not future.done()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has event counters")
def test_the_counter_is_closed_with_the_delivery_and_not_before() -> None:
    loop = asyncio.new_event_loop()
    delivery = OutcomeDelivery(loop)
    counter = delivery._counter
    assert counter is not None
    loop.close()
    os.fstat(counter)  # a thread may still ring
    del delivery
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(counter)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has event counters")
def test_without_a_descriptor_left_the_loop_is_woken_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: int) -> int:
        raise OSError(24, "too many open files")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(os, "eventfd", none_left)
        delivery, future = OutcomeDelivery(loop), loop.create_future()
        _in_thread(delivery, [(future, 3, None)])
        async with asyncio.timeout(DEADLINE):
            assert await future == 3

    asyncio.run(main())


def test_a_signal_handler_that_raises_loses_no_outcome() -> None:
    class Interrupting(asyncio.Future[int]):
        def set_result(self, result: int) -> None:
            super().set_result(result)
            raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    delivery = OutcomeDelivery(loop)
    first, second = Interrupting(loop=loop), loop.create_future()
    delivery.deliver([(first, 1, None), (second, 2, None)])
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(second)
    assert loop.run_until_complete(asyncio.wait_for(second, DEADLINE)) == 2
    loop.close()
