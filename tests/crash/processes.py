"""Several processes write to one file: nothing is lost, nothing is doubled, and everybody gets a turn.

    python -m tests.crash.processes --commits 1000

Each process commits to a thread that all of them share and to one of its own, and notes how long each commit took. Then
every acknowledged message must be at the seq that was acknowledged, the logs gapless, and the auditor content.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.crash.forking import Child, in_child

import perdure
from perdure import Message
from perdure.audit import verify_engine

SHARED = "shared"
DEADLINE = 900.0


class ProcessesFailed(Exception):
    """What the processes were told and what is stored differ."""


async def commit_many(path: str, name: str, commits: int) -> dict[str, Any]:
    """One process: commits to the shared thread and to its own by turns, two messages each."""
    acknowledged: dict[str, list[Any]] = {SHARED: [], name: []}
    waits: list[float] = []
    async with perdure.open(path, durability="power") as store:
        run = await store.runs.start(name, "agent")
        for number in range(commits):
            thread = SHARED if number % 2 else name
            ids = [f"{name}.{number}.{i}" for i in range(2)]
            messages = [Message.user("x" * 200, id=ids[0]), Message.assistant("y" * 400, id=ids[1])]
            begun = time.perf_counter()
            receipt = await store.commit(
                thread, messages=messages, run=run.step() if thread == name else None, key=f"{name}.{number}"
            )
            waits.append(time.perf_counter() - begun)
            run = receipt.run or run
            acknowledged[thread] += zip(receipt.seqs, receipt.message_ids, strict=True)
    return {"acknowledged": acknowledged, "waits": waits}


async def check(path: str, told: list[dict[str, Any]]) -> int:
    """Hold what was acknowledged against what is there; returns the number of messages."""
    due: dict[str, list[tuple[int, str]]] = {}
    for one in told:
        for thread, places in one["acknowledged"].items():
            if places != sorted(places):
                raise ProcessesFailed(f"a process saw its own commits on {thread} out of order")
            due.setdefault(thread, []).extend((seq, name) for seq, name in places)
    total = 0
    async with perdure.open(path) as store:
        for thread, places in due.items():
            stored = [(record.seq, record.message_id) async for record in store.messages.iter(thread)]
            if stored != sorted(places) or [seq for seq, _ in stored] != list(range(1, len(stored) + 1)):
                raise ProcessesFailed(f"{thread}: {len(places)} messages acknowledged, {len(stored)} stored")
            total += len(stored)
        findings = await verify_engine(store.engine)
        if findings:
            raise ProcessesFailed("; ".join(map(str, findings[:10])))
    return total


def run(folder: Path, processes: int, commits: int) -> dict[str, Any]:
    """Run all processes at once; returns the figures."""
    path = str(folder / "shared.db")
    in_child(lambda: commit_many(path, "first", 2), DEADLINE)
    begun = time.perf_counter()
    names = [f"process-{number}" for number in range(processes)]
    children = [Child(lambda _, name=name: commit_many(path, name, commits)) for name in names]
    told = [child.answer(DEADLINE) for child in children]
    seconds = time.perf_counter() - begun
    first = {"acknowledged": {SHARED: [(1, "first.1.0"), (2, "first.1.1")]}}
    total = in_child(lambda: check(path, [first, *told]), DEADLINE)
    waits = sorted(wait for one in told for wait in one["waits"])
    return {
        "processes": processes,
        "commits": processes * commits,
        "messages": total,
        "seconds": round(seconds, 1),
        "commits per second": round(processes * commits / seconds),
        "wait p50 ms": round(waits[len(waits) // 2] * 1000, 2),
        "wait p99 ms": round(waits[len(waits) * 99 // 100] * 1000, 2),
        "wait max ms": round(waits[-1] * 1000, 1),
    }


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="repeat with fresh files until the time is up")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    asked = parser.parse_args()
    until = time.monotonic() + (asked.minutes or 0) * 60
    rounds = 0
    while True:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-processes-")))
            try:
                figures = run(folder, asked.processes, asked.commits)
            except Exception:  # noqa: BLE001 - reported with the line that replays it
                traceback.print_exc()
                again = f"python -m tests.crash.processes --processes {asked.processes} --commits {asked.commits}"
                print(json.dumps({"replay": again}), flush=True)
                return 1
        rounds += 1
        print(json.dumps({"progress": rounds}), flush=True)
        if time.monotonic() >= until:
            print(json.dumps({"figures": {"rounds": rounds, **figures}}), flush=True)
            return 0


if __name__ == "__main__":
    sys.exit(main())
