"""What is logged, by which logger and at which level; nothing is printed by default, and no content is ever logged."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.make_old_db import fixture
from tests.unit.test_housekeeping import wait_until

import perdure
import perdure.sync
from perdure import ConflictError, Message, OutcomeUnknown, VersionConflict, failpoints, limits
from perdure.engines.shared.events import EngineLog
from perdure.kernel.engine import Conflict
from perdure.stores import housekeeping

Lines = list[tuple[str, str, str]]
SECRET = "hunter2-hunter2"
COMMITS = """
import perdure.sync
from perdure import limits, Message, VersionConflict
limits.SLOW_COMMIT_MS = 0
with perdure.sync.open("memory://") as store:
    store.commit("t", messages=[Message.user("x")])
    try:
        store.commit("t", expect=7)
    except VersionConflict:
        pass
"""


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "perdure")
    return caplog


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> Lines:
    return [(r.name, r.levelname, r.getMessage()) for r in list(caplog.records) if r.name == logger]


def test_a_refused_commit_is_logged_with_its_thread_and_scope(logged: pytest.LogCaptureFixture) -> None:
    with perdure.sync.open("memory://", scope="acme") as store:
        store.commit("t\u202e1", messages=[Message.user("x")])
        with pytest.raises(VersionConflict):
            store.commit("t\u202e1", expect=7)
    expected = "commit to thread 't\\u202e1' in scope 'acme' refused: VersionConflict"
    assert lines(logged, "perdure.commit") == [("perdure.commit", "INFO", expected)]


def test_a_commit_that_takes_long_is_logged(logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with perdure.sync.open("memory://") as store:
        store.commit("t", messages=[Message.user("x")])
        assert lines(logged, "perdure.commit") == []
        monkeypatch.setattr(limits, "SLOW_COMMIT_MS", 0)
        store.commit("t", messages=[Message.user("x")])
    ((_, level, text),) = lines(logged, "perdure.commit")
    assert level == "WARNING"
    assert text.startswith("slow commit: 0.")
    assert text.endswith("s for thread 't' in scope 'default'")


def test_contention_is_logged_at_each_attempt_and_when_it_is_given_up(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> Any:
        raise Conflict(0, "condition", None, None)

    async def main() -> None:
        async with perdure.open("memory://") as store:
            await store.commit("t", messages=[Message.user("one")])
            monkeypatch.setattr(store.engine, "transact", refuse)
            monkeypatch.setattr(store.engine, "transact_filled", refuse)
            with pytest.raises(ConflictError):
                await store.scoped("default").commit("t", messages=[Message.user("two")])
            monkeypatch.undo()

    asyncio.run(main())
    found = lines(logged, "perdure.commit")
    assert ("perdure.commit", "DEBUG", "thread 't' changed during this call: attempt 1 lost") in found
    assert ("perdure.commit", "WARNING", "thread 't' kept changing during this call, which gives up") in found


def test_an_unknown_outcome_and_the_file_that_is_opened_again_are_logged(
    logged: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with perdure.sync.open(tmp_path / "a.db") as store:
        store.commit("t", messages=[Message.user("x")])
        failpoints.arm("sqlite.after_commit", "error")
        with pytest.raises(OutcomeUnknown):
            store.commit("t", messages=[Message.user("y")])
        store.commit("t", messages=[Message.user("z")])
    ((_, level, text),) = lines(logged, "perdure.commit")
    assert level == "WARNING"
    assert text.startswith("the outcome of a write is unknown: scope 'default', topics ['thread:t'], rev ")
    path = tmp_path / "a.db"
    assert lines(logged, "perdure.sqlite") == [
        ("perdure.sqlite", "INFO", f"{path}: created the schema, version {version(path)}"),
        ("perdure.sqlite", "WARNING", f"{path}: a connection was lost (OSError 5)"),
        ("perdure.sqlite", "INFO", f"{path}: connected again"),
    ]


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (row,) = connection.execute("SELECT value FROM perdure_meta WHERE name = 'version'").fetchall()
    return int(row[0])


def test_a_migration_is_logged_once(logged: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(fixture(1), path)
    for _ in range(2):
        perdure.sync.open(path, housekeeping=False).close()
    expected = f"{path}: brought the schema from version 1 to version {version(path)}"
    assert lines(logged, "perdure.sqlite") == [("perdure.sqlite", "INFO", expected)]


def test_waiting_for_another_process_is_logged_once_per_wait(
    logged: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    with perdure.sync.open(path, housekeeping=False) as store, closing(sqlite3.connect(path)) as other:
        store.commit("t", messages=[Message.user("x")])
        logged.clear()
        monkeypatch.setattr(limits, "BUSY_TIMEOUT_MS", 5)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(perdure.UnavailableError):
            store.commit("t", messages=[Message.user("y")])
        other.execute("ROLLBACK")
    expected = f"{path}: waiting for the lock of another process"
    assert lines(logged, "perdure.sqlite") == [("perdure.sqlite", "DEBUG", expected)]


def test_housekeeping_logs_what_it_cleaned_and_what_failed(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with perdure.sync.open("memory://", scope="acme") as store:
        store.commit("t", messages=[Message.user("x")])
        wait_until(lambda: ("perdure.housekeeping", "DEBUG", "scope 'acme' is clean") in records(logged))

        async def fail(*_: Any) -> None:
            raise ValueError(SECRET)

        monkeypatch.setattr(housekeeping, "sweep", fail)
        store.scoped("b").commit("t", messages=[Message.user("x")])
        expected = "cleaning scope 'b' failed (ValueError); it is tried again later"
        wait_until(lambda: ("perdure.housekeeping", "WARNING", expected) in records(logged))


def records(caplog: pytest.LogCaptureFixture) -> Lines:
    return lines(caplog, "perdure.housekeeping")


def test_what_lasts_is_logged_when_it_begins_and_when_it_ends(logged: pytest.LogCaptureFixture) -> None:
    log = EngineLog("toy", "toy://\x1b[31mhost")
    log.connected()
    log.listening()
    for _ in range(3):
        log.stopped_listening(ConnectionError(SECRET))
    log.listening()
    log.lost()
    log.connected()
    log.connected()
    log.polls()
    for _ in range(3):
        log.demoted()
    log.retried("deadlock", 2)
    where = "toy://\\x1b[31mhost"
    assert [(level, text.removeprefix(f"{where}: ")) for _, level, text in lines(logged, "perdure.toy")] == [
        ("WARNING", "not listening for hints (ConnectionError), so watchers poll"),
        ("INFO", "listening for hints again"),
        ("WARNING", "a connection was lost (closed by the server)"),
        ("INFO", "connected again"),
        ("INFO", "hints of other processes cannot be received, so watchers poll"),
        ("WARNING", "the server takes no writes now; its connections are dropped"),
        ("DEBUG", "a transaction runs again (deadlock, attempt 2)"),
    ]


def test_nothing_is_printed_by_default_and_everything_on_request() -> None:
    silent = subprocess.run([sys.executable, "-c", COMMITS], capture_output=True, check=True, text=True)
    assert (silent.stdout, silent.stderr) == ("", "")
    loud = f"import logging\nlogging.basicConfig(level=logging.INFO)\n{COMMITS}"
    printed = subprocess.run([sys.executable, "-c", loud], capture_output=True, check=True, text=True)
    assert "WARNING:perdure.commit:slow commit" in printed.stderr
    assert "INFO:perdure.commit:commit to thread 't'" in printed.stderr


def test_no_content_is_logged(
    logged: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLOW_COMMIT_MS", 0)
    with perdure.sync.open(tmp_path / "a.db") as store:
        store.threads.create("t", title=SECRET, custom={"a": SECRET})
        store.commit("t", messages=[Message.user(SECRET)], state={"doc": SECRET})
        with pytest.raises(ConflictError):
            store.commit("t", messages=[Message.user(SECRET)], state={"doc": SECRET}, expect=99)
        failpoints.arm("sqlite.after_commit", "error")
        with pytest.raises(OutcomeUnknown):
            store.commit("t", messages=[Message.user(SECRET)], state={"doc": SECRET})
    texts = [logging.Formatter().format(record) for record in logged.records if record.name.startswith("perdure")]
    assert len(texts) >= 4
    assert not [text for text in texts if SECRET in text]
