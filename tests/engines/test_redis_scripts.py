"""The scripts that the Redis engine writes for its transactions, and the parser that reads their answers."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.engines.pacing import slow_clock
from tests.engines.redis_place import client_at, empty, engine_at, refusal
from tests.engines.toys import SCHEMA, SCOPE, note, notes, refused
from tests.support.proxy import Proxy

from perdure.engines.redis import open_engine
from perdure.engines.redis.connections.failures import ErrorReply, InvalidReply, Redirection
from perdure.engines.redis.connections.resp import PENDING, Parser, command
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.write.value_lua import quoted
from perdure.engines.redis.write.writer import Writer
from perdure.errors import CorruptError, OutcomeUnknown, UnsupportedError
from perdure.kernel.ops import (
    ABSENT,
    NOW,
    Append,
    Default,
    Delete,
    Get,
    Heads,
    Inc,
    Max,
    Min,
    Op,
    Patch,
    Put,
    Read,
    Scan,
    Seq,
    Swap,
)
from perdure.kernel.schema import Column, Schema, Table, text

COLUMNS = ("name", "owner", "note", "n", "rank", "due")
FIXED_SCRIPTS = 10
"""At most so many that do not depend on transactions."""


def _row(number: int, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: number if name in ("n", "rank", "due") else f"{name}{number}" for name in names}


def _shapes() -> list[tuple[str, ...]]:
    return [names for size in range(len(COLUMNS) + 1) for names in combinations(COLUMNS, size)]


def test_rare_transactions_leave_no_script_on_the_server_and_frequent_ones_few() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await client.script_flush()

            async def scripts() -> int:
                return int((await client.info("memory"))["number_of_cached_scripts"])

            for number, names in enumerate(_shapes()):
                await engine.transact(SCOPE, [Put("items", (f"{number}",), _row(number, names))])
            assert await scripts() <= FIXED_SCRIPTS
            for _ in range(5):
                for number, names in enumerate(_shapes()):
                    row = [Put("items", (f"{number}",), _row(number, names))]
                    await engine.transact(SCOPE, [*row, Delete("items", ("none",))])
                    await engine.transact(SCOPE, row)
            assert 60 < await scripts() <= 64 + FIXED_SCRIPTS
            found = (await engine.view(SCOPE, [Scan("items")]))[0]
            assert len(found) == len(_shapes())
            assert await engine.check() == []

    asyncio.run(main())


def test_transactions_that_differ_in_data_share_a_script() -> None:
    writer = Writer(Layout(SCHEMA, "p", 0))

    def text(ops: list[Op]) -> bytes:
        return writer.prepare(ops).program.script.text

    first = text([Put("items", ("a",), {"name": "x", "n": 1}), Append("notes", "t", [note("1")], expect=3)])
    other = text([Put("items", ("b'\\",), {"name": "", "n": -5}), Append("notes", "u", [note("2"), note("3")])])
    assert first == other
    several = text([Put("items", (f"{n}",), {"n": n}) for n in range(2)])
    assert several == text([Put("items", (f"{n}",), {"n": n}) for n in range(50)])
    assert text([Put("items", ("a",), {"n": None})]) != text([Put("items", ("a",), {"n": 1})])


@pytest.mark.parametrize("repeat", [1, 6])
def test_a_transaction_of_very_many_kinds_is_one_script_and_tells_who_was_refused(repeat: int) -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            for turn in range(repeat):
                shapes = list(enumerate(_shapes()))
                keys = [f"{turn}-{number}" for number, _ in shapes]
                puts: list[Op] = [
                    Put("items", (key,), _row(turn * 100 + number, names), if_=ABSENT)
                    for key, (number, names) in zip(keys, shapes, strict=True)
                ]
                assert len(puts) == 64
                applied = await engine.transact(SCOPE, [*puts, notes("t", f"{turn}")])
                rows = (await engine.view(SCOPE, [Get("items", [(key,) for key in keys])]))[0]
                for row, (number, names) in zip(rows, shapes, strict=True):
                    assert row.rev == applied.rev
                    assert {name: row[name] for name in names} == _row(turn * 100 + number, names)
                fresh: list[Op] = [
                    Put("items", (f"new-{n}",), _row(9_000 + n, names)) for n, (_, names) in enumerate(shapes)
                ]
                fresh[50] = Put("items", (keys[50],), {"n": 1}, if_=ABSENT)
                assert (await refused(engine.transact(SCOPE, fresh))).op == 50
                same: list[Op] = [Put("items", (f"new-{n}",), {"n": n}, if_=ABSENT) for n in range(9)]
                same[7] = Put("items", (keys[0],), {"n": 7}, if_=ABSENT)
                assert (await refused(engine.transact(SCOPE, same))).op == 7
            assert len((await engine.view(SCOPE, [Scan("items")]))[0]) == 64 * repeat
            assert await engine.check() == []

    asyncio.run(main())


@pytest.mark.parametrize("repeat", [1, 6])
def test_times_of_all_kinds_in_one_append(clock: Any, repeat: int) -> None:
    async def main() -> None:
        async with engine_at(await empty(), clock=clock) as engine:
            for turn in range(repeat):
                given = (NOW, 110, 11_053, None, NOW)
                entries = [(f"{turn}.{n}", "k", n % 2, at, b"body") for n, at in enumerate(given)]
                applied = await engine.transact(SCOPE, [Append("notes", f"t{turn}", entries)])
                (found,) = await engine.view(SCOPE, [Read("notes", f"t{turn}")])
                now = applied.now
                assert [entry[5] for entry in found] == [now, 110, 11_053, None, now]
                assert [entry[4] for entry in found] == [0, 1, 0, 1, 0]

    asyncio.run(main())


def test_expressions_within_an_index_and_a_default_move_its_entries() -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            for turn in range(5):
                key = (f"k{turn}",)
                start = Default({"owner": "a", "rank": Seq("notes"), "due": NOW, "name": f"first{turn}"}, b"d")
                patch = Patch("items", key, {"rank": Inc(2), "due": Max(10**15)}, default=start)
                await engine.transact(SCOPE, [patch, notes("t", f"{turn}")])
                ((row,),) = await engine.view(SCOPE, [Get("items", [key])])
                assert (row["rank"], row["name"], row.body) == (turn + 1, f"first{turn}", b"d")
                await engine.transact(SCOPE, [patch])
                swaps = {"owner": Swap("a", None), "note": Swap(None, "z"), "rank": Min(-4), "name": Swap("no", "yes")}
                await engine.transact(SCOPE, [Patch("items", key, swaps, if_={"rank": turn + 3, "note": None})])
                ((row,), found) = await engine.view(SCOPE, [Get("items", [key]), Scan("items", "two", (None, "z"))])
                assert (row["owner"], row["note"], row["rank"], row["due"]) == (None, "z", -4, 10**15)
                assert row["name"] == f"first{turn}"
                assert found[-1] == row
            assert await engine.check() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (b"+OK\r\n", b"OK"),
        (b":-12\r\n", -12),
        (b"$-1\r\n", None),
        (b"$0\r\n\r\n", b""),
        (b"$6\r\na\r\n$1\r\r\n", b"a\r\n$1\r"),
        (b"*-1\r\n", None),
        (b"*0\r\n", []),
        (b"*3\r\n*2\r\n$1\r\na\r\n*0\r\n:7\r\n*1\r\n*1\r\n$-1\r\n", [[b"a", []], 7, [[None]]]),
    ],
)
def test_an_answer_is_the_same_wherever_it_is_cut(sent: bytes, wanted: object) -> None:
    for cut in range(len(sent)):
        answers = Parser()
        assert answers.feed(sent[:cut]) is PENDING
        assert answers.feed(sent[cut:]) == wanted
        assert not answers.unread
    bytewise = Parser()
    assert [bytewise.feed(sent[at : at + 1]) for at in range(len(sent))][-1] == wanted
    assert bytewise.feed(sent + b"+more") == wanted
    assert bytewise.unread


def test_an_error_reply_has_a_code_and_a_redirection_an_address() -> None:
    unknown = Parser().feed(b"-NOSCRIPT No matching script.\r\n")
    assert isinstance(unknown, ErrorReply)
    assert (unknown.code, str(unknown)) == ("NOSCRIPT", "No matching script.")
    moved = Parser().feed(b"-MOVED 7 host:6379\r\n")
    assert isinstance(moved, Redirection)
    assert (moved.code, moved.host, moved.port) == ("MOVED", "host", "6379")
    with pytest.raises(InvalidReply):
        Parser().feed(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize("uses", [1, 5])
def test_a_damaged_number_refuses_the_whole_transaction(uses: int) -> None:
    """Expressions are worked out while rows are written: what cannot be worked out must be found before."""

    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            for key in "ab":
                await engine.transact(SCOPE, [Put("items", (key,), {"n": 1, "due": 1})])
            (name,) = [key async for key in client.scan_iter("*t:items:*b*")]
            await client.hset(name, "n", "abc")
            change: list[Op] = [notes("t", "x"), *[Patch("items", (key,), {"n": Inc(1)}) for key in "ab"]]
            for _ in range(uses):
                with pytest.raises(CorruptError, match="number"):
                    await engine.transact(SCOPE, change)
                with pytest.raises(CorruptError, match="number"):
                    await engine.take(SCOPE, Scan("items", "due", (), limit=2, upto={"due": 1}), {"n": Inc(1)})
            assert await client.hmget(name.replace(b"b", b"a"), "n") == [b"1"]
            assert (await engine.view(SCOPE, [Heads("notes", ["t"])])) == [[0]]

    asyncio.run(main())


def test_a_script_that_cannot_be_compiled_is_a_refusal() -> None:
    async def main() -> None:
        url = await empty()
        columns = tuple(Column(f"c{n}", "int") for n in range(260))
        wide = Schema(version=1, tables=(Table("wide", key=text("id"), columns=columns),), logs=())
        engine = await open_engine(url, wide)
        for _ in range(5):
            with pytest.raises(UnsupportedError):
                await engine.transact(
                    SCOPE, [Patch("wide", ("a",), {c.name: Inc(1) for c in columns}, default=Default({}))]
                )
        await engine.close()

    asyncio.run(main())


def test_an_answer_that_does_not_come_is_missed_though_others_came_on_the_same_connection() -> None:
    async def main() -> None:
        url = await empty()
        with Proxy("127.0.0.1", urlsplit(url).port or 0) as proxy:
            async with engine_at(proxy.through(f"{url}?connections=1&command_timeout=600")) as engine:
                advance = slow_clock()
                await engine.transact(SCOPE, [notes("t", "a")])
                advance(400)
                await engine.transact(SCOPE, [notes("t", "b")])
                # The first look comes now, while the connection rests; the next request has its own time.
                advance(400)
                await engine.transact(SCOPE, [notes("t", "c")])
                proxy.half_open()
                commit = asyncio.create_task(engine.transact(SCOPE, [notes("t", "d")]))
                for seconds in (400, 400):
                    await asyncio.sleep(0)
                    assert not commit.done()
                    advance(seconds)
                error = await refusal(commit)
                assert isinstance(error, OutcomeUnknown)
                assert "no answer within 600 s" in str(error)

    asyncio.run(main())


def test_requests_and_names_pass_any_bytes() -> None:
    assert command(b"A", b"\r\n", b"x" * 1024) == b"*3\r\n$1\r\nA\r\n$2\r\n\r\n\r\n$1024\r\n" + b"x" * 1024 + b"\r\n"
    assert quoted("a'\\\n0é") == "'a\\039\\092\\0100\\195\\169'"
