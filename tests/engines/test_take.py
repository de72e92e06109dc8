"""`take`: the first rows of an index, claimed once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import SCOPE, START, do, drive, open_engine

from perdure.clock import ManualClock
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Inc, Max, Min, Now, Put, Scan, Swap


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
