"""Two erasers of one thread: the slower one must not touch a new thread that took the id meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import perdure
from perdure import Message, failpoints
from perdure.stores.cleanup import sweep
from perdure.testkit.helpers import small_pieces


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.disarm()


def at_once(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine of the memory engine to its end on the spot; it never waits."""
    with pytest.raises(StopIteration):
        work.send(None)


@pytest.mark.parametrize("crossing", [1, 2, 3])
def test_a_slow_sweep_spares_the_thread_that_took_the_id(crossing: int) -> None:
    async def scenario() -> None:
        async with perdure.open("memory://", housekeeping=False) as store:
            await store.commit("t", messages=[Message.user("old")], state={"plan": {"old": True}})
            failpoints.arm("delete.after_tombstone", "error")
            with pytest.raises(OSError, match="failpoint"):
                await store.threads.delete("t")

            async def another_process_finishes_and_goes_on() -> None:
                await sweep(store._context)
                await store.threads.create("t")
                await store.commit("t", messages=[Message.user("new")], state={"plan": {"new": True}})

            failpoints.arm(
                "delete.between_erasures", lambda _: at_once(another_process_finishes_and_goes_on()), after=crossing
            )
            await sweep(store._context)

            assert [record.text for record in await store.messages.history("t")] == ["new"]
            assert (await store.state.get("t", "plan")).value == {"new": True}

    with small_pieces():
        asyncio.run(scenario())
