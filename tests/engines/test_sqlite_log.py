"""The log beside the file: it begins again although somebody always reads, and health speaks of one that cannot."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.engines.test_sqlite_errors import opened
from tests.engines.toys import SCOPE, do, drive, note

from perdure.ids import new_id
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Append, Heads

BODY = b'"' + b"x" * 40_000 + b'"'


class NeverWithoutReaders:
    """Two connections that take turns: at every moment at least one of them holds a snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = threading.Event()
        self._began = threading.Event()
        self.turns = 0
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> NeverWithoutReaders:
        self._thread.start()
        assert self._began.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _read(self) -> None:
        with closing(self._connect()) as one, closing(self._connect()) as two:
            while not self._end.is_set():
                one.execute("BEGIN")
                one.execute("SELECT count(*) FROM items").fetchone()
                if two.in_transaction:
                    two.execute("COMMIT")
                one, two = two, one
                self.turns += 1
                if self.turns == 2:
                    self._began.set()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)


def test_the_log_begins_again_although_somebody_always_reads(tmp_path: Path) -> None:
    path = tmp_path / "read.db"
    engine = opened(path, durability="process")
    largest = 0
    with NeverWithoutReaders(path) as readers:
        for n in range(2_500):
            drive(do(engine, Append("notes", "t", [note(f"{n}", body=BODY)])))
            largest = max(largest, Path(f"{path}-wal").stat().st_size)
        assert readers.turns > 2
    # 100 MB were written; without a restart all of them would be in the log.
    assert largest <= 64 * 2**20
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[2_500]]
    drive(engine.close())


def test_a_snapshot_that_stays_open_lets_the_log_grow_and_then_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engines.sqlite.health._LARGE_WAL_BYTES", 40 * 2**20)
    path = tmp_path / "held.db"
    log = Path(f"{path}-wal")
    engine = opened(path, durability="process")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchone()
        write_until(engine, lambda: log.stat().st_size > 45 * 2**20)
        assert any("holding it" in problem for problem in drive(engine.health()).problems)
    write_until(engine, lambda: log.stat().st_size < 40 * 2**20)
    assert not any("holding it" in problem for problem in drive(engine.health()).problems)
    drive(engine.close())
    assert not log.exists()


def write_until(engine: Engine, reached: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if reached():
            return
        drive(do(engine, Append("notes", "t", [note(new_id(), body=BODY)])))
    raise AssertionError("200 MB were written, and the log is as long as before")
