"""Where one bare Perdure commit spends its time: the disk, the hop between threads, SQLite, our own Python.

    python bench/profile_commit.py [--state] [--top 25]

Wall-clock figures come from plain loops, interleaved: the sync face (no event loop), the same without the disk
(durability="process": SQLite writes but does not sync), and the async face. The split of what is left comes from
cProfile on the sync face, scaled to the unprofiled time; the profiler taxes small Python functions, so read shares.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from perdure_adapter import Perdure, Prepared, prepare
from report import render
from workload import bare, history, with_state

import perdure
import perdure.sync

COUNT, ROUNDS = 300, 9


class Blocking:
    """Commits through the sync face, in the calling thread."""

    def __init__(self, path: Path, durability: Literal["power", "process"]) -> None:
        self.store: Any = perdure.sync.open(f"sqlite:///{path}", durability=durability)
        made = self.store.threads.create()
        run = self.store.runs.start(made.id, agent_id="bench")
        self.run: Any = self.store.commit(made.id, messages=prepare(history(10)).messages, run=run.step()).run

    def commits(self, work: list[Prepared]) -> None:
        run, commit = self.run, self.store.commit
        for messages, state in work:
            run = commit(run.thread_id, messages=messages, run=run.step(input_tokens=1200), state=state).run
        self.run = run


def timed(call: Callable[[list[Any]], Any], work: list[Any]) -> float:
    """Microseconds per piece of work."""
    started = time.perf_counter()
    call(work)
    return (time.perf_counter() - started) / len(work) * 1e6


def walls(home: Path, work: list[Prepared]) -> tuple[dict[str, float], Blocking]:
    """Medians of interleaved rounds; the synced store is handed on to the profiler."""
    synced, unsynced = Blocking(home / "power.db", "power"), Blocking(home / "process.db", "process")
    spent: dict[str, list[float]] = defaultdict(list)
    with asyncio.Runner() as runner:
        loop_store = runner.run(Perdure.open(home / "async.db"))
        runner.run(loop_store.create("t", history(10)))

        async def through_the_loop(work: list[Prepared]) -> None:
            for one in work:
                await loop_store.commit("t", one)

        for _ in range(ROUNDS):
            spent["sync face"].append(timed(synced.commits, work))
            spent["sync face, no disk"].append(timed(unsynced.commits, work))
            spent["async face"].append(timed(lambda w: runner.run(through_the_loop(w)), work))
        runner.run(loop_store.close())
    unsynced.store.close()
    return {name: statistics.median(values) for name, values in spent.items()}, synced


def by_thread() -> dict[str, float]:
    """Processor seconds that every living thread has used."""
    return {
        thread.name: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.ident is not None
    }


async def crowd(path: Path, work: list[Prepared], clients: int) -> dict[str, float]:
    """Microseconds of processor time a commit costs each thread, with `clients` tasks committing at once."""
    subject = await Perdure.open(path)
    names = [f"t{n}" for n in range(clients)]
    for name in names:
        await subject.create(name, history(10))

    async def client(name: str) -> None:
        for one in work:
            await subject.commit(name, one)

    before = by_thread()
    started = time.perf_counter()
    await asyncio.gather(*map(client, names))
    wall = time.perf_counter() - started
    used = {name: cpu - before.get(name, 0.0) for name, cpu in by_thread().items()}
    await subject.close()
    each = 1e6 / (clients * len(work))
    return {"wall clock": wall * each} | {n: cpu * each for n, cpu in used.items() if cpu * each > 0.5}


def room(function: tuple[str, int, str]) -> str:
    """The part of the program a profiled function belongs to."""
    file, _, name = function
    if "sqlite3" in name:
        return "sqlite3, with its write and sync"
    if "msgspec" in name or "msgspec" in file:
        return "msgspec"
    if "lock" in name or "acquire" in name:
        return "waiting for another thread"
    for part in ("engines", "stores", "kernel", "model", "rules", "sync"):
        if f"/perdure/{part}" in file:
            return f"perdure.{part}"
    return "other Python and built-ins"


def profiled(call: Callable[[list[Any]], Any], work: list[Any]) -> pstats.Stats:
    profile = cProfile.Profile()
    profile.runcall(call, work)
    return pstats.Stats(profile)


def shares(stats: pstats.Stats) -> dict[str, float]:
    """Each room's share of the profiled time."""
    rooms: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        rooms[room(function)] += own
    whole = sum(rooms.values())
    return {name: own / whole for name, own in sorted(rooms.items(), key=lambda item: -item[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description="Where one commit spends its time.")
    parser.add_argument("--state", action="store_true", help="commits with two state documents")
    parser.add_argument("--top", type=int, default=0, help="also list this many functions by their own time")
    options = parser.parse_args()
    work = [prepare((with_state if options.state else bare)(index)) for index in range(COUNT)]
    with tempfile.TemporaryDirectory(prefix="perdure-profile-") as home:
        wall, store = walls(Path(home), work)
        stats = profiled(store.commits, work)
        store.store.close()
        crowds = {n: asyncio.run(crowd(Path(home) / f"{n}.db", work[: 1 + 300 // n], n)) for n in (1, 16, 64)}
    disk, hop = wall["sync face"] - wall["sync face, no disk"], wall["async face"] - wall["sync face"]
    rows = [[name, f"{value:.0f} µs"] for name, value in (*wall.items(), ("→ disk", disk), ("→ loop and hop", hop))]
    print("Wall clock, one client", render(["", "a commit"], rows), sep="\n")
    parts = [[n, f"{s:.0%}", f"{s * wall['sync face']:.0f} µs"] for n, s in shares(stats).items()]
    print("\nSync face under cProfile", render(["room", "share", "scaled"], parts), sep="\n")
    threads = [
        [f"{n} clients, {name}", f"{value:.0f} µs"] for n, used in crowds.items() for name, value in used.items()
    ]
    print("\nAsync face, processor time by thread", render(["", "a commit"], threads), sep="\n")
    if options.top:
        stats.sort_stats("tottime").print_stats(options.top)


if __name__ == "__main__":
    main()
