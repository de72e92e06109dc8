"""An index on a table that exists is built while others write: they never wait for the whole build.

On PostgreSQL a transaction that is left open holds the build up for as long as the test likes, and everything that is
committed meanwhile proves that writers do not queue behind it. On MySQL such a transaction would hold up everybody, so
there the build itself is observed: a large table, and commits that begin and end while the server reports the build.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import pytest
from tests.support.servers import ServerMissing, fresh_database, server, servers_required
from tests.support.servers.databases import _mysql

from perdure.engines.mysql import open_engine as open_mysql
from perdure.engines.postgres import open_engine as open_postgres
from perdure.engines.postgres import plan_migration
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Patch, Put, Scan
from perdure.kernel.schema import Index, Log, Schema, Table, integer, text

THINGS = Table("things", key=text("id"), columns=text("kind") + integer("n", "at"))
OLD = Schema(1, (THINGS,), (Log("notes", partition="topic"),))
INDEXED = msgspec.structs.replace(THINGS, indexes=(Index("kinds", by=("kind",), order=("at",)),))
NEW = Schema(2, (INDEXED,), OLD.logs)
REFINED = Schema(
    3, (msgspec.structs.replace(THINGS, indexes=(Index("kinds", by=("kind", "n"), order=("at",)),)),), OLD.logs
)
SCOPE, ROWS, COMMITS, DEADLINE = "acme", 20_000, 30, 60.0
UNBLOCKED = 10
"""Commits during one build that prove it does not lock writers out; a build that does still lets a few pass (three were
counted on a busy machine) before it has its lock."""
_numbers = count()


async def _place(kind: str) -> str:
    try:
        return await fresh_database(server(kind), f"online_{next(_numbers)}")
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


async def _until(condition: Any) -> None:
    """Wait for a condition, with a deadline."""
    last = time.monotonic() + DEADLINE
    while not await condition():
        if time.monotonic() > last:
            raise TimeoutError("the condition did not come true")
        await asyncio.sleep(0.01)


async def _commit(engine: Engine, number: int) -> None:
    """One row changed and one added, as a commit does it."""
    await engine.transact(
        SCOPE,
        [
            Patch("things", ("r0",), {"n": number}),
            Put("things", (f"w{number}",), {"kind": "late", "n": 0, "at": number}),
        ],
    )


@asynccontextmanager
async def _open_transaction(url: str) -> AsyncIterator[Any]:
    """A transaction that has written to the table and does not end before the block does."""
    import asyncpg

    link = await asyncpg.connect(url)
    try:
        transaction = link.transaction()
        await transaction.start()
        await link.execute("UPDATE perdure.things SET n = n WHERE id = 'r1'")
        yield link
        await transaction.rollback()
    finally:
        await link.close()


async def _filled_postgres() -> tuple[str, Engine]:
    import asyncpg

    url = await _place("postgres")
    engine = await open_postgres(url, OLD)
    link = await asyncpg.connect(url)
    await link.execute(
        "INSERT INTO perdure.things (scope, id, kind, n, at, rev) SELECT 'acme', 'r' || g, 'k' || g % 7, 0, g, 1"
        f" FROM generate_series(0, {ROWS - 1}) g"
    )
    await link.close()
    return url, engine


async def _building(url: str) -> bool:
    import asyncpg

    link = await asyncpg.connect(url)
    try:
        sql = "SELECT count(*) FROM pg_stat_progress_create_index WHERE datname = current_database()"
        return bool(await link.fetchval(sql))
    finally:
        await link.close()


def test_writers_on_postgres_go_on_while_an_index_is_built() -> None:
    async def main() -> None:
        url, old = await _filled_postgres()
        async with _open_transaction(url):
            opening = asyncio.ensure_future(open_postgres(url, NEW))
            await _until(lambda: _building(url))
            for number in range(COMMITS):
                await asyncio.wait_for(_commit(old, number), DEADLINE)
            assert await _building(url), "all of them came while the index was being built"
            assert not opening.done()
            second = asyncio.ensure_future(open_postgres(url, NEW))
            await asyncio.wait_for(_commit(old, COMMITS), DEADLINE)
        new = await asyncio.wait_for(opening, DEADLINE)
        await (await asyncio.wait_for(second, DEADLINE)).close()
        (late,) = await new.view(SCOPE, [Scan("things", "kinds", ("late",))])
        assert [row["at"] for row in late] == list(range(COMMITS + 1))
        assert await new.check() == []
        assert (await plan_migration(url, NEW)).steps == ()
        await old.close()
        await new.close()

    asyncio.run(main())


def test_a_refined_index_on_postgres_serves_old_readers_until_it_is_replaced() -> None:
    async def main() -> None:
        url, old = await _filled_postgres()
        await old.close()
        middle = await open_postgres(url, NEW)
        async with _open_transaction(url):
            opening = asyncio.ensure_future(open_postgres(url, REFINED))
            await _until(lambda: _building(url))
            (rows,) = await middle.view(SCOPE, [Scan("things", "kinds", ("k3",), limit=3)])
            assert [row["at"] for row in rows] == [3, 10, 17]
            await _commit(middle, 1)
            assert not opening.done()
        new = await asyncio.wait_for(opening, DEADLINE)
        (rows,) = await new.view(SCOPE, [Scan("things", "kinds", ("k3", 0), limit=3)])
        assert [row["at"] for row in rows] == [3, 10, 17]
        assert await new.check() == []
        await middle.close()
        await new.close()

    asyncio.run(main())


def test_a_build_that_was_killed_on_postgres_is_dropped_and_built_again() -> None:
    async def main() -> None:
        import asyncpg

        url, old = await _filled_postgres()
        link = await asyncpg.connect(url)
        async with _open_transaction(url):
            opening = asyncio.ensure_future(open_postgres(url, NEW))
            await _until(lambda: _building(url))
            await link.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index WHERE datname = current_database()"
            )
            with pytest.raises(Exception, match=r"connection|terminat"):
                await asyncio.wait_for(opening, DEADLINE)
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'perdure.things__kinds__new'::regclass"
        assert await link.fetchval(valid) is False, "what the killed build left"
        plan = await plan_migration(url, NEW)
        assert (plan.current, len(plan.steps)) == (2, 1)
        await _commit(old, 1)
        new = await open_postgres(url, NEW)
        (late,) = await new.view(SCOPE, [Scan("things", "kinds", ("late",))])
        assert len(late) == 1
        assert await new.check() == []
        assert await link.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE '%\\_\\_new'") == 0
        await link.close()
        await old.close()
        await new.close()

    asyncio.run(main())


def test_writers_on_mysql_go_on_while_an_index_is_built() -> None:
    async def main() -> None:
        for doublings in (17, 19):  # on a fast machine the first build may be over before anybody could look
            if await _commits_during_build(doublings) >= UNBLOCKED:
                return
        raise AssertionError(f"no {UNBLOCKED} commits came while the index was being built")

    asyncio.run(main())


async def _commits_during_build(doublings: int) -> int:
    """How many commits began and ended while the server reported the build."""
    url = await _place("mysql")
    old = await open_mysql(url, OLD)
    await _mysql(url, *_filling(doublings))

    async def building() -> bool:
        return bool((await _mysql(url, (_BUILDS, ())))[0][0])

    opening = asyncio.ensure_future(open_mysql(url, NEW))
    begun = ended = 0
    while not opening.done():
        if await building():
            begun += 1
            await asyncio.wait_for(_commit(old, begun), DEADLINE)
            ended += await building()
    new = await opening
    (late,) = await new.view(SCOPE, [Scan("things", "kinds", ("late",))])
    assert len(late) == begun
    await old.close()
    await new.close()
    return ended


_BUILDS = """SELECT COUNT(*) FROM information_schema.processlist
WHERE db = DATABASE() AND info LIKE 'ALTER TABLE%%ADD INDEX%%'"""


def _filling(doublings: int) -> list[str]:
    """Statements that fill the table: one row, then as many again each time."""
    columns = "INSERT INTO things (scope, id, kind, n, at, rev)"
    return [f"{columns} VALUES ('acme', 'r0', 'k', 0, 0, 1)"] + [
        f"{columns} SELECT scope, CONCAT('r', at + {2**n}), REPEAT(MD5(at + {2**n}), 4), 0, at + {2**n}, 1 FROM things"
        for n in range(doublings)
    ]
