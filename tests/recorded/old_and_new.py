"""An older build and this one on the same servers: what the older wrote is read, and both go on at the same time.

    python -m tests.recorded.old_and_new REVISION [--engine postgres] [--rounds 20]

Makes a worktree of the revision with an environment of its own, and private servers. On each engine, the older build
runs the recorded workload; this build reads the same, audits it and knows its keys. Then an older process commits,
refuses and deletes while processes of this build open the store, do the same and end, and another older one opens it
after them: none may meet an error. Takes a minute or two; no part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.recorded import golden
from tests.recorded.support import SERVERS, server_url, servers

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0


class Failed(Exception):
    """The two builds do not get along."""


class Worker:
    """A process that commits round after round; what it prints is read as it comes."""

    def __init__(self, python: str, url: str, name: str) -> None:
        self.name = name
        self._lines: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._ended = False
        self._process = _start(python, "work", url, name)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._more:
                self._lines.append(json.loads(line))
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    @property
    def rounds(self) -> int:
        """How many rounds it has done."""
        return max([line.get("round", 0) for line in self._lines], default=0)

    def wait_for(self, rounds: int) -> None:
        """Wait until it has done so many rounds more."""
        target = self.rounds + rounds
        with self._more:
            if not self._more.wait_for(lambda: self._ended or self.rounds >= target, PATIENCE) or self._ended:
                raise Failed(f"{self.name} stopped after {self.rounds} rounds: {self._errors()}")

    def _errors(self) -> str:
        self._process.kill()
        return self._process.stderr.read()[-3000:] if self._process.stderr is not None else ""

    def finish(self) -> int:
        """Let it end in good order; its rounds."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._reader.join(PATIENCE)
        if self._process.wait(PATIENCE) != 0 or self._lines[-1].get("findings") != []:
            raise Failed(f"{self.name} ended badly: {self._lines[-1:]} {self._errors()}")
        return int(self._lines[-1]["rounds"])

    def kill(self) -> None:
        """End it whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _start(python: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.Popen(
        [python, "-m", "tests.recorded.client", *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ask(python: str, source: Path, *arguments: str) -> dict[str, Any]:
    """Run a client to its end; the one line that it prints. `source` is where its build must have come from."""
    process = _start(python, *arguments)
    out, errors = process.communicate(timeout=600)
    if process.returncode != 0:
        raise Failed(f"{arguments[0]} failed: {errors[-3000:]}")
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    if not Path(answer["build"]).is_relative_to(source):
        raise Failed(f"{arguments[0]} ran with the code in {answer['build']}, not in {source}")
    return answer


@contextmanager
def worktree(revision: str, folder: Path) -> Iterator[Path]:
    """The revision in a folder of its own, with the environment that its lock file asks for."""
    tree = folder / "old"
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "worktree", "add", "--detach", str(tree), revision], check=True, capture_output=True)
    try:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "UV_PROJECT"))}
        subprocess.run(["make", "setup"], cwd=tree, check=True, capture_output=True, env=inherited)
        yield tree
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=False, capture_output=True)


def same(what: str, expected: list[Any], actual: list[Any]) -> None:
    """Raise with the first differences."""
    problem = golden.differences(expected, actual)
    if problem:
        raise Failed(f"{what}: {problem}")


def check_reading(old: str, new: str, tree: Path, url: str) -> str:
    """The older build writes the workload, this one reads it."""
    with tempfile.TemporaryDirectory(prefix="perdure-recorded-") as folder:
        played = ask(old, tree, "play", url, folder)
        answer = ask(new, ROOT, "contents", url, folder)
    same("the older build's outcomes", golden.read("outcomes"), played["outcomes"])
    same("the older build's contents", golden.read("contents"), played["contents"])
    same("what this build reads", played["contents"], answer["contents"])
    same("after the keyed commits were sent again", played["contents"], answer["after"])
    if answer["findings"] or played["findings"] or answer["replayed"] != [True] * 3:
        raise Failed(f"findings {played['findings']} {answer['findings']}, replayed {answer['replayed']}")
    return f"{len(played['outcomes'])} steps, {len(answer['contents'])} lines of contents the same, 3 keys known"


def check_together(old: str, new: str, url: str, rounds: int) -> str:
    """Both builds at work on one store, whichever opened it last."""
    workers: list[Worker] = []

    def start(python: str, name: str) -> Worker:
        workers.append(Worker(python, url, name))
        workers[-1].wait_for(rounds)
        return workers[-1]

    try:
        first = start(old, "old")
        second = start(new, "new")
        first.wait_for(rounds)
        third = start(old, "old-again")
        for worker in (first, second, third):
            worker.wait_for(rounds)
        counts = [f"{worker.name} {worker.finish()}" for worker in (second, first, third)]
        last = start(new, "new-again")
        return f"rounds without an error: {', '.join([*counts, f'{last.name} {last.finish()}'])}"
    finally:
        for worker in workers:
            worker.kill()


def main() -> int:
    """Do both on every engine that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", help="of the older build")
    parser.add_argument("--engine", action="append", choices=SERVERS, help="all of them if left out")
    parser.add_argument("--rounds", type=int, default=20, help="that each process does between two events")
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="perdure-old-") as folder, worktree(options.revision, Path(folder)) as tree:
        old, new = str(tree / ".venv" / "bin" / "python"), sys.executable
        for engine in options.engine or SERVERS:
            try:
                url = asyncio.run(server_url(engine, "old_and_new"))
                print(f"{engine}: {check_reading(old, new, tree, url)}", flush=True)
                print(f"{engine}: {check_together(old, new, url, options.rounds)}", flush=True)
            except Failed as failed:
                bad += 1
                print(f"{engine}: FAILED: {failed}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        servers().stop_all()
