"""What can go wrong with a file: each trouble has its own error, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import SCHEMA, SCOPE, do, drive, note, notes, row

from perdure import limits
from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.connections.connect import PAGE_SIZE
from perdure.errors import CorruptError, UnavailableError
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Append, Heads, Put, Read, Scan

ROOT = os.geteuid() == 0
NOBODY = 65534


def opened(path: Path, **options: Any) -> Engine:
    view = drive(open_sqlite(str(path), SCHEMA, **options)).blocking()
    assert view is not None
    return view


def mount(directory: Path, size: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)]
    if not ROOT or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system of a few hundred kilobytes can only be mounted by root")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk that is soon full."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    mount(directory, "900k")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_full_disk_loses_nothing_and_can_be_freed(tiny: Path) -> None:
    ballast = tiny / "ballast"
    ballast.write_bytes(b"x" * 200_000)
    engine = opened(tiny / "full.db")
    landed: list[str] = []

    def fill() -> None:
        for n in range(200):
            drive(do(engine, Append("notes", "t", [note(f"{len(landed)}", body=b'"' + b"x" * 4000 + b'"')])))
            landed.append(f"{len(landed)}")
            assert n < 199

    with pytest.raises(UnavailableError, match="disk full") as caught:
        fill()
    assert "free some space" in str(caught.value)
    assert landed
    (entries,) = drive(engine.view(SCOPE, [Read("notes", "t")]))
    assert [entry[2] for entry in entries] == landed
    ballast.unlink()
    drive(do(engine, notes("t", "after", expect=len(landed))))
    drive(engine.close())
    again = opened(tiny / "full.db")
    (entries,) = drive(again.view(SCOPE, [Read("notes", "t")]))
    assert [entry[2] for entry in entries] == [*landed, "after"]
    assert drive(again.check()) == []
    drive(again.close())


def test_a_full_disk_while_several_share_a_commit(tiny: Path) -> None:
    async def main() -> list[str]:
        engine = await open_sqlite(str(tiny / "full.db"), SCHEMA)
        landed: list[str] = []
        refused: list[BaseException] = []

        async def client(number: int) -> None:
            for turn in range(60):
                name = f"{number}-{turn}"
                try:
                    await do(engine, Append("notes", f"t{number}", [note(name, body=b'"' + b"x" * 3000 + b'"')]))
                except UnavailableError as error:
                    refused.append(error)
                    return
                landed.append(name)

        await asyncio.gather(*[client(n) for n in range(16)])
        assert refused
        assert all("disk full" in str(error) for error in refused)
        logs = await engine.view(SCOPE, [Read("notes", f"t{n}") for n in range(16)])
        assert sorted(entry[2] for log in logs for entry in log) == sorted(landed)
        await engine.close()
        return landed

    assert asyncio.run(main())


def test_no_space_to_create_the_file(tiny: Path) -> None:
    free = os.statvfs(tiny)
    (tiny / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_bsize - 8192))
    with pytest.raises(UnavailableError, match="disk full"):
        opened(tiny / "new.db")


def as_nobody(code: str, *arguments: str) -> str:
    """What the code prints when it runs without any privilege."""
    if not ROOT:
        pytest.skip("only root can become somebody else; as a plain user the permissions below already bind")
    lines = [
        "import os, sys",
        "from tests.engines.test_sqlite_errors import *",
        f"os.setgroups([]); os.setegid({NOBODY}); os.seteuid({NOBODY})",
        code,
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TRY_TO_OPEN = """
try:
    engine = opened(Path(sys.argv[1]))
    drive(do(engine, notes("t", "x")))
    print("written")
except UnavailableError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that anybody can reach, with a store in it; every pytest that starts closes those of pytest."""
    with tempfile.TemporaryDirectory(prefix="perdure-public-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        drive(opened(folder / "there.db").close())
        yield folder
        folder.chmod(0o755)


def test_a_read_only_file(public: Path) -> None:
    public.chmod(0o777)
    (public / "there.db").chmod(0o444)
    assert "read-only for this process" in as_nobody(TRY_TO_OPEN, str(public / "there.db"))


def test_a_read_only_directory(public: Path) -> None:
    (public / "there.db").chmod(0o666)
    public.chmod(0o555)
    assert "permissions of the file and of its directory" in as_nobody(TRY_TO_OPEN, str(public / "there.db"))
    assert "is writable" in as_nobody(TRY_TO_OPEN, str(public / "new.db"))
    assert [path.name for path in public.iterdir()] == ["there.db"]


def test_read_only_works_in_a_read_only_directory(public: Path) -> None:
    engine = opened(public / "there.db")
    drive(do(engine, notes("t", "x")))
    drive(engine.close())
    (public / "there.db").chmod(0o444)
    public.chmod(0o555)
    code = """
engine = opened(Path(sys.argv[1]), read_only=True)
print(drive(engine.view(SCOPE, [Heads("notes", ["t"])])))
drive(engine.close())
"""
    assert as_nobody(code, str(public / "there.db")) == "[[1]]\n"
    assert [path.name for path in public.iterdir()] == ["there.db"]


def test_a_locked_file_is_waited_for_and_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(tmp_path / "locked.db")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "locked.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    monkeypatch.setattr(limits, "BUSY_TIMEOUT_MS", 50)
    with pytest.raises(UnavailableError, match="locked") as caught:
        drive(do(engine, notes("t", "x")))
    assert caught.value.retryable
    if Path("/proc/locks").exists():
        assert f"process {holder.pid} (python" in str(caught.value)
    # Reading goes on meanwhile.
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[0]]
    monkeypatch.setattr(limits, "BUSY_TIMEOUT_MS", 20_000)
    waiter = threading.Thread(target=lambda: drive(do(engine, notes("t", "x"))))
    waiter.start()
    holder.stdin.close()
    waiter.join(20)
    assert holder.wait(20) == 0
    holder.stdout.close()
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[1]]
    drive(engine.close())


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


def test_a_file_that_was_deleted_while_open(tmp_path: Path) -> None:
    engine = opened(tmp_path / "gone.db")
    drive(do(engine, notes("t", "x")))
    assert drive(engine.health()).settings["file_bytes"] > 0
    (tmp_path / "gone.db").unlink()
    assert any("moved, deleted or replaced" in problem for problem in drive(engine.health()).problems)
    drive(engine.close())


def fill(path: Path) -> None:
    engine = opened(path)
    for n in range(50):
        drive(do(engine, Put("items", (f"{n}",), {"owner": "o", "rank": n}), Append("plain", "t", [(b"0" * 900,)])))
    drive(engine.close())


def test_a_damaged_page_is_corrupt_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    fill(path)
    connection = sqlite3.connect(path)
    roots = connection.execute("SELECT rootpage FROM sqlite_master WHERE name IN ('items', 'plain')").fetchall()
    connection.close()
    data = bytearray(path.read_bytes())
    for (page,) in roots:
        data[(page - 1) * PAGE_SIZE : page * PAGE_SIZE] = b"\xff" * PAGE_SIZE
    path.write_bytes(data)
    engine = opened(path)
    with pytest.raises(CorruptError) as caught:
        drive(engine.view(SCOPE, [Scan("items"), Read("plain", "t")]))
    assert caught.value.where == str(path)
    assert drive(engine.check()) != []
    with pytest.raises(CorruptError):
        drive(do(engine, Put("items", ("1",), {"n": 1}), Append("plain", "t", [(b"0",)])))
    drive(engine.close())


def test_a_damaged_header_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    fill(path)
    data = path.read_bytes()
    path.write_bytes(b"X" * 100 + data[100:])
    with pytest.raises(CorruptError, match="not a database"):
        opened(path)


def test_text_that_is_not_utf8_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE items SET owner = CAST(x'ff' AS TEXT) WHERE id = '7'")
    connection.commit()
    connection.close()
    engine = opened(path)
    with pytest.raises(CorruptError):
        drive(row(engine, "items", "7"))
    drive(engine.close())


def test_missing_tables_and_gaps_are_found(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM plain WHERE seq = 7")
    connection.commit()
    engine = opened(path)
    assert drive(engine.view(SCOPE, [Read("notes", "t")])) == [[]]
    connection.execute("DROP INDEX items__due")
    connection.execute("DROP TABLE notes")
    connection.commit()
    connection.close()
    found = drive(engine.check())
    assert any("49 entries but ends at 50" in line for line in found)
    assert any("items__due is missing" in line for line in found)
    assert any("notes is missing" in line for line in found)
    with pytest.raises(CorruptError, match="expected tables"):
        drive(engine.view(SCOPE, [Read("notes", "t")]))
    drive(engine.close())


def test_after_close_everything_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await open_sqlite(str(tmp_path / "closed.db"), SCHEMA)
        await do(engine, notes("t", "x"))
        view = engine.blocking()
        await engine.close()
        await engine.close()
        calls = [
            lambda: do(engine, notes("t", "y")),
            lambda: engine.view(SCOPE, [Heads("notes", ["t"])]),
            lambda: engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"n": 1}),
            engine.health,
            engine.check,
            engine.scopes,
        ]
        for call in calls:
            with pytest.raises(UnavailableError, match="the store is closed"):
                await call()
        with pytest.raises(UnavailableError, match="the store is closed"):
            engine.watch(SCOPE, ["a"])
        with pytest.raises(UnavailableError, match="the store is closed"):
            drive(do(view, notes("t", "y")))

    asyncio.run(main())


def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await open_sqlite(str(tmp_path / "closed.db"), SCHEMA)
        submitted = [asyncio.create_task(do(engine, notes("t", f"{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        await engine.close()
        await asyncio.gather(*submitted)
        engine = await open_sqlite(str(tmp_path / "closed.db"), SCHEMA)
        assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[50]]
        await engine.close()

    asyncio.run(main())


def test_closing_while_threads_submit_leaves_nobody_waiting(tmp_path: Path) -> None:
    engine = opened(tmp_path / "closed.db")
    landed: list[int] = []

    def client(number: int) -> None:
        try:
            while True:
                drive(do(engine, notes("t", f"{number}-{len(landed)}")))
                landed.append(number)
        except UnavailableError:
            return

    clients = [threading.Thread(target=client, args=(n,)) for n in range(6)]
    for thread in clients:
        thread.start()
    deadline = time.monotonic() + 60
    while len(landed) < 100:
        assert time.monotonic() < deadline
    drive(engine.close())
    for thread in clients:
        thread.join(30)
        assert not thread.is_alive()
    again = opened(tmp_path / "closed.db")
    assert drive(again.view(SCOPE, [Heads("notes", ["t"])])) == [[len(landed)]]
    drive(again.close())


def test_a_forked_child_is_refused_with_a_hint(tmp_path: Path) -> None:
    engine = opened(tmp_path / "forked.db")
    drive(do(engine, notes("t", "x")))
    code = FORK.format(path=str(tmp_path / "forked.db"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    drive(do(engine, notes("t", "z")))
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[3]]
    drive(engine.close())


FORK = """
import os, sys
from pathlib import Path
from perdure.errors import UnsupportedError
from tests.engines.test_sqlite_errors import *
engine = opened(Path({path!r}))
child = os.fork()
if child == 0:
    for call in (lambda: do(engine, notes("t", "child")), lambda: engine.view(SCOPE, [Heads("notes", ["t"])])):
        try:
            drive(call())
        except UnsupportedError as error:
            if "spawn or forkserver" not in str(error):
                os._exit(2)
        else:
            os._exit(3)
    drive(engine.close())
    os._exit(0)
_, status = os.waitpid(child, 0)
drive(do(engine, notes("t", "parent")))
drive(engine.close())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_an_interrupt_of_the_leading_thread_leaves_the_store_usable(tmp_path: Path) -> None:
    code = INTERRUPT.format(path=str(tmp_path / "interrupted.db"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted\n[[1]]\n"), done.stderr


INTERRUPT = """
import os, signal
from pathlib import Path
from perdure import failpoints
from tests.engines.test_sqlite_errors import *
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it as ignored
engine = opened(Path({path!r}))
failpoints.arm("sqlite.before_commit", lambda _: os.kill(os.getpid(), signal.SIGINT))
try:
    drive(do(engine, notes("t", "x")))
except KeyboardInterrupt:
    print("interrupted")
drive(do(engine, notes("t", "y", expect=0)))
print(drive(engine.view(SCOPE, [Heads("notes", ["t"])])))
drive(engine.close())
"""


@pytest.mark.parametrize("point", ["before_begin", "after_member", "before_commit", "after_commit"])
def test_killed_at_every_point_of_a_commit(tmp_path: Path, point: str) -> None:
    path = tmp_path / "killed.db"
    code = KILLED.format(path=str(path))
    environment = {**os.environ, "PERDURE_FAILPOINTS": f"sqlite.{point}=crash@5"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    told = len(done.stdout.split())
    engine = opened(path)
    (entries,) = drive(engine.view(SCOPE, [Read("notes", "t")]))
    assert len(entries) - told == (1 if point == "after_commit" else 0)
    assert told == 4
    assert drive(engine.check()) == []
    drive(engine.close())


KILLED = """
from pathlib import Path
from tests.engines.test_sqlite_errors import *
engine = opened(Path({path!r}))
for n in range(10):
    drive(do(engine, notes("t", str(n))))
    print(n, flush=True)
"""
