"""`perdure log --follow`: what another process commits appears, without gap or repeat, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from tests.cli.program import SCRIPT, Program

import perdure
from perdure import Message, Store

DEADLINE = 60


class Follower:
    """A running `perdure log --follow`, line by line."""

    def __init__(self, process: subprocess.Popen[bytes], out: IO[bytes]) -> None:
        self._process = process
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._pump, args=(out,), daemon=True).start()

    def _pump(self, out: IO[bytes]) -> None:
        for line in out:
            self._lines.put(line)
        self._lines.put(b"")

    def next(self) -> Any:
        return json.loads(self._lines.get(timeout=DEADLINE))

    def seqs(self, count: int) -> list[int]:
        return [self.next()["seq"] for _ in range(count)]

    def interrupt(self) -> tuple[int, bytes]:
        """Ctrl-C; the exit code, and whatever was still written."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(DEADLINE)
        return code, self._lines.get(timeout=DEADLINE)


def _hear_interrupts() -> None:
    """A test run in the background inherits SIGINT as ignored, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def following(program: Program, *arguments: str) -> Iterator[Follower]:
    command = [SCRIPT, "log", *arguments, "--follow", "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program.environment(),
        preexec_fn=_hear_interrupts,  # noqa: PLW1509 - it only resets a signal
    ) as process:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("no pipes")
        try:
            yield Follower(process, process.stdout)
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_follow_sees_what_another_process_commits(program: Program) -> None:
    async def scenario() -> None:
        with following(program, "kyoto") as follower:
            assert follower.seqs(6) == [1, 5, 6, 7, 8, 9]
            async with perdure.open(program.url) as store:
                await _commits(store)
                assert follower.seqs(23) == list(range(11, 34))
            assert follower.interrupt() == (130, b"")

    asyncio.run(scenario())


async def _commits(store: Store) -> None:
    for n in range(20):
        await store.commit("kyoto", messages=[Message.user(f"{n}")])
    await store.branches.switch("kyoto", "main")
    await store.commit("kyoto", messages=[Message.user("a"), Message.user("b")])
    await store.branches.switch("kyoto", "sunny")
    await store.commit("kyoto", messages=[Message.user("home")])


def test_follow_of_one_branch_leaves_the_others_out(program: Program) -> None:
    async def scenario() -> None:
        with following(program, "kyoto", "--branch", "sunny", "-n", "1") as follower:
            assert follower.seqs(1) == [9]
            async with perdure.open(program.url) as store:
                await _commits(store)
                assert follower.seqs(21) == [*range(11, 31), 33]
            assert follower.interrupt() == (130, b"")

    asyncio.run(scenario())


def test_follow_ends_when_the_thread_is_deleted(program: Program) -> None:
    async def delete() -> None:
        async with perdure.open(program.url) as store:
            await store.threads.delete("empty")

    command = [SCRIPT, "log", "empty", "--follow"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=program.environment()) as process:
        asyncio.run(delete())
        _, error = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2
    assert error.startswith(b"error: ")
    assert b"'empty'" in error
