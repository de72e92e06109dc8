"""Runs some of the suite against whatever `perdure` is on the path, and says what turned red first.

    python -m tests.planted.judge "case:commit/expect@memory" "serial:100"

Prints one JSON line: `{"caught": …, "why": …}` for the first failure, `{"green": n}` if there is none. What it runs
raises on failure and asserts nothing, so `python -O` judges the same way.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT = 400
"""Seconds for one crash program."""

NO_SUCH_TEST = (4, 5)
"""pytest's exit codes for a path it does not know and for a selection without tests."""

MERE_ERRORS = ("NameError", "AttributeError", "TypeError", "ImportError", "SyntaxError", "KeyError")
"""A bug that only shows as one of these is no wrong answer: the product merely broke."""


class Red(Exception):
    """Something turned red: what, and why."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(why)
        self.what = what


def run_cases(pattern: str, engine: str) -> int:
    """Conformance cases by pattern; returns how many ran."""
    from tests.support.providers import SqliteProvider, provider_named

    from perdure.testkit.kit import registry, run_case

    chosen = [case for name, case in registry().items() if fnmatch.fnmatch(name, pattern)]
    ran = 0
    for case in chosen:
        provider = SqliteProvider("power") if engine == "sqlite-power" else provider_named(engine)
        if case.reason_to_skip(provider) is not None:
            continue
        ran += 1
        try:
            asyncio.run(run_case(case, provider))
        except Exception as error:
            raise Red(f"{case.id} on {engine}", f"{type(error).__name__}: {error}") from error
    if not ran:
        raise LookupError(f"no case matches {pattern!r} on {engine}")
    return ran


def run_machine(engine: str, calls: int) -> int:
    """The model machine."""
    from tests.support.providers import provider_named

    from perdure.testkit.fuzz.fuzzer import drive

    try:
        asyncio.run(drive(provider_named(engine), calls, seed=7))
    except Exception as error:
        raise Red(f"model machine on {engine}", f"{type(error).__name__}: {error}") from error
    return 1


def run_serial(rounds: str, engine: str) -> int:
    """The serial-order test."""
    asked = ["--engine", engine, "--rounds", rounds, "--seed", "7"]
    return _program("serial-order test", ["-m", "tests.engines.serial_order", *asked])


def run_crash(arguments: str) -> int:
    """A crash program."""
    program, *rest = arguments.split()
    return _program(program.replace("_", " "), ["-m", f"tests.crash.{program}", *rest])


def run_fault(arguments: str) -> int:
    """A fault program, with a server of its own."""
    program, *rest = arguments.split()
    return _program(program.replace("_", " "), ["-m", f"tests.faults.{program}", *rest])


def run_test(path: str) -> int:
    """A test of the suite; one that does not exist is not a catch."""
    return _program(
        path.rpartition("::")[2], ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path], absent=NO_SUCH_TEST
    )


def run_program(arguments: str) -> int:
    """Any other program of the suite, by its module."""
    module, *rest = arguments.split()
    return _program(module.rpartition(".")[2].replace("_", " "), ["-m", module, *rest])


def _program(name: str, arguments: list[str], absent: tuple[int, ...] = ()) -> int:
    """Run a program; any exit code but 0 is red, except those in `absent`: what was to run does not exist."""
    flags = ["-O"] if sys.flags.optimize else []
    ended = subprocess.run(
        [sys.executable, *flags, *arguments],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )
    if ended.returncode != 0:
        if ended.returncode in absent:
            raise LookupError(f"{name} did not run: {(ended.stderr or ended.stdout)[-300:]}")
        told = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
        raise Red(name, told[-1] if told else f"exit code {ended.returncode}")
    return 1


def watch(what: str) -> int:
    """Run one thing; raises `Red`."""
    kind, _, rest = what.partition(":")
    if kind == "case":
        pattern, _, engine = rest.partition("@")
        return run_cases(pattern, engine)
    if kind == "machine":
        engine, _, calls = rest.partition(":")
        return run_machine(engine, int(calls))
    if kind == "serial":
        rounds, _, engine = rest.partition("@")
        return run_serial(rounds, engine or "sqlite")
    if kind == "crash":
        return run_crash(rest)
    if kind == "fault":
        return run_fault(rest)
    if kind == "test":
        return run_test(rest)
    if kind == "program":
        return run_program(rest)
    raise LookupError(f"cannot watch {what!r}")


def judge(watched: list[str]) -> dict[str, Any]:
    """Run everything until something turns red."""
    green = 0
    for what in watched:
        try:
            green += watch(what)
        except Red as red:
            merely = str(red).partition(":")[0] in MERE_ERRORS
            return {"caught": red.what, "why": str(red)[:300], "merely raises": merely}
    return {"green": green}


if __name__ == "__main__":
    print(json.dumps(judge(sys.argv[1:])))
