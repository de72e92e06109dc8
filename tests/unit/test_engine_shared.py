"""What engines share: the lifecycle refuses at the right moments, and hubs wake exactly who watches."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.engines.toys import drive

from perdure import limits
from perdure.engines.shared.hints import HintHub, Subscription, topics_of
from perdure.engines.shared.lifecycle import Lifecycle, State
from perdure.errors import UnavailableError, UnsupportedError
from perdure.kernel.engine import EVERYTHING, Hints
from perdure.kernel.signals import ThreadSignal


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


def hears(watch: Subscription) -> Hints:
    return drive(watch.wait(0))


def test_a_hub_wakes_exactly_who_watches_and_says_why() -> None:
    hub = HintHub()
    one = Subscription(hub, topics_of("s", ["a", "b"]), ThreadSignal())
    other = Subscription(hub, topics_of("t", ["a"]), ThreadSignal())
    hub.ring([("s", "b"), ("s", "c")])
    assert (hears(one), hears(other)) == ({("s", "b")}, set())
    one.add("u", ["c"])
    one.remove("s", ["b"])
    hub.ring([("s", "b"), ("u", "c"), ("s", "a")])
    assert hears(one) == {("u", "c"), ("s", "a")}
    assert not hears(one)
    one.close()
    hub.ring([("s", "a"), ("u", "c")])
    assert hub.topics == [("t", "a")]
    assert hears(one) is EVERYTHING, "closed"
    hub.ring([("t", "a")])
    hub.ring_all()
    assert hears(other) is EVERYTHING
    hub.release_all()
    assert hears(other) is EVERYTHING
    other.add("t", ["b"])
    assert not hub.is_watched, "closed"


def test_a_watcher_of_every_scope_hears_which() -> None:
    hub = HintHub()
    every = Subscription(hub, topics_of(None, ["mailbox"]), ThreadSignal())
    one = Subscription(hub, topics_of("s", ["mailbox"]), ThreadSignal())
    hub.ring([("s", "mailbox"), ("t", "mailbox"), ("t", "outbox")])
    assert hears(every) == {("s", "mailbox"), ("t", "mailbox")}
    assert hears(one) == {("s", "mailbox")}
    hub.ring_all([(None, "mailbox")])
    assert (hears(every), hears(one)) == (EVERYTHING, set())


def test_a_watcher_that_does_not_wait_holds_a_bounded_number_of_hints() -> None:
    hub = HintHub()
    watch = Subscription(hub, topics_of(None, ["mailbox"]), ThreadSignal())
    for number in range(limits.HINTS_HELD):
        hub.ring([(f"s{number}", "mailbox")])
    assert len(hears(watch)) == limits.HINTS_HELD  # type: ignore[arg-type]
    for number in range(limits.HINTS_HELD + 1):
        hub.ring([(f"s{number}", "mailbox")])
    assert not watch._heard
    assert hears(watch) is EVERYTHING
    assert not hears(watch)
