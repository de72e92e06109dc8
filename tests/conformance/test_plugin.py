"""The kit as an outsider meets it: another folder, an engine of their own, one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOUND = """
from perdure.testkit.providers import MemoryProvider


class Mine(MemoryProvider):
    name = "mine"
    opt_outs = {"threads/create-mints-id": "ids are somebody else's business here"}
"""
# An engine that forgets one kind of operation: what guards the ancestors of a thread.
FORGETFUL = """
from perdure.engines.memory import MemoryEngine
from perdure.kernel.ops import Check
from perdure.stores.schema import SCHEMA
from perdure.testkit.providers import MemoryProvider


class Forgetful(MemoryEngine):
    async def transact(self, scope, ops, hints=()):
        return await super().transact(scope, [op for op in ops if type(op) is not Check], hints)


class Mine(MemoryProvider):
    name = "forgetful"

    async def start(self, clock):
        self._engine = Forgetful(SCHEMA, clock)
"""


def run_suite(folder: Path, provider: str, *options: str, python: str = "-B") -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(provider)
    command = [sys.executable, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--perdure-provider", "mine:Mine", "--pyargs", "perdure.testkit.suite", *options]
    return subprocess.run(
        command, check=False, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True
    )


def test_an_outsider_runs_the_kit_on_an_engine_of_their_own(tmp_path: Path) -> None:
    done = run_suite(tmp_path, SOUND, "-k", "threads/create or threads/survives")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "2 skipped" in done.stdout


@pytest.mark.parametrize("python", ["-B", "-O"])
def test_an_engine_that_forgets_a_guard_turns_red_also_optimised(tmp_path: Path, python: str) -> None:
    done = run_suite(tmp_path, FORGETFUL, "-k", "threads/cycle or threads/create-get", python=python)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "threads/cycle-race-deep" in done.stdout


def test_an_unknown_provider_is_an_error(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "", "--co")
    assert done.returncode not in (0, 5), done.stdout
    assert "Mine" in done.stdout + done.stderr


def test_an_unused_plugin_loads_nothing_of_the_kit(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('perdure')\n"
        "    loaded = {m for m in sys.modules if m.startswith(('perdure.testkit', 'perdure.engines', 'hypothesis'))}\n"
        "    assert loaded <= {'perdure.testkit', 'perdure.testkit.plugin'}, loaded\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:hypothesispytest", "-p", "no:xdist"]
    done = subprocess.run(command, check=False, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
