"""Bounds on the engine's clock: `Now` in conditions, in `Max` and `Min`, and in the `upto` of a `take`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engines.as_kinds import filled
from tests.engines.toys import SCOPE, START, columns, do, refused, row

from perdure.clock import ManualClock
from perdure.errors import InvalidError
from perdure.kernel.engine import Conflict, Engine
from perdure.kernel.ops import (
    NOW,
    PRESENT,
    AtMost,
    Check,
    Default,
    Delete,
    Inc,
    Max,
    Min,
    Now,
    Op,
    Patch,
    Put,
    Ref,
    Scan,
)
from perdure.kernel.validate import Kernel, check_ops, check_reads

BOTH_WAYS = pytest.mark.parametrize("as_kind", [False, True], ids=["operations", "kind"])


async def send(engine: Engine, as_kind: bool, *ops: Op) -> Any:
    """One transaction, as operations or as a filled kind."""
    check_ops(engine.schema, ops)
    if as_kind and hasattr(type(engine), "transact_filled"):
        fill: Any = engine
        return await fill.transact_filled(SCOPE, filled(list(ops)), ())
    return await do(engine, *ops)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("stored", "limit", "met"),
    [
        (START, NOW, True),
        (START - 1, NOW, True),
        (START + 1, NOW, False),
        (None, NOW, True),
        (START + 500, Now(500), True),
        (START + 501, Now(500), False),
        (START - 500, Now(-500), True),
        (START - 499, Now(-500), False),
    ],
)
def test_a_condition_on_the_clock(on: Any, stored: Any, limit: Now, met: bool, as_kind: bool) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"due": stored, "name": "x"}))
        condition = {"name": "x", "due": AtMost(limit)}
        conditional: list[Op] = [
            Check("items", ("a",), condition),
            Patch("items", ("a",), {"note": "p"}, condition),
            Patch("items", ("a",), {"note": "p"}, condition, default=Default({})),
            Delete("items", ("a",), condition),
        ]
        for op in conditional:
            if met:
                await send(engine, as_kind, op)
            else:
                conflict = await refused(send(engine, as_kind, op))
                assert (conflict.kind, conflict.expected) == ("condition", condition)
                assert conflict.actual == {"name": "x", "due": stored}
        assert (await row(engine, "items", "a") is None) is met

    on(scenario)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("stored", "change", "outcome"),
    [
        (None, Min(NOW), START),
        (None, Max(NOW), START),
        (START - 7, Min(NOW), START - 7),
        (START + 7, Min(NOW), START),
        (START - 7, Max(NOW), START),
        (START + 7, Max(NOW), START + 7),
        (START + 7, Min(Now(9)), START + 7),
        (START + 7, Min(Now(-9)), START - 9),
        (START - 7, Max(Now(-9)), START - 7),
        (START - 7, Max(Now(9)), START + 9),
        (START, Now(60_000), START + 60_000),
        (0, Max(Now(-START)), 0),
        (5, Min(Now(-START - 3)), -3),
    ],
)
def test_a_change_bounded_by_the_clock(on: Any, stored: Any, change: Any, outcome: int, as_kind: bool) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"due": stored}), Put("items", ("b",), {"n": 1}))
        applied = await send(
            engine,
            as_kind,
            Patch("items", ("a",), {"due": change, "n": Max(3)}, PRESENT),
            Patch("items", ("b",), {"n": Inc(1), "rank": NOW}, {"n": AtMost(Now())}),
        )
        assert applied.now == START
        assert await columns(engine, "items", "a") == {"due": outcome, "n": 3}
        assert await columns(engine, "items", "b") == {"n": 2, "rank": START}
        assert await engine.check() == []
        # The index has the new value.
        taking = engine.take(SCOPE, Scan("items", "due", (), limit=9, upto={"due": outcome - 1}), {"n": 0})
        assert (await taking).rows == []
        taking = engine.take(SCOPE, Scan("items", "due", (), limit=9, upto={"due": outcome}), {"n": 0})
        assert [taken.key for taken in (await taking).rows] == [("a",)]

    on(scenario)


def test_one_transaction_has_one_time(on: Any, clock: ManualClock) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"due": START + 5, "rank": START + 5}))
        clock.advance(5)
        await do(
            engine,
            Patch("items", ("a",), {"due": NOW, "rank": Max(NOW), "n": Min(Now(1))}, {"due": AtMost(NOW)}),
            Put("items", ("b",), {"due": NOW}),
        )
        assert await columns(engine, "items", "a") == {"due": START + 5, "rank": START + 5, "n": START + 6}
        assert await columns(engine, "items", "b") == {"due": START + 5}

    on(scenario)


def test_take_of_what_is_due(on: Any, clock: ManualClock) -> None:
    async def scenario(engine: Engine) -> None:
        kernel = Kernel(engine)
        dues = {"early": START - 1000, "now": START, "soon": START + 1, "late": START + 1000, "never": None}
        await do(engine, *[Put("items", (name,), {"due": due, "n": 0}) for name, due in dues.items()])

        async def due(upto: Any, **changes: Any) -> list[str]:
            taken = await kernel.take(SCOPE, Scan("items", "due", (), limit=9, upto={"due": upto}), changes)
            assert taken.now == clock.now
            return [row.key[0] for row in taken.rows]

        assert await due(START - 1, n=Inc(1)) == ["early"]
        assert await due(NOW, n=Inc(1)) == ["early", "now"]
        assert await due(START - 1, n=Inc(-1)) == ["early"]
        assert await due(Now(-1), n=Inc(1)) == ["early"]
        assert await due(Now(1), n=Inc(1)) == ["early", "now", "soon"]
        clock.advance(1)
        assert await due(NOW, due=Now(500), rank=Max(NOW), n=Min(Now(-START))) == ["early", "now", "soon"]
        assert await columns(engine, "items", "soon") == {"due": START + 501, "rank": START + 1, "n": 1}
        assert await columns(engine, "items", "early") == {"due": START + 501, "rank": START + 1, "n": 1}
        assert await due(NOW, n=0) == []
        clock.advance(-10)
        assert await due(Now(509), n=0) == []
        assert await due(Now(510), due=None) == ["early", "now", "soon"]
        clock.advance(10**12)
        assert await due(NOW, due=None) == ["late"], "a row without a due time is never due"
        assert await engine.check() == []

    on(scenario)


def test_bounds_on_the_clock_and_others_take_turns(on: Any) -> None:
    """What looks alike but for its bound has another statement or script."""

    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"due": 1, "n": 3, "rank": 9}))
        for upper, lower in ((5, 7), (NOW, Now(-1)), (6, 8), (Now(2), Now(-2)), (START, START)):
            scan = Scan("items", "due", (), limit=1, upto={"due": upper})
            (row,) = (await engine.take(SCOPE, scan, {"n": Max(upper), "rank": Min(lower)})).rows
            await do(engine, Patch("items", ("a",), {"n": Max(upper), "rank": Min(lower)}, {"due": AtMost(upper)}))
        assert (row["n"], row["rank"]) == (START + 2, 7)
        assert await columns(engine, "items", "a") == {"due": 1, "n": START + 2, "rank": 7}

    on(scenario)


def test_a_second_bound_may_be_the_clock_too(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        rows = [("a", 1, START), ("b", 2, START + 1), ("c", 3, None), ("d", 4, START - 1), ("e", 9, START)]
        await do(engine, *[Put("items", (key,), {"owner": "o", "rank": n, "due": due}) for key, n, due in rows])
        scan = Scan("items", "owned", ("o",), limit=9, upto={"rank": 4, "due": NOW})
        assert [row.key[0] for row in (await engine.take(SCOPE, scan, {"note": "x"})).rows] == ["a", "d"]
        scan = Scan("items", "two", ("o", "x"), limit=1, upto={"rank": Now(), "due": 2**52})
        assert [row.key[0] for row in (await engine.take(SCOPE, scan, {"note": None})).rows] == ["a"]
        scan = Scan("items", "owned", ("o",), where={"note": "x"}, limit=9, upto={"rank": NOW, "due": Now(-1)})
        assert [row.key[0] for row in (await engine.take(SCOPE, scan, {"note": None})).rows] == ["d"]

    on(scenario)


SCAN = Scan("items", "due", (), limit=1, upto={"due": NOW})


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (Patch("items", ("a",), {}, {"name": AtMost(NOW)}), "AtMost of items.name bounds a column of text"),
        (Patch("items", ("a",), {}, {"name": AtMost("x")}), "bounds a column of text"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {}, {"due": NOW}), "due must be an integer"),
        (Patch("items", ("a",), {}, {"due": AtMost(None)}), "AtMost of items.due must be an integer"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {}, {"due": AtMost(Inc(1))}), "or Now, not Inc"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {}, {"due": AtMost(Now(2**51 + 1))}), "the offset of Now"),
        (Patch("items", ("a",), {"due": Max(Now("1"))}), "the offset of Now"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {"due": Min(Now(1.5))}), "the offset of Now"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {"due": Now(True)}), "the offset of Now"),
        (Patch("items", ("a",), {"due": Min(None)}), "Min of items.due must be"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {"due": Max(2**53)}), "Max of items.due must be"),
        (Patch("items", ("a",), {"name": Max(NOW)}), "name must be text"),
        (Patch("items", ("a",), {"due": Inc(NOW)}), "Inc of items.due must be"),  # type: ignore[arg-type]
        (Patch("items", ("a",), {"n": 1}, default=Default({"due": Min(NOW)})), "due must be an integer"),
        (Put("items", ("a",), {"due": Max(NOW)}), "due must be an integer"),
        (Put("items", ("a",), {"due": Now(-(2**51) - 1)}), "the offset of Now"),
    ],
)
def test_nonsense_is_refused_at_the_door(op: Op, words: str) -> None:
    from tests.engines.toys import SCHEMA

    with pytest.raises(InvalidError, match=words):
        check_ops(SCHEMA, [op])


def test_nonsense_takes_and_scans_are_refused(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        kernel = Kernel(engine)
        wrong: list[tuple[Scan, str]] = [
            (Scan("items", "due", (), limit=1, upto={"due": None}), "upto of items.due must be an integer"),  # type: ignore[dict-item]
            (Scan("items", "due", (), limit=1, upto={"due": Now(2**60)}), "the offset of Now"),
            (Scan("items", "due", (), limit=1, upto={"due": Max(NOW)}), "or Now, not Max"),  # type: ignore[dict-item]
            (Scan("items", "due", (), limit=1, upto={"due": NOW, "name": NOW}), "bounds a column of text"),
            (Scan("items", "due", (), limit=1, upto={"due": NOW, "nothing": NOW}), "no column nothing"),
            (Scan("items", "due", (), limit=1, upto={"n": NOW}), "must bound due"),
            (Scan("items", "owned", (Ref(0, ("id",)),), limit=1, upto={"rank": NOW}), "a Ref names an earlier read"),
        ]
        for scan, words in wrong:
            with pytest.raises(InvalidError, match=words):
                await kernel.take(SCOPE, scan, {"n": 1})
        for changes in ({"due": Max(Now(2**60))}, {"name": Min(NOW)}, {"due": Min("x")}):  # type: ignore[arg-type]
            with pytest.raises(InvalidError):
                await kernel.take(SCOPE, SCAN, changes)
        with pytest.raises(InvalidError, match="not Now"):
            check_reads(engine.schema, [Scan("items", "due", (), upto={"due": NOW})])

    on_tasks(scenario)


@BOTH_WAYS
def test_many_at_once_are_judged_one_by_one(on_tasks: Any, as_kind: bool) -> None:
    """Transactions that share a batch: some leases are free, others are held, and each gets its own answer."""

    async def scenario(engine: Engine) -> None:
        leases = {f"i{n:02}": START + (1 if n % 3 else 0) for n in range(40)}
        await do(engine, *[Put("items", (key,), {"due": due, "n": 0}) for key, due in leases.items()])

        async def hold(key: str, number: int) -> Any:
            changes = {"due": Max(Now(1000)), "rank": Min(Now(number)), "n": Inc(1)}
            try:
                await send(engine, as_kind, Patch("items", (key,), changes, {"due": AtMost(NOW)}))
            except Conflict as conflict:
                return conflict.actual
            return key

        for _ in range(2):  # the second time, engines know the kind
            holders = await asyncio.gather(*[hold(key, number) for number, key in enumerate(leases)])
            free = [key for key, due in leases.items() if due <= START]
            assert holders == [key if key in free else {"due": due} for key, due in leases.items()]
            (rows,) = await engine.view(SCOPE, [Scan("items", "due", (), upto={"due": START + 1000})])
            assert {row.key[0]: (row["due"], row["rank"]) for row in rows if row["n"]} == {
                key: (START + 1000, START + number) for number, key in enumerate(leases) if key in free
            }
            await do(
                engine, *[Patch("items", (key,), {"due": due, "n": 0, "rank": None}) for key, due in leases.items()]
            )

    on_tasks(scenario)
