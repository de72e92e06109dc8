"""Paused workers that come back: an old fence must not write, however late it wakes.

    python -m tests.crash.zombies --trials 500

A worker starts under fence 1 and stops itself (SIGSTOP) inside a commit, at a failpoint on the way to the disk: its
checks are done, its write is not. Another worker starts under fence 2. Then the first one is woken. Its write must be
refused with `StaleClaim` inside the store's transaction, and nothing of it may stand behind the second worker's start.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.crash.forking import Child, in_child

import perdure
from perdure import Message, failpoints
from perdure.audit import verify_threads
from perdure.errors import StaleClaim

POINTS = ("commit.before_transact", "sqlite.before_begin", "commit.after_transact")
"""Where a worker is paused: before its transaction, before the lock, and after it landed but before it was told."""

DEADLINE = 60.0


class ZombieWrote(Exception):
    """A superseded worker changed something."""


async def old_worker(path: str, thread: str, *, point: str, after: int, bare: bool, awake: mmap.mmap) -> dict[str, Any]:
    """Commit under fence 1 until refused; stops itself on the way. A bare commit has no guard but the fence."""
    written: list[int] = []

    def pause(_name: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        # A process stops thread by thread: this one must not slip on before it is its turn.
        while not awake[0]:
            time.sleep(0.0005)

    async with perdure.open(path) as store:
        run = await store.runs.start(thread, "agent")
        receipt = await store.commit(thread, messages=[Message.user("start")], run=run.step(), fence=1)
        failpoints.arm(point, pause, after=after)
        for number in range(after + 20):
            run = receipt.run or run
            try:
                receipt = await store.commit(
                    thread,
                    messages=[Message.user(f"old {number}")],
                    run=None if bare else run.step(),
                    state={"n": number},
                    fence=1,
                )
            except StaleClaim as refused:
                return {"written": written, "refused": refused.actual}
            written += receipt.seqs
    return {"written": written, "refused": None}


async def new_worker(path: str, thread: str) -> dict[str, Any]:
    """Start under fence 2, and say where."""
    async with perdure.open(path) as store:
        run = await store.runs.latest(thread)
        receipt = await store.commit(thread, messages=[Message.user("mine now")], run=run and run.step(), fence=2)
        return {"seq": receipt.seqs[0], "state": await _document(store, thread)}


async def look(path: str, thread: str) -> dict[str, Any]:
    """What is there when everybody is done."""
    async with perdure.open(path) as store:
        findings = await verify_threads(store, [thread])
        found = await store.threads.get(thread)
        return {
            "version": found.version,
            "fence": found.fence,
            "state": await _document(store, thread),
            "findings": [str(finding) for finding in findings],
        }


async def _document(store: perdure.Store, thread: str) -> Any:
    doc = await store.state.find(thread, "n")
    return None if doc is None else doc.value


def trial(path: str, thread: str, dice: random.Random) -> str:
    """One paused worker; returns where it was paused."""
    point, after, bare = dice.choice(POINTS), dice.randint(1, 12), dice.random() < 0.7
    awake = mmap.mmap(-1, mmap.PAGESIZE)
    zombie = Child(lambda _: old_worker(path, thread, point=point, after=after, bare=bare, awake=awake))
    _, status = os.waitpid(zombie.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise ZombieWrote(f"the worker was to stop at {point}, and ended with status {status}")
    taken_over = in_child(lambda: new_worker(path, thread), DEADLINE)
    awake[0] = 1
    os.kill(zombie.pid, signal.SIGCONT)
    told = zombie.answer(DEADLINE)
    left = in_child(lambda: look(path, thread), DEADLINE)
    late = [seq for seq in told["written"] if seq >= taken_over["seq"]]
    if told["refused"] != 2 or late or left["version"] != taken_over["seq"] or left["fence"] != 2:
        raise ZombieWrote(f"paused at {point}: {told}, taken over at {taken_over['seq']}, left {left}")
    if left["state"] != taken_over["state"] or left["findings"]:
        raise ZombieWrote(f"paused at {point}: {taken_over}, left {left}")
    return point


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10**9)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    asked = parser.parse_args()
    if asked.minutes is None and asked.trials == 10**9:
        asked.trials = 20
    dice = random.Random(asked.seed)
    until = time.monotonic() + (asked.minutes or 10**6) * 60
    figures: dict[str, int] = dict.fromkeys(("trials", *POINTS), 0)
    with tempfile.TemporaryDirectory(prefix="perdure-zombies-") as folder:
        while figures["trials"] < asked.trials and time.monotonic() < until:
            try:
                figures[trial(str(Path(folder, "zombies.db")), f"t-{figures['trials']}", dice)] += 1
            except Exception:  # noqa: BLE001 - reported with the line that replays it
                traceback.print_exc()
                again = f"python -m tests.crash.zombies --seed {asked.seed} --trials {figures['trials'] + 1}"
                print(json.dumps({"replay": again}), flush=True)
                return 1
            figures["trials"] += 1
            print(json.dumps({"progress": figures["trials"]}), flush=True)
    print(json.dumps({"figures": figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
