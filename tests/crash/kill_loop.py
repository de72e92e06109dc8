"""Kill a writer again and again on the same data, and look each time whether anything acknowledged was lost.

    python -m tests.crash.kill_loop --cycles 1000

Each cycle forks a writer (nothing to import, so it writes within milliseconds), kills it at a random moment or at a
failpoint inside the commit, and forks a checker that reopens the file, settles what was in doubt and audits what is
new; every hundred cycles it audits everything. This process never opens the file: it has no threads, so it may fork.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import mmap
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.forking import Child, in_child
from tests.crash.ledger import Ledger, check_thread, settle_doubts
from tests.crash.workload import PHASE, PHASE_NAMES, SLOTS, Reporter, write_until_killed

import perdure
from perdure import Message
from perdure.audit import digest, verify_engine, verify_threads
from perdure.stores.cleanup import sweep

POINTS = (
    "commit.before_transact",
    "commit.after_transact",
    "sqlite.before_begin",
    "sqlite.after_member",
    "sqlite.before_commit",
    "sqlite.after_commit",
    "delete.after_tombstone",
    "delete.between_erasures",
)
FULL_AUDIT_EVERY = 100
WRITER_DEADLINE = 120.0
CHECKER_DEADLINE = 600.0
BYSTANDER = "bystander"


class LoopFailed(Exception):
    """A cycle found something wrong."""


class KillLoop:
    """The state of the loop: the file, the ledger, the dice and the figures."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.url = str(folder / "killed.db")
        self.dice = random.Random(seed)
        self.ledger = Ledger()
        self.shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.figures: collections.Counter[str] = collections.Counter()
        self.bystander = ""

    def prepare(self) -> None:
        """Another tenant's data, which no kill may change."""
        self.bystander = in_child(lambda: _plant_bystander(self.url), CHECKER_DEADLINE)

    def cycle(self, number: int) -> None:
        """Write, kill, check."""
        self._write_and_kill(number)
        self.figures["kills"] += 1
        full = number % FULL_AUDIT_EVERY == 0
        verdict = in_child(lambda: self._check(full), CHECKER_DEADLINE)
        for slot, described in sorted(self.ledger.doubts.items()):
            self.figures["in doubt"] += 1
            self.figures["in doubt, landed"] += slot in verdict["landed"]
            self.figures["retried with a key"] += slot in verdict["retried"] or slot in verdict["replayed"]
            if slot in verdict["landed"] or slot in verdict["retried"]:
                self.ledger.apply(slot, described)
        self.ledger.doubts.clear()
        self.ledger.touched.clear()
        self.figures["audits of everything"] += full

    def _write_and_kill(self, cycle: int) -> None:
        point = self.dice.choice(POINTS) if self.dice.random() < 0.5 else None
        how = {
            "point": point,
            "after": self.dice.randint(1, 2 if point and point.startswith("delete") else 40),
            "linger": self.dice.random() < 0.5,
            "deletions": 0.1 if point and point.startswith("delete") else 0.002,
        }
        threads = self.ledger.briefs(self.dice)
        self.shared[: SLOTS + 1] = bytes(SLOTS + 1)
        child = Child(lambda pipe: write_until_killed(self.url, Reporter(pipe, self.shared), cycle, threads, **how))
        try:
            self._watch(child.pid, child.pipe, point)
        finally:
            os.close(child.pipe)
        self._count(point)

    def _watch(self, child: int, pipe: int, point: str | None) -> None:
        """Drain the pipe; without a failpoint, stop the child at a random moment and kill it as it stands."""
        early = point is None and self.dice.random() < 0.05
        patience = self.dice.uniform(0.001, 0.02 if early else 0.06)
        tail, ready, give_up = b"", early, time.monotonic() + WRITER_DEADLINE
        kill_at = time.monotonic() + patience if early else None
        while True:
            limit = give_up if kill_at is None else min(kill_at, give_up)
            readable, _, _ = select.select([pipe], [], [], max(0.0, limit - time.monotonic()))
            if readable:
                chunk = os.read(pipe, 65536)
                if not chunk:
                    break
                *lines, tail = (tail + chunk).split(b"\n")
                for line in lines:
                    told = json.loads(line)
                    ready = ready or "ready" in told
                    if "finished" in told:
                        kill_at = time.monotonic()
                    self.ledger.note(told)
                if ready and point is None and kill_at is None:
                    kill_at = time.monotonic() + patience
            elif time.monotonic() >= limit:
                if kill_at is None:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    raise LoopFailed(f"the writer neither worked nor died within {WRITER_DEADLINE} s")
                # Stopped first, so that what the shared page says is what the kill hits.
                os.kill(child, signal.SIGSTOP)
                os.waitpid(child, os.WUNTRACED)
                os.kill(child, signal.SIGKILL)
                kill_at = give_up
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise LoopFailed(f"the writer ended by itself, with status {status}")

    def _count(self, point: str | None) -> None:
        self.figures["at failpoints"] += point is not None
        flying = any(self.shared[slot] for slot in range(SLOTS))
        self.figures["in mid-commit"] += flying
        phase = PHASE_NAMES[self.shared[PHASE]] if point is None or not point.startswith("sqlite") else point
        self.figures[f"  {phase}"] += 1

    def summary(self) -> dict[str, int]:
        """The figures in the order in which a person asks for them; the indented ones say how far the writer was."""
        self.figures["acknowledged"] = self.ledger.acknowledged
        self.figures["threads"] = len(self.ledger.threads)
        self.figures["threads deleted"] = len(self.ledger.deleted)
        self.figures["messages"] = sum(len(known.ids) for known in self.ledger.threads.values())
        first = ("kills", "in mid-commit", "acknowledged", "in doubt", "in doubt, landed", "retried with a key")
        rest = sorted(name for name in self.figures if name not in first)
        return {name: self.figures[name] for name in (*first, *rest)}

    async def _check(self, full: bool) -> dict[str, list[int]]:
        async with perdure.open(self.url, housekeeping=False) as store:
            await sweep(store._context)
            verdict = await settle_doubts(store, self.ledger)
            alive = sorted(self.ledger.touched & self.ledger.threads.keys())
            findings = await verify_engine(store.engine) if full else await verify_threads(store, alive)
            if findings:
                raise LoopFailed("; ".join(map(str, findings[:10])))
            if full:
                for thread in (*self.ledger.threads, *self.ledger.deleted):
                    await check_thread(store, self.ledger, thread)
                if await digest(store.engine, BYSTANDER) != self.bystander:
                    raise LoopFailed("the data of another tenant changed")
        return verdict


async def _plant_bystander(url: str) -> str:
    async with perdure.open(url, scope=BYSTANDER) as store:
        for number in range(5):
            run = await store.runs.start(f"t-{number}", "agent", messages=[Message.user("not yours")], key="k")
            await store.commit(f"t-{number}", messages=[Message.assistant("indeed")], run=run.step(), state={"a": 1})
        return await digest(store.engine, BYSTANDER)


def run(
    folder: Path, seed: int, cycles: int, minutes: float | None, told: Callable[[str, Any], None]
) -> dict[str, int]:
    """Run the loop; `told` gets progress. Raises `LoopFailed` or `Broken` when something is wrong."""
    os.environ["PERDURE_SEED"] = str(seed)
    loop = KillLoop(folder, seed)
    loop.prepare()
    until = None if minutes is None else time.monotonic() + minutes * 60
    number = 0
    while number < cycles and (until is None or time.monotonic() < until):
        number += 1
        loop.cycle(number)
        told("progress", number)
    return loop.summary()


def main() -> int:
    """Run from the command line; one JSON line per step when asked by the torture driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=10**9)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.minutes is None and asked.cycles == 10**9:
        asked.cycles = 40

    def told(what: str, value: Any) -> None:
        print(json.dumps({what: value}), flush=True)

    with contextlib.ExitStack() as stack:
        folder = asked.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-kill-")))
        try:
            told("figures", run(folder, asked.seed, asked.cycles, asked.minutes, told))
        except Exception:  # noqa: BLE001 - reported with the line that replays it
            traceback.print_exc()
            told("replay", f"python -m tests.crash.kill_loop --seed {asked.seed} --cycles {asked.cycles}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
