"""Where a Perdure read spends its time: loading 5,000 messages, the newest 50 of them, the newest 50 of 2,000 threads.

    python bench/profile_reads.py [--top 25]

The sync face answers in the calling thread, so one profile sees everything; raw inline on the same bytes is beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure_adapter import chunks, prepare
from profile_commit import profiled, shares, timed
from raw import Raw, RawReader
from report import render
from workload import history

import perdure.sync

ROUNDS = 9


def filled(path: Path) -> tuple[Any, str]:
    """A store with one long thread and many empty ones."""
    store: Any = perdure.sync.open(f"sqlite:///{path}")
    for _ in range(2000):
        store.threads.create(title="Plan a trip to Kyoto", custom={"colour": "green", "stars": 3})
    thread = store.threads.create().id
    for messages in chunks(prepare(history(5000)).messages):
        store.commit(thread, messages=messages)
    return store, thread


async def raw_calls(path: Path) -> tuple[RawReader, dict[str, Callable[[], Any]]]:
    raw = Raw(path, 4096, listing=True)
    await raw.create("t", history(5000))
    for n in range(2000):
        columns = (f"thread-{n:026d}", 0, n, n, "Plan a trip to Kyoto", '{"custom":{"colour":"green","stars":3}}')
        raw.conn.execute(
            "insert into threads(id, version, updated_at, created_at, title, body) values(?,?,?,?,?,?)", columns
        )
    await raw.close()
    reader = RawReader(path)
    calls: dict[str, Callable[[], Any]] = {
        "load 5,000": lambda: reader.load("t"),
        "newest 50 messages": lambda: reader.newest("t", 50),
        "newest 50 threads": lambda: reader.list_threads(50),
    }
    return reader, calls


def repeat(call: Callable[[], Any]) -> Callable[[list[int]], None]:
    def run(times: list[int]) -> None:
        for _ in times:
            call()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Where a read spends its time.")
    parser.add_argument("--top", type=int, default=0, help="also list this many functions by their own time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-profile-") as home:
        store, thread = filled(Path(home) / "perdure.db")
        reader, raw = asyncio.run(raw_calls(Path(home) / "raw.db"))
        ours: dict[str, Callable[[], Any]] = {
            "load 5,000": lambda: store.load(thread),
            "newest 50 messages": lambda: store.messages.list(thread, order="desc", limit=50),
            "newest 50 threads": lambda: store.threads.list(limit=50),
        }
        for name, call in ours.items():
            work = [0] * (2 if name == "load 5,000" else 200)
            pairs = [(timed(repeat(call), work), timed(repeat(raw[name]), work)) for _ in range(ROUNDS)]
            mine, least = (statistics.median(column) for column in zip(*pairs, strict=True))
            stats = profiled(repeat(call), work)
            rows = [[n, f"{share:.0%}", f"{share * mine:.0f} µs"] for n, share in shares(stats).items()]
            print(
                f"\n{name}: {mine:.0f} µs, raw inline {least:.0f} µs",
                render(["room", "share", "scaled"], rows),
                sep="\n",
            )
            if options.top:
                stats.sort_stats("tottime").print_stats(options.top)
        reader.close()
        store.close()


if __name__ == "__main__":
    main()
