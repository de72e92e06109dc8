"""Uniqueness: within a scope, among values that are not NULL, and never by the order of operations."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from tests.engines.toys import columns, do, note, notes, refused, row

from perdure.kernel.engine import Engine
from perdure.kernel.ops import ABSENT, Append, Default, Delete, Drop, Op, Patch, Put, Swap


def test_a_value_has_one_owner(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"name": "x"}), Put("items", ("b",), {"name": "y"}))
        takers: list[Op] = [
            Put("items", ("c",), {"name": "x"}),
            Put("items", ("c",), {"name": "x"}, None, ABSENT),
            Put("items", ("b",), {"name": "x"}),
            Patch("items", ("b",), {"name": "x"}),
            Patch("items", ("b",), {"name": Swap("y", "x")}),
            Patch("items", ("c",), {"n": 1}, default=Default({"name": "x"})),
        ]
        for op in takers:
            conflict = await refused(do(engine, op))
            assert (conflict.op, conflict.kind, conflict.actual) == (0, "unique", {"name": "x"})
        await do(engine, Put("items", ("a",), {"name": "x", "n": 2}))
        await do(engine, Patch("items", ("a",), {"name": "x"}))
        assert await row(engine, "items", "c") is None

    on(scenario)


def test_null_is_not_a_value(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, *[Put("items", (key,), {"n": 1}) for key in "abc"])
        await do(engine, Put("pairs", ("x", 1), {}), Put("pairs", ("x", 2), {}))

    on(scenario)


def test_a_group_is_unique_as_a_whole(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("pairs", ("x", 1), {"v": "n"}), Put("pairs", ("y", 1), {"v": "n"}))
        conflict = await refused(do(engine, Put("pairs", ("x", 2), {"v": "n"})))
        assert (conflict.kind, conflict.actual) == ("unique", {"a": "x", "v": "n"})

    on(scenario)


def test_a_released_value_is_free_in_the_next_transaction(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"name": "x"}))
        await do(engine, Patch("items", ("a",), {"name": None}))
        await do(engine, Put("items", ("b",), {"name": "x"}))
        await do(engine, Delete("items", ("b",)))
        await do(engine, Put("items", ("c",), {"name": "x"}))
        assert await columns(engine, "items", "c") == {"name": "x"}

    on(scenario)


def test_two_rows_cannot_take_one_value_together(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        takes = [Put("items", (key,), {"name": "x"}, None, ABSENT) for key in "cd"]
        for ops in permutations(takes):
            assert (await refused(do(engine, *ops))).kind == "unique"
            assert await row(engine, "items", "c") is None
            assert await row(engine, "items", "d") is None

    on(scenario)


def test_several_rows_take_values_together(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, *[Put("items", (key,), {"name": key}, None, ABSENT) for key in "abc"])
        await do(
            engine,
            Patch("items", ("a",), {"n": 1}),
            Put("items", ("d",), {"name": "d"}, None, ABSENT),
            Patch("items", ("e",), {"n": 1}, default=Default({"name": "e"})),
        )
        assert await columns(engine, "items", "a") == {"name": "a", "n": 1}
        await do(engine, *[Delete("items", (key,)) for key in "abd"])
        assert await columns(engine, "items", "e") == {"name": "e"}

    on(scenario)


def test_log_values_are_unique_per_partition(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, notes("t", "a", "b"), notes("u", "a"))
        for op in (notes("t", "c", "b"), notes("t", "d", "d")):
            conflict = await refused(do(engine, op))
            assert (conflict.kind, conflict.op) == ("unique", 0)
            assert conflict.actual in ({"id": "b"}, {"id": "d"})
        unnamed = (None, "k", 0, None, b"{}")
        await do(engine, Append("notes", "t", [unnamed, unnamed, note("c")], 2))
        await do(engine, Drop("notes", "t"))
        await do(engine, notes("t", "a", "b", expect=0))

    on(scenario)
