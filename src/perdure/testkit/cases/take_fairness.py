"""Cases: many takers of one queue. Each gets other rows, the oldest come first, and none is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure.kernel.ops import NOW, Inc, Max, Now
from perdure.testkit.cases.due_times import Queue, due_scan
from perdure.testkit.kit import Kit, case, equal, expect

ROWS, TAKERS, TURNS = 12, 4, 10


@case("kernel", "take-once", covers=("kernel.take",))
async def case_take_once(kit: Kit) -> None:
    """Concurrent takers of two clients get different rows, each in order, and between them every row."""
    queues = [Queue(kit.store), Queue(await kit.second())]
    await queues[0].fill({f"{n:02}": Now(n - 40) for n in range(40)})
    batches: list[list[str]] = []

    async def taker(queue: Queue) -> None:
        while keys := await queue.keys(due_scan(limit=3), expires_at=Now(60_000), schema=Inc(1)):
            batches.append(keys)

    await asyncio.gather(*[taker(queue) for queue in queues for _ in range(TAKERS)])
    keys = [key for batch in batches for key in batch]
    equal(sorted(keys), [f"{n:02}" for n in range(40)], "every row, once")
    equal([keys for keys in batches if keys != sorted(keys)], [], "batches that are out of order")


@case("kernel", "take-starves-nobody", covers=("kernel.take",))
async def case_take_starves_nobody(kit: Kit) -> None:
    """Takers come, go, and vanish with a row; every row is taken about as often as any other."""
    queues = [Queue(kit.store), Queue(await kit.second())]
    await queues[0].fill({f"{n:02}": Now(n - ROWS) for n in range(ROWS)})
    counts: Counter[str] = Counter()

    async def taker(queue: Queue, number: int) -> None:
        for turn in range(3):
            kit.clock.advance(1)
            keys = await queue.keys(due_scan(), expires_at=Now(5), schema=Inc(1))
            counts.update(keys)
            # One in three vanishes: the row is due again when its lease ends.
            if keys and (number + turn) % 3:
                await queue.change(keys[0], {"expires_at": NOW, "updated_at": Max(NOW)}, {"schema": counts[keys[0]]})

    for round_ in range(TURNS):
        await asyncio.gather(*[taker(queues[n % 2], n + round_) for n in range(TAKERS)])
    expect(len(counts) == ROWS, f"rows that were never taken: {sorted(counts.items())}")
    expect(max(counts.values()) - min(counts.values()) <= TAKERS, f"some rows had to wait: {sorted(counts.items())}")
