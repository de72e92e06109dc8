"""The kit as an outsider meets it: another folder, an engine of their own, one command."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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
    command += ["-p", "perdure.testkit.plugin", "--perdure-provider", "mine:Mine"]
    command += ["--pyargs", "perdure.testkit.suite", *options]
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


NOTHING_OF_OURS = """
import sys

def test_nothing_of_ours(pytestconfig):
    names = [name for name, _ in pytestconfig.pluginmanager.list_name_plugin() if "perdure" in name]
    assert names == []
    assert [module for module in sys.modules if module.partition(".")[0] == "perdure"] == []
    assert not hasattr(pytestconfig.option, "perdure_provider")
"""
ASKED_FOR = """
def test_it_is_there(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("perdure.testkit.plugin")
    assert pytestconfig.getoption("perdure_provider") is None
"""


@pytest.mark.parametrize(("test", "options"), [(NOTHING_OF_OURS, []), (ASKED_FOR, ["-p", "perdure.testkit.plugin"])])
def test_a_users_run_loads_nothing_of_ours_unless_asked(tmp_path: Path, test: str, options: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:xdist", *options]
    done = subprocess.run(command, check=False, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_installing_perdure_registers_no_pytest_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project.get("entry-points", {})) == set()


def test_the_wheel_has_the_kit_but_not_our_servers() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/perdure"]}
    files = {path.relative_to(ROOT / "src/perdure").as_posix() for path in (ROOT / "src/perdure").rglob("*.py")}
    assert {"testkit/kit.py", "testkit/plugin.py", "testkit/suite.py", "testkit/matrix.py"} <= files
    assert [file for file in files if file.startswith("testkit") and ("server" in file or "proxy" in file)] == []


def test_the_kit_needs_nothing_of_the_repository(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-m", "perdure.testkit.matrix", "no-such-engine"]
    done = subprocess.run(command, check=False, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert "memory, sqlite, or package.module:Class" in done.stderr
    imports = [
        f"{path}: {line}"
        for path in (ROOT / "src/perdure").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith(("from tests", "import tests"))
    ]
    assert imports == []
