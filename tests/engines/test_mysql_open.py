"""Opening a MySQL store: what a URL may say, who may change the tables, and changes that were cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.engines.mysql_place import emptied, run, sql, stranger
from tests.engines.pacing import slow_clock
from tests.engines.toys import SCHEMA, SCOPE, do, note

from perdure import failpoints
from perdure.engines.mysql import migrate, open_engine, plan_migration
from perdure.engines.mysql.schema import create_all
from perdure.engines.mysql.target import parse_target
from perdure.errors import CorruptError, InvalidError, UnavailableError, UnsupportedError
from perdure.kernel.ops import Append, Get, Put, Scan
from perdure.kernel.schema import Index, Schema, Table, integer, text


def _newer() -> Schema:
    """The toys with a column, an index over it, a table and a log more."""
    items = SCHEMA.tables[0]
    grown = msgspec.structs.replace(
        items,
        columns=items.columns + text("colour"),
        indexes=(*items.indexes, Index("coloured", by=("colour",), order=("rank",))),
    )
    more = Table("more", key=text("id"), columns=integer("n"))
    return Schema(2, (grown, *SCHEMA.tables[1:], more), SCHEMA.logs)


@pytest.mark.urls
def test_a_url_is_taken_apart() -> None:
    target = parse_target("mariadb://u%40x:p%2Fw@db.example:3307/agents?connections=3&connect_timeout=0.5&migrate=no")
    assert (target.host, target.port, target.user, target.password) == ("db.example", 3307, "u@x", "p/w")
    assert (target.database, target.connections, target.connect_timeout, target.migrate) == ("agents", 3, 0.5, False)
    assert "p/w" not in target.display_url


@pytest.mark.urls
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://h/", "no database"),
        ("mysql://h/db?conections=3", "conections"),
        ("mysql://h/db?connections=0", "1 to 1000"),
        ("mysql://h/db?connections=2&connections=3", "twice"),
        ("mysql://h/db?connect_timeout=soon", "seconds"),
        ("mysql://h/db?migrate=maybe", "yes or no"),
        ("mysql://h:port/db", "port must be a number"),
        ("mysql://a,b/db", "one server"),
        ("mysql://%2Frun%2Fmysqld.sock/db", "unix_socket="),
        ("mysql://u:zzz/zzz@h/db", "percent-encoded"),
        ("mysql://u:12?zzz=x@h/db", "percent-encoded"),
        ("mysql://h/db?ssl", "cannot be read"),
    ],
)
def test_a_bad_url_is_refused_with_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        parse_target(url)


@pytest.mark.urls
def test_a_refused_login_keeps_the_password_to_itself() -> None:
    async def scenario() -> None:
        url = await emptied("open")
        target = parse_target(url)
        wrong = f"mysql://nobody:s3cret@{target.host}:{target.port}/{target.database}"
        with pytest.raises(InvalidError, match="login") as refusal:
            await open_engine(wrong, SCHEMA)
        assert "s3cret" not in str(refusal.value)
        with pytest.raises(InvalidError, match="CREATE DATABASE"):
            await open_engine(url.replace(target.database, "no_such_database"), SCHEMA)

    run(scenario())


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(UnavailableError):
        run(_open("mysql://root@127.0.0.1:1/perdure?connect_timeout=0.2"))


async def _open(url: str) -> None:
    await open_engine(url, SCHEMA)


@pytest.mark.parametrize("step", range(1, len(list(create_all(SCHEMA))) + 2))
def test_making_the_tables_goes_on_where_it_was_cut_short(step: int) -> None:
    async def scenario() -> None:
        url = await emptied("open")
        failpoints.arm("mysql.in_migration", "error", after=step)
        with pytest.raises(UnavailableError):
            await open_engine(url, SCHEMA)
        engine = await open_engine(url, SCHEMA)
        await do(engine, Put("items", ("a",), {}), Append("notes", "t", [note("n")]))
        assert await engine.check() == []
        await engine.close()

    run(scenario())


@pytest.mark.parametrize("step", [None, 1, 2, 3, 4])
def test_an_older_schema_is_brought_up_to_date(step: int | None) -> None:
    async def scenario() -> None:
        url = await emptied("open")
        engine = await open_engine(url, SCHEMA)
        await do(engine, Put("items", ("a",), {"rank": 1}))
        await engine.close()
        plan = await plan_migration(url, _newer())
        assert (plan.current, plan.wanted, len(plan.steps)) == (1, 2, 3)
        for option in ("?migrate=no", ""):
            with pytest.raises(UnsupportedError, match="version 1"):
                await open_engine(url + option, _newer(), read_only=not option)
        if step is not None:
            failpoints.arm("mysql.in_migration", "error", after=step)
            with pytest.raises(UnavailableError):
                await open_engine(url, _newer())
        engine = await open_engine(url, _newer())
        await do(engine, Put("items", ("b",), {"colour": "red", "rank": 2}), Put("more", ("m",), {"n": 1}))
        ((red,),) = await engine.view(SCOPE, [Scan("items", "coloured", ("red",))])
        assert red.key == ("b",)
        await engine.close()
        assert (await plan_migration(url, _newer())).steps == ()
        with pytest.raises(UnsupportedError, match="knows version 1"):
            await open_engine(url, SCHEMA)

    run(scenario())


PATIENCE = 1
"""Seconds: the `command_timeout` of stores that have to wait for longer."""


async def _outlasted(url: str, state: str, opening: asyncio.Task[Any], pass_time: Callable[[float], None]) -> None:
    """Wait until a connection to this database is in a state, and then for longer than `PATIENCE`."""
    which = f"db = DATABASE() AND state LIKE '{state}%'"
    look = f"DO SLEEP(0.02); SELECT COUNT(*) FROM information_schema.processlist WHERE {which}"
    while await sql(url, look) == [((0,),)]:
        assert not opening.done()
    pass_time(3 * PATIENCE)
    # A timeout that has struck is seen by those who wait for it in the loop's next turns.
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_migration_may_take_longer_than_an_answer() -> None:
    """Each step waits for a lock on its table that is held for longer than `command_timeout`."""

    async def scenario() -> None:
        url = await emptied("open")
        await (await open_engine(url, SCHEMA)).close()
        pass_time = slow_clock()
        reader = await stranger(url)
        await reader.run("START TRANSACTION; SELECT * FROM items")
        opening = asyncio.create_task(open_engine(f"{url}?command_timeout={PATIENCE}", _newer()))
        await _outlasted(url, "Waiting for table metadata lock", opening, pass_time)
        await reader.run("COMMIT")
        await (await opening).close()
        assert (await plan_migration(url, _newer())).steps == ()
        await reader.close()

    run(scenario())


def test_the_lock_of_migrations_is_waited_for_longer_than_an_answer() -> None:
    async def scenario() -> None:
        url = await emptied("open")
        pass_time = slow_clock()
        other = await stranger(url)
        name = migrate._lock_name(parse_target(url).display_url)
        await other.run(f"SELECT GET_LOCK({name}, 1)")
        opening = asyncio.create_task(open_engine(f"{url}?command_timeout={PATIENCE}", SCHEMA))
        await _outlasted(url, "User lock", opening, pass_time)
        await other.run(f"DO RELEASE_LOCK({name})")
        await (await opening).close()
        await other.close()

    run(scenario())


def test_tables_of_another_program_are_left_alone() -> None:
    async def scenario() -> None:
        url = await emptied("open")
        await sql(url, "CREATE TABLE items (x INT)")
        with pytest.raises(UnsupportedError, match="items"):
            await open_engine(url, SCHEMA)
        (tables,) = await sql(url, "SHOW TABLES")
        assert tables == (("items",),)

    run(scenario())


def test_a_read_only_store_reads_and_refuses_to_write() -> None:
    async def scenario() -> None:
        url = await emptied("open")
        with pytest.raises(UnsupportedError, match="no store yet"):
            await open_engine(url, SCHEMA, read_only=True)
        engine = await open_engine(url, SCHEMA)
        await do(engine, Put("items", ("a",), {"n": 1}))
        await engine.close()
        reader = await open_engine(url, SCHEMA, read_only=True)
        ((row,),) = await reader.view(SCOPE, [Get("items", [("a",)])])
        assert row["n"] == 1
        with pytest.raises(UnsupportedError, match="read-only"):
            await do(reader, Put("items", ("a",), {}))
        with pytest.raises(UnsupportedError, match="read-only"):
            await reader.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {})
        await reader.close()

    run(scenario())


def test_a_table_that_vanished_is_found() -> None:
    async def scenario() -> None:
        url = await emptied("open")
        engine = await open_engine(url, SCHEMA)
        await do(engine, Append("notes", "t", [note("a"), note("b")]))
        await sql(url, "DELETE FROM notes WHERE seq = 1; DROP TABLE pairs")
        told = "; ".join(await engine.check())
        assert "pairs is missing" in told
        assert "'t'" in told
        with pytest.raises(CorruptError):
            await engine.view(SCOPE, [Scan("pairs")])
        await engine.close()

    run(scenario())


def test_a_small_packet_limit_is_refused_at_opening() -> None:
    async def scenario() -> None:
        url = await emptied("open")
        ((((before,),)),) = await sql(url, "SELECT @@GLOBAL.max_allowed_packet")
        await sql(url, "SET GLOBAL max_allowed_packet = 1048576")
        try:
            with pytest.raises(UnsupportedError, match="max_allowed_packet"):
                await open_engine(url, SCHEMA)
        finally:
            await sql(url, f"SET GLOBAL max_allowed_packet = {before}")

    run(scenario())
