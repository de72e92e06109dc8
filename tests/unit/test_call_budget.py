"""A commit may not quietly grow more expensive: calls of functions of ours per commit, against a recorded budget.

`make bench-counts` prints the same figures for every engine. If a change is worth its calls, raise the budget here and
the table in `bench/RESULTS.md` in the same commit; if a change saves calls, lower both.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.call_counts import CallCounter, call_counter

import perdure
from perdure import Message, Store

BUDGET = {"memory": 64, "sqlite": 67}
"""Calls of ours per bare commit: two messages and a step of a run. The same on every version of Python."""
TOLERANCE = 1.1
WARM_UP, COMMITS = 10, 20


async def _commits(store: Store, counter: CallCounter) -> None:
    thread = await store.threads.create()
    run = await store.runs.start(thread.id, "agent")

    messages = [Message.user("Two days in Kyoto?"), Message.assistant("Day one: temples.")]

    async def commit() -> None:
        nonlocal run
        receipt = await store.commit(thread.id, messages=messages, run=run.step(input_tokens=12, output_tokens=34))
        assert receipt.run is not None
        run = receipt.run

    for _ in range(WARM_UP):
        await commit()
    with counter.counting():
        for _ in range(COMMITS):
            await commit()


@pytest.mark.parametrize("engine", BUDGET)
def test_a_bare_commit_stays_within_its_budget_of_calls(engine: str, tmp_path: Path) -> None:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'store.db'}"}[engine]

    async def main() -> None:
        async with perdure.open(url, housekeeping=False) as store:  # a thread of its own, at its own times
            await _commits(store, counter)

    with call_counter() as counter:
        asyncio.run(main())
    calls = {function: count / COMMITS for function, count in sorted(counter.ours.items())}
    assert "stores/store.py:Store.commit" in calls
    table = "\n".join(f"{count:6.2f} {function}" for function, count in calls.items())
    limit = BUDGET[engine] * TOLERANCE
    assert sum(calls.values()) <= limit, f"{sum(calls.values()):.1f} calls per commit, over {limit:.1f}:\n{table}"


def test_a_call_is_the_start_of_a_function_in_any_thread() -> None:
    """The counter itself: resumed coroutines and comprehensions are no calls, other threads count."""

    async def waits() -> list[int]:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [number for number in (1, 2)]  # noqa: C416

    def blocks() -> None:
        """Called in another thread."""

    async def main() -> None:
        await asyncio.to_thread(blocks)
        with counter.counting():
            await waits()
            await asyncio.to_thread(blocks)

    with call_counter() as counter:
        asyncio.run(main())
    calls = {code.co_name: count for code, count in counter.calls.items()}
    assert calls["waits"] == 1
    assert calls["blocks"] == 1
    assert "<listcomp>" not in calls
    assert counter.ours == {}
