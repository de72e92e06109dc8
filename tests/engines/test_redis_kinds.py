"""Transactions of known kinds on Redis: the same arguments as their operations make, whatever their values are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engines.as_kinds import filled
from tests.engines.redis_place import empty, engine_at, refusal

from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.write.filled import Forms
from perdure.engines.redis.write.writer import Writer
from perdure.errors import InvalidError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ABSENT, ANY, NOW, Append, Get, Inc, Op, Patch, Put, Read, Seq, Swap
from perdure.kernel.schema import Column, Index, Log, Schema, Table

SCOPE = "s"
SCHEMA = Schema(
    1,
    tables=(
        Table(
            "heads",
            key=(Column("id", "text"),),
            columns=(Column("length", "int"), Column("owner", "text"), Column("at", "int")),
            indexes=(Index("by_owner", by=("owner",), order=("length", "id")),),
        ),
        Table(
            "docs",
            key=(Column("id", "text"), Column("number", "int"), Column("name", "text")),
            columns=(Column("kind", "text"), Column("size", "int")),
        ),
        Table("pairs", key=(Column("a", "text"), Column("b", "text")), columns=(Column("kind", "text"),)),
    ),
    logs=(
        Log(
            "notes",
            "thread",
            columns=(Column("at", "int"), Column("id", "text"), Column("part", "int")),
            unique=("id",),
            segment="part",
        ),
    ),
)


def work(
    key: str, kinds: list[str | None], *, back: int = 0, parts: tuple[int, ...] = (1, 1), owner: Any = None
) -> list[Op]:
    """A transaction in which everything is that a form must place: seqs, NULLs, swaps, groups, composite keys."""
    return [
        Patch("heads", (key,), {"length": Seq("notes", back), "owner": Swap(owner, f"o-{key}"), "at": NOW}, ANY),
        Append("notes", key, [(NOW, f"{key}-{back}-{n}", part, b"{}") for n, part in enumerate(parts)], None),
        *[
            Put("docs", (key, n, f"n{n}"), {"kind": kind, "size": n}, b'{"a":"\xc3\xa9"}', ANY)
            for n, kind in enumerate(kinds)
        ],
        Put("pairs", (key, f"{back}"), {"kind": f"{len(kinds)}"}, None, ABSENT),
    ]


WORKS = {
    "plain": work("a", ["x", "y"]),
    "one document": work("a", ["x"]),
    "another NULL": work("a", ["x", None]),
    "a NULL in both": work("a", [None, None]),
    "an earlier seq": work("a", ["x", "y"], back=1),
    "two segments": work("a", ["x", "y"], parts=(1, 2)),
    "three entries": work("a", ["x", "y"], parts=(1, 1, 1)),
    "an owner to swap": work("a", ["x", "y"], owner="o"),
    "control characters": work("a\x00b\x01", ["\x00", "\x01"]),
    "a wide text": work("Ω\U0001f600", ["é", "y"]),
}


@pytest.mark.parametrize("first", WORKS)
def test_values_become_the_arguments_that_operations_make(first: str) -> None:
    writer = Writer(Layout(SCHEMA, "p", 0))
    forms = Forms(writer, SCHEMA)
    forms_used = 0
    for name in (first, *WORKS):
        call, prepared = forms.call(filled(WORKS[name])), writer.prepare(WORKS[name])
        if call is None:
            assert name == "two segments", name
            continue
        form, arguments = call
        assert arguments == prepared.arguments, name
        assert form.program is prepared.program, name
        forms_used += 1
    assert forms_used >= len(WORKS) - 1


def test_filled_kinds_write_what_operations_write() -> None:
    async def main() -> None:
        rows = []
        for fill in (False, True):
            async with engine_at(await empty(), schema=SCHEMA) as engine:
                await engine.transact(SCOPE, [Put("heads", (key,), {"length": 0}) for key in ("a", "b", "c")])
                for key, kinds, back in (
                    ("a", ["x", "y"], 0),
                    ("b", ["x", None], 1),
                    ("c", [None, "z"], 0),
                    ("a", [None, None], 1),
                ):
                    ops = work(key, kinds, back=back)
                    applied = await (
                        engine.transact_filled(SCOPE, filled(ops)) if fill else engine.transact(SCOPE, ops)
                    )
                    assert set(applied.seqs) == {("notes", key)}
                found = await engine.view(
                    SCOPE,
                    [
                        Get("heads", [("a",), ("b",), ("c",)]),
                        Get("docs", [(key, n, f"n{n}") for key in "abc" for n in range(2)]),
                        Read("notes", "a"),
                    ],
                )
                rows.append(
                    (
                        [(row["length"], row["owner"]) for row in found[0]],
                        [(row["kind"], row["size"], row.body) for row in found[1]],
                        [(entry[0], entry[2:]) for entry in found[2]],
                    )
                )
                assert await engine.check() == []
        assert rows[0] == rows[1]
        assert rows[0][1][0][0] is None, "a NULL replaced the text that was there"

    asyncio.run(main())


def test_a_refused_kind_names_its_operation() -> None:
    async def main() -> None:
        async with engine_at(await empty(), schema=SCHEMA) as engine:
            await engine.transact(SCOPE, [Put("heads", ("a",), {"length": 1}), Put("heads", ("b",), {"length": 1})])
            for key in ("a", "b"):
                ops: list[Op] = [
                    Patch("heads", (key,), {"length": Inc(1)}, {"length": 1}),
                    Append("notes", key, [(NOW, "n", 1, b"{}")], 0),
                ]
                await engine.transact_filled(SCOPE, filled(ops))
                with pytest.raises(Conflict) as conflict:
                    await engine.transact_filled(SCOPE, filled(ops))
                with pytest.raises(Conflict) as again:
                    await engine.transact(SCOPE, ops)
                assert vars(conflict.value) == vars(again.value)
            assert isinstance(await refusal(engine.transact_filled(SCOPE, filled(work("\ud800", ["x"])))), InvalidError)

    asyncio.run(main())
