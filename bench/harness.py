"""How everything is measured: interleaved in one process, in shuffled order, many short rounds, the collector on.

Round r runs every case once; a ratio is the median of the per-round ratios (paired), so that the slow drift of a
shared machine cancels out. The spread shown beside it is the middle half of those ratios, and where a figure is close a
control says what noise alone does: the baseline against a second copy of itself.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from workload import Commit

CASE_DEADLINE = 60.0
"""A peer that hangs is reported, not waited for."""

Work = Callable[[], Awaitable[int]]


class Subject(Protocol):
    """A store under measurement. `grows` says that its commits cost more on longer threads."""

    name: str
    grows: bool

    def prepare(self, commit: Commit) -> Any:
        """The commit as the subject's own API takes it; never timed."""
        ...

    async def create(self, thread: str, first: Commit) -> None:
        """A new thread holding these messages."""
        ...

    async def commit(self, thread: str, prepared: Any) -> None:
        """Append durably."""
        ...

    async def load(self, thread: str) -> list[Any]:
        """Every message of the thread."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...


class FileSubject(Subject, Protocol):
    """A subject whose data is one file."""

    path: Path


@dataclass
class Case:
    """One thing to measure: `run` does some operations and says how many; `setup` precedes each round, untimed."""

    name: str
    run: Work
    setup: Callable[[], Awaitable[None]] | None = None
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median(self) -> float:
        """Seconds per operation, median over the rounds."""
        return statistics.median(self.seconds) if self.seconds else float("nan")

    @property
    def median_cpu(self) -> float:
        """Seconds of processor time per operation, over all threads: what a busy neighbour cannot change much."""
        return statistics.median(self.cpu) if self.cpu else float("nan")


async def interleave(cases: list[Case], rounds: int, *, warmup: int = 1, seed: int = 3) -> None:
    """Run every case once per round, in an order shuffled anew each round."""
    order_of = random.Random(seed)
    for number in range(-warmup, rounds):
        order = [case for case in cases if not case.error]
        order_of.shuffle(order)
        for case in order:
            try:
                spent, cpu = await asyncio.wait_for(_once(case), CASE_DEADLINE)
            except Exception as error:  # noqa: BLE001 - a subject that breaks is shown in the table, never hidden
                case.error = f"{type(error).__name__}: {error}"[:200]
                note(f"  {case.name}: {case.error}")
                continue
            if number >= 0:
                case.seconds.append(spent)
                case.cpu.append(cpu)


async def _once(case: Case) -> tuple[float, float]:
    if case.setup is not None:
        await case.setup()
    gc.collect()  # every case starts clean; the collector stays on while the clock runs, for its cost is real
    started, cpu = time.perf_counter(), time.process_time()
    operations = await case.run()
    return (time.perf_counter() - started) / operations, (time.process_time() - cpu) / operations


@dataclass(frozen=True)
class Ratio:
    """A paired ratio: its median over the rounds and the middle half of them."""

    median: float
    low: float
    high: float


def speed(case: Case, base: Case) -> Ratio:
    """How many times as fast as the baseline (2.0 is twice as fast)."""
    return _paired([b / c for c, b in zip(case.seconds, base.seconds, strict=True)])


def cost(case: Case, base: Case) -> Ratio:
    """How many times the baseline's time (2.0 is twice as slow)."""
    return _paired([c / b for c, b in zip(case.seconds, base.seconds, strict=True)])


def _paired(ratios: list[float]) -> Ratio:
    if len(ratios) < 2:
        only = ratios[0] if ratios else float("nan")
        return Ratio(only, only, only)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(middle, low, high)


def note(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)
