"""Files whose pages multiply: opening one is refused in time, and SQLite's own check tells where the rest of them lies.

Each opening runs in a process of its own, because the failure is a process that does not end.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.engines.page_bombs import bomb_schema, bomb_table

import perdure
from perdure import Message

DEADLINE = 60
REFUSAL = "reading its list of tables does not end"
OPEN = """
import sys
import perdure.sync
try:
    with perdure.sync.open(sys.argv[1], read_only=sys.argv[2] == "read-only"):
        pass
except perdure.CorruptError as error:
    sys.exit(f"refused: {error}")
"""
PLAN = """
import asyncio, sys
import perdure
from perdure.opening import plan_migration
try:
    asyncio.run(plan_migration(sys.argv[1]))
except perdure.CorruptError as error:
    sys.exit(f"refused: {error}")
"""
OPENINGS: dict[str, Callable[[str], list[str]]] = {
    "to write": lambda url: ["-c", OPEN, url, "write"],
    "to read": lambda url: ["-c", OPEN, url, "read-only"],
    "to plan a migration": lambda url: ["-c", PLAN, url],
    "perdure doctor verify": lambda url: ["-m", "perdure", "doctor", "verify", "--store", url],
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with a row in each of the tables that are bombed."""
    path = tmp_path / "agents.db"

    async def fill() -> None:
        async with perdure.open(f"sqlite:///{path}") as store:
            await store.commit("t", messages=[Message.user("hello", id="m")])
            await store.branches.label("t", "m", "start")
            await store.state.put("t", "plan", {"done": False})

    asyncio.run(fill())
    return path


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(f"no end within {DEADLINE} seconds: {arguments[:3]}") from None


@pytest.mark.parametrize("name", OPENINGS)
def test_a_schema_without_end_is_refused(store: Path, name: str) -> None:
    bomb_schema(store)
    done = ended(*OPENINGS[name](f"sqlite:///{store}"))
    assert done.returncode == 1, done.stderr
    assert REFUSAL in done.stderr
    assert "Traceback" not in done.stderr


CHECK = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check(1)').fetchone()[0])"


@pytest.mark.parametrize("table", ["branches", "labels", "state", "thread_heads"])
def test_the_check_that_the_security_page_recommends_finds_rows_without_end(store: Path, table: str) -> None:
    assert ended("-c", CHECK, str(store)).stdout == "ok\n"
    bomb_table(store, table)
    assert "Multiple uses for byte" in ended("-c", CHECK, str(store)).stdout


def test_a_bomb_has_as_many_rows_as_it_claims(store: Path) -> None:
    """Or the tests above would show nothing."""
    bomb_table(store, "state")
    with closing(sqlite3.connect(store)) as connection:
        query = "SELECT count(*) FROM (SELECT 1 FROM state LIMIT 1000000)"
        assert connection.execute(query).fetchone() == (1_000_000,)
