"""Looking for work among many waiting runs: cheap while nothing happens, and prompt when something does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.workers.test_serving import failing, on_memory

from perdure import CorruptError, Store, Ticket, UnavailableError
from perdure.clock import ManualClock
from perdure.kernel.ops import Patch
from perdure.workers import LEASES, finding
from perdure.workers.finding import Finder

WAITING = 1_000


async def waiting(store: Store, clock: ManualClock) -> Finder:
    """A finder that has been through all the waiting runs of a store."""
    for n in range(WAITING):
        run = await store.runs.start(f"t-{n}", "clerk", run_id=f"r-{n}")
        await store.commit(run.thread_id, run=run.wait([Ticket(ticket_id="x")]))
        clock.advance(1)
    finder = Finder(store, "clerk")
    for _ in range(4):
        assert await finder.look(8, set()) == []
    return finder


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LONGEST_LOOK", 3600)


def test_a_decision_is_found_at_once_however_many_runs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        for run_id in (f"r-{WAITING - 1}", "r-0", "r-500"):  # none of them on the page that is next
            clock.advance(1)
            await store.runs.decide(run_id, "x", True)
            assert run_id in [run.id for run in await finder.look(8, set())]

    on_memory(body)


def test_many_decisions_at_once_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        decided = [f"r-{n}" for n in range(400, 400 + 3 * finding.ACTIVE_THREADS)]
        for run_id in decided:
            clock.advance(1)
            await store.runs.decide(run_id, "x", True)
        runs = [run.id for _ in range(2) for run in await finder.look(1_000, set())]
        assert sorted(set(runs)) == sorted(decided)

    on_memory(body)


@pytest.mark.parametrize("future", [1, finding.ACTIVE_THREADS - 1, WAITING])
def test_decisions_are_found_after_the_clock_was_set_back(future: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads with a time to come stay at the top of the list, however many of them there are."""
    patient(monkeypatch)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        clock.advance(-future)
        for _ in range(8):
            await finder.look(8, set())
        decided = [f"r-{n}" for n in range(400, 400 + 3 * finding.ACTIVE_THREADS)]
        for run_id in decided:
            await store.runs.decide(run_id, "x", True)
        runs = [run.id for _ in range(2) for run in await finder.look(1_000, set())]
        assert sorted(set(runs)) == sorted(decided)

    on_memory(body)


def test_an_idle_look_reads_one_page_of_waiting_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    reads: Counter[str] = Counter()

    async def body(store: Store, clock: ManualClock) -> None:
        finder, listed = await waiting(store, clock), store.runs.list

        async def counted(**options: Any) -> Any:
            reads[str(options.get("status"))] += 1
            return await listed(**options)

        monkeypatch.setattr(store.runs, "list", counted)
        for _ in range(10):
            assert await finder.look(8, set()) == []

    on_memory(body)
    assert reads == {"created": 10, "running": 10, "waiting": 10}


@pytest.mark.parametrize("other", ["created", "running", "done"])
def test_a_decision_in_a_thread_with_another_run_is_found_at_once(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        run = await (store.runs.create if other == "created" else store.runs.start)("t-700", "other")
        if other == "done":
            await store.commit("t-700", run=run.finish())
        await store.runs.decide("r-700", "x", True)
        assert [run.id for run in await finder.look(8, set())] == ["r-700"]

    on_memory(body)


def test_a_backlog_of_younger_runs_does_not_hide_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although there are always more of them than hands, and the older one is far from the last active threads."""
    patient(monkeypatch)
    monkeypatch.setattr(finding, "ACTIVE_THREADS", 4)
    monkeypatch.setattr(finding, "MOST_PAGES", 1)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        await finder.look(1, set())
        younger = [f"r-{n}" for n in range(900, 940)]
        for run_id in ["r-500", *younger[:5]]:
            clock.advance(1)
            await store.runs.decide(run_id, "x", True)
        names: list[str] = []
        for run_id in younger[5:20]:
            for run in await finder.look(1, set()):
                names.append(run.id)
                await store.runs.cancel(run.id)
            clock.advance(1)
            await store.runs.decide(run_id, "x", True)
        assert "r-500" in names

    on_memory(body)


def test_a_backlog_behind_many_waiting_runs_is_found_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    monkeypatch.setattr(finding, "ACTIVE_THREADS", 1)

    async def body(store: Store, clock: ManualClock) -> None:
        await waiting(store, clock)
        decided = [f"r-{n}" for n in range(WAITING - 5, WAITING)]
        for run_id in decided:
            await store.runs.decide(run_id, "x", True)
        clock.advance(1)
        await store.runs.create("t", "other")
        finder, names = Finder(store, "clerk"), list[str]()
        for _ in decided:
            names += [run.id for run in await finder.look(1, set(names))]
        assert names == decided

    on_memory(body)


def test_a_damaged_thread_does_not_hide_the_runs_of_others() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        for name in ("damaged", "sound"):
            run = await store.runs.start(name, "clerk", run_id=name)
            await store.commit(name, run=run.wait([Ticket(ticket_id="x")]))
        finder = Finder(store, None)
        await store.engine.transact(store.scope, [Patch("threads", ("damaged",), {}, body=b"[")])
        with pytest.raises(CorruptError):
            await store.threads.list()
        assert await finder.look(8, set()) == []
        await store.runs.decide("sound", "x", True)
        assert [run.id for run in await finder.look(8, set())] == ["sound"]

    on_memory(body)


@pytest.mark.parametrize("reason", ["busy here", "leased", "no hands"])
def test_a_decision_on_a_run_that_was_not_free_yet_is_not_missed(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        await store.runs.decide("r-990", "x", True)
        if reason == "leased":
            await store.profiles.put(LEASES, "r-990", 1)
        if reason == "no hands":
            await store.runs.decide("r-980", "x", True)
        skip = {"r-990"} if reason == "busy here" else set[str]()
        assert "r-990" not in [run.id for run in await finder.look(1, skip)]
        await store.profiles.delete(LEASES, "r-990")
        assert "r-990" in [run.id for run in await finder.look(8, set())]

    on_memory(body)


def test_a_decision_before_an_outage_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)

    async def body(store: Store, clock: ManualClock) -> None:
        finder = await waiting(store, clock)
        await store.runs.decide("r-990", "x", True)
        for name in ("runs", "threads"):
            with monkeypatch.context() as patch:
                lists = getattr(store, name)
                patch.setattr(lists, "list", failing(lists.list, UnavailableError("down")))
                with pytest.raises(UnavailableError):
                    await finder.look(8, set())
        assert [run.id for run in await finder.look(8, set())] == ["r-990"]

    on_memory(body)
