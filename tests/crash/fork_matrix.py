"""A fork under an open SQLite store: the child is refused the file, and nothing acknowledged is ever lost.

    python -m tests.crash.fork_matrix [--only refused | --only allowed]

*Refused*: {the parent exits, closes, keeps its store} × {the child tries before, after that} × {a third process writes,
or none}. The child tries every way to open or use the store. If one succeeds, the child commits through it like any
user, and what was acknowledged is counted in the end: that is how the loss showed when children were let in.

*Allowed*: a child of a parent that closed its store first, and a process that was spawned, commit 200 times, beside a
third writer or alone, and everything is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

from tests.crash.actors import Line, fork

import perdure
import perdure.engines.sqlite  # loaded before the first fork: an import under way in a thread would stop the child
import perdure.sync
from perdure import Message, PerdureError
from perdure.copy import copy_store
from perdure.opening import plan_migration

PARENT_DOES = ("exits", "closes", "keeps")
CHILD_TRIES = ("before", "after")
THIRD = 30
CHILD = 200
Tries = dict[str, str]


class ForkFailed(Exception):
    """Acknowledged data is gone, the file is damaged, or a child was let in (or out) wrongly."""


class Owner:
    """A process with a store: opens it, commits to its own thread, forks a child that serves another line."""

    def __init__(self, path: str, thread: str) -> None:
        self.path = path
        self.thread = thread
        self.runner = asyncio.Runner()
        self.store: perdure.Store | None = None

    def open(self) -> None:
        """Open the file for writing."""
        self.store = self.runner.run(_open(self.path))

    def commit(self, count: int) -> int:
        """Commit one message at a time; returns how many were acknowledged."""
        if self.store is None:
            return 0
        for _ in range(count):
            self.runner.run(self.store.commit(self.thread, messages=[Message.user("x" * 300)]))
        return count

    def close(self) -> None:
        """Close the store, if there is one."""
        if self.store is not None:
            self.runner.run(self.store.close())
            self.store = None

    def serve(self, line: Line, **more: Callable[..., Any]) -> None:
        """Obey the script."""
        line.serve(open=self.open, commit=self.commit, close=self.close, exit=lambda: os._exit(0), **more)


async def _open(path: str, *, read_only: bool = False) -> perdure.Store:
    return await perdure.open(path, durability="process", read_only=read_only)


def be_parent(path: str, line: Line, child_line: Line) -> None:
    """The process that opens the store and forks."""
    owner = Owner(path, "parent")

    def fork_child() -> int:
        return fork(lambda: be_child(path, child_line))

    owner.serve(line, fork=fork_child)


def be_child(path: str, line: Line) -> None:
    """The forked process; what it is let into it uses."""
    owner = Owner(path, "child")
    owner.serve(
        line, attempts=lambda: try_everything(path), enter=lambda: enter(owner), elsewhere=lambda: elsewhere(path)
    )


def enter(owner: Owner) -> str:
    """Open the store as a user would and keep it."""
    return _outcome(owner.open)


def try_everything(path: str) -> Tries:
    """Every other way to the file, one after another; what opens is closed again."""
    folder = Path(path).parent
    link, other_name = folder / "link.db", folder / "hard.db"
    link.symlink_to(path)
    tries = {
        "read-only": _outcome(lambda: asyncio.run(_close(_open(path, read_only=True)))),
        "blocking": _outcome(lambda: perdure.sync.open(path).close()),
        "blocking, read-only": _outcome(lambda: perdure.sync.open(path, read_only=True).close()),
        "plan": _outcome(lambda: asyncio.run(plan_migration(path))),
        "copy": _outcome(lambda: asyncio.run(copy_store(path, str(folder / "copy.db")))),
        "symbolic link": _outcome(lambda: asyncio.run(_close(_open(str(link))))),
        "symbolic link, read-only": _outcome(lambda: asyncio.run(_close(_open(str(link), read_only=True)))),
    }
    os.link(path, other_name)
    tries["hard link"] = _outcome(lambda: asyncio.run(_close(_open(str(other_name)))))
    link.unlink()
    other_name.unlink()
    return tries


async def _close(opening: Any) -> None:
    await (await opening).close()


def _outcome(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except PerdureError as error:
        return f"{error.code}: {error}"
    return "let in"


def elsewhere(path: str) -> int:
    """A store of its own in another file: the child is not paralysed."""
    owner = Owner(str(Path(path).with_name("elsewhere.db")), "child")
    owner.open()
    committed = owner.commit(3)
    owner.close()
    return committed


def third_writer(path: str) -> int:
    """An ordinary process that opens, commits and closes; returns how many commits were acknowledged."""
    line = Line("third writer")
    pid = fork(lambda: Owner(path, "third").serve(line))
    line.ask("open")
    committed: int = line.ask("commit", count=THIRD)
    line.ask("close")
    line.hang_up()
    os.waitpid(pid, 0)
    return committed


def stored(path: str) -> dict[str, int]:
    """Messages by thread, read without the product; the file must be sound."""
    with closing(sqlite3.connect(path)) as connection:
        damage = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        if damage:
            raise ForkFailed(f"the file is damaged: {'; '.join(damage[:3])}")
        return dict(connection.execute("SELECT thread, count(*) FROM messages GROUP BY thread").fetchall())


def compare(path: str, acknowledged: dict[str, int]) -> int:
    """Everything acknowledged is there; returns how much that is."""
    present = stored(path)
    for thread, count in acknowledged.items():
        if present.get(thread, 0) != count:
            raise ForkFailed(f"{thread}: {count} commits acknowledged, {present.get(thread, 0)} stored")
    return sum(acknowledged.values())


def refused(folder: Path, parent_does: str, child_tries: str, *, third: bool) -> dict[str, int]:
    """One cell of the matrix; returns its figures."""
    path = str(folder / "agents.db")
    parent, child = Line("parent"), Line("child")
    pid = fork(lambda: be_parent(path, parent, child))
    acknowledged = {"parent": 0, "child": 0, "third": 0}
    parent.ask("open")
    acknowledged["parent"] += parent.ask("commit", count=5)
    parent.ask("fork")
    tries: Tries = {}
    if child_tries == "before":
        tries |= {"open": child.ask("enter")}
    if parent_does == "exits":
        parent.send("exit")
        os.waitpid(pid, 0)
    elif parent_does == "closes":
        parent.ask("close")
    if third:
        acknowledged["third"] += third_writer(path)
    if child_tries == "after":
        tries |= {"open": child.ask("enter")}
    acknowledged["child"] += child.ask("commit", count=20)
    if third:
        acknowledged["third"] += third_writer(path)
    child.ask("close")
    tries |= child.ask("attempts")
    child.ask("elsewhere")
    if parent_does == "keeps":
        acknowledged["parent"] += parent.ask("commit", count=5)
        parent.ask("close")
    total = compare(path, acknowledged)
    child.hang_up()
    parent.hang_up()
    if parent_does != "exits":
        os.waitpid(pid, 0)
    return {"refusals": demand_refusals(tries), "commits": total}


def demand_refusals(tries: Tries) -> int:
    """Every attempt was refused, with words that say why and what to do."""
    for attempt, outcome in tries.items():
        if not outcome.startswith("unsupported: ") or "the fork" not in outcome or "spawn" not in outcome:
            raise ForkFailed(f"the child tried {attempt!r}: {outcome}")
    return len(tries)


def closed_before(folder: Path, *, third: bool) -> dict[str, int]:
    """The parent closed its store and then forked: the child is as free as anybody."""
    path = str(folder / "agents.db")
    parent, child = Line("parent"), Line("child")
    pid = fork(lambda: be_parent(path, parent, child))
    acknowledged = {"child": 0, "third": 0}
    parent.ask("open")
    acknowledged["parent"] = parent.ask("commit", count=5)
    parent.ask("close")
    parent.ask("fork")
    if child.ask("enter") != "let in":
        raise ForkFailed("a child of a parent without a store was refused")
    acknowledged["child"] += child.ask("commit", count=CHILD // 2)
    parent.hang_up()
    os.waitpid(pid, 0)
    if third:
        acknowledged["third"] += third_writer(path)
    acknowledged["child"] += child.ask("commit", count=CHILD // 2)
    if third:
        acknowledged["third"] += third_writer(path)
    child.ask("close")
    child.hang_up()
    return {"commits": compare(path, acknowledged)}


def spawned(folder: Path, *, third: bool) -> dict[str, int]:
    """The parent keeps its store, and the child is a process of its own."""
    path = str(folder / "agents.db")
    parent = Line("parent")
    pid = fork(lambda: Owner(path, "parent").serve(parent))
    acknowledged = {"third": 0}
    parent.ask("open")
    acknowledged["parent"] = parent.ask("commit", count=5)
    command = [sys.executable, "-m", "tests.crash.fork_matrix", "--spawned", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        if third:
            acknowledged["third"] += third_writer(path)
        acknowledged["parent"] += parent.ask("commit", count=5)
        parent.ask("close")
        told, _ = child.communicate(timeout=120)
    acknowledged["child"] = int(told)
    parent.hang_up()
    os.waitpid(pid, 0)
    return {"commits": compare(path, acknowledged)}


def cells(only: str | None) -> dict[str, Callable[[Path], dict[str, int]]]:
    """Everything to run, by name."""
    chosen: dict[str, Callable[[Path], dict[str, int]]] = {}
    for does, tries, third in product(PARENT_DOES, CHILD_TRIES, (False, True)):
        name = f"refused: the parent {does}, the child tries {tries}, {'a third writes' if third else 'alone'}"
        chosen[name] = lambda folder, does=does, tries=tries, third=third: refused(folder, does, tries, third=third)
    for third in (False, True):
        beside = "a third writes" if third else "alone"
        chosen[f"allowed: closed before the fork, {beside}"] = lambda folder, third=third: closed_before(
            folder, third=third
        )
        chosen[f"allowed: spawned, {beside}"] = lambda folder, third=third: spawned(folder, third=third)
    return {name: cell for name, cell in chosen.items() if only is None or only in name}


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="cells whose name contains this")
    parser.add_argument("--spawned", metavar="PATH", help="be the spawned child: commit, and say how often")
    asked = parser.parse_args()
    if asked.spawned:
        owner = Owner(asked.spawned, "child")
        owner.open()
        print(owner.commit(CHILD))
        owner.close()
        return 0
    figures: dict[str, int] = {"cells": 0, "refusals": 0, "commits": 0}
    failures = 0
    for name, cell in cells(asked.only).items():
        with tempfile.TemporaryDirectory(prefix="perdure-forks-") as folder:
            try:
                told = cell(Path(folder))
            except Exception as error:  # noqa: BLE001 - every cell is tried, and each failure reported
                traceback.print_exc()
                print(json.dumps({"cell": name, "failed": str(error)}), flush=True)
                failures += 1
                continue
        figures["cells"] += 1
        for figure, value in told.items():
            figures[figure] += value
        print(json.dumps({"progress": figures["cells"]}), flush=True)
    if failures:
        print(f"{failures} cells failed; replay: python -m tests.crash.fork_matrix", file=sys.stderr)
        return 1
    print(json.dumps({"figures": figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
