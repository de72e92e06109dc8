"""Forked helpers of crash programs: run a coroutine in a process of its own, and hear what it says.

Only a program without threads may fork, so these are used by programs of their own (`python -m tests.crash.…`), never
inside pytest.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import perdure.engines.sqlite  # noqa: F401 - loaded before the first fork, so that no child spends its life on imports

Work = Callable[[], Coroutine[Any, Any, Any]]


class ChildFailed(Exception):
    """A forked process raised, died or was too slow."""


class Child:
    """A forked process that runs a coroutine and writes JSON lines to a pipe; the last of them is its answer."""

    def __init__(self, work: Callable[[int], Coroutine[Any, Any, Any]]) -> None:
        self.pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _be_child(writing, work)
        os.close(writing)

    def answer(self, deadline: float) -> Any:
        """Wait for the end and return what the coroutine returned."""
        told, give_up = b"", time.monotonic() + deadline
        while select.select([self.pipe], [], [], max(0.0, give_up - time.monotonic()))[0]:
            chunk = os.read(self.pipe, 1 << 16)
            if not chunk:
                break
            told += chunk
        else:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        os.waitpid(self.pid, 0)
        lines = told.splitlines()
        last = json.loads(lines[-1]) if lines else {"failed": f"no answer within {deadline} s"}
        if "failed" in last:
            raise ChildFailed(last["failed"])
        return last["answer"]


def in_child(work: Work, deadline: float) -> Any:
    """Run a coroutine in a forked process and return what it returns."""
    return Child(lambda _: work()).answer(deadline)


def tell(pipe: int, **line: Any) -> None:
    """Write one JSON line to the parent."""
    os.write(pipe, json.dumps(line).encode() + b"\n")


def _be_child(pipe: int, work: Callable[[int], Coroutine[Any, Any, Any]]) -> None:
    """Run a coroutine as this forked process, and never return to what the parent was doing."""
    code = 1
    try:
        answer = json.dumps({"answer": asyncio.run(work(pipe))}).encode()
        for start in range(0, len(answer), 1 << 16):
            os.write(pipe, answer[start : start + (1 << 16)])
        code = 0
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        traceback.print_exc()
        tell(pipe, failed=f"{type(error).__name__}: {error}")
    finally:
        sys.stderr.flush()
        os._exit(code)
