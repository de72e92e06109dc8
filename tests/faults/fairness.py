"""Sixty-four tasks over four connections, without pause: the slowest gets at least half as much as the mean.

    python -m tests.faults.fairness --engine redis --seconds 10

First all of them commit, each to a thread of its own, for so many seconds; then all of them read. Only counts are
compared: whoever waits for a connection must not be overtaken, however slow the server is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from tests.faults.shell import FaultFound, Figures, audit, main, opened, parser_of, tell
from tests.support.servers import fresh_database, server

import perdure
from perdure.model.message import Message

MODULE = "tests.faults.fairness"
CONNECTIONS = 4


async def counted(tasks: int, seconds: int, call: Callable[[int], Awaitable[object]]) -> list[int]:
    """How often each task made its call until the time was up."""
    counts = [0] * tasks
    until = time.monotonic() + seconds

    async def loop(number: int) -> None:
        while time.monotonic() < until:
            await call(number)
            counts[number] += 1

    await asyncio.gather(*map(loop, range(tasks)))
    return counts


def shares(what: str, counts: list[int]) -> Figures:
    """Least, mean and most; refuses a distribution that starves somebody."""
    mean = sum(counts) / len(counts)
    if 2 * min(counts) < mean:
        raise FaultFound(f"{what} per task, {mean:.0f} in the mean: {sorted(counts)}")
    return {f"{what} least": min(counts), f"{what} mean": round(mean, 1), f"{what} most": max(counts)}


async def measure(store: perdure.Store, asked: argparse.Namespace) -> Figures:
    """Both kinds of call, one after the other."""
    commits = await counted(
        asked.tasks, asked.seconds, lambda n: store.commit(f"t{n}", messages=[Message.user("how is it going?")])
    )
    tell("progress", asked.seconds // 2)
    loads = await counted(asked.tasks, asked.seconds, lambda n: store.threads.get(f"t{n}"))
    tell("progress", asked.seconds)
    return {"tasks": asked.tasks, "seconds": asked.seconds, **shares("commits", commits), **shares("reads", loads)}


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    url = await fresh_database(server(asked.engine), "fairness")
    async with opened(f"{url}?connections={CONNECTIONS}") as store:
        figures = await measure(store, asked)
    await audit(url)
    return figures


if __name__ == "__main__":
    parser = parser_of(__doc__, "seconds", 10)
    parser.add_argument("--tasks", type=int, default=64)
    sys.exit(main(MODULE, run, parser))
