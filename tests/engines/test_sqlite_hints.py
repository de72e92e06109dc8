"""What a refusal of a SQLite file advises: what it says is what helps."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.engines.test_sqlite_errors import NOBODY, TRY_TO_OPEN, as_nobody, opened, public
from tests.engines.toys import drive

from perdure import CorruptError

__all__ = ["public"]

NAMES = {
    "CREATE TABLE mine (a)": (
        "if you added it, copy it to a file of its own, then remove it (DROP TABLE mine); otherwise restore a backup"
    ),
    'CREATE TABLE "not; plain" (a)': (
        "if you added it, copy it to a file of its own, then remove it; otherwise restore a backup"
    ),
    "CREATE INDEX mine ON items (n)": "if you added it, remove it (DROP INDEX mine); otherwise restore a backup",
    "CREATE VIEW mine AS SELECT 1": "if you added it, remove it (DROP VIEW mine); otherwise restore a backup",
}


@pytest.mark.parametrize("statement", NAMES)
def test_a_foreign_object_is_removed_by_its_owner_and_a_table_saved_first(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "agents.db"
    drive(opened(path).close())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    with pytest.raises(CorruptError) as caught:
        opened(path)
    assert caught.value.hint == f"{NAMES[statement]}; the file was not changed"


def tried(path: Path) -> str:
    """What comes of opening the file as another user. The hint goes by the real user id, so that changes too."""
    become = f"os.seteuid(0); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})"
    return as_nobody(f"{become}\n{TRY_TO_OPEN}", str(path))


def test_a_file_of_another_user_is_named_with_its_mode(public: Path) -> None:
    path = public / "there.db"
    text = tried(path)
    assert f"{path} may not be read by this process: its mode is 600" in text
    assert f"chmod it, and {path}-wal and {path}-shm where they exist" in text
    path.chmod(0o666)
    public.chmod(0o777)
    assert tried(path) == "written\n"


def test_a_log_that_another_user_left_is_named_with_its_mode(public: Path) -> None:
    path, log = public / "there.db", public / "there.db-wal"
    path.chmod(0o666)
    public.chmod(0o777)
    os.close(os.open(log, os.O_CREAT | os.O_WRONLY, 0o600))
    assert f"{log} may not be read by this process: its mode is 600" in tried(path)
    log.chmod(0o666)
    assert tried(path) == "written\n"
