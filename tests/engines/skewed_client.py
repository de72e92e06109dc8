"""A client whose clock is wrong: `python -m tests.engines.skewed_client URL MILLISECONDS [engine]` prints what it did.

With `engine`, the clock of the engine is wrong too. On SQLite that is the clock of the process: without it, SQLite asks
the machine, and never Python.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import perdure
from perdure import Message, Store
from perdure.clock import system_clock
from perdure.kernel.ops import NOW, AtMost, Max, Min, Now
from perdure.stores.cleanup import sweep
from perdure.testkit.cases.clock_skew import wall_clock_off_by
from perdure.testkit.cases.due_times import Queue, due_scan
from perdure.workers.lease import claim

HOUR = 3_600_000
DUES = {"due": Now(-HOUR), "late": Now(HOUR), "later": Now(3 * HOUR), "never": None}
"""What another client has put into the queue."""


def queue_of(store: Store) -> Queue:
    """A queue in another scope: no lease or profile is in it."""
    return Queue(store.scoped("due"))


async def act(store: Store) -> dict[str, Any]:
    """Claim leases, look at profiles, clean up, write, and take what is due."""
    queue = queue_of(store)
    leases = {run: await claim(store, run, "stranger", HOUR) is not None for run in ("held", "over", "new")}
    profiles = [profile.key for profile in await store.profiles.list("app")]
    await sweep(store._context)
    await store.profiles.put("app", "strange", 1, ttl_ms=HOUR)
    await store.commit("t", messages=[Message.user("from the stranger")])
    conditions = [
        await queue.change("late", {"updated_at": Max(NOW)}, {"expires_at": AtMost(limit)})
        for limit in (NOW, Now(HOUR // 2), Now(2 * HOUR))
    ]
    await queue.change("later", {"expires_at": Min(Now(2 * HOUR))}, {"expires_at": AtMost(Now(4 * HOUR))})
    taken = await queue.keys(due_scan(limit=9), expires_at=Now(HOUR), created_at=NOW)
    return {"leases": leases, "profiles": profiles, "conditions": conditions, "taken": taken}


async def main(url: str, skew: int, *, engine: bool) -> None:
    """One life of the client."""
    clock = (lambda: system_clock()) if engine else system_clock  # noqa: PLW0108 - not the system's clock by identity
    with wall_clock_off_by(skew):
        async with perdure.open(url, clock=clock, housekeeping=False) as store:
            print(json.dumps(await act(store)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), engine="engine" in sys.argv[3:]))
