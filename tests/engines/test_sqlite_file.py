"""The file itself: readable by others, bounded in size, left alone when opened read-only, honest about its settings."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engines.test_sqlite_errors import opened
from tests.engines.toys import SCHEMA, SCOPE, do, drive, note, notes

import perdure
from perdure import Message, Run
from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.health import file_system, problems
from perdure.errors import UnavailableError, UnsupportedError
from perdure.kernel.ops import Append, Delete, Drop, Heads, Put, Read, Scan


def test_tables_columns_and_bodies_are_readable_by_any_tool(tmp_path: Path) -> None:
    engine = opened(tmp_path / "plain.db")
    drive(do(engine, Put("items", ("a",), {"name": "x", "n": 3}, '{"é":1}'.encode()), notes("t", "m")))
    drive(engine.close())
    connection = sqlite3.connect(tmp_path / "plain.db")
    assert connection.execute("SELECT scope, id, name, n, body, typeof(body) FROM items").fetchall() == [
        (SCOPE, "a", "x", 3, '{"é":1}', "text")
    ]
    assert connection.execute("SELECT topic, seq, id, kind, branch, body, typeof(body) FROM notes").fetchall() == [
        ("t", 1, "m", "k", 0, "{}", "text")
    ]
    assert connection.execute("PRAGMA page_size").fetchone() == (2048,)
    connection.close()


def _sizes(path: Path) -> tuple[int, int]:
    """Bytes of the file and of its log."""
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size, log.stat().st_size if log.exists() else 0


def test_a_message_of_2_kb_takes_little_more_on_disk_and_a_commit_writes_few_pages(tmp_path: Path) -> None:
    """Decision 35 has the figures: 2.5 KB at rest, 21.5 KB written."""
    path = tmp_path / "packed.db"

    async def commits(runs: list[Run], count: int) -> list[Run]:
        async with perdure.open(f"sqlite:///{path}", housekeeping=False) as store:
            if not runs:
                runs = [await store.runs.start(f"t-{n}", "agent") for n in range(5)]
            for number in range(count):
                run = runs[number % 5]
                receipt = await store.commit(run.thread_id, messages=[Message.user("x" * 2048)], run=run.step())
                assert receipt.run is not None
                runs[number % 5] = receipt.run
            written.append(_sizes(path)[1])
        return runs

    written: list[int] = []
    runs = asyncio.run(commits([], 300))
    assert _sizes(path)[0] / 300 < 3.2 * 1024
    asyncio.run(commits(runs, 50))
    assert written[1] / 50 < 32 * 1024


def test_the_log_stays_bounded_and_is_gone_after_close(tmp_path: Path) -> None:
    path = tmp_path / "grown.db"
    engine = opened(path, durability="process")
    wal = tmp_path / "grown.db-wal"
    largest = 0
    for n in range(3000):
        drive(do(engine, Append("notes", "t", [note(f"{n}", body=b'"' + b"x" * 2000 + b'"')])))
        largest = max(largest, wal.stat().st_size)
    assert 1_000_000 < largest < 40_000_000
    drive(engine.close())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["grown.db"]


def test_checkpoints_keep_pace_when_single_commits_become_batches(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await open_sqlite(str(tmp_path / "mixed.db"), SCHEMA, durability="process")
        body = b'"' + b"x" * 3000 + b'"'

        async def client(topic: str, turns: int) -> None:
            for turn in range(turns):
                await do(engine, Append("notes", topic, [note(f"{turn}", body=body)]))

        for number in range(3):
            await client(f"lone-{number}", 300)
            await asyncio.gather(*[client(f"{number}-{n}", 60) for n in range(64)])
        # Well under SQLite's own bound of 8,000 pages, which would be kept inside a commit.
        assert (tmp_path / "mixed.db-wal").stat().st_size < 7_000 * 4120
        await engine.close()

    asyncio.run(main())


def test_a_reader_that_holds_the_log_does_not_stop_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "held.db"
    engine = opened(path, durability="process")
    drive(do(engine, notes("t", "first")))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM notes").fetchone() == (1,)
    for n in range(1500):
        drive(do(engine, Append("notes", "t", [note(f"{n}", body=b'"' + b"x" * 2000 + b'"')])))
    assert reader.execute("SELECT count(*) FROM notes").fetchone() == (1,)
    reader.execute("COMMIT")
    reader.close()
    drive(engine.close())
    again = opened(path)
    assert drive(again.view(SCOPE, [Heads("notes", ["t"])])) == [[1501]]
    drive(again.close())


def test_health_tells_the_real_settings(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await open_sqlite(str(tmp_path / "healthy.db"), SCHEMA)
        await do(engine, notes("t", "x"))
        health = await engine.health()
        found = health.settings
        assert (found["journal_mode"], found["synchronous"], found["page_size"]) == ("wal", "FULL", 2048)
        assert (found["schema_version"], found["sqlite"]) == (1, sqlite3.sqlite_version)
        assert found["path"] == str(tmp_path / "healthy.db")
        assert found["file_bytes"] + found["wal_bytes"] > 0
        assert found["disk_free_bytes"] > 0
        assert health.durability == engine.capabilities.durability == "power"
        # Somebody weakens the connection behind our back: health reads, it does not remember.
        committer = engine._database.committer
        assert committer is not None
        committer.session.connection.execute("PRAGMA synchronous=OFF")
        health = await engine.health()
        assert not health.ok
        assert any("synchronous is OFF" in problem for problem in health.problems)
        assert health.durability == "process"
        await engine.close()

    asyncio.run(main())


def test_process_durability_says_so(tmp_path: Path) -> None:
    engine = opened(tmp_path / "quick.db", durability="process")
    health = drive(engine.health())
    assert (health.durability, health.settings["synchronous"]) == ("process", "NORMAL")
    assert any("power fails" in problem for problem in health.problems)
    assert engine.capabilities.durability == "process"
    drive(engine.close())


@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [
        ("file_system", "nfs4", "network file system"),
        ("file_system", "cifs", "network file system"),
        ("file_system", "tmpfs", "restarts"),
        ("disk_free_bytes", 1000, "free on the disk"),
        ("wal_bytes", 2**30, "may be holding it"),
        ("wal_present", False, "removed while it was open"),
        ("journal_mode", "delete", "not wal"),
        ("path", "/tmp/x.db", "temporary files"),
    ],
)
def test_problems_are_told_in_words(setting: str, value: object, word: str) -> None:
    sound: dict[str, object] = {
        "path": "/var/lib/agents.db",
        "synchronous": "FULL",
        "journal_mode": "wal",
        "file_system": "ext4",
        "file_bytes": 4096,
        "disk_free_bytes": 10**10,
        "wal_bytes": 0,
        "wal_present": True,
    }
    assert problems(sound, writing=True) == []
    assert any(word in told for told in problems({**sound, setting: value}, writing=True))


def test_the_file_system_is_recognised(tmp_path: Path) -> None:
    if Path("/proc/mounts").exists():
        assert file_system("/proc/x") == "proc"
        assert file_system(str(tmp_path)) != "unknown"


def test_read_only_changes_nothing_and_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "still.db"
    engine = opened(path)
    drive(do(engine, Put("items", ("a",), {"n": 1}), notes("t", "x")))
    drive(engine.close())
    before = path.read_bytes(), path.stat().st_mtime_ns

    async def main() -> None:
        still = await open_sqlite(str(path), SCHEMA, read_only=True)
        assert await still.view(SCOPE, [Heads("notes", ["t"]), Read("notes", "u")]) == [[1], []]
        assert await still.scopes() == [SCOPE]
        assert await still.check() == []
        assert (await still.health()).settings["schema_version"] == 1
        for refused in (do(still, notes("t", "y")), do(still, Delete("items", ("a",)), Drop("notes", "t"))):
            with pytest.raises(UnsupportedError, match="read-only"):
                await refused
        with pytest.raises(UnsupportedError, match="read-only"):
            await still.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"n": 1})
        watch = still.watch(SCOPE, ["a"])
        assert not await watch.wait(0.1)
        watch.close()
        await still.close()

    asyncio.run(main())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["still.db"]


def test_read_only_sees_what_others_write_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "still.db"
    drive(opened(path).close())
    still = opened(path, read_only=True)
    assert drive(still.view(SCOPE, [Heads("notes", ["t"])])) == [[0]]
    engine = opened(path)
    for n in range(1, 4):
        drive(do(engine, notes("t", f"{n}")))
        assert drive(still.view(SCOPE, [Heads("notes", ["t"])])) == [[n]]
    watch = still.watch(SCOPE, ["a"])
    drive(do(engine, notes("t", "3a")))
    assert drive(watch.wait(20))
    drive(engine.close())
    assert drive(still.view(SCOPE, [Heads("notes", ["t"])])) == [[4]]
    drive(still.close())


def test_read_only_needs_a_file_of_this_schema(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="does not exist"):
        opened(tmp_path / "none.db", read_only=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    with pytest.raises(UnsupportedError, match="is empty"):
        opened(tmp_path / "empty.db", read_only=True)


def test_a_log_left_by_a_killed_process_is_read(tmp_path: Path) -> None:
    path = tmp_path / "left.db"
    subprocess.run([sys.executable, "-c", LEAVE, str(path)], check=True, timeout=60)
    assert (tmp_path / "left.db-wal").exists()
    still = opened(path, read_only=True)
    assert drive(still.view(SCOPE, [Heads("notes", ["t"])])) == [[1]]
    drive(still.close())
    engine = opened(path)
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[1]]
    drive(engine.close())


LEAVE = """
import os, sys
from pathlib import Path
from tests.engines.test_sqlite_errors import *
engine = opened(Path(sys.argv[1]))
drive(do(engine, notes("t", "x")))
os._exit(0)
"""


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    drive(opened(path).close())
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), str(n)]) for n in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    engine = opened(path)
    (entries,) = drive(engine.view(SCOPE, [Read("notes", "t")]))
    assert [entry[0] for entry in entries] == list(range(1, 181))
    assert drive(engine.check()) == []
    drive(engine.close())


WRITE = """
import sys
from pathlib import Path
from tests.engines.test_sqlite_errors import *
engine = opened(Path(sys.argv[1]))
for n in range(60):
    drive(do(engine, notes("t", f"{sys.argv[2]}-{n}")))
drive(engine.close())
"""
