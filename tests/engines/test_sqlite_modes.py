"""Who may read a new file: its owner and nobody else, whatever the umask; an existing file keeps its mode."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.test_sqlite_errors import opened
from tests.engines.toys import do, drive, notes

from perdure.engines.sqlite.connections.connect import writer_connection
from perdure.errors import UnavailableError

SIDES = ("", "-wal", "-shm")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(path: Path) -> list[str]:
    return [f"{stat.S_IMODE(path.with_name(path.name + side).stat().st_mode):04o}" for side in SIDES]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o377])
def test_a_new_file_and_its_log_belong_to_their_owner_alone(tmp_path: Path, umask: int) -> None:
    os.umask(umask)
    engine = opened(tmp_path / "new.db")
    drive(do(engine, notes("t", "x")))
    assert modes(tmp_path / "new.db") == ["0600", "0600", "0600"]
    assert drive(engine.health()).settings["file_mode"] == "0600"
    drive(engine.close())


def test_an_existing_file_keeps_its_mode_and_its_log_gets_the_same(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    drive(opened(path).close())
    path.chmod(0o660)
    engine = opened(path)
    drive(do(engine, notes("t", "x")))
    assert modes(path) == ["0660", "0660", "0660"]
    drive(engine.close())


def test_an_empty_file_that_somebody_made_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch(0o640)
    engine = opened(path)
    drive(do(engine, notes("t", "x")))
    assert modes(path) == ["0640", "0640", "0640"]
    drive(engine.close())


def test_no_file_is_made_through_a_link_put_there_in_the_last_moment(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(UnavailableError):
        writer_connection(str(tmp_path / "link.db"), "power", create=True)
    assert not (tmp_path / "elsewhere.db").exists()


MOVE = """
import asyncio, sys
import perdure
from perdure.copy import copy_store

async def main(source, target):
    async with perdure.open(source) as store:
        await store.threads.create("t")
    await copy_store(source, target)

asyncio.run(main(*sys.argv[1:]))
"""


def test_copies_and_imports_make_private_files_too(tmp_path: Path) -> None:
    def run(*command: str) -> None:
        subprocess.run([sys.executable, *command], cwd=tmp_path, umask=0o022, check=True, timeout=120)

    run("-c", MOVE, "sqlite:///source.db", "sqlite:///copy.db")
    run("-m", "perdure", "export", "--store", "sqlite:///source.db", "--out", "all.jsonl")
    run("-m", "perdure", "import", "all.jsonl", "--store", "sqlite:///imported.db")
    made = {path.name: f"{stat.S_IMODE(path.stat().st_mode):04o}" for path in tmp_path.iterdir()}
    assert made == dict.fromkeys(("source.db", "copy.db", "all.jsonl", "imported.db"), "0600")
