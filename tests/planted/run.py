"""Plant every bug, one at a time, in a copy of the product, and demand that the suite turns red.

    python tests/planted/run.py [--only WORDS] [--optimized | --plain] [--after-tests] [--sample 60 [--seed N]]

Each bug is judged under `python` and under `python -O`, those that need a server under `python` alone: what `-O` leaves
out is the same whatever engine is below, and starting servers takes time. After the tests, as in `make test`, each bug
is judged in one of the two modes, in turns. First the unpatched copy must be green on
everything that is watched for. Ends with a table of who caught what; what survives, merely raises, or no longer applies
is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.planted.bug import Bug  # noqa: E402
from tests.planted.bugs import BUGS  # noqa: E402

AT_ONCE = 2
HANGING_AT_ONCE = 8
LIMIT = 1200
SLOWEST = 10


@dataclass(frozen=True)
class Verdict:
    """How one bug fared in one mode."""

    bug: str
    file: str
    optimized: bool
    caught: str | None
    problem: str | None
    seconds: float


def plant(bug: Bug | None, product: Path, folder: Path) -> Path:
    """A copy of the sources with the bug in it; returns what to put on the path."""
    source = folder / "src"
    shutil.copytree(product, source, ignore=shutil.ignore_patterns("__pycache__"))
    if bug is not None:
        file = source / "perdure" / bug.file
        text = file.read_text(encoding="utf-8")
        if text.count(bug.old) != 1:
            raise LookupError(f"the patch no longer applies: {bug.old!r} is there {text.count(bug.old)} times")
        file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    return source


def judge(source: Path, watched: tuple[str, ...], *, optimized: bool) -> dict[str, Any]:
    """Run the judge on a copy."""
    flags = ["-O"] if optimized else []
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}
    ended = subprocess.run(
        [sys.executable, *flags, "-m", "tests.planted.judge", *watched],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )
    try:
        told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise LookupError(f"the judge gave no answer: {ended.stderr[-600:]}") from None
    return told


def try_bug(bug: Bug, product: Path, *, optimized: bool) -> Verdict:
    """Plant a bug and see who catches it."""
    begun = time.monotonic()
    caught, problem = None, None
    with tempfile.TemporaryDirectory(prefix="perdure-planted-") as folder:
        try:
            source = plant(bug, product, Path(folder))
            told = judge(source, bug.watch, optimized=optimized)
            if "caught" not in told:
                # A race or a crash may miss its moment on a busy machine: a bug survives if it does so twice.
                told = judge(source, bug.watch, optimized=optimized)
            caught = told.get("caught")
            if caught is None:
                problem = f"survived {told['green']} checks"
            elif told["merely raises"]:
                problem = f"merely raises: {told['why']}"
        except (LookupError, subprocess.TimeoutExpired) as error:
            problem = str(error)
    return Verdict(bug.name, bug.file, optimized, caught, problem, time.monotonic() - begun)


def check_green(bugs: list[Bug], product: Path, *, optimized: bool, after_tests: bool) -> str | None:
    """The product as it is must be green on everything watched for; None if it is."""
    watched = tuple(dict.fromkeys(what for bug in bugs for what in bug.watch))
    if after_tests:
        watched = tuple(what for what in watched if not what.startswith(("case:", "test:")))
    mode = "python -O" if optimized else "python"
    try:
        told = judge(product, watched, optimized=optimized)
    except (LookupError, subprocess.TimeoutExpired) as error:
        return f"without any bug, {mode}: {error}"
    if "green" in told:
        print(f"without a bug, {mode}: {told['green']} checks green", flush=True)
        return None
    return f"without any bug, {mode}: {told['caught']} is red: {told['why']}"


def table(verdicts: list[Verdict]) -> str:
    """Bug, file, caught by: one line each, both modes on one line when they agree."""
    lines = []
    by_bug: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_bug.setdefault(verdict.bug, []).append(verdict)
    width = max((len(bug) for bug in by_bug), default=0)
    across = max((len(both[0].file) for both in by_bug.values()), default=0)
    lines.append(f"{'bug':<{width}} | {'file':<{across}} | caught by")
    for bug, both in by_bug.items():
        who = " / ".join(dict.fromkeys(v.problem.upper() if v.problem else str(v.caught) for v in both))
        lines.append(f"{bug:<{width}} | {both[0].file:<{across}} | {who}")
    return "\n".join(lines)


def main() -> int:
    """Plant them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="bugs whose name or file contains this")
    parser.add_argument("--optimized", action="store_true", help="under python -O only")
    parser.add_argument("--plain", action="store_true", help="without python -O only")
    parser.add_argument(
        "--after-tests",
        action="store_true",
        help="the test suite was green just now: one mode a bug; without a bug, run only what is no test or case of it",
    )
    parser.add_argument("--sample", type=int, help="so many of them, drawn at random")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of the draw")
    asked = parser.parse_args()
    bugs = [bug for bug in BUGS if asked.only in bug.name or asked.only in bug.file]
    if asked.sample is not None and asked.sample < len(bugs):
        drawn = set(random.Random(asked.seed).sample(range(len(bugs)), asked.sample))
        bugs = [bug for number, bug in enumerate(bugs) if number in drawn]
        print(f"{len(bugs)} of {len(BUGS)} bugs; the same ones again: --sample {asked.sample} --seed {asked.seed}")
    modes = [mode for mode in (False, True) if not (asked.optimized and not mode) and not (asked.plain and mode)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-planted-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        # One copy for all, so that an edit made meanwhile is judged the next time, whole.
        product = plant(None, ROOT / "src", Path(folder))
        work = [(bug, mode) for bug in bugs for mode in modes if not (mode and bug.plain_only)]
        if asked.after_tests:
            # One mode each, in turns: both would take longer than all tests together.
            turns = {bug.name: bool(number % 2) and not bug.plain_only for number, bug in enumerate(bugs)}
            work = [(bug, mode) for bug, mode in work if mode == turns[bug.name]]
        watched = {mode: [bug for bug, bug_mode in work if bug_mode == mode] for mode in modes}
        green = partial(check_green, product=product, after_tests=asked.after_tests)
        greens = list(pool.map(lambda mode: green(watched[mode], optimized=mode), modes))
        with ThreadPoolExecutor(HANGING_AT_ONCE) as waiting:
            pools = [waiting if bug.hangs else pool for bug, _ in work]
            judged = [
                chosen.submit(try_bug, bug, product, optimized=mode)
                for chosen, (bug, mode) in zip(pools, work, strict=True)
            ]
        verdicts = [verdict.result() for verdict in judged]
    print(table(verdicts))
    slowest = sorted(verdicts, key=lambda verdict: verdict.seconds, reverse=True)[:SLOWEST]
    problems = [problem for problem in greens if problem]
    problems += [f"{v.bug} ({'python -O' if v.optimized else 'python'}): {v.problem}" for v in verdicts if v.problem]
    print("\nslowest:")
    for verdict in slowest:
        print(f"  {verdict.seconds:3.0f} s  {verdict.bug}")
    caught = sum(not verdict.problem for verdict in verdicts)
    seconds = time.monotonic() - begun
    print(f"{len(bugs)} bugs, {len(modes)} modes, {caught} of {len(verdicts)} caught, {seconds:.0f} s")
    for problem in problems:
        print(f"FAILED {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
