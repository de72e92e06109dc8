"""Reads: every option of `Get`, `Scan`, `Read` and `Heads`, on every engine and face."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.toys import SCOPE, do, note

from perdure.kernel.engine import Engine
from perdure.kernel.ops import Append, Get, Heads, Put, Read, Ref, Scan, Segment

ITEMS: dict[str, dict[str, Any]] = {
    "a": {"owner": "o", "rank": 2, "n": 1, "note": "x"},
    "b": {"owner": "o", "rank": 1, "n": 2, "due": 50},
    "c": {"owner": "o", "rank": 2, "n": None, "note": "x", "due": 20},
    "d": {"owner": "o", "rank": None, "n": 4},
    "e": {"owner": "p", "rank": 9, "n": 5, "due": 20},
    "f": {"owner": None, "rank": 7, "n": 6},
    "é": {"owner": "o", "rank": 2, "n": 7, "note": "y"},
    "Z": {"owner": "o", "rank": 2, "n": 8},
}


async def fill(engine: Engine) -> None:
    await do(engine, *[Put("items", (key,), values) for key, values in ITEMS.items()])
    pairs = [("x", 2, 5), ("x", 1, 5), ("x", 10, 4), ("y", 1, 1), ("x", -3, None)]
    await do(engine, *[Put("pairs", (a, b), {"n": n}) for a, b, n in pairs])


async def keys(engine: Engine, *reads: Any) -> Any:
    answers = await engine.view(SCOPE, reads)
    found = [[r if r is None else r.key if len(r.key) > 1 else r.key[0] for r in rows] for rows in answers]
    return found[0] if len(found) == 1 else found


def test_get_keeps_the_order_and_marks_the_absent(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await fill(engine)
        assert await keys(engine, Get("items", [("b",), ("none",), ("a",)])) == ["b", None, "a"]
        assert await keys(engine, Get("items", [])) == []
        many = ["c", "none", "b", "a", "é", "Z", "nil", "c"]
        assert await keys(engine, Get("items", [(k,) for k in many])) == [k if k in ITEMS else None for k in many]
        wanted = [("x", 10), ("x", 99), ("y", 1), ("x", -3), ("x", 1), ("x", 2)]
        found = await keys(engine, Get("pairs", wanted))
        assert found == [("x", 10), None, ("y", 1), ("x", -3), ("x", 1), ("x", 2)]

    on(scenario)


@pytest.mark.parametrize(
    ("scan", "expected"),
    [
        (Scan("items"), ["Z", "a", "b", "c", "d", "e", "f", "é"]),
        (Scan("items", desc=True, limit=3), ["é", "f", "e"]),
        (Scan("items", after=("c",), limit=2), ["d", "e"]),
        (Scan("items", after=("c",), desc=True), ["b", "a", "Z"]),
        (Scan("items", eq=("c",)), ["c"]),
        (Scan("items", "owned", ("o",)), ["b", "Z", "a", "c", "é"]),
        (Scan("items", "owned", ("o",), desc=True), ["é", "c", "a", "Z", "b"]),
        (Scan("items", "owned", ("o",), after=(2, "a")), ["c", "é"]),
        (Scan("items", "owned", ("o",), after=(2, "a"), desc=True), ["Z", "b"]),
        (Scan("items", "owned", ("o",), after=(2, "aa"), limit=1), ["c"]),
        (Scan("items", "owned", (None,)), ["f"]),
        (Scan("items", "sparse", ("p",)), ["e"]),
        (Scan("items", "sparse", (None,)), []),
        (Scan("items", "due", ()), ["c", "e", "b"]),
        (Scan("items", "due", (), after=(20, "c")), ["e", "b"]),
        (Scan("items", "two", ("o", "x")), ["c"]),
        (Scan("items", "two", ("o", None)), ["b"]),
        (Scan("items", "owned", ("nobody",)), []),
        (Scan("items", "owned", ("o",), limit=0), []),
        (Scan("items", where={"owner": "o", "rank": 2}), ["Z", "a", "c", "é"]),
        (Scan("items", where={"n": None}), ["c"]),
        (Scan("items", where={"n": (1, 5, 99)}), ["a", "e"]),
        (Scan("items", where={"n": (1, None)}), ["a", "c"]),
        (Scan("items", where={"owner": ()}), []),
        (Scan("items", where={"id": ("a", "é")}), ["a", "é"]),
        (Scan("items", upto={"n": 4}), ["a", "b", "d"]),
        (Scan("items", "owned", ("o",), where={"note": "x"}, upto={"rank": 2, "n": 1}), ["a"]),
        (Scan("items", "owned", ("o",), where={"note": "x"}, limit=1), ["a"]),
        (Scan("pairs", eq=("x",)), [("x", -3), ("x", 1), ("x", 2), ("x", 10)]),
        (Scan("pairs", eq=("x",), after=("x", 1)), [("x", 2), ("x", 10)]),
        (Scan("pairs", eq=("x",), after=("x", 2), desc=True), [("x", 1), ("x", -3)]),
        (Scan("pairs", eq=("x", 1)), [("x", 1)]),
        (Scan("pairs", after=("x", 10)), [("y", 1)]),
        (Scan("pairs", "by_n", ("x",)), [("x", 10), ("x", 1), ("x", 2)]),
        (Scan("pairs", "by_n", ("x",), after=(5, "x", 1)), [("x", 2)]),
        (Scan("pairs", "by_n", ("x",), after=(5, "x", 2), desc=True), [("x", 1), ("x", 10)]),
    ],
)
def test_scan(on: Any, scan: Scan, expected: list[Any]) -> None:
    async def scenario(engine: Engine) -> None:
        await fill(engine)
        assert await keys(engine, scan) == expected

    on(scenario)


def test_refs_resolve_inside_the_snapshot(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(
            engine,
            Put("items", ("a",), {"owner": "x", "n": 1}),
            Put("items", ("b",), {"owner": None, "n": 2}),
            Put("items", ("c",), {"owner": "y", "n": 7}),
            Put("items", ("x",), {"name": "of a"}),
            Put("pairs", ("x", 1), {"v": "one"}),
            Put("pairs", ("x", 2), {"v": "two"}),
            Put("pairs", ("y", 7), {"v": "seven"}),
        )
        found = await keys(
            engine,
            Scan("items", after=("Z",), limit=3),
            Get("items", Ref(0, ("owner",))),
            Get("pairs", Ref(0, ("owner", "n"))),
            Scan("pairs", eq=(Ref(0, ("owner",)),)),
            Get("items", [("b",), ("none",)]),
            Get("items", Ref(4, ("owner",))),
            Scan("pairs", eq=(Ref(4, ("owner",)),)),
            Get("items", Ref(0, ("id",))),
        )
        assert found[1] == ["x"]
        assert found[2] == [("x", 1), ("y", 7)]
        assert found[3] == [("x", 1), ("x", 2)]
        assert (found[5], found[6]) == ([], [])
        assert found[7] == ["a", "b", "c"]

    on(scenario)


def test_a_ref_may_name_any_key_column(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, *[Put("pairs", ("x", n), {"n": n}) for n in range(3)])
        found = await keys(engine, Scan("pairs", eq=("x",)), Get("pairs", Ref(0, ("a", "b"))))
        assert found[1] == [("x", 0), ("x", 1), ("x", 2)]

    on(scenario)


def test_a_ref_to_many_rows(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, *[Put("items", (f"i{n:03}",), {"owner": f"i{99 - n:03}"}) for n in range(100)])
        found = await keys(engine, Scan("items"), Get("items", Ref(0, ("owner",))))
        assert found[1] == found[0][::-1]

    on(scenario)


async def fill_log(engine: Engine) -> None:
    # Branches: 1-4 on 0, 5-6 on 1, 7 on 0, 8-10 on 2.
    branches = [0, 0, 0, 0, 1, 1, 0, 2, 2, 2]
    entries = [note(f"m{i}", branch=b, kind="odd" if i % 2 else "even") for i, b in enumerate(branches, 1)]
    await do(engine, Append("notes", "t", entries), Append("notes", "other", [note("m1"), note("z")]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ({"after": 3}, [4, 5, 6, 7, 8, 9, 10]),
        ({"after": 3, "upto": 6}, [4, 5, 6]),
        ({"upto": 2}, [1, 2]),
        ({"after": 10}, []),
        ({"after": 6, "upto": 3}, []),
        ({"limit": 2}, [1, 2]),
        ({"limit": 2, "desc": True}, [10, 9]),
        ({"after": 2, "upto": 5, "desc": True}, [5, 4, 3]),
        ({"where": {"kind": "odd"}, "limit": 3}, [1, 3, 5]),
        ({"where": {"branch": 1}}, [5, 6]),
        ({"where": {"branch": (0, 2)}, "desc": True, "limit": 4}, [10, 9, 8, 7]),
        ({"where": {"at": None}, "upto": 2}, [1, 2]),
        ({"where": {"id": "m7"}}, [7]),
        ({"where": {"id": "m7"}, "upto": 6}, []),
        ({"where": {"id": ("m9", "m2", "nil")}}, [2, 9]),
        ({"where": {"id": ("m9", "m2")}, "desc": True}, [9, 2]),
        ({"where": {"id": "m7", "kind": "even"}}, []),
        ({"segments": ()}, []),
        ({"segments": (Segment(0, 0, 3),)}, [1, 2, 3]),
        ({"segments": (Segment(0, 0, 3), Segment(1, 3, None))}, [1, 2, 3, 5, 6]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None))}, [1, 2, 3, 4, 7, 8, 9, 10]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None)), "desc": True}, [10, 9, 8, 7, 4, 3, 2, 1]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None)), "desc": True, "limit": 4}, [10, 9, 8, 7]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None)), "limit": 6}, [1, 2, 3, 4, 7, 8]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None)), "after": 2, "upto": 8}, [3, 4, 7, 8]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None)), "where": {"kind": "odd"}}, [1, 3, 7, 9]),
        ({"segments": (Segment(9, 0, 7), Segment(2, 7, 7), Segment(2, 8, 9)), "desc": True, "limit": 5}, [9]),
        ({"segments": (Segment(0, 0, 7), Segment(2, 7, None)), "where": {"branch": 2}}, [8, 9, 10]),
    ],
)
def test_read(on: Any, options: dict[str, Any], expected: list[int]) -> None:
    async def scenario(engine: Engine) -> None:
        await fill_log(engine)
        (entries,) = await engine.view(SCOPE, [Read("notes", "t", **options)])
        assert [entry[0] for entry in entries] == expected

    on(scenario)


def test_read_of_very_many_segments(on: Any) -> None:
    # Entry n is on branch n // 2, so each branch holds two entries; every third branch is on the path.
    count = 30_000

    async def scenario(engine: Engine) -> None:
        await do(engine, Append("notes", "t", [note(f"m{n}", branch=n // 2) for n in range(count)]))
        segments = tuple(Segment(b, 2 * b, 2 * b + 2) for b in range(0, count // 2, 3))
        expected = [entry for b in range(0, count // 2, 3) for entry in (2 * b + 1, 2 * b + 2)]
        read = Read("notes", "t", segments=segments)
        backwards = Read("notes", "t", segments=segments, desc=True, limit=7)
        whole = Read("notes", "t", segments=segments, desc=True)
        (found, newest, reverse) = await engine.view(SCOPE, [read, backwards, whole])
        assert [entry[0] for entry in found] == expected
        assert [entry[0] for entry in newest] == expected[::-1][:7]
        assert [entry[0] for entry in reverse] == expected[::-1]

    on(scenario)


def test_entries_carry_rev_columns_and_body(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        applied = await do(engine, Append("notes", "t", [("i", None, 3, 4, b'{"b":1}')]))
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        (entry,) = entries
        assert (*entry[:-1], _bytes(entry[-1])) == (1, applied.rev, "i", None, 3, 4, b'{"b":1}')

    on(scenario)


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)


def test_a_view_of_nothing(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        assert await engine.view(SCOPE, []) == []
        assert await engine.view(SCOPE, [Heads("notes", []), Heads("plain", ["x", "y"])]) == [[], [0, 0]]
        assert await engine.scopes() == []

    on(scenario)
