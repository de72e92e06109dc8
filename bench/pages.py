"""Which page size suits SQLite: bytes at rest per message, bytes written per commit, and the time of commits and reads.

    python bench/pages.py [--rounds 15]

Each size of page and of message gets a store of its own: ten threads that take turns, one message and a step of a run
in each commit. Bytes written are those that a commit adds to the log of the store so grown; bytes at rest are those of
the closed file. Times are medians of interleaved rounds on the turn mix.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from harness import Case, cost, interleave
from report import duration, render, spread, times
from workload import prose, turn

import perdure
from perdure import Message
from perdure.engines.sqlite.connections import connect

PAGES, TIMED = (1024, 2048, 4096, 8192, 16384), (2048, 4096, 8192)
SIZES = (300, 2048, 4096, None)
"""Bytes of a message; None is the turn mix."""
THREADS, PER_THREAD, COUNTED, LISTED = 10, 100, 40, 10_000


def messages_of(size: int | None) -> Iterator[list[Message]]:
    """The messages of one commit after the other."""
    if size is None:
        jsons = [list(commit.messages) for number in range(32) for commit in turn(number)]
        commits = [[Message.from_json(json) for json in group] for group in jsons]
    else:
        rng = random.Random(7)
        commits = [[Message.assistant(prose(size, rng))] for _ in range(64)]
    return cycle(commits)


class PagedStore:
    """A store with pages of this size."""

    def __init__(self, home: Path, page: int, size: int | None) -> None:
        self.page, self.path = page, home / f"{page}-{size}.db"
        self.messages = messages_of(size)
        self.runs: list[Any] = []
        self.stored = 0
        self.store: Any = None

    async def open(self) -> None:
        connect.PAGE_SIZE = self.page
        self.store = await perdure.open(f"sqlite:///{self.path}", housekeeping=False)

    async def fill(self) -> None:
        for _ in range(THREADS):
            thread = await self.store.threads.create()
            self.runs.append(await self.store.runs.start(thread.id, "bench"))
        for number in range(THREADS * PER_THREAD):
            await self.commit(number)

    async def commit(self, number: int) -> None:
        messages, run = next(self.messages), self.runs[number % THREADS]
        receipt = await self.store.commit(run.thread_id, messages=messages, run=run.step(input_tokens=5))
        self.runs[number % THREADS] = receipt.run
        self.stored += len(messages)

    def file_bytes(self) -> int:
        return self.path.stat().st_size

    def log_bytes(self) -> int:
        return Path(f"{self.path}-wal").stat().st_size

    async def bytes(self) -> list[str]:
        """At rest per message, and written per commit."""
        await self.open()
        await self.fill()
        await self.store.close()
        at_rest = self.file_bytes() / self.stored
        await self.open()
        await self.commit(0)
        before = self.log_bytes()
        for number in range(COUNTED):
            await self.commit(number)
        written = (self.log_bytes() - before) / COUNTED
        await self.store.close()
        return [f"{at_rest / 1024:.2f} KB", f"{written / 1024:.1f} KB", f"{written / (self.page + 24):.1f}"]


class TimedStore(PagedStore):
    """One with two long threads and many threads to list, for the cases that are timed."""

    async def prepare(self) -> None:
        await self.open()
        await self.fill()
        for length in (1_000, 5_000):
            for _ in range(length // 250):
                batch = [message for _ in range(200) for message in next(self.messages)][:250]
                await self.store.commit(f"long-{length}", messages=batch)
        for start in range(0, LISTED, 500):
            names = range(start, start + 500)
            await asyncio.gather(*[self.store.threads.create(f"t-{n}", title=f"Thread {n}") for n in names])

    async def one_client(self) -> int:
        for number in range(50):
            await self.commit(number)
        return 50

    async def ten_clients(self) -> int:
        async def client(number: int) -> None:
            for _ in range(20):
                await self.commit(number)

        await asyncio.gather(*[client(number) for number in range(THREADS)])
        return 20 * THREADS

    async def load(self) -> int:
        await self.store.load("long-1000")
        return 1

    async def long_load(self) -> int:
        await self.store.load("long-5000")
        return 1

    async def listing(self) -> int:
        for _ in range(5):
            await self.store.threads.list(limit=50)
        return 5


TIMES: dict[str, Callable[[TimedStore], Any]] = {
    "commits, one client": lambda store: store.one_client,
    "commits, ten clients": lambda store: store.ten_clients,
    "load of 1,000": lambda store: store.load,
    "load of 5,000": lambda store: store.long_load,
    "list of 50 threads": lambda store: store.listing,
}


async def measure_bytes(home: Path) -> None:
    rows = []
    for size in SIZES:
        for page in PAGES:
            name = "turn mix" if size is None else f"{size:,} B"
            rows.append([name, f"{page:,}", *(await PagedStore(home, page, size).bytes())])
    print(render(["messages", "page", "at rest per message", "written per commit", "pages"], rows), flush=True)


async def measure_times(home: Path, rounds: int) -> None:
    (home / "timed").mkdir()
    stores = {page: TimedStore(home / "timed", page, None) for page in TIMED}
    for store in stores.values():
        await store.prepare()
    rows = []
    for name, work in TIMES.items():
        cases = [Case(f"{page:,}", work(store)) for page, store in stores.items()]
        await interleave(cases, rounds, warmup=2)
        base = cases[TIMED.index(4096)]
        for case in cases:
            ratio = cost(case, base)
            figures = [duration(case.median), duration(case.median_cpu), times(ratio.median), spread(ratio)]
            rows.append([name, case.name, *figures])
    print(render(["work", "page", "median", "CPU", "time × 4,096", "middle half"], rows))
    for store in stores.values():
        await store.store.close()


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-pages-", dir=Path.cwd()) as home:
        await measure_bytes(Path(home))
        await measure_times(Path(home), rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bytes and times by page size.")
    parser.add_argument("--rounds", type=int, default=15)
    asyncio.run(main(parser.parse_args().rounds))
