"""Paused workers that come back to a server: an old fence must not write, however late its process wakes.

    python -m tests.faults.zombies --engine mysql --trials 200

A worker in another process commits under fence 1 as fast as it can and is stopped (SIGSTOP) at a random moment: before
a commit, inside the exchange with the server, or after it; every second time not before it has written something. This
process takes the thread over under fence 2, within a bounded time although the other may hold locks, and wakes it. It
must be refused with `StaleClaim`, and nothing of it may stand behind the new worker's first commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.shell import (
    UNCERTAIN,
    FaultFound,
    Figures,
    audit,
    bounded,
    insist,
    main,
    opened,
    parser_of,
    tell,
    until,
)
from tests.support.servers import server

import perdure
from perdure import Message, Store
from perdure.errors import StaleClaim

MODULE = "tests.faults.zombies"
ROOT = Path(__file__).parents[2]
BEGINNING = ("start", "mine")
"""What a thread holds before its worker says that it is going."""


async def old_worker(url: str) -> None:
    """For each thread named on the input: commit under fence 1 until refused, then say what was written."""
    loop = asyncio.get_running_loop()
    async with perdure.open(url) as store:
        while thread := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            start, mine = BEGINNING
            await store.commit(thread, messages=[Message.user(start)], state={"n": 0})
            # The claim begins with its first fenced commit.
            await store.commit(thread, messages=[Message.user(mine)], fence=1)
            tell("going", thread)
            tell("refused", await _commit_until_refused(store, thread))


async def _commit_until_refused(store: Store, thread: str) -> dict[str, Any]:
    written: list[int] = []
    uncertain = 0
    for number in range(1_000_000):
        try:
            receipt = await store.commit(
                thread, messages=[Message.user(f"old {number}")], state={"n": number}, fence=1, key=f"old-{number}"
            )
        except StaleClaim as refused:
            return {"written": written, "fence": refused.actual, "uncertain": uncertain}
        except UNCERTAIN:
            uncertain += 1
            continue
        written += receipt.seqs
    raise FaultFound("nobody took the thread over")


class Zombie:
    """The other process: told a thread, stopped, woken."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, url: str) -> Zombie:
        """Start it; it waits for its first thread."""
        flags = ["-O"] if sys.flags.optimize else []
        command = [sys.executable, *flags, "-m", MODULE, "--old-worker", url]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe))

    async def told(self, what: str) -> Any:
        """The next line it says, which must be about `what`."""
        if self.process.stdout is None:
            raise FaultFound("the worker has no output")
        line = await bounded(self.process.stdout.readline(), f"the paused worker's word {what!r}")
        found = json.loads(line or "{}")
        if what not in found:
            raise FaultFound(f"the worker should have said {what!r}, and said {line!r}")
        return found[what]

    async def begin(self, thread: str) -> None:
        """Let it commit to a thread."""
        if self.process.stdin is None:
            raise FaultFound("the worker has no input")
        self.process.stdin.write(f"{thread}\n".encode())
        await self.told("going")

    async def stop(self) -> None:
        """Pause it, and see that it is paused."""
        os.kill(self.process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        await until(lambda: stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T", "the worker stops")

    def wake(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)


async def _has_written(store: Store, thread: str, more_than: int) -> None:
    """Wait until a thread holds more messages than this."""
    while (await store.threads.get(thread)).version <= more_than:  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.001)


async def trial(
    store: Store, zombie: Zombie, thread: str, dice: random.Random, *, at_work: bool
) -> tuple[float, dict[str, Any]]:
    """Pause, take over, wake; returns how long the take-over took and what the old worker said."""
    await zombie.begin(thread)
    if at_work:
        await bounded(_has_written(store, thread, len(BEGINNING)), "the old worker's next commit")
    await asyncio.sleep(dice.uniform(0.0, 0.02))
    await zombie.stop()
    begun = time.monotonic()
    try:
        receipt = await insist(
            lambda: store.commit(thread, messages=[Message.user("mine now")], fence=2, key="new"), "taking over"
        )
        took = time.monotonic() - begun
        mark = await store.state.get(thread, "n")
    finally:
        zombie.wake()
    told = await zombie.told("refused")
    found = await store.threads.get(thread)
    late = [seq for seq in told["written"] if seq >= receipt.seqs[0]]
    left = (found.version, found.fence, (await store.state.get(thread, "n")).rev)
    if told["fence"] != 2 or late or left != (receipt.version, 2, mark.rev):
        raise FaultFound(f"{thread}: {told}, taken over at {receipt.seqs}, left {left}")
    return took, told


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    url = server(asked.engine, durable=True).url
    dice = random.Random(asked.seed)
    written, uncertain, slowest = 0, 0, 0.0
    async with opened(url) as store:
        zombie = await Zombie.start(url)
        try:
            for number in range(1, asked.trials + 1):
                took, told = await trial(store, zombie, f"t-{number}", dice, at_work=number % 2 == 0)
                written, uncertain = written + len(told["written"]), uncertain + told["uncertain"]
                slowest = max(slowest, took)
                tell("progress", number)
        finally:
            zombie.process.kill()
            await zombie.process.wait()
    threads = await audit(url)
    return {
        "trials": asked.trials,
        "commits of old workers": written,
        "uncertain after waking": uncertain,
        "slowest take-over s": round(slowest, 2),
        "threads": threads,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--old-worker"]:
        sys.exit(asyncio.run(old_worker(sys.argv[2])))
    sys.exit(main(MODULE, run, parser_of(__doc__, "trials", 20)))
