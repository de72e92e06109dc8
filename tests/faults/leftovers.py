"""A store that was left untidy: opening it costs nothing, and using it for a minute makes it tidy.

    python -m tests.faults.leftovers --engine sqlite --keys 100000 [--threads 1000]

It fills an engine with expired keys and half-deleted threads, compares opening it with opening an empty store, and
measures commits on another thread with and without the housekeeping beside them. Prints figures; fails only if
something is still there after the deadline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.servers import fresh_database, server

import perdure
from perdure import Message, limits
from perdure.kernel.ops import NOW, Append, Delete, Op, Put, Scan
from perdure.stores.store import Store

DEADLINE = 300.0
OPENINGS, COMMITS = 15, 400


async def place(engine: str, name: str, folder: Path) -> str:
    """The URL of an empty store."""
    if engine == "sqlite":
        return str(folder / f"{name}.db")
    return await fresh_database(server(engine), name)


async def fill(url: str, keys: int, threads: int) -> None:
    """Expired keys, and threads whose deletion stopped after the tombstone."""
    async with perdure.open(url, housekeeping=False) as store:
        engine = store.engine
        (now,) = await engine.view("default", [NOW])
        old = now - limits.KEY_RETENTION_MS - 1_000
        columns = {"version": 1, "count": 1, "at": old, "digest": "d"}
        for first in range(0, keys, 500):
            some = range(first, min(first + 500, keys))
            ops: list[Op] = [Put("keys", (f"k{n % 50}", str(n)), columns, b"[]") for n in some]
            await engine.transact("default", ops)
        for number in range(threads):
            await half_deleted(store, f"half-{number}")


async def half_deleted(store: Store, thread: str) -> None:
    """What a process leaves that dies after it made a thread invisible."""
    entry = ("user", 0, "all", None, 0, NOW, b'{"role":"user","content":[]}')
    entries = [(f"{thread}-{n}", *entry) for n in range(20)]
    await store.commit(thread, messages=[Message.user("x")], state={"plan": {"a": 1}}, key="k")
    ops: list[Op] = [
        Append("messages", thread, entries),
        Delete("thread_heads", (thread,)),
        Put("threads", (thread,), {"created_at": NOW, "deleted_at": NOW}, b"{}"),
    ]
    await store.engine.transact("default", ops)


async def opening_time(url: str, **options: Any) -> float:
    """How long `open` takes before it returns."""
    begun = time.perf_counter()
    store = await perdure.open(url, **options)
    took = time.perf_counter() - begun
    await store.close()
    return took


async def commit_times(store: Store, thread: str) -> list[float]:
    """How long commits on a thread of their own take, one after the other."""
    times = []
    for number in range(COMMITS):
        begun = time.perf_counter()
        await store.commit(thread, messages=[Message.user(f"message {number}")])
        times.append(time.perf_counter() - begun)
    return times


async def left(store: Store) -> int:
    """Expired keys and unfinished tombstones, or 0 when everything is gone."""
    keys, tombs = await store.engine.view(
        "default",
        [Scan("keys", "age", limit=1), Scan("threads", "deleted", where={"erased_at": None}, limit=1)],
    )
    return len(keys) + len(tombs)


async def measure(engine: str, keys: int, threads: int, folder: Path) -> dict[str, Any]:
    """All figures of one engine."""
    empty, full = await place(engine, "empty", folder), await place(engine, "full", folder)
    await fill(empty, 0, 0)
    await fill(full, keys, threads)
    opened: dict[str, list[float]] = {"empty": [], "full": []}
    for _ in range(OPENINGS):
        opened["empty"].append(await opening_time(empty))
        opened["full"].append(await opening_time(full, housekeeping=False))
    # The last opening is the real one: its housekeeping begins, and commits go on beside it.
    begun = time.perf_counter()
    store = await perdure.open(full)
    with_housekeeping = time.perf_counter() - begun
    beside = await commit_times(store, "beside")
    while await left(store):
        if time.perf_counter() - begun > DEADLINE:
            raise RuntimeError(f"something is still there after {DEADLINE} s")
        beside += await commit_times(store, "beside")
    tidy = time.perf_counter() - begun
    alone = await commit_times(store, "alone") + await commit_times(store, "alone")
    await store.close()
    percentile = {name: statistics.quantiles(times, n=100) for name, times in (("beside", beside), ("alone", alone))}
    return {
        "engine": engine,
        "open_empty_ms": round(statistics.median(opened["empty"]) * 1000, 2),
        "open_full_ms": round(statistics.median(opened["full"]) * 1000, 2),
        "open_with_housekeeping_ms": round(with_housekeeping * 1000, 2),
        "all_gone_after_s": round(tidy, 1),
        "commit_p50_ms": [round(percentile[name][49] * 1000, 2) for name in ("alone", "beside")],
        "commit_p99_ms": [round(percentile[name][98] * 1000, 2) for name in ("alone", "beside")],
    }


def main() -> int:
    """Measure one engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="sqlite")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-leftovers-") as folder:
        figures = asyncio.run(measure(asked.engine, asked.keys, asked.threads, Path(folder)))
    print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
