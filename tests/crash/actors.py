"""Forked processes that act on command: a script says who does what, and in which order.

A line is a socket between the script and one process. It is made before the fork, so that a process can hand it to a
child of its own. Commands and answers are JSON lines; nobody waits for longer than `PATIENCE`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0

Handler = Callable[..., Any]


class ActorFailed(Exception):
    """A process raised, died or did not answer."""


class Line:
    """A socket pair: the script asks, the process serves."""

    _open: list[Line] = []  # noqa: RUF012 - all lines of the script: whoever is forked closes the script's ends

    def __init__(self, name: str) -> None:
        self.name = name
        self._script, self._process = socket.socketpair()
        self._script.settimeout(PATIENCE)
        self._process.settimeout(PATIENCE)
        self._answers = self._script.makefile("r", encoding="utf-8")
        Line._open.append(self)

    def ask(self, command: str, **arguments: Any) -> Any:
        """Have the process do something, and return its answer."""
        self.send(command, **arguments)
        return self.answer(command)

    def send(self, command: str, **arguments: Any) -> None:
        """Give a command without waiting for the answer."""
        self._script.sendall(json.dumps([command, arguments]).encode() + b"\n")

    def answer(self, command: str = "") -> Any:
        """The next answer of the process."""
        try:
            line = self._answers.readline()
        except TimeoutError:
            line = ""
        if not line:
            raise ActorFailed(f"{self.name} did not answer {command!r}")
        told = json.loads(line)
        if "failed" in told:
            raise ActorFailed(f"{self.name}, {command!r}: {told['failed']}")
        return told["answer"]

    def serve(self, **handlers: Handler) -> None:
        """As the process: obey until the script hangs up or a handler ends the process."""
        with self._process.makefile("r", encoding="utf-8") as commands:
            for line in commands:
                command, arguments = json.loads(line)
                try:
                    told = {"answer": handlers[command](**arguments)}
                except Exception as error:  # noqa: BLE001 - the script reports it
                    traceback.print_exc()
                    told = {"failed": f"{type(error).__name__}: {error}"}
                self._process.sendall(json.dumps(told).encode() + b"\n")

    def hang_up(self) -> None:
        """As the script: the process may end."""
        Line._open.remove(self)
        self._answers.close()
        self._script.close()
        self._process.close()

    @classmethod
    def forked(cls) -> None:
        """As a forked process: let go of the script's ends, so that its death is noticed."""
        for line in cls._open:
            line._answers.close()
            line._script.close()
        cls._open.clear()


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked process, which ends with it; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        Line.forked()
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - never return to what the parent was doing
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
