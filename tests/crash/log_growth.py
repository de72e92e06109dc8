"""The log of a SQLite file under readers that never pause: it begins again, and stays within its bound.

    python -m tests.crash.log_growth --commits 10000

Three processes read histories without a pause while one commits. After every commit the length of the log is looked at;
it must never pass 64 MB, whatever is written in all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.crash.forking import Child, in_child, tell

import perdure
from perdure import Message
from perdure.engines.sqlite.connections.connect import file_size

BOUND = 64 * 2**20
READERS = 3
TASKS = 3
DEADLINE = 1800.0


class LogGrew(Exception):
    """The log passed its bound, or nothing was proved."""


def seen(file: Path) -> bool:
    """Whether a file that serves as a signal is there."""
    return file.exists()


def mark(file: Path) -> None:
    """Give such a signal."""
    file.touch()


async def prepare(path: str, messages: int) -> None:
    """A thread with a history that is worth reading."""
    async with perdure.open(path, durability="process") as store:
        for start in range(0, messages, 100):
            await store.commit("read", messages=[Message.user(f"{start + n} " + "x" * 500) for n in range(100)])


async def read(path: str, stop: Path, began: Path) -> int:
    """Read the history over and over until the file `stop` appears; returns how often."""

    async def loop(store: perdure.Store) -> int:
        times = 0
        while not seen(stop):
            if not await store.messages.history("read"):
                raise LogGrew("a reader found nothing")
            times += 1
            mark(began)
        return times

    async with perdure.open(path) as store:
        # Several at once: while one task handles what it has read, others are still in the log.
        return sum(await asyncio.gather(*[loop(store) for _ in range(TASKS)]))


async def write(pipe: int, path: str, commits: int, size: int, durability: Any) -> dict[str, Any]:
    """Commit; returns the longest log seen, how often it began again, and how long commits took."""
    log = f"{path}-wal"
    peak, waits = 0, []
    async with perdure.open(path, durability=durability) as store:
        for number in range(commits):
            begun = time.perf_counter()
            await store.commit(f"written-{number % 50}", messages=[Message.user("y" * size)])
            waits.append(time.perf_counter() - begun)
            length = file_size(log)
            peak = max(peak, length)
            if number % 500 == 499:
                tell(pipe, progress=number + 1, log=length)
        health = await store.health()
    waits.sort()
    return {
        "peak log bytes": peak,
        "commit p50 ms": round(waits[len(waits) // 2] * 1000, 2),
        "commit p99 ms": round(waits[len(waits) * 99 // 100] * 1000, 2),
        "commit max ms": round(waits[-1] * 1000, 1),
        "log problems": sum("log" in problem for problem in health.problems),
    }


def run(folder: Path, commits: int, size: int, durability: str) -> dict[str, Any]:
    """Readers and the writer at once; returns the figures."""
    path, stop = str(folder / "grown.db"), folder / "stop"
    in_child(lambda: prepare(path, 1_000), DEADLINE)
    marks = [folder / f"began-{number}" for number in range(READERS)]
    readers = [Child(lambda _, began=began: read(path, stop, began)) for began in marks]
    begun = time.monotonic()
    try:
        while not all(map(seen, marks)) and time.monotonic() < begun + 60:
            os.sched_yield()
        figures = Child(lambda pipe: write(pipe, path, commits, size, durability)).answer(DEADLINE)
    finally:
        stop.touch()
        reads = sum(reader.answer(DEADLINE) for reader in readers)
    figures |= {"commits": commits, "reads": reads, "seconds": round(time.monotonic() - begun, 1)}
    figures["written bytes"] = commits * size
    if figures["peak log bytes"] > BOUND:
        raise LogGrew(f"the log grew to {figures['peak log bytes'] / 2**20:.0f} MB: {json.dumps(figures)}")
    if reads < READERS or figures["log problems"]:
        raise LogGrew(f"the readers did not read, or health speaks of the log: {json.dumps(figures)}")
    return dict(figures)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=2_500, help="characters of each message")
    parser.add_argument("--durability", choices=("power", "process"), default="power")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-log-") as folder:
        try:
            figures = run(Path(folder), asked.commits, asked.size, asked.durability)
        except Exception:  # noqa: BLE001 - reported with the line that replays it
            traceback.print_exc()
            print(json.dumps({"replay": f"python -m tests.crash.log_growth --commits {asked.commits}"}), flush=True)
            return 1
    print(json.dumps({"figures": figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
