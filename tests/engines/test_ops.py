"""Operations, conditions and expressions, on every engine and face."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.toys import SCOPE, START, columns, do, note, notes, raw, refused, row

from perdure.clock import ManualClock
from perdure.kernel.engine import Engine
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    NOW,
    PRESENT,
    Append,
    AtMost,
    Check,
    Default,
    Delete,
    Drop,
    Get,
    Heads,
    Inc,
    Max,
    Min,
    Now,
    Op,
    Patch,
    Put,
    Read,
    Segment,
    Seq,
    Swap,
)


def test_put_writes_a_whole_row(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        first = await do(engine, Put("items", ("a",), {"name": "x", "n": 1}, b'{"k":1}'))
        found = await row(engine, "items", "a")
        assert found is not None
        assert (found.key, found.rev) == (("a",), first.rev)
        assert found.columns == {"name": "x", "owner": None, "note": None, "n": 1, "rank": None, "due": None}
        assert raw(found.body) == b'{"k":1}'
        second = await do(engine, Put("items", ("a",), {"n": 2}))
        found = await row(engine, "items", "a")
        assert found is not None
        assert (found["name"], found["n"], found.body, found.rev) == (None, 2, None, second.rev)
        assert first.rev != second.rev

    on(scenario)


def test_put_conditions(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        conflict = await refused(do(engine, Put("items", ("a",), {}, None, PRESENT)))
        assert (conflict.op, conflict.kind, conflict.expected, conflict.actual) == (0, "condition", PRESENT, None)
        assert (await refused(do(engine, Put("items", ("a",), {}, None, 7)))).actual is None
        first = await do(engine, Put("items", ("a",), {"n": 1}, None, ABSENT))
        conflict = await refused(do(engine, Put("items", ("a",), {"n": 2}, None, ABSENT)))
        assert (conflict.expected, conflict.actual) == (ABSENT, first.rev)
        second = await do(engine, Put("items", ("a",), {"n": 3}, b"{}", first.rev))
        conflict = await refused(do(engine, Put("items", ("a",), {"n": 4}, None, first.rev)))
        assert (conflict.expected, conflict.actual) == (first.rev, second.rev)
        await do(engine, Put("items", ("a",), {"n": 5}, None, PRESENT))
        assert await columns(engine, "items", "a") == {"n": 5}

    on(scenario)


def test_patch_changes_only_what_it_names(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"name": "x", "n": 1, "owner": "o"}, b'{"k":1}'))
        await do(engine, Patch("items", ("a",), {"n": 9, "owner": None}))
        assert await columns(engine, "items", "a") == {"name": "x", "n": 9}
        found = await row(engine, "items", "a")
        assert found is not None
        assert raw(found.body) == b'{"k":1}'
        applied = await do(engine, Patch("items", ("a",), {}, body=b'{"k":2}'))
        found = await row(engine, "items", "a")
        assert found is not None
        assert (raw(found.body), found.rev) == (b'{"k":2}', applied.rev)

    on(scenario)


@pytest.mark.parametrize("condition", [ANY, PRESENT, ABSENT, 5, {"n": 1}, {"n": None}, {"n": AtMost(4)}])
def test_patch_of_an_absent_row_conflicts_whatever_the_condition(on: Any, condition: Any) -> None:
    async def scenario(engine: Engine) -> None:
        conflict = await refused(do(engine, Patch("items", ("a",), {"n": 1}, condition)))
        assert (conflict.kind, conflict.actual) == ("condition", None)
        assert await row(engine, "items", "a") is None

    on(scenario)


def test_patch_default_is_inserted_as_it_stands(on: Any, clock: ManualClock) -> None:
    async def scenario(engine: Engine) -> None:
        patch = Patch("items", ("a",), {"n": Inc(1)}, {"n": AtMost(1)}, default=Default({"n": 1, "due": NOW}, b"[]"))
        await do(engine, patch)
        found = await row(engine, "items", "a")
        assert found is not None
        assert (found["n"], found["due"], raw(found.body)) == (1, START, b"[]")
        await do(engine, patch)
        assert (await columns(engine, "items", "a"))["n"] == 2
        conflict = await refused(do(engine, patch))
        assert (conflict.kind, conflict.actual) == ("condition", {"n": 2})

    on(scenario)


def test_patch_default_with_absent_is_insert_only(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        patch = Patch("items", ("a",), {"n": 5}, ABSENT, default=Default({"n": 1}))
        await do(engine, patch)
        assert (await refused(do(engine, patch))).kind == "condition"
        assert await columns(engine, "items", "a") == {"n": 1}

    on(scenario)


@pytest.mark.parametrize(
    ("stored", "wanted", "met"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, None, False),
        (None, None, True),
        (None, 1, False),
        (3, AtMost(3), True),
        (4, AtMost(3), False),
        (None, AtMost(3), True),
    ],
)
def test_column_conditions(on: Any, stored: Any, wanted: Any, met: bool) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"n": stored}))
        conditional: list[Op] = [
            Check("items", ("a",), {"n": wanted}),
            Patch("items", ("a",), {"note": "p"}, {"n": wanted}),
            Delete("items", ("a",), {"n": wanted}),
        ]
        for op in conditional:
            if met:
                await do(engine, op)
            else:
                conflict = await refused(do(engine, op))
                assert (conflict.kind, conflict.actual) == ("condition", {"n": stored})

    on(scenario)


def test_several_column_conditions_must_all_hold(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"n": 1, "owner": "o"}))
        await do(engine, Check("items", ("a",), {"n": 1, "owner": "o", "note": None}))
        conflict = await refused(do(engine, Check("items", ("a",), {"n": 1, "owner": "p"})))
        assert conflict.actual == {"n": 1, "owner": "o"}

    on(scenario)


def test_check_by_rev_and_presence(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        assert (await refused(do(engine, Check("items", ("a",), PRESENT)))).actual is None
        first = await do(engine, Put("items", ("a",), {}))
        await do(engine, Check("items", ("a",), PRESENT))
        await do(engine, Check("items", ("a",), first.rev))
        conflict = await refused(do(engine, Check("items", ("a",), first.rev + 1)))
        assert (conflict.expected, conflict.actual) == (first.rev + 1, first.rev)
        found = await row(engine, "items", "a")
        assert found is not None
        assert found.rev == first.rev  # a check writes nothing

    on(scenario)


def test_delete(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Delete("items", ("a",)))
        await do(engine, Delete("items", ("a",), ABSENT))
        assert (await refused(do(engine, Delete("items", ("a",), PRESENT)))).actual is None
        assert (await refused(do(engine, Delete("items", ("a",), 3)))).actual is None
        first = await do(engine, Put("items", ("a",), {}))
        assert (await refused(do(engine, Delete("items", ("a",), ABSENT)))).actual == first.rev
        assert (await refused(do(engine, Delete("items", ("a",), first.rev + 1)))).actual == first.rev
        await do(engine, Delete("items", ("a",), first.rev))
        assert await row(engine, "items", "a") is None
        again = await do(engine, Put("items", ("a",), {}))
        assert again.rev != first.rev  # never reused, deletes included

    on(scenario)


@pytest.mark.parametrize(
    ("old", "expression", "new"),
    [
        (None, Inc(3), 3),
        (4, Inc(-1), 3),
        (None, Max(3), 3),
        (2, Max(3), 3),
        (5, Max(3), 5),
        (None, Min(3), 3),
        (2, Min(3), 2),
        (5, Min(3), 3),
        (5, Now(7), START + 7),
        (5, NOW, START),
        (5, Swap(5, 9), 9),
        (5, Swap(5, None), None),
        (5, Swap(6, 9), 5),
        (5, Swap(None, 9), 5),
        (None, Swap(None, 9), 9),
        (None, Swap(1, 9), None),
        (-(2**52), Inc(0), -(2**52)),
        (2**52, Max(2**52), 2**52),
    ],
)
def test_expressions(on: Any, old: Any, expression: Any, new: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"n": old}))
        await do(engine, Patch("items", ("a",), {"n": expression}))
        found = await row(engine, "items", "a")
        assert found is not None
        assert found["n"] == new

    on(scenario)


def test_swap_moves_text_pointers(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"owner": "r1", "note": "r2"}))
        swaps = {"owner": Swap("r1", None), "note": Swap("r1", None), "n": Inc(1), "name": Swap(None, "r3")}
        await do(engine, Patch("items", ("a",), swaps, {"owner": "r1"}))
        assert await columns(engine, "items", "a") == {"note": "r2", "n": 1, "name": "r3"}

    on(scenario)


def test_seq_is_the_last_seq_appended_in_the_transaction(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, notes("t", "a", "b"))
        await do(engine, Put("items", ("row",), {"n": 1}))
        applied = await do(
            engine,
            Put("items", ("put",), {"n": Seq("notes"), "rank": Seq("notes", 1)}),
            Patch("items", ("row",), {"n": Seq("notes")}),
            Patch("items", ("default",), {"n": 0}, default=Default({"n": Seq("notes", 2)})),
            notes("t", "c", "d"),
        )
        assert applied.seqs == {("notes", "t"): 4}
        assert await columns(engine, "items", "put") == {"n": 4, "rank": 3}
        assert await columns(engine, "items", "row") == {"n": 4}
        assert await columns(engine, "items", "default") == {"n": 2}

    on(scenario)


def test_the_clock_is_one_per_transaction(on: Any, clock: ManualClock) -> None:
    async def scenario(engine: Engine) -> None:
        applied = await do(
            engine,
            Put("items", ("a",), {"due": NOW, "n": Now(-5)}),
            Append("notes", "t", [note("x", at=NOW), note("y", at=NOW)]),
        )
        assert applied.now == START
        assert await columns(engine, "items", "a") == {"due": START, "n": START - 5}
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        assert [entry[5] for entry in entries] == [START, START]
        clock.advance(-1000)
        assert (await do(engine, Put("items", ("a",), {}))).now == START - 1000

    on(scenario)


def test_append_numbers_entries_without_gaps(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        first = await do(engine, notes("t", "a", "b", expect=0))
        assert first.seqs == {("notes", "t"): 2}
        conflict = await refused(do(engine, notes("t", "c", expect=1)))
        assert (conflict.kind, conflict.expected, conflict.actual) == ("length", 1, 2)
        second = await do(engine, notes("t", "c", expect=2))
        (entries, other) = await engine.view(SCOPE, [Read("notes", "t"), Read("notes", "u")])
        assert [tuple(e[:3]) for e in entries] == [(1, first.rev, "a"), (2, first.rev, "b"), (3, second.rev, "c")]
        assert other == []

    on(scenario)


def test_one_transaction_may_append_to_several_partitions(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        applied = await do(engine, notes("t", "a"), notes("u", "a", "b"), Append("plain", "t", [(b"1",)]))
        assert applied.seqs == {("notes", "t"): 1, ("notes", "u"): 2, ("plain", "t"): 1}
        (heads,) = await engine.view(SCOPE, [Heads("notes", ["u", "t", "none"])])
        assert heads == [2, 1, 0]

    on(scenario)


def test_drop_removes_a_partition_and_the_next_append_starts_at_one(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, notes("t", "a", "b"), notes("u", "a"))
        await do(engine, Drop("notes", "t"), Drop("notes", "none"))
        (t, u) = await engine.view(SCOPE, [Read("notes", "t"), Read("notes", "u")])
        assert (t, [entry[0] for entry in u]) == ([], [1])
        await do(engine, notes("t", "a", expect=0))
        (heads,) = await engine.view(SCOPE, [Heads("notes", ["t"])])
        assert heads == [1]

    on(scenario)


def test_a_drop_may_keep_the_first_entries(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, notes("t", "a", "b"), notes("u", "a"))
        await do(engine, notes("t", "c", "d", "e"))
        await do(engine, Drop("notes", "t", 3), Drop("notes", "u", 1), Drop("notes", "none", 5))
        texts, heads, gone = await engine.view(
            SCOPE,
            [Read("notes", "t"), Heads("notes", ["t", "u", "none"]), Read("notes", "t", where={"id": ("d", "e")})],
        )
        assert [entry[0] for entry in texts] == [1, 2, 3]
        assert (heads, gone) == ([3, 1, 0], [])
        # What went is free again, what stayed is not, and the log continues after its last entry.
        assert (await refused(do(engine, notes("t", "c")))).kind == "unique"
        applied = await do(engine, notes("t", "d", "x"))
        assert applied.seqs == {("notes", "t"): 5}
        await do(engine, Drop("notes", "t", 9), Drop("notes", "u", 0))
        entries, heads = await engine.view(SCOPE, [Read("notes", "t"), Heads("notes", ["t", "u"])])
        assert ([entry[0] for entry in entries], heads) == ([1, 2, 3, 4, 5], [5, 0])
        assert await engine.check() == []

    on(scenario)


def test_a_drop_in_pieces_leaves_no_segment_behind(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Append("notes", "t", [note(str(i), branch=i // 3) for i in range(12)]))
        await do(engine, Drop("notes", "t", 7))
        await do(engine, Append("notes", "t", [note("again", branch=2), note("more", branch=0)]))
        lines = [[Segment(line, 0)] for line in range(4)]
        found = await engine.view(SCOPE, [Read("notes", "t", segments=tuple(line)) for line in lines])
        assert [[entry[0] for entry in entries] for entries in found] == [[1, 2, 3, 9], [4, 5, 6], [7, 8], []]
        assert await engine.check() == []

    on(scenario)


def test_a_view_tells_the_time_of_the_engine(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        applied = await do(engine, Put("items", ("a",), {"due": NOW}))
        alone, (first, found, later) = (
            (await engine.view(SCOPE, [NOW]))[0],
            await engine.view(SCOPE, [NOW, Get("items", [("a",)]), Now(50)]),
        )
        assert (alone, first, later) == (START, START, START + 50)
        assert found[0]["due"] == applied.now == START

    on(scenario)


def test_a_conflict_undoes_everything(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("kept",), {"n": 1}), notes("old", "a"))
        before = await engine.view(SCOPE, [Read("notes", "old")])
        failing = [
            Put("items", ("new",), {"n": 1}),
            Patch("items", ("kept",), {"n": 2}),
            notes("t", "a"),
            Drop("notes", "old"),
            Delete("pairs", ("x", 1), PRESENT),
        ]
        conflict = await refused(do(engine, *failing))
        assert conflict.op == 4
        assert await row(engine, "items", "new") is None
        assert await columns(engine, "items", "kept") == {"n": 1}
        assert await engine.view(SCOPE, [Read("notes", "old")]) == before
        assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[0]]

    on(scenario)


def test_scopes_do_not_see_each_other(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        for scope in ("b", "a"):
            await engine.transact(scope, [Put("items", ("k",), {"name": "same", "owner": scope}), notes("t", "id")])
        assert await engine.scopes() == ["a", "b"]
        await engine.transact("a", [Delete("items", ("k",)), Drop("notes", "t")])
        assert await engine.scopes() == ["b"]
        ((found,), heads) = await engine.view("b", [Get("items", [("k",)]), Heads("notes", ["t"])])
        assert (found["owner"], heads) == ("b", [1])

    on(scenario)


def test_text_and_bodies_come_back_as_they_were(on: Any) -> None:
    strange = "a'b\"c;--é日本🙂\u2028 %_"
    body = '{"t":"é日本🙂","n":12345678901234567890,"x":[]}'.encode()

    async def scenario(engine: Engine) -> None:
        await engine.transact(
            strange,
            [
                Put("items", (strange,), {"name": strange, "n": 2**52, "rank": -(2**52)}, body),
                Append("notes", strange, [(strange, "", 0, None, body)]),
            ],
        )
        ((found,), (entry,)) = await engine.view(strange, [Get("items", [(strange,)]), Read("notes", strange)])
        assert (found.key, found["name"], found["n"], found["rank"]) == ((strange,), strange, 2**52, -(2**52))
        assert raw(found.body) == body
        assert (entry[2], raw(entry[-1])) == (strange, body)

    on(scenario)
