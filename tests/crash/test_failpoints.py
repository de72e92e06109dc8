"""Every failpoint of the product is crossed with a crash, and what the crash left is recovered from.

The test is parametrised by the product's own list, so a point without a scenario fails, and so does a point that its
scenario does not reach: the child must die by SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.ledger import remains
from tests.crash.scenarios import LARGE, THREAD, exported, fill, imported, said

import perdure
from perdure import failpoints, limits
from perdure.audit import verify_engine
from perdure.engines.sqlite import open_sqlite
from perdure.kernel.ops import Op, Patch
from perdure.stores.cleanup import sweep
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.testkit.cases.large_families import put_children

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "schema-1.db"
DEADLINE = 120

Check = Callable[[str, list[str]], Coroutine[Any, Any, None]]


async def _nothing(path: str) -> None:
    """A scenario that starts from an empty folder."""


def commit_left(landed: bool) -> Check:
    """What is there is what was acknowledged, and the commit in flight wholly (or not at all)."""

    async def check(path: str, told: list[str]) -> None:
        count = len(told) + landed
        async with perdure.open(path) as store:
            await sound(store)
            if not count:
                demand(await store.threads.find(THREAD) is None, "nothing was committed")
                return
            ids = [record.message_id async for record in store.messages.iter(THREAD)]
            demand(ids == [m.id for n in range(1, count + 1) for m in said(n)], f"{count} commits, {ids}")
            demand((await store.state.get(THREAD, "n")).value == count, "the document is of another commit")
            latest = await store.runs.latest(THREAD)
            demand(latest is not None and latest.id == f"run-{count}", f"the latest run is {latest}")
            retried = await store.commit(
                THREAD,
                messages=said(len(told) + 1),
                run=perdure.NewRun(agent_id="agent", id=f"run-{len(told) + 1}"),
                state={"n": len(told) + 1},
                key=f"key-{len(told) + 1}",
            )
            demand(retried.replayed == landed, f"the retry says replayed={retried.replayed}")
            demand(retried.version == 2 * (len(told) + 1), f"after the retry the version is {retried.version}")
            await sound(store)

    return check


async def fill_family(path: str) -> None:
    """A thread with more children than one transaction deletes."""
    await fill(path)
    async with perdure.open(path, housekeeping=False) as store:
        before = (await store.threads.get(THREAD)).children
        await put_children(store, THREAD, limits.CASCADE_THREADS)
        ops: list[Op] = [Patch("thread_heads", (THREAD,), {"children": limits.CASCADE_THREADS + before})]
        await store.engine.transact(store.scope, ops)


async def deletion_finished(path: str, told: list[str]) -> None:
    demand(not told, "the deletion was acknowledged before it was finished")
    async with perdure.open(path, housekeeping=False) as store:
        await sweep(store._context)
        for thread in (THREAD, "child"):
            demand(await store.threads.find(thread) is None, f"{thread} is still visible")
            demand(not await remains(store, thread), f"{await remains(store, thread)} of {thread} are left")
        demand((await store.threads.get("parent")).children == 0, "the parent still counts a child")
        await sound(store)


async def created_again(path: str, told: list[str]) -> None:
    demand(not told, "the file was acknowledged before it was made")
    async with perdure.open(path) as store:
        await store.threads.create(THREAD)
        await sound(store)


OLDER = msgspec.structs.replace(
    SCHEMA,
    version=SCHEMA.version - 1,
    tables=tuple(
        msgspec.structs.replace(table, indexes=table.indexes[1:], columns=table.columns[:-1])
        if table.name == "queues"
        else table
        for table in SCHEMA.tables
        if table.name != "labels"
    ),
)
"""The same data before a table, an index and a column were added."""


async def older_file(path: str) -> None:
    engine = await open_sqlite(path, OLDER)
    store = Store(engine)
    await store.commit(THREAD, messages=said(1), state={"n": 1})
    await store.close()


async def migrated(path: str, told: list[str]) -> None:
    demand(not told, "the migration was acknowledged before it was finished")
    untouched = await open_sqlite(path, OLDER)
    await untouched.close()
    async with perdure.open(path) as store:
        ids = [record.message_id async for record in store.messages.iter(THREAD)]
        demand(ids == ["1.0", "1.1"], f"the messages are {ids}")
        await store.branches.label(THREAD, "1.0", "a new table")
        await sound(store)


async def committed_file(path: str) -> None:
    """A file that an earlier build wrote."""
    await asyncio.to_thread(shutil.copyfile, FIXTURE, path)


async def committed_file_migrated(path: str, told: list[str]) -> None:
    demand(not told, "the migration was acknowledged before it was finished")
    async with perdure.open(path) as store:
        threads = [thread async for thread in store.threads.iter()]
        demand(bool(threads), "the old file's threads are gone")
        await sound(store)


async def export_beside(path: str) -> None:
    lines = await exported(f"{path}.source.db")
    await asyncio.to_thread(Path(f"{path}.jsonl").write_bytes, b"\n".join(lines) + b"\n")


async def import_repeated(path: str, told: list[str]) -> None:
    demand(not told, "the import was acknowledged before it was finished")
    async with perdure.open(path) as store:
        demand(await store.threads.find(THREAD) is None, "half an import is visible")
        await sound(store)
    await imported(path)
    async with perdure.open(path) as store:
        demand((await store.threads.get(THREAD)).version == LARGE, "the import is not whole")
        await sound(store)


SCENARIOS: dict[str, list[tuple[str, int, Callable[[str], Coroutine[Any, Any, None]], Check]]] = {
    "commit.before_transact": [("commits", n, _nothing, commit_left(landed=False)) for n in (1, 4)],
    "commit.after_transact": [("commits", n, _nothing, commit_left(landed=True)) for n in (1, 3)],
    "sqlite.before_begin": [("commits", n, _nothing, commit_left(landed=False)) for n in (1, 5)],
    "sqlite.after_member": [("commits", n, _nothing, commit_left(landed=False)) for n in (1, 5)],
    "sqlite.before_commit": [("commits", n, _nothing, commit_left(landed=False)) for n in (1, 5)],
    "sqlite.after_commit": [("commits", n, _nothing, commit_left(landed=True)) for n in (1, 5)],
    "delete.after_tombstone": [("delete", 1, fill, deletion_finished)],
    "delete.between_chunks": [("delete", n, fill_family, deletion_finished) for n in (1, 4)],
    "delete.between_erasures": [("delete", n, fill, deletion_finished) for n in (1, 2, 4)],
    "sqlite.in_migration": [
        *[("opened", n, _nothing, created_again) for n in (1, 9)],
        *[("opened", n, older_file, migrated) for n in (1, 3)],
        *[("opened", n, committed_file, committed_file_migrated) for n in (1, 2)],
    ],
    "import.between_chunks": [("imported", n, export_beside, import_repeated) for n in (1, 2)],
}
ON_SERVERS = {"mysql.in_migration", "postgres.in_migration"}
"""Crossed by the tests of those engines, which have a server."""
POINTS = [point for point in failpoints.POINTS if point not in ON_SERVERS]
CROSSINGS = [(point, number) for point in POINTS for number in range(len(SCENARIOS.get(point, ())) or 1)]


@pytest.mark.parametrize(("point", "number"), CROSSINGS)
def test_a_crash_here_is_recovered_from(point: str, number: int, tmp_path: Path) -> None:
    demand(point in SCENARIOS, f"no scenario crosses {point}")
    program, after, prepare, check = SCENARIOS[point][number]
    path = str(tmp_path / "crashed.db")
    asyncio.run(prepare(path))
    died = subprocess.run(
        [sys.executable, "-m", "tests.crash.scenarios", program, path],
        env={**os.environ, "PERDURE_FAILPOINTS": f"{point}=crash@{after}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    demand(died.returncode == -signal.SIGKILL, f"{point} was not crossed: {died.returncode} {died.stderr}")
    asyncio.run(check(path, died.stdout.splitlines()))


def test_no_scenario_is_left_over() -> None:
    demand(set(SCENARIOS) == set(POINTS), f"{set(SCENARIOS) ^ set(POINTS)}")


def demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


async def sound(store: Store) -> None:
    findings = await verify_engine(store.engine)
    demand(not findings, "; ".join(map(str, findings)))
