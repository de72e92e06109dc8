"""Data sets that somebody else wrote: every key of a store damaged in every way, one at a time.

Whatever stands there, each call ends, with an answer or with an error of ours, and the check reports the damage unless
the engine cannot know of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from tests.engines.redis_place import DEADLINE, client_at, empty, engine_at, refusal
from tests.engines.toys import SCHEMA, SCOPE, notes

from perdure.engines.redis import open_engine, plan_migration
from perdure.engines.redis.engine import RedisEngine
from perdure.engines.redis.health.audit import literal
from perdure.errors import CorruptError, InvalidError, PerdureError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Append, Drop, Get, Heads, Inc, Patch, Put, Read, Scan, Segment

TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "text": b"abc",
    "a space": b" 12",
    "other digits": "１２".encode(),
    "an underscore": b"1_000",
    "a plus": b"+12",
    "zeros": b"0012",
    "a fraction": b"1.5",
    "an exponent": b"1e3",
    "hexadecimal": b"0x10",
    "no number": b"nan",
    "infinity": b"inf",
    "beyond 2^53": b"9007199254740993",
    "5,000 digits": b"9" * 5_000,
    "not UTF-8": b"\xff\xfe\x80",
    "control characters": b"\x1b[31m\x00\x07",
    "1 MB": b"x" * 1_000_000,
    "deep": b"[" * 100_000,
}
ENTRIES: dict[str, bytes] = {
    **TEXTS,
    "an empty array": b"\x90",
    "a short array": b"\x93\x01\x01\xc0",
    "100,000 levels": b"\x91" * 100_000 + b"\x01",
    "half an array": b"\xdd\xff\xff\xff\xff",
    "another seq": msgspec.msgpack.encode((7, 1, "q", None, 0, 5, b"{}")),
    "text for a number": msgspec.msgpack.encode((1, 1, "q", None, "0", 5, b"{}")),
    "a number for text": msgspec.msgpack.encode((1, 1, 5, None, 0, 5, b"{}")),
    "a fraction for a number": msgspec.msgpack.encode((1, 1, "q", None, 0.5, 5, b"{}")),
    "too many columns": msgspec.msgpack.encode((1, 1, "q", None, 0, 5, 6, 7, b"{}")),
    "text for the body": msgspec.msgpack.encode((1, 1, "q", None, 0, 5, "{}")),
    "not UTF-8 in a column": b"\x97\x01\x01\xa2\xff\xfe\xc0\x00\x05\xc4\x02{}",
    "10 MB": msgspec.msgpack.encode((1, 1, "q", None, 0, 5, b"x" * 10_000_000)),
}


async def fill(engine: RedisEngine) -> None:
    """A store that has something of everything."""
    await engine.transact(
        SCOPE,
        [
            Put("items", ("a",), {"name": "one", "owner": "o", "note": "n", "n": 1, "rank": 1, "due": 1}, b"{}"),
            Put("items", ("b",), {"name": "two", "owner": "o", "rank": 2, "due": 2}),
            Put("pairs", ("p", 1), {"v": "x", "n": 3}, b"{}"),
            notes("t", "x", "y"),
            Append("plain", "t", [(b"{}",)]),
        ],
    )
    await engine.transact(SCOPE, [notes("t", "z", branch=1)])


def reading(engine: RedisEngine) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every reading call of the engine."""
    views: dict[str, list[Any]] = {
        "get": [Get("items", [("a",), ("b",)]), Get("pairs", [("p", 1)])],
        "scan": [Scan("items"), Scan("pairs", None, ("p",)), Scan("items", desc=True, limit=1)],
        "due": [
            Scan("items", "due", ()),
            Scan("items", "due", (), desc=True),
            Scan("items", "due", (), after=(1, "a")),
        ],
        "owned": [Scan("items", "owned", ("o",)), Scan("items", "sparse", ("o",), where={"n": 1})],
        "two": [Scan("items", "two", ("o", "n"), upto={"rank": 9}), Scan("pairs", "by_n", ("p",))],
        "entries": [Read("notes", "t"), Read("notes", "t", desc=True, limit=2), Read("plain", "t")],
        "segments": [Read("notes", "t", segments=(Segment(0, 0, 2), Segment(1, 2)))],
        "unique": [Read("notes", "t", where={"id": "x"}), Read("notes", "t", where={"kind": "note"})],
        "heads": [Heads("notes", ["t", "nobody"]), Heads("plain", ["t"])],
    }
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        name: (lambda asks=asks: engine.view(SCOPE, asks)) for name, asks in views.items()
    }
    return calls | {
        "scopes": engine.scopes,
        "partitions": lambda: engine.partitions(SCOPE, "notes", limit=10),
    }


def writing(engine: RedisEngine) -> list[Callable[[], Awaitable[Any]]]:
    """Calls that write where the damage may be; the key is restored afterwards, and so is what they wrote."""
    return [
        lambda: engine.transact(
            SCOPE, [notes("t", "later", branch=1), Patch("items", ("a",), {"n": Inc(1), "rank": 9})]
        ),
        lambda: engine.transact(SCOPE, [Patch("pairs", ("p", 1), {"n": Inc(1)}, if_={"v": "x"})]),
        lambda: engine.take(SCOPE, Scan("items", "due", (), limit=2, upto={"due": 9}), {"n": Inc(1)}),
        lambda: engine.transact(SCOPE, [Drop("notes", "t", keep=1)]),
    ]


async def ended(work: Callable[[], Awaitable[Any]]) -> Any:
    """The answer, or the error of ours in which it ended."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await work()
    except (PerdureError, Conflict) as error:
        return error


async def damages(client: Any, key: bytes) -> AsyncIterator[str]:
    """Damage a key in one way after the other; the caller restores it between."""
    kind = (await client.type(key)).decode()
    await client.delete(key)
    yield "gone"
    await client.delete(key)
    await (client.rpush(key, b"x") if kind == "string" else client.set(key, b"x"))
    yield "another type"
    if kind == "hash":
        for field in await restored(client, key, "hkeys"):
            await client.hdel(key, field)
            yield f"{field!r} gone"
            for name, text in TEXTS.items():
                await client.hset(key, field, text)
                yield f"{field!r}: {name}"
    for name, text in (ENTRIES if kind == "list" else TEXTS).items():
        if kind == "list":
            await client.lset(key, 0, text)
        elif kind == "zset":
            await client.zadd(key, {text: 0})
        elif kind == "set":
            await client.sadd(key, text)
        elif kind == "string":
            await client.set(key, text)
        else:
            continue
        yield name
    if kind == "zset":
        (first, *_) = await restored(client, key, "zrange", 0, -1)
        await client.zadd(key, {first: 99})
        yield "another score"


async def restored(client: Any, key: bytes, command: str, *arguments: Any) -> Any:
    """What a key holds, once it is as it was: damage begins from there."""
    await restore(client, key)
    return await getattr(client, command)(key, *arguments)


SAVED: dict[bytes, bytes] = {}


async def restore(client: Any, *keys: bytes) -> None:
    for key in keys:
        await client.delete(key)
        await client.restore(key, 0, SAVED[key])


def _harmless(key: bytes, how: str) -> bool:
    """What the engine cannot know of, and why."""
    if b":t:" in key and how.startswith("b'body'"):
        return True  # a body is any bytes to the engine; the stores read it
    if how == "b'n' gone" and b":t:items" in key:
        return True  # NULL, in a column that no index has
    if key.endswith(b":scopes") and "not UTF-8" not in how:
        return True  # a scope is registered before its first write, so one without anything is in order
    return how == "10 MB" and b":l:plain" not in key  # the entry that was there, with a large body


@pytest.mark.parametrize("part", ["t:items:a", "t:pairs", "k:", "i:", "u:", "l:", "q:", "g:", "p:", "schema", "scopes"])
def test_every_key_damaged_in_every_way(part: str) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await fill(engine)
            assert await engine.check() == []
            SAVED.clear()
            SAVED.update({key: await client.dump(key) async for key in client.scan_iter("perdure:*")})
            silent = []
            chosen = [key for key in SAVED if f"}}:{part}".encode() in key or key == f"perdure:{part}".encode()]
            assert chosen
            for key in chosen:
                async for how in damages(client, key):
                    findings = await ended(engine.check)
                    assert isinstance(findings, list), (key, how, findings)
                    ends = [await ended(work) for work in reading(engine).values()]
                    reported = findings or any(isinstance(end, CorruptError) for end in ends)
                    if not reported and not _harmless(key, how):
                        silent.append((key, how))
                    assert all("\x1b" not in str(told) for told in (*findings, *ends) if not isinstance(told, list))
                    for work in writing(engine) if how in ("gone", "another type", "text") else ():
                        await ended(work)
                        await client.flushdb()
                        await restore(client, *SAVED)
                    await restore(client, key)
            assert silent == []

    asyncio.run(main())


@pytest.mark.parametrize("text", [name for name in TEXTS if name != "nothing"])
def test_an_integer_that_is_none_is_named_with_its_key_and_column(text: str) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await fill(engine)
            for row, column in (("items:a", "n"), ("pairs:p\x00" + f"{1 + 2**52:016d}", "n"), ("items:a", "rev")):
                before = await client.hget(f"perdure:{{{SCOPE}}}:t:{row}", column)
                await client.hset(f"perdure:{{{SCOPE}}}:t:{row}", column, TEXTS[text])
                table = row.partition(":")[0]
                error = await refusal(engine.view(SCOPE, [Scan(table)]))
                assert isinstance(error, CorruptError)
                assert f"{column}:" in str(error)
                assert table in error.where
                await client.hset(f"perdure:{{{SCOPE}}}:t:{row}", column, before)

    asyncio.run(main())


RECORDS = ("nothing", "text", "other digits", "5,000 digits", "not UTF-8", "deep", "gone", "another type")


@pytest.mark.parametrize("how", RECORDS)
@pytest.mark.parametrize("field", ["version", "digest", "declaration", "columns"])
def test_a_damaged_record_of_the_schema(field: str, how: str) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url):
            pass
        async with client_at(url) as client:
            if how == "another type":
                await client.delete("perdure:meta")
                await client.set("perdure:meta", b"x")
            elif how == "gone":
                await client.hdel("perdure:meta", field)
            else:
                await client.hset("perdure:meta", field, TEXTS[how])
        for opening in (open_engine, plan_migration):
            error = await ended(lambda opening=opening: opening(url, SCHEMA))
            # A declaration of the same version and digest is not looked at.
            if field != "declaration" or how == "another type":
                assert isinstance(error, PerdureError), error
            elif isinstance(error, RedisEngine):
                await error.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "columns",
    [
        b"[]",
        b"{}}",
        b"[" * 100_000,
        b'{"notes": 5}',
        b'{"notes": ["id", "id"]}',
        b'{"notes": ["no-such-column"]}',
        b'{"notes": [["id"]]}',
    ],
)
def test_columns_in_the_record_that_are_none(columns: bytes) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url):
            pass
        async with client_at(url) as client:
            await client.hset("perdure:meta", "columns", columns)
        assert isinstance(await refusal(open_engine(url, SCHEMA)), CorruptError)

    asyncio.run(main())


def test_members_out_of_order_do_not_keep_the_server_busy() -> None:
    """The walk over an index continues behind its last member; with scores of its own that can be the first one."""

    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await engine.transact(SCOPE, [Put("items", (f"{n:03d}",), {"due": n}) for n in range(300)])
            key = f"perdure:{{{SCOPE}}}:k:items"
            await client.zadd(key, {"000": 0, **{f"{n:03d}": -1 for n in range(1, 256)}})
            await client.zadd(key, {f"{n:03d}": 1 for n in range(256, 300)})
            assert isinstance(await refusal(engine.view(SCOPE, [Scan("items")])), CorruptError)
            assert any("not in order" in finding for finding in await engine.check())

    asyncio.run(main())


def test_stretches_that_overlap_are_refused() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await fill(engine)
            marks = {f"{'0' * n}1:0": 2 for n in range(1, 12)}
            await client.zadd(f"perdure:{{{SCOPE}}}:g:notes:t", marks)
            read = Read("notes", "t", segments=(Segment(0, 0),))
            assert "overlap" in str(await refusal(engine.view(SCOPE, [read])))

    asyncio.run(main())


@pytest.mark.parametrize("prefix", ["a*b", "a?b", "a[xy]b", "a\\b", "*", "[", "a]b"])
def test_a_prefix_is_no_pattern(prefix: str) -> None:
    """S19: the keys of a neighbour whose prefix the pattern would match are not looked at."""

    async def main() -> None:
        url = await empty()
        neighbours = ["axb", "ab", "ayyb", "a*xb", "axyb", "x"]
        async with client_at(url) as client:
            for neighbour in neighbours:
                await client.set(f"{neighbour}:{{{SCOPE}}}:t:items:foreign", "not ours")
            async with engine_at(f"{url}?prefix={quote(prefix)}") as engine:
                await engine.transact(SCOPE, [Put("items", ("a",), {"due": 1})])
                assert await engine.check() == []
                # What is ours is still found.
                await client.hset(f"{prefix}:{{{SCOPE}}}:t:items:b", "rev", 1)
                assert len(await engine.check()) == 1

    asyncio.run(main())


def test_a_literal_pattern_escapes_every_special_character() -> None:
    assert literal(b"a*b?c[d]e\\f^-{}") == b"a\\*b\\?c\\[d\\]e\\\\f^-{}"


@pytest.mark.parametrize("uses", [1, 5])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_a_double_cannot_hold_is_refused_whole(sign: int, uses: int) -> None:
    """S18: scripts count in doubles. Nothing is written, and what is exact still is."""

    async def main() -> None:
        async with engine_at(await empty()) as engine:
            most = sign * 2**52
            await engine.transact(SCOPE, [Put("items", ("a",), {"n": most, "due": 1})])
            await engine.transact(SCOPE, [Patch("items", ("a",), {"n": Inc(most - sign)})])
            for _ in range(uses):
                for by in (sign, 2 * sign, most):
                    error = await refusal(
                        engine.transact(SCOPE, [notes("t", "x"), Patch("items", ("a",), {"n": Inc(by), "due": 2})])
                    )
                    assert isinstance(error, InvalidError)
                    assert "items.n" in str(error)
                    taking = engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"n": Inc(by)})
                    assert isinstance(await refusal(taking), InvalidError)
            ((row,), (length,)) = await engine.view(SCOPE, [Get("items", [("a",)]), Heads("notes", ["t"])])
            assert (row["n"], row["due"], length) == (sign * (2**53 - 1), 1, 0)

    asyncio.run(main())
