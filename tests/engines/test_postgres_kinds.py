"""Batches of filled kinds on PostgreSQL: what each transaction wrote is what its operations say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engines.as_kinds import filled
from tests.engines.test_postgres_writes import Statements, on_postgres
from tests.engines.toys import SCOPE

from perdure.engines.postgres.write.columns import _pack
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ABSENT, NOW, Append, Get, Inc, Op, Patch, Put, Read, Seq

TEXTS = ("plain", "ümlaut", "", "with, comma", '{"quoted"}', "back\\slash", "NULL", "tab\tand\nline")
SEPARATED = ("a\x1fb", "\x1e", "\x1f")
COUNT = 24


def _transaction(number: int, text: str | None) -> list[Op]:
    topic = f"topic-{number:02d}"
    return [
        Put("items", (topic,), {"note": text, "n": None if number % 3 else number, "due": NOW}, b'{"a":1}', ABSENT),
        Patch("pairs", (topic, 1), {"n": Seq("notes"), "v": text}),
        Append("notes", topic, [(f"{topic}-{n}", text, 0, NOW, b'{"n":1}') for n in range(1 + number % 3)]),
    ]


async def _apply(engine: Any, texts: tuple[str | None, ...]) -> None:
    for number in range(COUNT):
        await engine.transact(SCOPE, [Put("pairs", (f"topic-{number:02d}", 1), {"n": 0})])
    values = [texts[number % len(texts)] for number in range(COUNT)]
    works = [filled(_transaction(number, text)) for number, text in enumerate(values)]
    await asyncio.gather(*[engine.transact_filled(SCOPE, work) for work in reversed(works)])
    for number, text in enumerate(values):
        topic, length = f"topic-{number:02d}", 1 + number % 3
        item, pair, notes = await engine.view(
            SCOPE, [Get("items", [(topic,)]), Get("pairs", [(topic, 1)]), Read("notes", topic)]
        )
        assert (item[0]["note"], item[0]["n"]) == (text, None if number % 3 else number)
        assert (pair[0]["n"], pair[0]["v"]) == (length, text)
        assert [(note[0], note[2], note[3]) for note in notes] == [
            (seq, f"{topic}-{seq - 1}", text) for seq in range(1, length + 1)
        ]


@pytest.mark.parametrize("texts", [TEXTS, (None, "x"), (None,), SEPARATED], ids=["texts", "some null", "null", "odd"])
def test_a_batch_writes_what_its_transactions_say(texts: tuple[str | None, ...]) -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await _apply(engine, texts)
        assert len(statements.sent) < COUNT * 3, "they were sent in batches"

    on_postgres(scenario)


def test_columns_that_were_not_constant_before_may_become_so() -> None:
    """Values of one kind are sent as they were in earlier batches: as arrays, even if all are NULL now."""

    async def scenario(engine: Any, _: Statements) -> None:
        works = [filled([Put("items", (f"i-{n}",), {"note": f"n-{n}", "n": n})]) for n in range(COUNT)]
        await asyncio.gather(*[engine.transact_filled(SCOPE, work) for work in works])
        works = [filled([Put("items", (f"i-{n}",), {"note": None, "n": None})]) for n in range(COUNT)]
        await asyncio.gather(*[engine.transact_filled(SCOPE, work) for work in works])
        rows = (await engine.view(SCOPE, [Get("items", [(f"i-{n}",) for n in range(COUNT)])]))[0]
        assert [(row["note"], row["n"]) for row in rows] == [(None, None)] * COUNT

    on_postgres(scenario)


def test_one_refusal_in_a_batch_is_its_own() -> None:
    async def scenario(engine: Any, _: Statements) -> None:
        for n in range(COUNT):
            await engine.transact(SCOPE, [Put("items", (f"i-{n}",), {"n": n})])
        works = [
            filled([Patch("items", (f"i-{n}",), {"n": Inc(100)}, {"n": 5 if n == 7 else n})]) for n in range(COUNT)
        ]
        answers = await asyncio.gather(*[engine.transact_filled(SCOPE, work) for work in works], return_exceptions=True)
        refused = [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)]
        assert refused == [7]
        conflict: Any = answers[7]
        assert isinstance(conflict, Conflict)
        assert (conflict.op, conflict.expected, conflict.actual) == (0, {"n": 5}, {"n": 7})
        rows = (await engine.view(SCOPE, [Get("items", [(f"i-{n}",) for n in range(COUNT)])]))[0]
        assert [row["n"] for row in rows] == [n if n == 7 else n + 100 for n in range(COUNT)]

    on_postgres(scenario)


def test_a_text_with_a_separator_in_it_is_not_packed() -> None:
    assert _pack(["a", None, "b"], "text") == "a\x1f\x1e\x1fb"
    assert _pack(["a", "b\x1fc"], "text") is None
    assert _pack(["a", "\x1e", None], "text") is None
    long = "x" * 500
    assert _pack([long, None, long], "text") == f"{long}\x1f\x1e\x1f{long}"
    assert _pack([long, None, f"{long}\x1fc"], "text") is None
    assert _pack([f"{long}\x1e", long], "text") is None
    assert _pack([1, None, -3], "bigint") == "{1,NULL,-3}"
