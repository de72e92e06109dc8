"""Forks at the edges: what counts as open, what a child may touch, and how it ends.

    python -m tests.crash.fork_edges [--only grandchild]

Each scene runs in a process of its own, which has no thread yet and may fork.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.actors import Line, fork
from tests.crash.fork_matrix import ForkFailed, Owner, compare, demand_refusals, enter

import perdure
import perdure.sync
from perdure import Message, PerdureError

FORKS = 30


def outcome(path: str) -> str:
    """What a process that tries to open the file for writing is told; it commits once if it may."""
    owner = Owner(path, "child")
    told = enter(owner)
    owner.commit(1)
    owner.close()
    return told


def ask_child(work: Callable[[], Any]) -> Any:
    """Run `work` in a forked child and return its answer."""
    line = Line("child")
    pid = fork(lambda: line.serve(work=work))
    try:
        return line.ask("work")
    finally:
        line.hang_up()
        os.waitpid(pid, 0)


def must_refuse(told: str) -> None:
    """A child was refused, clearly."""
    demand_refusals({"open": told})


def must_let_in(told: str) -> None:
    """A child was let in."""
    if told != "let in":
        raise ForkFailed(f"the child was refused: {told}")


def grandchild(path: str) -> None:
    """A child of a child is refused as well."""
    owner = Owner(path, "parent")
    owner.open()
    owner.commit(1)
    must_refuse(ask_child(lambda: ask_child(lambda: outcome(path))))
    owner.close()
    compare(path, {"parent": 1})


def one_of_two_closed(path: str) -> None:
    """A second store on the file was opened and closed; the first is still open."""
    first, second = Owner(path, "parent"), Owner(path, "parent")
    first.open()
    second.open()
    second.commit(2)
    second.close()
    must_refuse(ask_child(lambda: outcome(path)))
    first.close()
    must_let_in(ask_child(lambda: outcome(path)))
    compare(path, {"parent": 2, "child": 1})


def read_only_counts(path: str) -> None:
    """A store that only reads is open too, whether there is a log or not."""
    writer = Owner(path, "parent")
    writer.open()
    writer.commit(1)
    writer.close()
    for _ in range(2):
        with perdure.sync.open(path, read_only=True) as reader:
            if reader.threads.get("parent").version != 1:
                raise ForkFailed("the reader does not see the commit")
            must_refuse(ask_child(lambda: outcome(path)))
        leave_a_log(path)
    must_let_in(ask_child(lambda: outcome(path)))


def leave_a_log(path: str) -> None:
    """A process that has the file open dies."""
    line = Line("log holder")
    pid = fork(lambda: Owner(path, "other").serve(line))
    line.ask("open")
    line.send("exit")
    os.waitpid(pid, 0)
    line.hang_up()


def failed_open(path: str) -> None:
    """An open that failed leaves nothing open: the child may try by itself."""
    Path(path).write_bytes(b"not a database" * 100)
    told = enter(Owner(path, "parent"))
    if not told.startswith("corrupt"):
        raise ForkFailed(f"a file that is no database: {told}")
    Path(path).unlink()
    must_let_in(ask_child(lambda: outcome(path)))


def other_file(path: str) -> None:
    """A copy of the file is another file."""
    owner = Owner(path, "parent")
    owner.open()
    owner.commit(1)
    owner.close()
    copy = f"{path}.copy.db"
    shutil.copyfile(path, copy)
    owner.open()
    must_let_in(ask_child(lambda: outcome(copy)))
    must_refuse(ask_child(lambda: outcome(path)))
    owner.close()


def blocking_face(path: str) -> None:
    """The blocking store refuses in the child, and so does opening another."""
    with perdure.sync.open(path, durability="process") as store:
        store.commit("parent", messages=[Message.user("x")])

        def try_inherited() -> str:
            try:
                store.commit("parent", messages=[Message.user("lost")])
            except PerdureError as error:
                return f"{error.code}: {error}"
            return "let in"

        must_refuse(ask_child(try_inherited))
        must_refuse(ask_child(lambda: outcome(path)))
        store.commit("parent", messages=[Message.user("y")])
    compare(path, {"parent": 2})


def memory_store(path: str) -> None:
    """What is in memory belongs to the process that made it: a child would only write to its own copy."""
    runner = asyncio.Runner()

    async def opened() -> perdure.Store:
        return await perdure.open("memory://")

    store = runner.run(opened())
    runner.run(store.commit("t", messages=[Message.user("x")]))

    def try_inherited() -> str:
        try:
            asyncio.run(store.commit("t", messages=[Message.user("lost")]))
        except PerdureError as error:
            return f"{error.code}: {error}"
        return "let in"

    must_refuse(ask_child(try_inherited))
    if ask_child(lambda: asyncio.run(_memory_of_its_own())) != 1:
        raise ForkFailed("a child cannot have a memory store of its own")
    if runner.run(store.threads.get("t")).version != 1:
        raise ForkFailed("the parent's data changed")


async def _memory_of_its_own() -> int:
    async with perdure.open("memory://") as store:
        return (await store.commit("t", messages=[Message.user("x")])).version


def threads_open_and_close(path: str) -> None:
    """Forks while another thread opens, uses and closes the file, so that a store is often half open or half closed."""
    end = threading.Event()
    commits = {"parent": 0, "child": 0}

    def open_and_close() -> None:
        while not end.is_set():
            with perdure.sync.open(path, durability="process") as store:
                store.commit("parent", messages=[Message.user("x")])
                commits["parent"] += 1

    busy = threading.Thread(target=open_and_close)
    busy.start()
    try:
        for _ in range(FORKS):
            told = ask_child(lambda: outcome(path))
            if told == "let in":  # forked while nothing was open
                commits["child"] += 1
            else:
                must_refuse(told)
    finally:
        end.set()
        busy.join()
    compare(path, commits)


def child_ends_like_a_program(path: str) -> None:
    """An inherited store is not closed when the child ends: that would delete a log which others have filled since."""
    program = [sys.executable, "-c", _DAEMON, path]
    pid = os.posix_spawn(sys.executable, program, os.environ)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise ForkFailed("the scene failed")
    compare(path, {"parent": 3, "third": 30, "killed": 25})


_DAEMON = """
import os, signal, sys
import tests.crash.fork_edges as edges
path = sys.argv[1]
owner = edges.Owner(path, "parent")
owner.open()
owner.commit(3)
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(writing)
    os.read(reading, 1)
    sys.exit(0)  # the whole end of an interpreter, which frees all that it holds
os.close(reading)
owner.close()
edges.run_program("third", path)
edges.run_program("killed", path)
if not os.path.exists(path + "-wal"):
    sys.exit("the killed process left no log")
os.write(writing, b".")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_program(name: str, path: str) -> None:
    """A process of its own that commits: `third` closes in the end, `killed` dies with its log."""
    program = [sys.executable, "-m", "tests.crash.fork_edges", "--commit-as", name, path]
    os.waitpid(os.posix_spawn(sys.executable, program, os.environ), 0)


def commit_as(name: str, path: str) -> None:
    """Be such a process."""
    owner = Owner(path, name)
    owner.open()
    owner.commit(30 if name == "third" else 25)
    if name == "killed":
        os._exit(0)
    owner.close()


SCENES: dict[str, Callable[[str], None]] = {
    "grandchild": grandchild,
    "one of two closed": one_of_two_closed,
    "read-only": read_only_counts,
    "failed open": failed_open,
    "another file": other_file,
    "blocking face": blocking_face,
    "memory": memory_store,
    "threads": threads_open_and_close,
    "normal end": child_ends_like_a_program,
}


def play(scene: Callable[[str], None]) -> None:
    """One scene, in a process of its own with a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="perdure-forks-") as folder:
        path = str(Path(folder) / "agents.db")
        line = Line("scene")
        pid = fork(lambda: line.serve(play=lambda: scene(path)))
        try:
            line.ask("play")
        finally:
            line.hang_up()
            os.waitpid(pid, 0)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scenes whose name contains this")
    parser.add_argument("--commit-as", nargs=2, metavar=("NAME", "PATH"), help="be a process of a scene")
    asked = parser.parse_args()
    if asked.commit_as:
        commit_as(*asked.commit_as)
        return 0
    played = 0
    for name, scene in SCENES.items():
        if asked.only not in name:
            continue
        try:
            play(scene)
        except Exception as error:  # noqa: BLE001 - reported with the line that replays it
            traceback.print_exc()
            print(f"{name}: {error}; replay: python -m tests.crash.fork_edges --only '{name}'", file=sys.stderr)
            return 1
        played += 1
        print(json.dumps({"progress": played}), flush=True)
    print(json.dumps({"figures": {"scenes": played}}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
