"""Fuzz one target or all of them for some minutes, or run one case again.

    python -m tests.fuzz [--target urls] --minutes 10 [--seed 7]
    python -m tests.fuzz --target urls --replay '{"url": "redis://x"}'

A case is JSON, or the path of a corpus file. Each failure is shrunk and printed with the line that replays it; save
that JSON under `tests/fuzz/corpus/<target>/` and `make test` runs it ever after. A table closes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from tests.fuzz.fuzzing import Report, fuzz
from tests.fuzz.spelling import read
from tests.fuzz.target import Failure, Target, judge
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, help="all of them, one after the other, if left out")
    parser.add_argument("--minutes", type=float, help="for each target")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target, if no minutes are given")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--replay", metavar="CASE", help="JSON, or a corpus file")
    asked = parser.parse_args()
    if asked.replay is not None:
        if asked.target is None:
            parser.error("--replay needs --target")
        return replay(TARGETS[asked.target], asked.replay)
    chosen = [TARGETS[asked.target]] if asked.target else list(TARGETS.values())
    seconds = asked.seconds if asked.minutes is None else asked.minutes * 60
    print(f"seed {asked.seed}", flush=True)
    reports = {target: run(target, asked.seed, seconds) for target in chosen}
    print(table(reports))
    return 1 if any(report.failures for report in reports.values()) else 0


def replay(target: Target, case: str) -> int:
    """Run one case and say how it went."""
    text = Path(case).read_text(encoding="utf-8") if case.endswith(".json") else case
    told = judge(target, read(text))
    print(told.lines() if isinstance(told, Failure) else f"{target.name}: {told}")
    return int(isinstance(told, Failure))


def run(target: Target, seed: int, seconds: float) -> Report:
    """Fuzz one target until its time is over, with a line of progress every few seconds."""
    begun = time.monotonic()
    said = begun

    def go_on(report: Report) -> bool:
        nonlocal said
        now = time.monotonic()
        if now - said >= 5:
            said = now
            # What `make torture` moves its bar by.
            print(json.dumps({"progress": round(now - begun)}))
            print(f"{target.name}: {now - begun:.0f} of {seconds:.0f} s, {line(report)}", flush=True)
        return now - begun < seconds

    report = fuzz(target, seed, go_on)
    for failure in report.failures:
        print(f"FAILED {failure.lines()}", flush=True)
    return report


def line(report: Report) -> str:
    """The figures in a few words."""
    known = f", {sum(report.known.values()):,} known failures" if report.known else ""
    return (
        f"{report.executions:,} cases, {len(report.outcomes):,} outcomes, {len(report.kept):,} kept as seeds, "
        f"{len(report.failures)} failures{known}"
    )


def table(reports: dict[Target, Report]) -> str:
    """The closing table."""
    lines = [f"{'target':<10} {'cases':>10} {'outcomes':>9} {'new seeds':>10} {'known':>8} {'failures':>9}"]
    for target, report in reports.items():
        lines.append(
            f"{target.name:<10} {report.executions:>10,} {len(report.outcomes):>9,} {len(report.kept):>10,} "
            f"{sum(report.known.values()):>8,} {len(report.failures):>9,}"
        )
    figures = {f"{target.name} cases": report.executions for target, report in reports.items()}
    figures["failures"] = sum(len(report.failures) for report in reports.values())
    return "\n".join([*lines, json.dumps({"figures": figures})])


if __name__ == "__main__":
    sys.exit(main())
