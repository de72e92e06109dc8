"""`take`: the first rows of an index, claimed once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.engines.mysql_place import stranger
from tests.engines.toys import (
    DEADLINE,
    SCOPE,
    SERVERS,
    START,
    do,
    drive,
    empty_place,
    open_at,
    open_engine,
    watching,
)

from perdure.clock import ManualClock
from perdure.kernel.engine import EVERYTHING, Engine
from perdure.kernel.ops import NOW, Inc, Max, Min, Now, Put, Scan, Swap

ENDED = {"due": None}


async def fill(engine: Engine, count: int = 6) -> None:
    rows = [Put("items", (f"i{n:04}",), {"owner": "o", "rank": n, "due": START + n, "n": 0}) for n in range(count)]
    await do(engine, *rows)


def test_take_claims_in_order_within_the_bound(on: Any, clock: ManualClock) -> None:
    async def scenario(engine: Engine) -> None:
        await fill(engine)
        taken = await engine.take(
            SCOPE, Scan("items", "due", (), limit=3, upto={"due": START + 3}), {"due": Now(1000), "n": Inc(1)}
        )
        assert taken.now == START
        assert sorted(row.key[0] for row in taken.rows) == ["i0000", "i0001", "i0002"]
        assert {(row["due"], row["n"]) for row in taken.rows} == {(START + 1000, 1)}
        assert len({row.rev for row in taken.rows}) == 1
        again = await engine.take(SCOPE, Scan("items", "due", (), limit=3, upto={"due": START + 3}), {"due": None})
        assert [row.key[0] for row in again.rows] == ["i0003"]
        ((stored,),) = await engine.view(SCOPE, [Scan("items", where={"id": "i0003"})])
        assert (stored["due"], stored.rev) == (None, again.rows[0].rev)
        clock.advance(2000)
        later = await engine.take(SCOPE, Scan("items", "due", (), limit=9, upto={"due": START + 2000}), {"n": 5})
        assert len(later.rows) == 5

    on(scenario)


def test_take_sets_whatever_a_patch_may_set(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("i",), {"due": 1, "n": 5, "rank": 5, "note": "a", "owner": "o"}))
        turns: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"note": Swap("a", "b"), "due": 2}, {"note": "b", "due": 2}),
            ({"note": Swap("a", "c"), "owner": Swap("o", None), "due": Inc(1)}, {"note": "b", "owner": None, "due": 3}),
            ({"owner": Swap(None, "p"), "n": Max(9), "rank": Min(3)}, {"owner": "p", "n": 9, "rank": 3}),
            (
                {"n": Max(1), "rank": Min(7), "due": Now(-START), "note": None},
                {"n": 9, "rank": 3, "due": 0, "note": None},
            ),
        ]
        for change, wanted in turns:
            (row,) = (await engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 9}), change)).rows
            assert {name: row[name] for name in wanted} == wanted
            ((stored,),) = await engine.view(SCOPE, [Scan("items", "due", ())])
            assert stored == row
        assert await engine.check() == []

    on(scenario)


def test_take_within_a_group_and_with_a_second_bound(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await fill(engine)
        await do(engine, Put("items", ("other",), {"owner": "p", "rank": 0, "due": START}))
        bounds = {"rank": 4, "due": START + 1}
        taken = await engine.take(SCOPE, Scan("items", "owned", ("o",), limit=9, upto=bounds), {"owner": "gone"})
        assert sorted(row.key[0] for row in taken.rows) == ["i0000", "i0001"]
        nothing = await engine.take(SCOPE, Scan("items", "owned", ("nobody",), limit=1, upto={"rank": 9}), {"n": 1})
        assert nothing.rows == []

    on(scenario)


def test_no_row_is_claimed_twice_by_tasks(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await fill(engine, 200)
        claimed: list[str] = []

        async def worker() -> None:
            bound = {"due": START + 10_000}
            while rows := (await engine.take(SCOPE, Scan("items", "due", (), limit=3, upto=bound), {"due": None})).rows:
                claimed.extend(row.key[0] for row in rows)

        await asyncio.gather(*[worker() for _ in range(12)])
        assert sorted(claimed) == [f"i{n:04}" for n in range(200)]

    on_tasks(scenario)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_no_row_is_claimed_twice_by_threads(kind: str, tmp_path: Path, clock: ManualClock) -> None:
    engine = drive(open_engine(kind, tmp_path, clock)).blocking()
    assert engine is not None
    drive(fill(engine, 200))
    claimed: list[str] = []

    def worker() -> None:
        bound = {"due": START + 10_000}
        while rows := drive(engine.take(SCOPE, Scan("items", "due", (), limit=2, upto=bound), {"due": None})).rows:
            claimed.extend(row.key[0] for row in rows)

    threads = [threading.Thread(target=worker) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drive(engine.close())
    assert sorted(claimed) == [f"i{n:04}" for n in range(200)]


def test_equal_times_are_taken_by_key(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, *[Put("items", (key,), {"due": START}) for key in ("b", "é", "a", "B", "ab")])
        order = []
        while rows := (await engine.take(SCOPE, Scan("items", "due", (), limit=2, upto={"due": NOW}), ENDED)).rows:
            order.append([row.key[0] for row in rows])
        assert order == [["B", "a"], ["ab", "b"], ["é"]]

    on(scenario)


def test_a_take_wakes_watchers_if_it_changed_rows(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await fill(engine, 2)
        watch = await watching(engine, "a", "b")
        scan = Scan("items", "due", (), limit=1, upto={"due": Now(60_000)})
        nothing = Scan("items", "due", (), limit=1, upto={"due": Now(-60_000)})
        assert (await engine.take(SCOPE, nothing, ENDED, ["a"])).rows == []
        assert (await engine.take("elsewhere", scan, ENDED, ["a"])).rows == []
        await engine.transact(SCOPE, [Put("pairs", ("p", 1), {})], ["b"])
        assert await watch.wait(DEADLINE) == {(SCOPE, "b")}, "hints come in order, so there was none before"
        for topics in (["a", "c"], ["b"]):
            assert len((await engine.take(SCOPE, scan, ENDED, topics)).rows) == 1
            assert await watch.wait(DEADLINE) == {(SCOPE, topics[0])}
        watch.close()

    on_tasks(scenario)


def test_a_blocking_take_wakes_a_waiting_thread(tmp_path: Path, clock: ManualClock) -> None:
    for kind in ("memory", "sqlite"):
        engine = drive(open_engine(kind, tmp_path, clock)).blocking()
        assert engine is not None
        drive(fill(engine, 1))
        watch = engine.watch(SCOPE, ["a"])
        scan = Scan("items", "due", (), limit=1, upto={"due": NOW})
        taker = threading.Thread(target=lambda e=engine, s=scan: drive(e.take(SCOPE, s, ENDED, ["a"])))
        taker.start()
        assert drive(watch.wait(DEADLINE)) == {(SCOPE, "a")}
        taker.join()
        watch.close()
        drive(engine.close())


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_takes_of_another_engine_are_heard(kind: str, tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        place = await empty_place(kind, tmp_path)
        here, there = [await open_at(kind, place, clock) for _ in range(2)]
        await fill(here, 3)
        one, every = await watching(here, "a"), here.watch(None, ["mailbox"])
        for watch in (one, every):
            while await watch.wait(0.5):
                pass
        scan = Scan("items", "due", (), limit=1, upto={"due": Now(60_000)})
        await there.take(SCOPE, scan, ENDED, ["a", "mailbox"])
        for watch, hints in ((one, {(SCOPE, "a")}), (every, {(SCOPE, "mailbox")})):
            assert await watch.wait(DEADLINE) == (EVERYTHING if kind == "sqlite" else hints)
        for engine in (here, there):
            await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_locked_row_is_skipped_and_taken_later(kind: str, tmp_path: Path, clock: ManualClock) -> None:
    """Whoever holds the oldest row holds up nobody; once it is free, it is the first again."""

    async def main() -> None:
        place = await empty_place(kind, tmp_path)
        engine = await open_at(kind, place, clock)
        await fill(engine, 4)

        async def first(limit: int = 1) -> list[str]:
            scan = Scan("items", "due", (), limit=limit, upto={"due": Now(60_000)})
            async with asyncio.timeout(DEADLINE):
                return [row.key[0] for row in (await engine.take(SCOPE, scan, {"due": Now(90_000)})).rows]

        async with locked_row(kind, place, "i0000"):
            assert await first() == ["i0001"]
            assert await first(9) == ["i0002", "i0003"]
            assert await first() == []
        assert await first(9) == ["i0000"]
        await engine.close()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def locked_row(kind: str, place: str, key: str) -> AsyncIterator[None]:
    """A row that a transaction of somebody else holds."""
    if kind == "mysql":
        holder = await stranger(place)
        await holder.run(f"START TRANSACTION; SELECT * FROM items WHERE id = '{key}' FOR UPDATE")
        yield
        await holder.run("ROLLBACK")
        await holder.close()
        return
    link = await asyncpg.connect(place)
    async with link.transaction():
        await link.execute(f"SELECT 1 FROM perdure.items WHERE id = '{key}' FOR UPDATE")
        yield
    await link.close()
