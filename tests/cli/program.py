"""The command line as a test sees it: in this process, or as the real program in a process of its own."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import perdure.cli

SCRIPT = Path(sys.executable).parent / "perdure"
"""What `pip install` put beside the interpreter."""


class Failed(Exception):
    """The program did not end as it should."""


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Program:
    """`perdure` on one file."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "COLUMNS"))}
        return {**kept, "PERDURE_STORE": self.url, "PYTHONWARNINGS": "error", **more}

    def run(self, *arguments: str, screen: bool = False, **more: str) -> Done:
        """The real entry point, in this process; with `screen`, it takes stdout and stderr for a terminal."""
        out, err = _Captured(screen=screen), _Captured(screen=screen)
        if screen:
            more = {"TERM": "xterm-256color", "COLUMNS": "80", **more}
        with (
            mock.patch.dict(os.environ, self.environment(**more), clear=True),
            mock.patch.object(sys, "argv", ["perdure", *arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                perdure.cli.main()
            except SystemExit as end:
                return Done(int(end.code or 0), out.text(), err.text())
        raise Failed("the program did not exit")

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What a command writes to stdout, if it ends with this code."""
        done = self.run(*arguments)
        if done.code != code or done.err:
            raise Failed(f"{arguments}: code {done.code}\n{done.out}\n{done.err}")
        return done.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The one document that a command writes with --json."""
        (line,) = self(*arguments, "--json", code=code).splitlines()
        return json.loads(line)

    def error(self, *arguments: str, code: int = 2) -> str:
        """The one line on stderr of a command that must fail; it writes nothing to stdout."""
        done = self.run(*arguments)
        lines = done.err.splitlines()
        if done.code != code or done.out or len(lines) != 1:
            raise Failed(f"{arguments}: code {done.code}\n{done.out}\n{done.err}")
        return lines[0]

    def real(self, *arguments: str, given: bytes | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
        """Run the installed program in a process of its own."""
        environment = self.environment(**more)
        return subprocess.run([SCRIPT, *arguments], input=given, capture_output=True, env=environment, check=False)


class _Captured(io.TextIOWrapper):
    """Text and bytes written to it come out in order. It may pass for a terminal."""

    def __init__(self, *, screen: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
        self._screen = screen

    def isatty(self) -> bool:
        """What the program asks to choose between colours and plain text."""
        return self._screen

    def text(self) -> str:
        """Everything written so far."""
        self.flush()
        buffer = self.buffer
        if not isinstance(buffer, io.BytesIO):
            raise Failed("not a buffer of ours")
        return buffer.getvalue().decode()


def answered(program: Program, answer: str, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of a command on a terminal, at which somebody types this as soon as it asks."""
    ours, theirs = pty.openpty()
    environment = program.environment(TERM="xterm", COLUMNS="80", NO_COLOR="1")
    with subprocess.Popen(
        [SCRIPT, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        text = b""
        while chunk := _read(ours):
            text += chunk
            if b"[y/N]" in text and answer:
                os.write(ours, answer.encode())
                answer = ""
    os.close(ours)
    return process.returncode, text.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """What came; nothing when the other side has closed the terminal."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
