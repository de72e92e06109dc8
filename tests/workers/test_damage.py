"""Damaged records: a worker leaves them out, logs each of them once, and serves the others."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest
from tests.workers.scenes import ended, finish, serving
from tests.workers.test_serving import DEADLINE, on_memory

import perdure
from perdure import CorruptError, Store, Ticket
from perdure.clock import ManualClock
from perdure.kernel.ops import Patch
from perdure.workers import LEASES, finding
from perdure.workers.finding import Finder


async def damage(store: Store, table: str, *key: str) -> None:
    await store.engine.transact(store.scope, [Patch(table, key, {}, body=b"[")])


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


async def begun(store: Store, name: str, status: str, thread_id: str | None = None) -> None:
    """A run that is created, running, or waiting and ready."""
    thread_id = thread_id or name
    if status == "created":
        await store.runs.create(thread_id, "clerk", run_id=name)
        return
    run = await store.runs.start(thread_id, "clerk", run_id=name)
    if status == "waiting":
        await store.commit(thread_id, run=run.wait([Ticket(ticket_id="x", decision=True)]))


@pytest.mark.parametrize("status", ["created", "running", "waiting"])
def test_a_look_leaves_out_damaged_runs(
    status: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether they are first, last or between sound ones on a page, or all that is on a page."""
    monkeypatch.setattr(finding, "ACTIVE_THREADS", 1)
    monkeypatch.setattr(finding, "LONGEST_LOOK", 3600)
    damaged = [0, 7, 199, 200, 201, *range(400, 600), 604]

    async def body(store: Store, clock: ManualClock) -> None:
        for n in range(605):
            await begun(store, f"r-{n}", status)
            clock.advance(1)
        for n in damaged:
            await damage(store, "runs", f"r-{n}")
        finder = Finder(store, None)
        names = {run.id for _ in range(8) for run in await finder.look(1_000, set())}
        assert names == {f"r-{n}" for n in range(605) if n not in damaged}

    on_memory(body)
    lines = errors(caplog)
    assert len(lines) == len(damaged)
    assert [line for line in lines if "run 'r-199'" in line] == [
        line for line in lines if line.startswith("damaged data is left out: CorruptError: run 'r-199': ")
    ]


def test_a_damaged_run_does_not_hide_another_of_its_thread() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        finder = Finder(store, None)
        for name in ("damaged", "sound"):
            await begun(store, name, "waiting", "t")
        await damage(store, "runs", "damaged")
        assert [run.id for run in await finder.look(8, set())] == ["sound"]

    on_memory(body)


def test_a_run_of_a_thread_that_is_being_erased_stays_out_of_a_damaged_page() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        for name in ("damaged", "erased", "sound"):
            await begun(store, name, "created")
        await damage(store, "runs", "damaged")
        await store.threads.delete("erased")
        assert [run.id for run in await Finder(store, None).look(8, set())] == ["sound"]

    on_memory(body)


def test_a_damaged_lease_does_not_hide_the_runs_of_others(caplog: pytest.LogCaptureFixture) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        for name in ("damaged", "sound"):
            await begun(store, name, "created")
        await store.profiles.put(LEASES, "damaged", 1)
        await damage(store, "profiles", LEASES, "damaged")
        async with serving(store, finish):
            await ended(store, "sound")
        assert (await store.runs.get("damaged")).status == "created"

    on_memory(body)
    assert len([line for line in errors(caplog) if line.startswith("damaged data is left out: ")]) == 1


@pytest.mark.parametrize("column", ["body", "steps", "created_at"])
@pytest.mark.parametrize("status", ["created", "running", "waiting"])
def test_a_worker_serves_the_others_whatever_is_damaged(
    status: str, column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure.workers")

    async def body() -> None:
        async with asyncio.timeout(DEADLINE), perdure.open(tmp_path / "agents.db") as store:
            for name in ("damaged", "sound"):
                await begun(store, name, status)
            with sqlite3.connect(tmp_path / "agents.db") as database:
                database.execute("PRAGMA ignore_check_constraints = 1")
                database.execute(f"UPDATE runs SET {column} = '[' WHERE run = 'damaged'")
            database.close()
            with pytest.raises(CorruptError):
                await store.runs.list(status=status)
            async with serving(store, finish):
                await ended(store, "sound")

    asyncio.run(body())
    assert (
        len([line for line in errors(caplog) if "damaged data is left out: CorruptError: run 'damaged'" in line]) == 1
    )
