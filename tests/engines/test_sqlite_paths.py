"""One file, one name: links are followed once, files that cannot be are refused, removed ones take no more commits."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.engines.test_sqlite_errors import opened
from tests.engines.toys import SCHEMA, SCOPE, do, drive, note, notes

import perdure
import perdure.sync
from perdure import Message
from perdure.copy import copy_store
from perdure.engines.sqlite import open_sqlite, plan_migration
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.errors import InvalidError, UnavailableError
from perdure.ids import new_id
from perdure.kernel.ops import Append, Heads


def length(engine: Any) -> int:
    return int(drive(engine.view(SCOPE, [Heads("notes", ["t"])]))[0][0])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "real.db"
    path.parent.mkdir()
    engine = opened(path)
    drive(do(engine, notes("t", "first")))
    drive(engine.close())
    return path


def test_a_path_object_opens_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a%zz.db"
    with perdure.sync.open(path) as store:
        store.commit("t", messages=[Message.user("hello")])

    async def read() -> int:
        async with perdure.open(path, read_only=True) as again:
            return (await again.threads.get("t")).version

    assert path.is_file()
    assert asyncio.run(read()) == 1


def test_a_percent_sign_that_begins_no_escape_is_refused(tmp_path: Path) -> None:
    for name in ("a%zz.db", "a%2.db", "100%.db"):
        with pytest.raises(InvalidError, match=r"contains a % .* write a literal % as %25"):
            perdure.sync.open(f"sqlite:///{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []
    with perdure.sync.open(f"sqlite:///{tmp_path}/100%25.db"):
        assert (tmp_path / "100%.db").is_file()


def test_a_read_only_store_behind_a_link_sees_the_log(tmp_path: Path, written: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(written)
    engine = opened(written)
    for n in range(2, 6):
        drive(do(engine, notes("t", f"{n}")))
        still = opened(link, read_only=True)
        assert length(still) == n
        drive(still.close())
    drive(engine.close())


def test_a_writer_behind_a_link_is_healthy_and_leaves_nothing_beside_the_link(tmp_path: Path, written: Path) -> None:
    folder, link = tmp_path / "links", tmp_path / "links" / "link.db"
    folder.mkdir()
    link.symlink_to(written)
    engine = opened(link)
    drive(do(engine, notes("t", "second")))
    health = drive(engine.health())
    assert health.settings["path"] == str(written)
    assert not any("removed" in problem for problem in health.problems)
    assert [entry.name for entry in folder.iterdir()] == ["link.db"]
    drive(engine.close())


def test_the_working_directory_may_change_after_opening(
    tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written.parent)
    engine = opened(Path("real.db"))
    monkeypatch.chdir(tmp_path)
    drive(do(engine, notes("t", "second")))
    assert length(engine) == 2
    assert drive(engine.health()).settings["path"] == str(written)
    drive(engine.close())
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_a_link_that_changes_while_the_store_is_open_changes_nothing(tmp_path: Path, written: Path) -> None:
    current, other = tmp_path / "current", tmp_path / "other"
    other.mkdir()
    current.symlink_to(written.parent, target_is_directory=True)
    engine = opened(current / "real.db")
    current.unlink()
    current.symlink_to(other, target_is_directory=True)
    drive(do(engine, notes("t", "second")))
    assert length(engine) == 2
    drive(engine.close())
    assert list(other.iterdir()) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_links_that_lead_nowhere_are_refused_clearly(tmp_path: Path, *, read_only: bool) -> None:
    (tmp_path / "dangling.db").symlink_to(tmp_path / "gone.db")
    (tmp_path / "unmounted.db").symlink_to(tmp_path / "volume" / "gone.db")
    (tmp_path / "one.db").symlink_to(tmp_path / "two.db")
    (tmp_path / "two.db").symlink_to(tmp_path / "one.db")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe.db")
    for name, words in {
        "dangling.db": "gone.db, which does not exist",
        "unmounted.db": "volume does not exist",
        "one.db": "leads back to itself",
        "loop/x.db": "loop does not exist",
        "pipe.db": "not a regular file",
    }.items():
        with pytest.raises((UnavailableError, InvalidError), match=words):
            asyncio.run(_open_and_close(str(tmp_path / name), read_only=read_only))
    assert not (tmp_path / "gone.db").exists()


async def _open_and_close(path: str, *, read_only: bool) -> None:
    async with perdure.open(path, read_only=read_only):
        pass


def test_a_file_with_two_names_is_refused_to_writers_and_readers(tmp_path: Path, written: Path) -> None:
    other = tmp_path / "other.db"
    other.hardlink_to(written)
    for path in (written, other):
        for read_only in (False, True):
            with pytest.raises(UnavailableError, match=r"2 names \(hard links\)"):
                opened(path, read_only=read_only)
        with pytest.raises(UnavailableError, match="hard links"):
            asyncio.run(plan_migration(str(path), SCHEMA))
    other.unlink()
    engine = opened(written)
    assert length(engine) == 1
    drive(engine.close())


def test_a_copy_onto_itself_through_a_link_is_refused(tmp_path: Path) -> None:
    async def fill() -> None:
        async with perdure.open(str(tmp_path / "real.db")) as store:
            await store.commit("t", messages=[Message.user("x")])

    asyncio.run(fill())
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    with pytest.raises(InvalidError, match="the same"):
        asyncio.run(copy_store(str(tmp_path / "real.db"), f"sqlite:///{tmp_path}/link.db"))


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE t (x)")


def replace_by_a_copy(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    shutil.copyfile(path.with_suffix(".old"), path)


@pytest.mark.parametrize("change", [remove, replace, replace_by_a_copy])
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_acknowledged_once_the_file_or_its_log_is_gone(written: Path, change: Any, suffix: str) -> None:
    async def main() -> None:
        engine = await open_sqlite(str(written), SCHEMA)
        await do(engine, notes("t", "second"))
        change(Path(f"{written}{suffix}"))
        if suffix:
            await until_noticed(engine)
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"while it was open; nothing was written \(put it back"):
                await do(engine, notes("t", "lost"))
        # Several at once share a batch, and none of them is acknowledged.
        outcomes = await asyncio.gather(*[do(engine, notes("u", f"{n}")) for n in range(5)], return_exceptions=True)
        assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
        assert not (await engine.health()).ok
        await engine.close()

    asyncio.run(main())


async def until_noticed(engine: SqliteEngine) -> None:
    """The log is not looked at before every commit."""
    begun = time.monotonic()
    while time.monotonic() < begun + 60:
        try:
            await do(engine, notes("early", new_id()))
        except UnavailableError:
            return
    raise AssertionError("commits are acknowledged for a minute without a log")


def test_a_file_that_comes_back_takes_commits_again(written: Path) -> None:
    engine = opened(written)
    drive(do(engine, notes("t", "second")))
    away = written.with_suffix(".away")
    written.rename(away)
    with pytest.raises(UnavailableError, match="moved, deleted or replaced"):
        drive(do(engine, notes("t", "lost")))
    away.rename(written)
    drive(do(engine, Append("notes", "t", [note("third")])))
    assert length(engine) == 3
    drive(engine.close())


def test_health_tells_of_a_file_that_was_replaced(written: Path) -> None:
    engine = opened(written)
    drive(do(engine, notes("t", "second")))
    replace_by_a_copy(written)
    assert any("replaced" in problem for problem in drive(engine.health()).problems)
    drive(engine.close())


def refusals(engine: SqliteEngine) -> list[str]:
    """What health says of the files, without what it says of the directory of a test."""
    told = drive(engine.health()).problems
    return [problem for problem in told if "temporary files" not in problem and "restarts" not in problem]


@pytest.mark.parametrize("how", ["deleted", "moved", "moved with its log", "moved with its folder", "replaced"])
def test_health_says_once_that_commits_are_refused(written: Path, how: str) -> None:
    home = written.parent / "home"
    home.mkdir()
    path = written.rename(home / "store.db")
    engine = opened(path)
    drive(do(engine, notes("t", "second")))
    assert refusals(engine) == []
    if how == "deleted":
        path.unlink()
    elif how == "moved with its folder":
        home.rename(written.parent / "away")
    elif how == "replaced":
        replace_by_a_copy(path)
    else:
        path.rename(home / "away.db")
    if how == "moved with its log":
        Path(f"{path}-wal").rename(home / "away.db-wal")
    gone = f"{path} was moved, deleted or replaced while it was open: commits are refused until it is back"
    assert refusals(engine) == [gone]
    with pytest.raises(UnavailableError, match="nothing was written"):
        drive(do(engine, notes("t", "third")))
    drive(engine.close())


def test_health_says_once_that_the_log_is_gone(written: Path) -> None:
    engine = opened(written)
    drive(do(engine, notes("t", "second")))
    log = Path(f"{written}-wal")
    log.unlink()
    gone = f"the log {log} was removed or replaced while it was open: commits are refused until it is back"
    assert refusals(engine) == [gone]
    drive(engine.close())


def test_a_log_that_was_removed_before_the_first_commit_takes_none(written: Path) -> None:
    engine = opened(written)
    Path(f"{written}-wal").unlink()
    assert any("commits are refused" in problem for problem in refusals(engine))
    with pytest.raises(UnavailableError, match="removed or replaced"):
        drive(do(engine, notes("t", "second")))
    drive(engine.close())


@pytest.mark.parametrize("read_only", [False, True])
def test_a_directory_is_refused_for_good(tmp_path: Path, read_only: bool) -> None:
    with pytest.raises(InvalidError, match="is a directory") as caught:
        drive(open_sqlite(str(tmp_path), SCHEMA, read_only=read_only))
    assert not caught.value.retryable


@pytest.mark.parametrize("name", ["\ud800.db", "a\0b.db", "x" * 5000 + ".db", "/".join(["d" * 200] * 40), "f.db/x.db"])
def test_names_that_the_system_refuses_raise_our_own_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "f.db").write_bytes(b"")
    for read_only in (False, True):
        with pytest.raises((InvalidError, UnavailableError)) as caught:
            drive(open_sqlite(f"{tmp_path}/{name}", SCHEMA, read_only=read_only))
        assert len(str(caught.value)) < 20_000
