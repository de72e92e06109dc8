"""Schema versions on Redis: made once, brought up to date by adding, older clients shut out, others refused."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.engines.redis_place import client_at, empty, engine_at, refusal
from tests.engines.toys import SCHEMA, SCOPE, note

from perdure.engines.redis import RedisEngine, open_engine, plan_migration
from perdure.engines.redis.connections.failures import Lost
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import REBUILD, Script
from perdure.errors import UnavailableError, UnsupportedError
from perdure.kernel.ops import Append, Patch, Put, Read, Scan
from perdure.kernel.schema import Column, Index, Log, Schema, Table, integer, text

_ITEMS, _PAIRS = SCHEMA.tables
_NOTES, _PLAIN, _FEED = SCHEMA.logs
NEWER = Schema(
    version=2,
    tables=(
        msgspec.structs.replace(
            _ITEMS,
            columns=(Column("colour"), *_ITEMS.columns),
            indexes=(*_ITEMS.indexes, Index("ranked", by=(), order=("rank",))),
        ),
        _PAIRS,
        Table("new", key=text("id")),
    ),
    # The new columns stand first and in the middle: entries keep theirs by position.
    logs=(
        msgspec.structs.replace(
            _NOTES, columns=(Column("tone"), *_NOTES.columns[:2], *integer("w"), *_NOTES.columns[2:])
        ),
        _PLAIN,
        _FEED,
        Log("more", partition="topic"),
    ),
)


async def _fill(url: str, rows: int = 3) -> None:
    async with engine_at(url) as engine:
        for scope in (SCOPE, "other"):
            puts = [Put("items", (f"i{n}",), {"rank": rows - n, "name": f"n{n}"}) for n in range(rows)]
            await engine.transact(scope, [*puts, Append("notes", "t", [note("a", branch=7), note("b")])])


def test_an_older_store_is_brought_up_to_date_by_walks() -> None:
    async def main() -> None:
        url = await empty()
        await _fill(url, rows=1_203)
        plan = await plan_migration(url, NEWER)
        assert (plan.current, plan.wanted) == (1, 2)
        assert "fill the index items.ranked in every scope" in plan.steps
        async with engine_at(url, NEWER) as engine:
            for scope in (SCOPE, "other"):
                (rows,) = await engine.view(scope, [Scan("items", "ranked", ())])
                assert [row["rank"] for row in rows] == list(range(1, 1_204))
            assert (await plan_migration(url, NEWER)).steps == ()
            assert await engine.check() == []

    asyncio.run(main())


def test_entries_keep_their_columns_when_new_ones_stand_between() -> None:
    async def main() -> None:
        url = await empty()
        await _fill(url)
        for name in ("c", "d"):
            async with engine_at(url, NEWER) as engine:
                new = ("soft", name, "k", 5, 7, None, b"{}")
                await engine.transact("fresh", [Append("notes", "t", [new])])
                entries = await engine.view(SCOPE, [Read("notes", "t"), Read("notes", "t", where={"w": None})])
                assert entries[0][0][2:] == (None, "a", "k", None, 7, None, b"{}")
                assert len(entries[1]) == 2
        async with engine_at(url, NEWER) as engine:
            await engine.transact(SCOPE, [Append("notes", "t", [("soft", "c", "k", 5, 7, None, b"[]")])])
            found = await engine.view(
                SCOPE, [Read("notes", "t", after=2), Read("notes", "t", where={"tone": "soft"}), Read("notes", "t")]
            )
            assert found[0][0][2:] == ("soft", "c", "k", 5, 7, None, b"[]")
            assert [entry[0] for entry in found[1]] == [3]
            assert [len(entry) for entry in found[2]] == [9, 9, 9]
            assert await engine.check() == []

    asyncio.run(main())


def test_a_client_of_the_older_build_cannot_write_past_a_new_index() -> None:
    async def main() -> None:
        url = await empty()
        await _fill(url)
        async with engine_at(url) as old, engine_at(url, NEWER) as new:
            error = await refusal(old.transact(SCOPE, [Put("items", ("late",), {"rank": 9})]))
            assert isinstance(error, UnsupportedError)
            assert "upgrade" in str(error)
            taking = old.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {})
            assert isinstance(await refusal(taking), UnsupportedError)
            # A scope that the older build made while the store was being migrated is brought up to date when met.
            await old.transact("young", [Put("items", ("x",), {"rank": 9})])
            await new.transact("young", [Patch("items", ("x",), {"n": 1})])
            (rows,) = await new.view("young", [Scan("items", "ranked", ())])
            assert [row.key for row in rows] == [("x",)]

    asyncio.run(main())


async def _late(old: RedisEngine, rows: int = 1_203) -> None:
    """A scope that a client of the older build makes after the store was brought up to date."""
    await old.transact("late", [Put("items", (f"i{n}",), {"rank": n, "due": n}) for n in range(rows)])


@pytest.mark.parametrize("left", ["old", "filling"])
def test_an_index_is_filled_before_it_is_read(left: str) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as old, engine_at(url, NEWER) as new, client_at(url) as client:
            await _late(old)
            if left == "filling":
                await client.set("perdure:{late}:schema", f"2:{NEWER.digest()}:filling")
            async with engine_at(url, NEWER, read_only=True) as reader:
                error = await refusal(reader.view("late", [Scan("items", "ranked", ())]))
                assert "not filled" in str(error)
                assert len((await reader.view("late", [Scan("items")]))[0]) == 1_203
            both = await asyncio.gather(*[new.view("late", [Scan("items", "ranked", ())]) for _ in range(2)])
            assert [len(rows) for (rows,) in both] == [1_203, 1_203]
            assert await client.get("perdure:{late}:schema") == f"2:{NEWER.digest()}".encode()
            assert isinstance(await refusal(old.transact("late", [Put("items", ("z",), {})])), UnsupportedError)
            # What the older build knows is still there for it to read.
            assert len((await old.view("late", [Scan("items", "due", ())]))[0]) == 1_203

    asyncio.run(main())


@pytest.mark.parametrize("meeting", ["view", "transact", "take"])
def test_a_walk_that_was_broken_off_is_finished_by_whoever_meets_the_scope(
    meeting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as old, engine_at(url, NEWER) as new:
            await _late(old)
            plain, walks = Network.script, 0

            async def breaking(self: Network, script: Script, base: bytes, *arguments: bytes, **shape: Any) -> Any:
                nonlocal walks
                walks += script is REBUILD
                if walks == 2:
                    raise Lost("the connection was lost")
                return await plain(self, script, base, *arguments, **shape)

            monkeypatch.setattr(Network, "script", breaking)
            write = [Put("items", ("z",), {"rank": 9_999})]
            assert isinstance(await refusal(new.transact("late", write)), UnavailableError)
            monkeypatch.undo()
            # Older builds are shut out of a scope that is half done, too.
            assert isinstance(await refusal(old.transact("late", [Put("items", ("z",), {})])), UnsupportedError)
            if meeting == "transact":
                await new.transact("late", write)
            elif meeting == "take":
                taken = await new.take(
                    "late", Scan("items", "ranked", (), limit=5_000, upto={"rank": 9_999}), {"due": 1}
                )
                assert len(taken.rows) == 1_203
            (rows,) = await new.view("late", [Scan("items", "ranked", ())])
            assert len(rows) == 1_203 + (meeting == "transact")
            assert await new.check() == []

    asyncio.run(main())


def test_a_mark_is_never_set_back() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as old, engine_at(url, NEWER) as new, client_at(url) as client:
            await _late(old, rows=3)
            for mark in ("3:other", "3:other:filling", "2:other"):
                await client.set("perdure:{late}:schema", mark)
                for engine in (old, new):
                    error = await refusal(engine.transact("late", [Put("items", ("z",), {})]))
                    assert "upgrade" in str(error)
                assert await client.get("perdure:{late}:schema") == mark.encode()

    asyncio.run(main())


def test_two_openings_at_once_migrate_once() -> None:
    async def main() -> None:
        url = await empty()
        engines = await asyncio.gather(*[open_engine(url, SCHEMA) for _ in range(4)])
        await engines[0].transact(SCOPE, [Put("items", (f"i{n}",), {"rank": n}) for n in range(50)])
        newer = await asyncio.gather(*[open_engine(url, NEWER) for _ in range(4)])
        (rows,) = await newer[3].view(SCOPE, [Scan("items", "ranked", ())])
        assert len(rows) == 50
        for engine in (*engines, *newer):
            await engine.close()

    asyncio.run(main())


def test_a_migration_that_died_is_done_again() -> None:
    async def main() -> None:
        url = await empty()
        await _fill(url)
        async with client_at(url) as client:
            # What a client leaves that died in its first scope: its mark, half an index, a lock that expires.
            await client.set("perdure:{acme}:schema", f"2:{NEWER.digest()}:filling")
            await client.zadd("perdure:{acme}:i:items:ranked:", {"4503599627370499i0": 0})
            await client.set("perdure:lock", "somebody", px=300)
        async with engine_at(url, NEWER) as engine:
            (rows,) = await engine.view(SCOPE, [Scan("items", "ranked", ())])
            assert len(rows) == 3
            assert await engine.check() == []

    asyncio.run(main())


def test_stores_that_must_not_be_changed_are_refused() -> None:
    async def main() -> None:
        url = await empty()
        for hindered in (open_engine(url, SCHEMA, read_only=True), open_engine(f"{url}?migrate=no", SCHEMA)):
            assert isinstance(await refusal(hindered), UnsupportedError)
        async with client_at(url) as client:
            assert await client.dbsize() == 0
        await _fill(url)
        for hindered in (open_engine(url, NEWER, read_only=True), open_engine(f"{url}?migrate=no", NEWER)):
            assert "perdure migrate" in str(await refusal(hindered))
        async with engine_at(url, read_only=True) as engine:
            assert len((await engine.view(SCOPE, [Scan("items")]))[0]) == 3
            assert "read-only" in str(await refusal(engine.transact(SCOPE, [Put("items", ("x",), {})])))
        other = msgspec.structs.replace(SCHEMA, logs=(_NOTES,))
        assert "other declarations" in str(await refusal(open_engine(url, other)))
        async with engine_at(url, NEWER):
            pass
        assert "upgrade" in str(await refusal(open_engine(url, SCHEMA)))

    asyncio.run(main())
