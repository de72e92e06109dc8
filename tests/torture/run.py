"""The long way round: every program that kills, races or compares at random, for as long as asked.

    python tests/torture/run.py --minutes 10 [--only kills | --only "server kills" | --only redis]
    python tests/torture/run.py --full

With `--minutes` the time is shared out; with `--full` each program runs its stated volume, whatever time that takes. A
bar shows how far each is, a table closes with its figures, and a failure prints the line that replays it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Program:
    """A torture: what it is called, the share of the time it gets, its command, and its stated volume."""

    name: str
    proves: str
    share: float
    module: str
    unit: str
    volume: int
    rate: float
    """Units a second on a small machine: how a share of time becomes a volume."""
    arguments: tuple[str, ...] = ()
    seeded: bool = True
    least: int = 20
    """Less of it proves nothing."""

    def command(self, seed: int, volume: int) -> list[str]:
        """The command line for this much of it."""
        seeds = ["--seed", str(seed)] if self.seeded else []
        return ["-m", self.module, *self.arguments, f"--{self.unit}", str(volume), *seeds]

    def volume_for(self, seconds: float) -> int:
        """About as much as fits into the time."""
        return max(self.least, round(self.rate * seconds))


ALL_BYTES = 1_000_000
"""More cuts than any exchange has bytes: each of them once."""


_FAULTS = (
    # name, proves, share, unit, volume, rate, least
    ("server kills", "a SIGKILLed server loses nothing", 0.12, "kills", 60, 0.4, 4),
    ("cuts", "a cut connection has one effect", 0.08, "cuts", ALL_BYTES, 15.0, 20),
    ("stalls", "a silent server is given up on", 0.02, "rounds", 5, 0.1, 1),
    ("openings", "half-made tables are finished", 0.02, "cuts", 300, 3.0, 20),
    ("writers", "no deadlock reaches a caller", 0.08, "seconds", 60, 0.8, 4),
    ("fairness", "no writer starves", 0.02, "seconds", 10, 0.4, 2),
    ("batches", "members leave each other alone", 0.04, "rounds", 300, 5.0, 20),
    ("zombies", "paused workers are refused", 0.04, "trials", 200, 1.0, 10),
)
_VOLUMES = {"server kills postgres": 100}
_MORE: dict[str, tuple[str, ...]] = {"writers": ("--writers", "64")}


def server_programs() -> Iterator[Program]:
    """The faults of servers and connections: each program on each server engine."""
    for engine in ("postgres", "mysql", "redis"):
        for name, proves, share, unit, volume, rate, least in _FAULTS:
            module = f"tests.faults.{name.replace(' ', '_')}"
            arguments = ("--engine", engine, *_MORE.get(name, ()))
            called = f"{name} {engine}"
            volume = _VOLUMES.get(called, volume)
            yield Program(called, proves, share, module, unit, volume, rate, arguments, least=least)


def fuzzers() -> Iterator[Program]:
    """Every fuzzer, for some time each."""
    for target in ("messages", "formats", "cursors", "imports", "urls", "resp", "rows"):
        arguments = ("--target", target)
        yield Program(f"fuzz {target}", "no input breaks it", 0.03, "tests.fuzz", "seconds", 600, 1.0, arguments)


PROGRAMS = (
    Program("kills", "SIGKILLed writers lose nothing", 0.45, "tests.crash.kill_loop", "cycles", 1_000, 4.0),
    Program("processes", "four processes share a file", 0.05, "tests.crash.processes", "commits", 1_000, 40.0,
            ("--processes", "4"), seeded=False),
    Program("log growth", "the log stays below 64 MB under readers", 0.05, "tests.crash.log_growth", "commits", 10_000,
            50.0, least=1_000),
    Program("zombies", "paused workers are refused", 0.1, "tests.crash.zombies", "trials", 500, 4.0),
    Program("serial", "concurrent work equals some order", 0.2, "tests.engines.serial_order", "rounds", 30_000, 60.0),
    Program("reference memory", "same as the reference", 0.1, "perdure.testkit.volume", "operations", 100_000,
            400.0, ("--engine", "memory")),
    Program("reference sqlite", "same as the reference", 0.1, "perdure.testkit.volume", "operations", 100_000,
            100.0, ("--engine", "sqlite")),
    Program("formats", "conversations come back equal", 0.02, "tests.formats.round_trips", "conversations",
            10_000, 150.0),
    *fuzzers(),
    *server_programs(),
)  # fmt: skip


@dataclass
class Result:
    """How one program ended."""

    program: Program
    volume: int
    seconds: float
    figures: dict[str, Any]
    output: list[str]
    command: str
    failed: bool


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a program says, a line at a time."""
    if process.stdout is None:
        raise RuntimeError("the program has no output")
    yield from process.stdout


def run(program: Program, seed: int, volume: int, bar: Progress) -> Result:
    """Run one program to its end, moving the bar by what it says."""
    command = program.command(seed, volume)
    bar.console.print(f"[dim]{program.name}: python {' '.join(command)}[/dim]", highlight=False)
    task = bar.add_task(program.name, total=volume)
    begun = time.monotonic()
    figures: dict[str, Any] = {}
    output: deque[str] = deque(maxlen=40)
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in lines_of(process):
        event = _parsed(line)
        if "progress" in event:
            bar.update(task, completed=event["progress"])
        elif "total" in event:
            volume = event["total"]
            bar.update(task, total=volume)
        elif "figures" in event:
            figures = event["figures"]
        else:
            output.append(line.rstrip())
    failed = process.wait() != 0
    bar.update(task, completed=volume)
    return Result(
        program, volume, time.monotonic() - begun, figures, list(output), f"python {' '.join(command)}", failed
    )


def _parsed(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def report(results: list[Result], console: Console) -> None:
    """The closing table, then what a failed program printed."""
    table = Table(title="torture", title_justify="left")
    for column in ("program", "volume", "seconds", "figures"):
        table.add_column(column, overflow="fold")
    for result in results:
        shown = ", ".join(f"{name.strip()} {value:,}" for name, value in result.figures.items())
        last = next((line for line in result.output if "no difference" in line or "violations" in line), "")
        outcome = "[red]FAILED[/red] " if result.failed else ""
        table.add_row(
            f"{result.program.name}\n[dim]{result.program.proves}[/dim]",
            f"{result.volume:,} {result.program.unit}",
            f"{result.seconds:.0f}",
            outcome + (shown or last),
        )
    console.print(table)
    for result in results:
        if result.failed:
            console.print(f"\n[red]{result.program.name} failed[/red]")
            console.print("\n".join(result.output), markup=False)
            console.print(f"replay: {result.command}", markup=False)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--full", action="store_true", help="each program's stated volume")
    parser.add_argument("--only", help=f"a name or a part of it: {', '.join(program.name for program in PROGRAMS)}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    asked = parser.parse_args()
    chosen = [program for program in PROGRAMS if asked.only in (None, program.name)]
    chosen = chosen or [program for program in PROGRAMS if asked.only in program.name]
    if not chosen:
        parser.error(f"no program is called {asked.only!r}")
    console = Console()
    console.print(f"seed {asked.seed}")
    columns = (TextColumn("{task.description:<21}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shares = sum(program.share for program in chosen)
    results: list[Result] = []
    with Progress(*columns, console=console) as bar:
        for program in chosen:
            seconds = asked.minutes * 60 * program.share / shares
            volume = program.volume if asked.full else program.volume_for(seconds)
            results.append(run(program, asked.seed, volume, bar))
    report(results, console)
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
