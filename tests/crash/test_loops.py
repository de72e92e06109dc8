"""The crash programs in their short form; `make torture` runs the long one.

Each is a program of its own, because it forks: here it is started, its figures are read, and its claims are checked.
That the programs can fail is shown in `tests/planted`, by bugs that they must find.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE = 600


def figures_of(program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.crash.{program}", *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        said, complained = process.communicate(timeout=DEADLINE)
    finally:
        # With all that it forked: a child that hangs would hold the pipes open for ever.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    lines = [json.loads(line) for line in said.splitlines()]
    if process.returncode != 0 or "figures" not in lines[-1]:
        raise AssertionError(f"{' '.join(command)}\n{said[-500:]}\n{complained[-4000:]}")
    print(f"replay: python -m tests.crash.{program} {' '.join(arguments)}")
    print(json.dumps(lines[-1]["figures"]))
    figures: dict[str, Any] = lines[-1]["figures"]
    return figures


def test_killed_writers_lose_nothing(seed: int) -> None:
    figures = figures_of("kill_loop", "--cycles", "40", "--seed", str(seed))
    if figures["kills"] != 40 or 2 * figures["in mid-commit"] < figures["kills"]:
        raise AssertionError(f"too few kills hit a commit in flight: {figures}")
    if not figures["acknowledged"] or not figures["in doubt"] or not figures["retried with a key"]:
        raise AssertionError(f"the loop did not do what it is for: {figures}")


@pytest.mark.parametrize(
    ("cells", "count", "refusals", "commits"),
    [("exits", 4, 36, 140), ("closes", 4, 36, 140), ("keeps", 4, 36, 160), ("allowed", 4, 0, 920)],
)
def test_a_forked_child_is_refused_or_loses_nothing(cells: str, count: int, refusals: int, commits: int) -> None:
    figures = figures_of("fork_matrix", "--only", cells)
    if figures != {"cells": count, "refusals": refusals, "commits": commits}:
        raise AssertionError(figures)


def test_forks_at_the_edges() -> None:
    figures = figures_of("fork_edges")
    if figures != {"scenes": 9}:
        raise AssertionError(figures)


def test_links_lead_to_the_log() -> None:
    figures = figures_of("links")
    if figures != {"commits": 50, "refusals": 6}:
        raise AssertionError(figures)


def test_four_processes_share_a_file() -> None:
    figures = figures_of("processes", "--processes", "4", "--commits", "100")
    if figures["commits"] != 400 or figures["messages"] != 802:
        raise AssertionError(figures)


def test_paused_workers_are_refused(seed: int) -> None:
    figures = figures_of("zombies", "--trials", "20", "--seed", str(seed))
    if figures["trials"] != 20:
        raise AssertionError(figures)
