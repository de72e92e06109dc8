"""A server whose defaults are against us: sessions set what they rely on, and health tells what is not so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.engines.mysql_place import emptied, run, sql, stranger
from tests.engines.test_mysql_transactions import _waiting_for
from tests.engines.toys import SCHEMA, SCOPE, do, note, refused

from perdure.engines.mysql import MysqlEngine, open_engine
from perdure.engines.mysql.target import parse_target
from perdure.kernel.ops import ABSENT, Append, Get, Inc, Patch, Put, Read, Scan

ODD = "it's \\ \"quoted\" `here` \\' \\\\ é 😀 \x00 --"
HOSTILE = [
    "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,IGNORE_SPACE,PIPES_AS_CONCAT'",
    "autocommit = 0",
    "SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SESSION TRANSACTION READ ONLY",
    "max_statement_time = 0.02",
    "sql_select_limit = 1",
    "completion_type = 'CHAIN'",
    "completion_type = 'RELEASE'",
    "NAMES latin1",
    "unique_checks = 0",
    "sql_safe_updates = 1, sql_big_selects = 0, max_join_size = 1",
    "time_zone = '+05:30'",
    "innodb_lock_wait_timeout = 600, lock_wait_timeout = 600",
]


@asynccontextmanager
async def _guest(setting: str) -> AsyncIterator[tuple[str, str]]:
    """The URL of an ordinary user, whom the server meets with a setting, and that of root, whom it spares."""
    url = await emptied("defaults")
    target = parse_target(url)
    await sql(url, "CREATE OR REPLACE USER perdure_guest@'%' IDENTIFIED BY 'guest'")
    await sql(url, f"GRANT ALL ON `{target.database}`.* TO perdure_guest@'%'")
    quoted = setting.replace("'", "''")
    await sql(url, f"SET GLOBAL init_connect = 'SET {quoted}'")
    try:
        yield f"mysql://perdure_guest:guest@{target.host}:{target.port}/{target.database}", url
    finally:
        await sql(url, "SET GLOBAL init_connect = ''; DROP USER perdure_guest@'%'")


async def _all_is_well(engine: MysqlEngine, url: str) -> None:
    """What each of the settings would break."""
    await do(engine, Put("items", ("a",), {"name": ODD, "n": 1}), Append("notes", "t", [note("x"), note("y")]))
    await do(engine, *[Put("items", (f"b{n}",), {"n": n}) for n in range(5)])
    assert (await refused(do(engine, Put("items", ("a",), {}, if_=ABSENT)))).kind == "condition"
    items, (got,), entries = await engine.view(SCOPE, [Scan("items"), Get("items", [("a",)]), Read("notes", "t")])
    assert (len(items), got["name"], len(entries)) == (6, ODD, 2)
    other = await stranger(url)
    try:
        await other.run("START TRANSACTION; SELECT * FROM items WHERE id = 'a' FOR UPDATE")
        commit = asyncio.create_task(do(engine, Patch("items", ("a",), {"n": Inc()})))
        await _waiting_for(url, 1)
        await other.run("ROLLBACK")
        await commit
        assert await other.run("SELECT n FROM items WHERE id = 'a'") == [((2,),)]
    finally:
        await other.close()
    health = await engine.health()
    assert health.settings["isolation"] == "READ-COMMITTED"
    assert not [told for told in health.problems if "session" in told or "isolation" in told]
    assert health.settings["connections"]["dropped"] == 0


@pytest.mark.parametrize("setting", HOSTILE)
def test_a_hostile_default_changes_nothing(setting: str) -> None:
    async def scenario() -> None:
        async with _guest(setting) as (guest, root):
            engine = await open_engine(guest, SCHEMA)
            try:
                await _all_is_well(engine, root)
            finally:
                await engine.close()

    run(scenario())


def test_health_tells_of_a_session_that_something_changed() -> None:
    async def scenario() -> None:
        url = await emptied("defaults")
        engine = await open_engine(f"{url}?connections=1", SCHEMA)
        connection = await engine._pool.acquire()
        await connection.run("SET SESSION unique_checks = 0")
        engine._pool.release(connection)
        health = await engine.health()
        assert not health.ok
        assert any("unique_checks is OFF" in told for told in health.problems)
        await engine.close()

    run(scenario())
