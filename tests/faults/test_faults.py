"""The fault programs in their short form; `make torture` runs the long ones.

Each is a process of its own with servers of its own: here it is started, its figures are read, and its claims are
checked. That the programs can fail is shown in `tests/planted`, by bugs that they must find.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.faults.shell import ENGINES
from tests.support.servers import servers_required

ROOT = Path(__file__).parents[2]
DEADLINE = 600


def figures_of(program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.faults.{program}", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    last = lines[-1] if lines else {}
    if "missing" in last and not servers_required():
        pytest.skip(last["missing"])
    if ended.returncode != 0 or "figures" not in last:
        raise AssertionError(f"{' '.join(command)}\n{ended.stdout[-500:]}\n{ended.stderr[-6000:]}")
    print(f"replay: python -m tests.faults.{program} {' '.join(arguments)}")
    print(json.dumps(last["figures"]))
    figures: dict[str, Any] = last["figures"]
    return figures


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_server_loses_nothing(engine: str, seed: int) -> None:
    figures = figures_of("server_kills", "--engine", engine, "--kills", "4", "--seed", str(seed))
    if figures["kills"] != 4 or not figures["in mid-commit"]:
        raise AssertionError(f"no kill hit a commit in flight: {figures}")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cut_connection_has_one_effect(engine: str, seed: int) -> None:
    figures = figures_of("cuts", "--engine", engine, "--cuts", "60", "--seed", str(seed))
    if figures["cuts"] < 60 or not figures["outcome unknown"] or not figures["landed"]:
        raise AssertionError(f"the cuts did not do what they are for: {figures}")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_silent_server_is_given_up_on(engine: str, seed: int) -> None:
    figures_of("stalls", "--engine", engine, "--rounds", "1", "--seed", str(seed))


@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_who_waits_for_a_connection_is_overtaken(engine: str, seed: int) -> None:
    figures = figures_of("fairness", "--engine", engine, "--seconds", "2", "--seed", str(seed))
    if figures["tasks"] != 64 or not figures["commits least"] or not figures["reads least"]:
        raise AssertionError(f"somebody got nothing: {figures}")


@pytest.mark.parametrize("engine", ["postgres", "mysql"])
def test_random_writers_see_only_what_is_documented(engine: str, seed: int) -> None:
    figures = figures_of("writers", "--engine", engine, "--seconds", "4", "--seed", str(seed))
    if figures["writers"] != 64 or not figures["hot messages"]:
        raise AssertionError(figures)


@pytest.mark.parametrize("engine", ENGINES)
def test_members_of_a_batch_leave_each_other_alone(engine: str, seed: int) -> None:
    figures = figures_of("batches", "--engine", engine, "--rounds", "20", "--seed", str(seed))
    if not figures["refused"] or not figures["cancelled"] or not figures["in opposite orders"]:
        raise AssertionError(figures)


@pytest.mark.parametrize("engine", ENGINES)
def test_half_made_tables_are_finished(engine: str, seed: int) -> None:
    figures = figures_of("openings", "--engine", engine, "--cuts", "10", "--seed", str(seed))
    if figures["cuts"] != 10:
        raise AssertionError(figures)


@pytest.mark.parametrize("engine", ENGINES)
def test_paused_workers_are_refused(engine: str, seed: int) -> None:
    figures = figures_of("zombies", "--engine", engine, "--trials", "8", "--seed", str(seed))
    if figures["trials"] != 8 or not figures["commits of old workers"]:
        raise AssertionError(figures)


def test_locked_rows_hold_up_nobody_else(seed: int) -> None:
    figures = figures_of("locked_rows", "--engine", "mysql", "--rounds", "2", "--seed", str(seed))
    if figures["rounds"] != 2:
        raise AssertionError(figures)
