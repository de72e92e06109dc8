"""A read that nobody waits for any more stops: its task was cancelled, or its caller pressed Ctrl-C.

Reads that never end by themselves run in processes of their own, which a test can end when it is red.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engines.endless_reads import read_long
from tests.engines.test_sqlite_errors import opened
from tests.engines.toys import DEADLINE, SCHEMA, drive

import perdure
import perdure.sync
from perdure import Message, failpoints
from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.connections.interrupts import ReadConnection, Stop, Stopped
from perdure.errors import UnavailableError

ROWS = 10_000_000
"""Seconds of work, within which a request must be noticed."""


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.engines.endless_reads", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def outcome(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Exit code and stderr."""
    try:
        _, said = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        return None, "it did not end"
    return process.returncode, said


@pytest.mark.parametrize("kind", ["tasks", "still"])
def test_cancelled_reads_stop_and_do_not_hold_up_the_close(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "long.db"
    drive(opened(path).close())
    with program(kind, str(path)) as process:
        assert outcome(process) == (0, "")


@pytest.mark.parametrize(("kind", "sent"), [("blocking", signal.SIGINT), ("alarm", signal.SIGUSR1)])
def test_a_blocking_read_ends_with_what_the_signal_handler_raises(
    tmp_path: Path, kind: str, sent: signal.Signals
) -> None:
    with program(kind, str(tmp_path / "long.db")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(sent)
        assert outcome(process) == (0, "")


def test_ctrl_c_ends_a_command_that_reads(tmp_path: Path) -> None:
    path = tmp_path / "long.db"

    async def make() -> None:
        async with perdure.open(str(path)) as store:
            await store.threads.create("t")

    asyncio.run(make())
    with program("cli", str(path), "doctor", "verify") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        assert outcome(process) == (130, "")


@pytest.fixture
def connection() -> Iterator[ReadConnection]:
    reading = ReadConnection(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None))
    yield reading
    reading.close()


def test_a_request_reaches_only_the_question_it_was_made_for(connection: ReadConnection) -> None:
    early, late = Stop(), Stop()
    assert connection.ask(lambda c: c.execute("SELECT 1").fetchall(), early) == [(1,)]

    # By the time the first task is cancelled, its connection is in the middle of another question.
    assert connection.ask(lambda c: read_long(c, early.request, 500_000), late) == [(500_000, None)]
    assert early.requested
    assert not late.requested


def test_a_request_between_two_statements_stops_the_next(connection: ReadConnection) -> None:
    stop = Stop()

    def question(c: sqlite3.Connection) -> object:
        c.execute("SELECT 1").fetchall()
        stop.request()
        return read_long(c, lambda: None, ROWS)

    with pytest.raises(Stopped):
        connection.ask(question, stop)


def test_a_request_before_the_question_keeps_it_from_being_asked(connection: ReadConnection) -> None:
    stop = Stop()
    stop.request()
    with pytest.raises(Stopped):
        connection.ask(lambda c: pytest.fail("it was asked"), stop)
    assert connection.ask(lambda c: c.execute("SELECT 1").fetchone()) == (1,)


def test_what_is_stopped_in_one_task_is_answered_in_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        engine = await open_sqlite(str(tmp_path / "busy.db"), SCHEMA)
        readers = engine._database.readers
        for _ in range(20):
            begun = threading.Event()
            task = asyncio.create_task(
                engine._read(lambda stop, begun=begun: readers.ask(lambda c: read_long(c, begun.set, ROWS), stop))
            )
            assert await asyncio.to_thread(begun.wait, DEADLINE)
            task.cancel()
            assert await engine.scopes() == []
        await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_may_be_interrupted_anywhere_and_the_next_goes_through(tmp_path: Path, number: int) -> None:
    program = [sys.executable, "-m", "tests.engines.interrupted_commits", str(tmp_path / "x.db"), str(number)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_store_is_not_used_in_a_handler_that_interrupts_a_commit(tmp_path: Path) -> None:
    with perdure.sync.open(str(tmp_path / "x.db")) as store:

        def nested(_: str) -> None:
            with pytest.raises(UnavailableError, match="in the middle of a commit"):
                store.commit("t", messages=[Message.user("nested")])

        failpoints.arm("sqlite.before_commit", nested)
        try:
            store.commit("t", messages=[Message.user("outer")])
        finally:
            failpoints.disarm()
        assert [record.text for record in store.messages.history("t")] == ["outer"]
