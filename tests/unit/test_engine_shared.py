"""What engines share: the lifecycle refuses at the right moments, and hubs wake exactly who watches."""

from __future__ import annotations

import asyncio
import os

import pytest

from perdure.engines.shared.hints import HintHub, Subscription, Topic, topics_of
from perdure.engines.shared.lifecycle import Lifecycle, State
from perdure.engines.shared.signals import ThreadSignal
from perdure.errors import UnavailableError, UnsupportedError


class _Owner:
    pass


def test_a_closing_engine_refuses_calls_and_serves_those_in_flight() -> None:
    async def story() -> None:
        owner = _Owner()
        lifecycle = Lifecycle(owner, one_loop=True)
        with lifecycle.call():
            assert lifecycle.begin_close()
            lifecycle.check_usable()
            with pytest.raises(UnavailableError, match="closed"):
                lifecycle.call()
            drained = asyncio.ensure_future(lifecycle.drain())
            await asyncio.sleep(0)
            assert not drained.done()
        await drained
        lifecycle.finish_close()
        with pytest.raises(UnavailableError, match="closed"):
            lifecycle.check_usable()
        assert not lifecycle.begin_close()

    asyncio.run(story())


def test_a_read_only_engine_refuses_writes_alone() -> None:
    owner = _Owner()
    lifecycle = Lifecycle(owner, "the store", read_only=True)
    with lifecycle.call():
        pass
    with pytest.raises(UnsupportedError, match="the store was opened read-only"):
        lifecycle.call(write=True)
    assert lifecycle.in_flight == 0


def test_another_event_loop_is_refused() -> None:
    owner = _Owner()

    async def make() -> Lifecycle:
        return Lifecycle(owner, one_loop=True)

    lifecycle = asyncio.run(make())

    async def use() -> None:
        lifecycle.check_usable()

    with pytest.raises(UnsupportedError, match="event loop"):
        asyncio.run(use())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused_and_closes_nothing() -> None:
    owner = _Owner()
    repaired: list[bool] = []
    lifecycle = Lifecycle(owner, reset_in_child=lambda: repaired.append(True))
    child = os.fork()
    if not child:
        try:
            lifecycle.check_usable()
        except UnsupportedError:
            os._exit(0 if repaired and not lifecycle.begin_close() else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lifecycle.state is State.OPEN
    assert not repaired


def test_a_hub_wakes_exactly_who_watches() -> None:
    hub: HintHub[Topic] = HintHub()
    one, other = ThreadSignal(), ThreadSignal()
    watch = Subscription(hub, topics_of("s", ["a", "b"]), one)
    Subscription(hub, topics_of("t", ["a"]), other)

    def rung(signal: ThreadSignal) -> bool:
        return asyncio.run(signal.wait(0))

    hub.ring([("s", "b")])
    assert (rung(one), rung(other)) == (True, False)
    watch.close()
    hub.ring([("s", "b")])
    assert not rung(one)
    assert hub.topics == [("t", "a")]
    hub.release_all()
    assert rung(other)
    assert not hub.is_watched
