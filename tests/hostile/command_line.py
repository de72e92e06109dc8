"""Hostile inputs through the command line: before a terminal, and with --json.

A command ends with 0, 1 or 2 and never with 70. A terminal gets nothing that steers it, --json is JSON that means the
same, and a secret is shown nowhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.program import Done, Program
from tests.cli.steering import steering, steering_on_screen
from tests.hostile.inputs import CANARY, Input
from tests.hostile.library import HOME, Broken, same, thread_of

ENDS = (0, 1, 2)
PLACES = 5
"""Where a URL may stand."""
ABOUT_ALL = (["threads", "--limit", "200"], ["runs", "--limit", "200"], ["branch", HOME], ["show", HOME])


class CommandLine:
    """`perdure` on the store behind one URL."""

    def __init__(self, url: str, folder: Path) -> None:
        self._program = Program(folder / "unused.db")
        self._url = url
        self._folder = folder

    def attempt(self, item: Input, number: int, *, taken: bool) -> list[int]:
        """Try one input in both modes; the exit codes."""
        codes = []
        for arguments, variables in self._commands(item, number):
            codes.append(self.on_screen(arguments, variables))
            done = self.as_json(arguments, variables)
            codes.append(done.code)
            if taken and done.code == 0:
                _check_answer(item, arguments, done.out)
        return codes

    def about_all(self) -> None:
        """The commands that show many inputs at once."""
        for arguments in ABOUT_ALL:
            if (self.on_screen(arguments, {}), self.as_json(arguments, {}).code) != (0, 0):
                raise Broken(f"{arguments} failed")

    def opened(self, item: Input) -> list[int]:
        """Give a URL in every place where one may stand; the exit codes."""
        codes = []
        for number in range(PLACES):
            for arguments, variables in self._openings(item.text, number):
                codes += [self.on_screen(arguments, variables), self.as_json(arguments, variables).code]
        return codes

    def on_screen(self, arguments: list[str], variables: dict[str, str]) -> int:
        """Run a command before a terminal; its exit code."""
        done = self._run(arguments, variables, screen=True)
        odd = steering_on_screen(done.out) + steering_on_screen(done.err)
        if odd:
            raise Broken(f"{_shown(arguments)} steers the terminal: {odd[:5]}")
        return done.code

    def as_json(self, arguments: list[str], variables: dict[str, str]) -> Done:
        """Run a command with --json; every line it writes is JSON."""
        done = self._run([arguments[0], "--json", *arguments[1:]], variables, screen=False)
        for line in (done.out + done.err).splitlines():
            _check_json(line, arguments)
        odd = steering(done.out) + steering(done.err)
        if odd:
            raise Broken(f"{_shown(arguments)} --json steers the terminal: {odd[:5]}")
        return done

    def _run(self, arguments: list[str], variables: dict[str, str], *, screen: bool) -> Done:
        done = self._program.run(*arguments, screen=screen, **{"PERDURE_STORE": self._url, **variables})
        if CANARY in done.out + done.err:
            raise Broken(f"{_shown(arguments)} shows the secret: {(done.out + done.err).strip()!r:.300}")
        if done.code not in ENDS:
            raise Broken(f"{_shown(arguments)} ended with {done.code}: {done.err.strip()!r:.300}")
        return done

    def _commands(self, item: Input, number: int) -> Iterator[tuple[list[str], dict[str, str]]]:
        text, thread = item.text, thread_of(item, number)
        path = f"{self._folder}/{text}.jsonl"
        plainly: dict[str, list[list[str]]] = {
            "id": [["show", "--", text], ["branch", f"--at={text}", "--", HOME]][number % 2 :][:1],
            "name": [["switch", "--", HOME, text], ["log", f"--branch={text}", "-n1", HOME]][number % 2 :][:1],
            "title": [["show", thread]],
            "label": [["tree", thread]],
            "content": [["log", thread], ["show", thread], ["tree", thread]][number % 3 :][:1],
            "cursor": [[("threads", "runs")[number % 2], f"--cursor={text}"]],
            "scope": [["threads", f"--scope={text}"]],
            "file": [["export", f"--out={path}", "--", HOME], ["import", "--skip-existing", "--", path]],
        }
        if item.kind != "url":
            yield from ((arguments, {}) for arguments in plainly[item.kind])
            return
        yield from self._openings(text, number)

    def _openings(self, url: str, number: int) -> Iterator[tuple[list[str], dict[str, str]]]:
        """The places where a URL may stand."""
        ways: list[tuple[list[str], dict[str, str]]] = [
            (["threads", f"--store={url}"], {}),
            (["health", "--", url], {}),
            (["migrate", "--check", "--", url], {}),
            (["copy", "--dry-run", "--", url, f"sqlite:///{self._folder}/never.db"], {}),
        ]
        if _fits_environment(url):
            ways.append((["threads"], {"PERDURE_STORE": url}))
        yield ways[number % len(ways)]


def _check_json(line: str, arguments: list[str]) -> None:
    try:
        json.loads(line)
    except ValueError:
        raise Broken(f"{_shown(arguments)} --json wrote {line!r:.300}") from None


def _fits_environment(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _shown(arguments: list[str]) -> str:
    return f"perdure {' '.join(arguments)!r:.160}"


def _check_answer(item: Input, arguments: list[str], out: str) -> None:
    """What was taken comes out of --json as it went in."""
    documents: list[Any] = [json.loads(line) for line in out.splitlines()]
    command = arguments[0]
    if item.kind == "id" and command == "show":
        same(documents[0]["thread"]["id"], item.text)
    elif item.kind == "name" and command == "switch":
        same(documents[0]["name"], item.text)
    elif item.kind == "title":
        same(documents[0]["thread"]["title"], item.text)
    elif item.kind == "label":
        same(documents[0]["nodes"][0]["label"], item.text)
    elif item.kind == "content" and command == "log":
        same("".join(block["text"] for block in documents[0]["message"]["content"]), item.text)
    elif item.kind == "content" and command == "show":
        same(documents[0]["thread"]["custom"], {"k": item.text})
