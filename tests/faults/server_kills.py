"""Kill the server again and again under load, and look each time whether anything acknowledged was lost.

    python -m tests.faults.server_kills --engine postgres --kills 100

Writers on two stores, opened once and never again, work while the server is killed with SIGKILL and started again on
the same data. After each start every writer must get on by itself; then all of them pause, and a fresh client holds
what was acknowledged against what is stored and audits every thread written to. The ledger lives in this process, which
is not killed. The last look is the auditor's, at everything.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from typing import Any

from tests.faults.shell import PATIENCE, FaultFound, Figures, audit, main, opened, parser_of, tell, until
from tests.faults.surviving import Shared, Writer, check_touched
from tests.support.servers import server

from perdure.audit import verify_threads

WRITERS = 8
STORES = 2


class ServerKills:
    """The loop: one server, two stores, eight writers, and the dice that say when it dies."""

    def __init__(self, engine: str, seed: int) -> None:
        self.server: Any = server(engine, durable=True)
        self.dice = random.Random(seed)
        self.shared = Shared()
        self.writers: list[Writer] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.slowest = 0.0

    async def run(self, kills: int) -> Figures:
        """Kill that often; returns the figures."""
        async with opened(self.server.url) as first, opened(self.server.url) as second:
            stores = [first, second]
            self.writers = [Writer(stores[n % STORES], self.shared, n) for n in range(WRITERS)]
            self.tasks = [asyncio.create_task(writer.write()) for writer in self.writers]
            try:
                for number in range(1, kills + 1):
                    await self._cycle()
                    tell("progress", number)
                await self._stop()
                await self._check()
            finally:
                for task in self.tasks:
                    task.cancel()
                await asyncio.gather(*self.tasks, return_exceptions=True)
        threads = await audit(self.server.url)
        return self._figures(threads)

    async def _cycle(self) -> None:
        self.shared.gate.set()
        await self._everybody_writes("before the kill")
        await asyncio.sleep(self.dice.uniform(0.0, 0.4))
        doubts = self.shared.figures["outcome unknown"]
        flying = self.shared.flying
        await asyncio.to_thread(self.server.kill)
        self.shared.figures["kills"] += 1
        self.shared.figures["with a write in flight"] += flying > 0
        await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.1, 0.3)))
        begun = time.monotonic()
        await asyncio.to_thread(self.server.restart)
        await self._everybody_writes("after the restart")
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.shared.figures["in mid-commit"] += self.shared.figures["outcome unknown"] > doubts
        await self._pause_and_check()

    async def _everybody_writes(self, when: str) -> None:
        """Wait until each writer got another write acknowledged."""
        before = [writer.acknowledged for writer in self.writers]

        def done() -> bool:
            self._complain()
            return all(writer.acknowledged > old for writer, old in zip(self.writers, before, strict=True))

        await until(done, f"every writer gets an answer {when}", 2 * PATIENCE)

    def _complain(self) -> None:
        for task in self.tasks:
            if task.done():
                task.result()
                raise FaultFound("a writer ended by itself")

    async def _pause_and_check(self) -> None:
        self.shared.gate.clear()

        def paused() -> bool:
            self._complain()
            return all(writer.idle for writer in self.writers)

        await until(paused, "the writers pause")
        await self._check()

    async def _check(self) -> None:
        async with opened(self.server.url) as onlooker:
            alive = await check_touched(onlooker, self.shared)
            findings = await verify_threads(onlooker, alive)
        if findings:
            raise FaultFound("; ".join(map(str, findings[:10])))

    async def _stop(self) -> None:
        self.shared.stopping = True
        self.shared.gate.set()
        await asyncio.gather(*self.tasks)

    def _figures(self, threads: int) -> Figures:
        figures = self.shared.figures
        first = ("kills", "in mid-commit", "with a write in flight", "acknowledged", "in doubt", "in doubt, landed")
        rest = ("outcome unknown", "unavailable", "refused as they must be")
        shown: Figures = {name: figures[name] for name in (*first, *rest)}
        return {
            **shown,
            "threads": threads,
            "threads deleted": len(self.shared.ledger.deleted),
            "hot messages": sum(map(len, self.shared.places.values())),
            "slowest return s": round(self.slowest, 1),
        }


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    return await ServerKills(asked.engine, asked.seed).run(asked.kills)


if __name__ == "__main__":
    sys.exit(main("tests.faults.server_kills", run, parser_of(__doc__, "kills", 5)))
