"""Cases: fairness. With more tasks than connections, every task gets its share. The case compares counts, not times: a
slow machine is as fair as a fast one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from perdure.model.message import Message
from perdure.testkit.helpers import commit_texts
from perdure.testkit.kit import CaseFailed, Kit, case, equal

_TASKS = 24
_WINDOWS = 4
_EACH = 20


@case("commit", "fair-turns", covers=("store.commit",))
async def case_fair_turns(kit: Kit) -> None:
    """Of many tasks that commit without pause, the slowest gets at least half as many commits as the mean."""

    async def commit(number: int) -> None:
        await kit.store.commit(f"t{number}", messages=[Message.user("a")])

    windows = await _fair_window(kit, commit)
    versions = [(await kit.store.load(f"t{number}")).version for number in range(_TASKS)]
    equal(versions, [sum(counts) for counts in zip(*windows, strict=True)], "what was counted is what was committed")


@case("load", "fair-turns", covers=("store.load",))
async def case_fair_reads(kit: Kit) -> None:
    """The same for tasks that read without pause."""
    for number in range(_TASKS):
        await commit_texts(kit.store, f"t{number}", "a")

    async def read(number: int) -> None:
        await kit.store.load(f"t{number}")

    await _fair_window(kit, read)


async def _fair_window(kit: Kit, call: Callable[[int], Awaitable[None]]) -> list[list[int]]:
    """Count until the tasks share fairly. A connection that is being opened, or a busy machine, may favour one task for
    a moment; a starving task starves in every window."""
    windows: list[list[int]] = []
    for _ in range(_WINDOWS):
        counts = await _shares(kit, call)
        windows.append(counts)
        if 2 * min(counts) * _TASKS >= sum(counts):
            return windows
    raise CaseFailed(f"calls per task: {windows}")


async def _shares(kit: Kit, call: Callable[[int], Awaitable[None]]) -> list[int]:
    """How often each task came round when all of them together had made that many calls."""
    counts = [0] * _TASKS
    # An embedded engine may answer without yielding to the event loop, which then starves the other tasks.
    embedded = kit.store.capabilities().blocking

    async def loop(number: int) -> None:
        while sum(counts) < _TASKS * _EACH:
            await call(number)
            counts[number] += 1
            if embedded:
                await asyncio.sleep(0)

    await asyncio.gather(*map(loop, range(_TASKS)))
    return counts
