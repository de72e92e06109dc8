"""The fixtures for users' tests, as users meet them: another folder, another pytest, no plugin for asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = 'pytest_plugins = ["perdure.testkit.fixtures"]\n'
TESTS = """
import asyncio

import perdure
import perdure.sync
import pytest
from perdure import Message
from perdure.clock import ManualClock


@pytest.mark.parametrize("turn", [1, 2])
def test_the_store_is_fresh(perdure_store, turn):
    assert isinstance(perdure_store, perdure.sync.Store)
    assert perdure_store.threads.list().items == []
    receipt = perdure_store.commit("t", messages=[Message.user("hello")])
    assert receipt.version == 1


@pytest.mark.parametrize("turn", [1, 2])
def test_an_async_store_is_opened_in_the_loop_of_the_test(perdure_open, turn):
    async def main():
        clock = ManualClock(1_000)
        async with perdure_open(clock=clock) as store:
            assert (await store.commit("t", messages=[Message.user("hello")])).at == 1_000
            clock.advance(5)
            assert (await store.commit("t", messages=[Message.user("hello")], key="k")).at == 1_005
        if store.capabilities().engine != "memory":
            async with perdure_open() as store:
                assert (await store.load("t")).version == 2

    asyncio.run(main())


def test_code_that_opens_the_url_sees_the_same_data(perdure_url, perdure_scope, perdure_store):
    if perdure_url == "memory://":
        pytest.skip("every opening is another store")
    with perdure.sync.open(perdure_url, scope=perdure_scope) as store:
        store.commit("t", messages=[Message.user("hello")])
        with store.scoped(f"{perdure_scope}-other") as other:
            other.commit("t", messages=[Message.user("hello")], key="k", state={"a": 1})
    assert perdure_store.load("t").version == 1


def test_only_the_fixtures_are_loaded(pytestconfig):
    assert not pytestconfig.pluginmanager.has_plugin("perdure.testkit.plugin")
    assert not hasattr(pytestconfig.option, "perdure_provider")
"""


def run_tests(folder: Path, *options: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    """A user's run: their own folder, warnings are errors."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-p", "no:anyio", "-p", "no:asyncio", f"--basetemp={folder / 'temporary files'}", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PERDURE"))}
    return subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("options", "result"), [([], "6 passed"), (["--perdure-store=memory"], "5 passed, 1 skipped")])
def test_every_test_has_a_fresh_store(tmp_path: Path, options: list[str], result: str) -> None:
    done = run_tests(tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert result in done.stdout


def test_a_shared_store_is_clean_before_and_after(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    done = run_tests(tmp_path, f"--perdure-store={url}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    assert scopes(url) == []


def scopes(url: str) -> list[str]:
    """Every scope that holds a row."""
    import perdure.sync

    with perdure.sync.open(url, housekeeping=False) as store:
        names: list[str] = store._driver.run(store.engine.scopes())
    return names


def test_a_mistyped_store_is_refused_and_not_repeated(tmp_path: Path) -> None:
    done = run_tests(tmp_path, "--perdure-store=app:hunter2@db/app")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--perdure-store is sqlite, memory, or the URL of a store" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
