"""Random writers from two processes at once: no deadlock or driver error may reach a caller, and all logs are gapless.

    python -m tests.faults.writers --engine postgres --seconds 60 --writers 64

Each writer draws from everything that writes: commits on a few hot threads and many cold ones, forks, queues, runs,
state, titles, parents, labels, deletions. What may come back is what is documented: conflicts, things not found, and
the refusal of a cycle or of a message that was consumed meanwhile. Afterwards the hot threads hold exactly what was
acknowledged, each message at the seq that its writer was told, and the auditor looks at everything.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import random
import sys
import time

from tests.faults.crew import Order, helper, obey
from tests.faults.random_moves import HOT, MOVES, Hand
from tests.faults.shell import FaultFound, Figures, audit, main, opened, parser_of, tell
from tests.support.servers import server

import perdure

PROCESSES = 2
MODULE = "tests.faults.writers"


async def write(order: Order) -> Order:
    """One process: its share of the writers on one store, until the time is up."""
    figures: collections.Counter[str] = collections.Counter()
    places: dict[str, dict[int, str]] = {thread: {} for thread in HOT}
    async with perdure.open(order["url"]) as store:
        until = time.monotonic() + order["seconds"]
        hands = [
            Hand(store, f"{order['name']}{number}", random.Random(f"{order['seed']}-{order['name']}-{number}"), places)
            for number in range(order["writers"])
        ]

        async def play(hand: Hand) -> None:
            while time.monotonic() < until:
                figures[await hand.move()] += 1

        await asyncio.gather(*map(play, hands))
    return {"figures": figures, "places": places}


async def check_hot(url: str, answers: list[Order]) -> int:
    """The hot threads against what was acknowledged; returns how many messages they hold."""
    total = 0
    async with opened(url) as store:
        for thread in HOT:
            told = [(int(seq), name) for answer in answers for seq, name in answer["places"][thread].items()]
            stored = [(record.seq, record.message_id) async for record in store.messages.iter(thread)]
            if stored != sorted(told) or [seq for seq, _ in stored] != list(range(1, len(stored) + 1)):
                odd = sorted(set(told) ^ set(stored))[:5]
                raise FaultFound(
                    f"{thread}: {len(told)} messages acknowledged, {len(stored)} stored; for example {odd}"
                )
            total += len(stored)
    return total


async def _tick(seconds: int) -> None:
    for second in range(1, seconds + 1):
        await asyncio.sleep(1)
        tell("progress", second)


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    url = server(asked.engine, durable=True).url
    async with opened(url) as store:
        for thread in HOT:
            await store.threads.create(thread)
    order = {"url": url, "seconds": asked.seconds, "writers": asked.writers // PROCESSES, "seed": asked.seed}
    ticking = asyncio.create_task(_tick(asked.seconds))
    try:
        work = [helper(MODULE, {**order, "name": name}, asked.seconds + 120) for name in "ab"[:PROCESSES]]
        answers = await asyncio.gather(*work)
    finally:
        ticking.cancel()
    figures: collections.Counter[str] = collections.Counter()
    for answer in answers:
        figures.update(answer["figures"])
    hot = await check_hot(url, answers)
    threads = await audit(url)
    missing = [name for name in MOVES if not figures[name]]
    if missing and asked.seconds >= 20:
        raise FaultFound(f"never once succeeded: {missing}")
    done = {name: figures[name] for name in MOVES}
    return {
        "writers": asked.writers,
        "seconds": asked.seconds,
        "done": sum(done.values()),
        **done,
        **{name: count for name, count in sorted(figures.items()) if name not in MOVES},
        "hot messages": hot,
        "threads": threads,
    }


if __name__ == "__main__":
    if obey(write):
        sys.exit(0)
    parser = parser_of(__doc__, "seconds", 10)
    parser.add_argument("--writers", type=int, default=64)
    sys.exit(main(MODULE, run, parser))
