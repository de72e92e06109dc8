"""A log of a million entries that is trimmed while writers and readers are at work.

    python -m tests.scale.trimming --engine sqlite --entries 1000000

One task trims the log from its beginning to its middle, in pieces. Sixteen writers go on: each appends to the same log,
or commits to rows that have nothing to do with it. Readers follow the log: what they read must begin just after their
cursor and have no gap, heads must never fall, and a cursor that the trimming overtook must raise `CursorExpired`. The
unrelated commits are measured before, during and after the trimming, and their 99th percentiles are printed. Only
correctness decides the outcome: times on a busy machine do not.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.engines.toys import SCOPE, empty_place, open_at

from perdure import limits
from perdure.clock import system_clock
from perdure.errors import CursorExpired
from perdure.kernel.engine import Engine
from perdure.kernel.ops import NOW, Append, Heads, Inc, Patch, Put, Read
from perdure.kernel.validate import Kernel

LOG, TOPIC = "feed", "t"
WRITERS = 16
APPENDERS = 4
"""How many of the writers append to the log; the others commit to rows."""
READERS = 4
ALONE = 3.0
"""Seconds for which the unrelated commits are measured without the trimming, before it and after it."""
BODY = b'{"text":"%s"}' % (b"x" * 200)


class TrimmingFailed(Exception):
    """An answer was wrong."""


def insist(condition: object, message: str) -> None:
    if not condition:
        raise TrimmingFailed(message)


class Story:
    """One engine, and what its writers and readers have seen."""

    def __init__(self, engine: Engine, entries: int) -> None:
        self.engine = engine
        self.kernel = Kernel(engine)
        self.entries = entries
        self.ended = False
        self.times: list[float] = []
        """How long each unrelated commit took, in the phase that is measured."""
        self.appended = self.expired = self.pages = 0
        self.highest = 0
        """The highest head that anybody has seen."""

    async def fill(self) -> None:
        """The log as it is before anybody trims it, and a row for each writer."""
        size = limits.TRIM_ENTRIES
        for first in range(0, self.entries, size):
            rows = [(f"e{n}", "k", n % 3, NOW, BODY) for n in range(first, min(first + size, self.entries))]
            await self.engine.transact(SCOPE, [Append(LOG, TOPIC, rows)])
        await self.engine.transact(SCOPE, [Put("items", (f"w{n}",), {"n": 0}) for n in range(WRITERS)])
        self.highest = self.entries

    async def write(self, number: int) -> None:
        """One writer: appends to the log, or commits to its own row and partition."""
        count = 0
        while not self.ended:
            count += 1
            if number < APPENDERS:
                before = self.highest
                entries = [(f"w{number}-{count}", "k", 1, NOW, BODY)]
                applied = await self.engine.transact(SCOPE, [Append(LOG, TOPIC, entries)])
                insist(applied.seqs[LOG, TOPIC] > before, f"an entry got a seq that is not above {before}")
                self.highest = max(self.highest, applied.seqs[LOG, TOPIC])
                self.appended += 1
                await asyncio.sleep(0.002)
                continue
            begun = time.perf_counter()
            await self.engine.transact(
                SCOPE,
                [
                    Patch("items", (f"w{number}",), {"n": Inc(1)}),
                    Append("notes", f"w{number}", [(f"n{count}", "k", 0, NOW, BODY)], count - 1),
                ],
            )
            self.times.append(time.perf_counter() - begun)
            await asyncio.sleep(0)  # for an engine whose calls never suspend

    async def read(self, number: int) -> None:
        """One reader: pages from somewhere in the log to its head, by turns without and with a filter."""
        draw = random.Random(number)
        while not self.ended:
            (base,) = await self.kernel.bases(SCOPE, LOG, [TOPIC])
            cursor = max(0, base + draw.choice((-1, 0, 0, 10, 5_000)))
            for _ in range(draw.randint(1, 20)):
                entries = await self._page(cursor, filtered=draw.random() < 0.3)
                if not entries:
                    break
                cursor = entries[-1][0]
            await asyncio.sleep(0.005)

    async def _page(self, cursor: int, *, filtered: bool) -> list[Any]:
        where = {"kind": "k"} if filtered else {}  # every entry passes
        before = self.highest
        try:
            entries, heads = await self.kernel.view(
                SCOPE, Read(LOG, TOPIC, after=cursor, limit=100, where=where), Heads(LOG, [TOPIC])
            )
        except CursorExpired:
            (base,) = await self.kernel.bases(SCOPE, LOG, [TOPIC])
            insist(base > cursor, f"the cursor {cursor} expired, and the log begins after {base}")
            self.expired += 1
            return []
        insist(heads[0] >= before, f"the head fell from {before} to {heads[0]}")
        self.highest = max(self.highest, heads[0])
        seqs = [entry[0] for entry in entries]
        insist(seqs == list(range(cursor + 1, cursor + 1 + len(seqs))), f"a gap after {cursor}: {seqs[:3]}")
        insist(len(seqs) == min(100, max(0, heads[0] - cursor)), f"{len(seqs)} entries between {cursor} and {heads[0]}")
        self.pages += 1
        return list(entries)

    async def trim(self) -> None:
        """Trim half of the log in pieces, and rest after each as long as it took, as housekeeping does."""
        goal, begun = self.entries // 2, time.perf_counter()

        async def rest() -> None:
            nonlocal begun
            await asyncio.sleep(time.perf_counter() - begun)
            begun = time.perf_counter()

        base = await self.kernel.trim(SCOPE, LOG, TOPIC, goal, pause=rest)
        insist(base == goal, f"trimmed to {goal}, and the log begins after {base}")
        try:
            await self.kernel.view(SCOPE, Read(LOG, TOPIC, after=goal // limits.TRIM_ENTRIES, limit=1))
        except CursorExpired:
            self.expired += 1
            return
        raise TrimmingFailed("a cursor in what was trimmed has not expired")

    async def phase(self, work: Awaitable[Any]) -> tuple[float, float, int]:
        """The median and the 99th percentile of the unrelated commits while this goes on, in ms, and their number."""
        self.times = []
        await work
        times = sorted(self.times)
        insist(times, "no commit in a whole phase")
        return times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000, len(times)


async def _while_others_work(story: Story, plan: Callable[[], Awaitable[None]]) -> None:
    """Run the plan beside writers and readers; what one of them raises ends everything."""
    async with asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(story.write(number))
        for number in range(READERS):
            group.create_task(story.read(number))
        try:
            await plan()
        finally:
            story.ended = True


async def run(kind: str, entries: int, directory: Path, *, alone: float = ALONE) -> dict[str, Any]:
    """The whole story on one engine."""
    place = await empty_place(kind, directory)
    engine = await open_at(kind, place, system_clock, durability="process")  # type: ignore[arg-type]
    report: dict[str, Any] = {"engine": kind, "entries": entries}
    try:
        story = Story(engine, entries)
        begun = time.perf_counter()
        await story.fill()
        report["seconds to fill"] = round(time.perf_counter() - begun, 1)

        async def plan() -> None:
            before = await story.phase(asyncio.sleep(alone))
            begun = time.perf_counter()
            during = await story.phase(story.trim())
            spent = time.perf_counter() - begun
            after = await story.phase(asyncio.sleep(alone))
            report["entries trimmed /s"] = round(entries // 2 / spent)
            for number, name in enumerate(("p50", "p99")):
                without = (before[number] + after[number]) / 2
                report[f"{name} without trimming, ms"] = f"{before[number]:.2f} before, {after[number]:.2f} after"
                report[f"{name} while trimming, ms"] = round(during[number], 2)
                report[f"{name} ratio"] = round(during[number] / without, 2)
            report["unrelated commits"] = before[2] + during[2] + after[2]

        await _while_others_work(story, plan)
        (base,) = await story.kernel.bases(SCOPE, LOG, [TOPIC])
        ((last,),) = await engine.view(SCOPE, [Heads(LOG, [TOPIC])])
        insist((base, last) == (entries // 2, entries + story.appended), f"the log is ({base}, {last}]")
        insist(await engine.check() == [], "the engine finds damage")
        report["entries appended"] = story.appended
        report["pages read"] = story.pages
        report["expired cursors"] = story.expired
    finally:
        await engine.close()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", default="sqlite")
    parser.add_argument("--entries", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(run(options.engine, options.entries, Path(directory)))
    for name, value in report.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    sys.exit(main())
