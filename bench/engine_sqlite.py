"""The SQLite engine alone against raw `sqlite3`: no stores, no encoding, the operations of a commit made
beforehand.

Raw is the baseline of the whole benchmark (`raw.RawThread`): the same bytes as prepared text, the same sync mode,
through one writer thread, sharing a sync when several clients wait. What is left between the two is what the engine
adds: indexes, conditions, revs, its Python. Run it with `python bench/engine_sqlite.py [--rounds 15] [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Case, interleave
from raw import RawThread, bodies
from report import Report
from workload import Commit, bare, with_state

from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.connections.connect import PAGE_SIZE
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.ids import new_id
from perdure.kernel.ops import ABSENT, NOW, Append, Inc, Op, Patch, Put, Seq
from perdure.stores.schema import SCHEMA

SCOPE = "default"
_serial = iter(range(10**9))


class EngineSubject:
    """The engine, given the operations that the stores make of a commit."""

    name = "engine"
    grows = False

    def __init__(self, engine: SqliteEngine, path: Path) -> None:
        self.engine = engine
        self.path = path

    def prepare(self, commit: Commit) -> list[tuple[tuple[Any, ...], ...] | list[tuple[str, bytes]]]:
        """Entries and documents as bytes, with ids minted."""
        ids = [new_id() for _ in commit.messages]
        entries = tuple(
            (mid, "assistant", 0, "all", "run", 1, NOW, body.encode())
            for mid, body in zip(ids, bodies(commit.messages), strict=True)
        )
        return [entries, [(name, str(value).encode()) for name, value in commit.state.items()]]

    async def create(self, thread: str, first: Commit) -> None:
        """A thread with its main branch and a running run."""
        entries, _ = self.prepare(first)
        head = {"version": len(entries), "branch": 0, "created_at": NOW, "updated_at": NOW, "active_run": thread}
        ops: list[Op] = [
            Put("thread_heads", (thread,), head, None, ABSENT),
            Put("branches", (thread, 0), {"name": "main", "length": len(entries)}, None, ABSENT),
            Put("runs", (thread,), {"thread": thread, "status": "running", "created_at": NOW}, b'{"agent":1}', ABSENT),
            Append("messages", thread, entries, 0),
        ]
        await self.engine.transact(SCOPE, ops)

    async def commit(self, thread: str, prepared: Any) -> None:
        """One transaction."""
        entries, documents = prepared
        moved = {"version": Inc(2), "updated_at": NOW, "active_run": thread, "open_run": thread, "latest_run": thread}
        step = {"updated_at": NOW, "steps": Inc(1), "output_tokens": Inc(7), "output_last": Seq("messages")}
        branch = {"head": entries[-1][0], "head_seq": Seq("messages"), "length": Inc(2)}
        ops: list[Op] = [
            Patch("thread_heads", (thread,), moved, {"branch": 0}),
            Patch("branches", (thread, 0), branch, {"deleted_at": None}),
            Append("messages", thread, entries),
            Patch("runs", (thread,), step),
        ]
        ops += [Put("state", (thread, "", name), {"schema": 1, "at": NOW}, body) for name, body in documents]
        await self.engine.transact(SCOPE, ops)


class Clients:
    """`clients` tasks that commit on threads of their own, `count` commits in all."""

    def __init__(self, subject: Any, make: Callable[[int], Commit], clients: int, count: int) -> None:
        self.subject, self.make, self.clients, self.count = subject, make, clients, count
        self.work: list[tuple[str, list[Any]]] = []

    async def setup(self) -> None:
        each = max(1, self.count // self.clients)
        self.work = []
        for _ in range(self.clients):
            thread = f"thread-{next(_serial):012d}"
            await self.subject.create(thread, bare(0))
            self.work.append((thread, [self.subject.prepare(self.make(i)) for i in range(each)]))

    async def run(self) -> int:
        await asyncio.gather(*[self._client(thread, commits) for thread, commits in self.work])
        return sum(len(commits) for _, commits in self.work)

    async def _client(self, thread: str, commits: list[Any]) -> None:
        for commit in commits:
            await self.subject.commit(thread, commit)


async def measure(rounds: int, *, quick: bool) -> None:
    """Bare and with state, 1, 16 and 64 clients."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        home = Path(directory)
        raw = RawThread(home / "raw.db", PAGE_SIZE)
        engine = EngineSubject(await open_sqlite(str(home / "engine.db"), SCHEMA), home / "engine.db")
        report = Report()
        for make, what in ((bare, "bare"), (with_state, "with state")):
            for clients, count in ((1, 100), (16, 640), (64, 1280)):
                counted = count // 2 if quick else count
                cases = [
                    Case(s.name, c.run, c.setup) for s in (raw, engine) for c in [Clients(s, make, clients, counted)]
                ]
                await interleave(cases, rounds)
                report.cases(f"{what}, {clients} clients", cases, cases[0])
        await raw.close()
        await engine.engine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.rounds, quick=arguments.quick))
