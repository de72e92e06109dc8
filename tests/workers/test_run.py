"""`workers.run`, a worker program: it shuts down cleanly on signals, and refuses to run where it cannot catch them."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.workers.scenes import finish, leases

import perdure
import perdure.sync
from perdure import InvalidError, Run, UnsupportedError
from perdure.workers import run

PROGRAM = """
import asyncio, sys
from perdure import workers

async def handler(job):
    print("begun", flush=True)
    try:
        await asyncio.sleep(600 if job.run.id == "hangs" else 0.3)
        await job.commit(run=job.run.finish("Done."))
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

workers.run(sys.argv[1], handler, scope="tenant", poll_ms=20, log=False)
print("closed", flush=True)
"""
DEADLINE = 60


def start(path: Path, run_id: str) -> None:
    """Start a run."""
    with perdure.sync.open(path, scope="tenant") as store:
        store.runs.start("t", "clerk", run_id=run_id)


@contextmanager
def program(store: Path | str, code: str = PROGRAM) -> Iterator[subprocess.Popen[str]]:
    """A worker process."""
    command = [sys.executable, "-c", code, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def worker(path: Path, run_id: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process that is inside the handler of a new run."""
    start(path, run_id)
    with program(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def left(path: Path, run_id: str) -> Run:
    async def read() -> Run:
        async with perdure.open(path, scope="tenant") as store:
            assert await leases(store) == []
            return await store.runs.get(run_id)

    return asyncio.run(read())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handlers_end(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with worker(path, "quick") as process:
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE) == ("closed\n", "")
        assert process.returncode == 0
    assert left(path, "quick").final_output == "Done."


def test_a_second_signal_cancels_them(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with worker(path, "hangs") as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=DEADLINE) == ("cancelled\nclosed\n", "")
        assert process.returncode == 0
    assert left(path, "hangs").status == "running"


LOGGED = PROGRAM.replace("log=False", "log=True")


def test_it_waits_for_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "later" / "agents.db"
    with program(path, LOGGED) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "the store cannot be opened; the next try is in 1 s" in process.stderr.readline()
        path.parent.mkdir()
        start(path, "quick")
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE) == 0
    assert left(path, "quick").final_output == "Done."


def test_a_signal_ends_the_wait_for_a_store(tmp_path: Path) -> None:
    with program(tmp_path / "never" / "agents.db", LOGGED) as process:
        assert process.stderr is not None
        assert "cannot be opened" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE) == 0


def test_a_signal_ends_an_attempt_to_open_a_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(DEADLINE)
        with program(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", LOGGED) as process:
            peer, _ = silent.accept()
            with peer:
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=DEADLINE)
        assert (process.returncode, "the next try" in errors) == (0, False)


def test_it_refuses_a_thread_and_a_running_loop() -> None:
    async def inside() -> None:
        with pytest.raises(InvalidError, match="main thread"):
            run("memory://", finish)
        with pytest.raises(InvalidError, match="main thread"):
            await asyncio.to_thread(run, "memory://", finish)

    asyncio.run(inside())


def test_an_error_ends_it_and_leaves_the_signals_alone() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(InvalidError, match="poll_ms"):
        run("memory://", finish, poll_ms=0)
    with pytest.raises((InvalidError, UnsupportedError)):
        run("nonsense://", finish)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
