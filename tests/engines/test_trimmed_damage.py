"""The engines' own checks know trimmed logs: what was trimmed is not missing, and what is missing is reported."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.engines import mysql_place, redis_place
from tests.engines.test_trimming import feed
from tests.engines.toys import SCOPE, SERVERS, do, empty_place, open_at

from perdure.clock import ManualClock
from perdure.kernel.ops import Read, Trim

Damage = Callable[[str, str], Awaitable[None]]


async def _sqlite(place: str, statement: str) -> None:
    connection = sqlite3.connect(place)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def _postgres(place: str, statement: str) -> None:
    link = await asyncpg.connect(place)
    await link.execute(statement.replace("FROM feed", "FROM perdure.feed"))
    await link.close()


async def _mysql(place: str, statement: str) -> None:
    await mysql_place.sql(place, statement)


RUN: dict[str, Damage] = {"sqlite": _sqlite, "postgres": _postgres, "mysql": _mysql}


@pytest.mark.parametrize("kind", ["sqlite", *[kind for kind in SERVERS if kind != "redis"]])
@pytest.mark.parametrize("seq", [6, 8])
def test_a_gap_in_a_trimmed_log_is_reported(kind: str, seq: int, tmp_path: Path) -> None:
    async def main() -> None:
        place = await empty_place(kind, tmp_path)
        engine = await open_at(kind, place, ManualClock())
        await do(engine, feed("t", *"abcdefgh"), feed("u", *"abc"))
        await do(engine, Trim("feed", "t", 4))
        assert await engine.check() == []
        await RUN[kind](place, f"DELETE FROM feed WHERE topic = 't' AND seq = {seq}")
        problems = await engine.check()
        # SQLite takes its last seq from the entries, so without the last one there is nothing to compare.
        assert bool(problems) is not (kind == "sqlite" and seq == 8)
        assert all("'t'" in problem for problem in problems), problems
        await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("command", "arguments", "word"),
    [
        ("lpop", ["l:feed:t"], "where 5 belongs|does not find"),
        ("rpop", ["l:feed:t"], "belongs"),
        ("hset", ["q:feed:t", "#", "9"], "belongs"),
        ("hset", ["q:feed:t", "#", "3"], "not its last seq"),
        ("hset", ["q:feed:t", "id+stale", "2"], "unique values"),
        ("zadd", ["g:feed:t", {"2:0": 2}], "stretches"),
    ],
)
def test_a_trimmed_log_on_redis_is_compared_with_its_facts(command: str, arguments: list[Any], word: str) -> None:
    async def main() -> None:
        url = await redis_place.empty()
        async with redis_place.engine_at(url) as engine, redis_place.client_at(url) as client:
            await do(engine, feed("t", *"abcdefgh"))
            await do(engine, Trim("feed", "t", 4))
            assert await engine.check() == []
            name, *rest = arguments
            await getattr(client, command)(f"perdure:{{{SCOPE}}}:{name}", *rest)
            problems = "; ".join(await engine.check())
            assert any(each in problems for each in word.split("|")), problems

    asyncio.run(main())


def test_a_last_seq_below_the_length_is_damage() -> None:
    async def main() -> None:
        url = await redis_place.empty()
        async with redis_place.engine_at(url) as engine, redis_place.client_at(url) as client:
            await do(engine, feed("t", *"abcd"))
            for value in ("3", "x", "12345678901234567"):
                await client.hset(f"perdure:{{{SCOPE}}}:q:feed:t", "#", value)
                error = await redis_place.refusal(engine.view(SCOPE, [Read("feed", "t")]))
                assert "invalid last seq" in str(error)

    asyncio.run(main())
