"""Opening PostgreSQL: URLs and their options, schemas, versions and migrations, read-only, a caller's own pool."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.engines.toys import SCHEMA, SCOPE, notes
from tests.support.servers import fresh_database, server

from perdure.engines.postgres import open_engine, plan_migration
from perdure.engines.postgres.target import each_host, parse_target
from perdure.errors import InvalidError, PerdureError, UnavailableError, UnsupportedError
from perdure.kernel.ops import Delete, Get, Heads, Patch, Put, Read, Scan
from perdure.kernel.schema import Index, Schema, Table, integer, text
from perdure.kernel.url import Host, parse_url

NEWER = msgspec.structs.replace(
    SCHEMA,
    version=2,
    tables=(
        *SCHEMA.tables[1:],
        msgspec.structs.replace(
            SCHEMA.tables[0],
            columns=SCHEMA.tables[0].columns + integer("weight"),
            indexes=(*SCHEMA.tables[0].indexes, Index("heavy", by=(), order=("weight",))),
        ),
        Table("extra", key=text("id"), columns=text("v")),
    ),
)
OTHER = msgspec.structs.replace(NEWER, version=1)
MIGRATE = """
import asyncio, sys
from perdure.engines.postgres import open_engine
from tests.engines.test_postgres_opening import NEWER
async def main():
    await (await open_engine(sys.argv[1], NEWER)).close()
asyncio.run(main())
"""


def on_postgres(scenario: Callable[[str], Awaitable[None]]) -> None:
    """Run a scenario with the URL of a schema that does not exist yet."""

    async def main() -> None:
        url = await fresh_database(server("postgres"), "opening")
        link = await asyncpg.connect(url)
        await link.execute("DROP SCHEMA IF EXISTS perdure CASCADE; DROP SCHEMA IF EXISTS other CASCADE")
        await link.close()
        await scenario(url)

    asyncio.run(main())


async def touch(url: str, schema: Schema = SCHEMA, **options: Any) -> None:
    await (await open_engine(url, schema, **options)).close()


async def refusal(kind: type[PerdureError], work: Awaitable[Any]) -> str:
    with pytest.raises(kind) as caught:
        await work
    return str(caught.value)


def migrating(url: str, failpoint: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PERDURE_FAILPOINTS": failpoint, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", MIGRATE, url], env=environment)


@pytest.mark.urls
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("colour=red", "no such option"),
        ("schema=", "must be 1 to 63 bytes"),
        ("schema=pg_x", "cannot begin with pg_"),
        ("connections=0", "1 to 1000"),
        ("connections=many", "1 to 1000"),
        ("connect_timeout=-1", "seconds"),
        ("prepared=perhaps", "yes or no"),
        ("migrate=never", "yes or no"),
        ("schema=a&schema=b", "given twice"),
        ("schema", "cannot be read"),
        ("listen_url=foo", "listen_url does not begin with postgresql://"),
        ("listen_url=postgresql://h:x/d", "listen_url: the port must be a number"),
        ("listen_url=postgresql://h/d%3Fcolour%3Dred", "colour: no such option"),
        ("listen_url=postgresql://h/d%3Fschema%3Ds%26prepared%3Dno", "remove prepared, schema"),
        ("port=many", "port must be a number"),
        ("port=1,2", "lists 2 ports for 1 hosts"),
        ("target_session_attrs=foo", "any, primary, standby, prefer-standby, read-write, read-only"),
        ("sslmode=verify-full&sslrootcert=/nowhere.pem", "sslrootcert names a file that cannot be read: /nowhere.pem"),
    ],
)
def test_options_that_make_no_sense_are_refused(query: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        parse_target(f"postgresql://u:secret@h/d?{query}")


@pytest.mark.urls
def test_passwords_are_never_shown() -> None:
    target = parse_target("postgresql://u:secret@h:1/d?password=hidden&schema=s&sslmode=disable")
    assert target.display_url == "postgresql://u@h:1/d"
    assert (target.schema, "sslmode=disable" in target.dsn, "schema" in target.dsn) == ("s", True, False)


@pytest.mark.urls
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:zzz@zzz@h/d", "percent-encode @ in the password"),
        ("postgresql://u:zzz/zzz@h/d", "percent-encoded"),
        ("postgresql://u:zzz?zzz@h/d", "percent-encoded"),
        ("postgresql://u:zzz#zzz@h/d", "percent-encoded"),
        ("postgresql://u:12?zzz=x@h/d", "percent-encoded"),
        ("postgresql://u:p@zzz?zzz=x@h/d", "percent-encoded"),
        ("postgresql://u:p@zzz/zzz@h/d", "percent-encoded"),
        ("postgresql://u:p@zzz#zzz@h/d", "percent-encoded"),
        ("postgresql://u:zzz/d", "port must be a number"),
        ("postgresql://u:x@h:zzz/d", "port must be a number"),
        ("postgresql://u:x@zzz,[::1]:70000/d", "port must be a number"),
        ("postgresql://u:x@h,,zzz/d", "empty entry"),
        ("zzz://u:x@h/d", "does not begin with postgresql://"),
    ],
)
def test_of_a_url_that_cannot_be_read_nothing_is_repeated(url: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said) as caught:
        parse_target(url)
    assert "zzz" not in str(caught.value)


@pytest.mark.urls
def test_what_a_url_may_say() -> None:
    several = parse_target("postgresql://u:p%40%2F@a,b:1,[::1]:2/my%20db?user=x@y")
    assert (several.database, several.display_url) == ("my db", "postgresql://u@a,b:1,[::1]:2/my%20db")
    assert several.dsn == "postgresql:///my%20db?host=a%2Cb%3A1%2C%5B%3A%3A1%5D%3A2&user=u&password=p%40%2F"
    assert parse_target("postgresql:///?host=/run&dbname=d&port=1").dsn == "postgresql:///d?host=%2Frun&port=1"
    assert parse_target("postgresql:///?port=1,2&dbname=d").database == "d"


@pytest.mark.urls
@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p%2C@a/d?sslmode=require", ["a"]),
        ("postgresql://u@a,b:1,[::1]:2/d", ["a", "b:1", "[::1]:2"]),
        ("postgresql://u@[::1]:2,[fe80::1%25eth0],b/d", ["[::1]:2", "[fe80::1%eth0]", "b"]),
        ("postgresql://%2Frun,%2Ftmp:1/d", ["/run", "/tmp/.s.PGSQL.1"]),
        ("postgresql:///d?host=a,/run&port=1", ["a:1", "/run:1"]),
        ("postgresql:///d?host=a,b,::1&port=1,2,3", ["a:1", "b:2", "[::1]:3"]),
        ("postgresql://a:1,b/d?port=2", ["a:1", "b:2"]),
        ("postgresql://a,[::1]/d?target_session_attrs=prefer-standby", ["a,[::1]"]),
        ("postgresql:///d", [""]),
    ],
)
def test_hosts_are_asked_one_by_one(url: str, hosts: list[str]) -> None:
    asked = [parse_url(dsn) for dsn in each_host(parse_target(url).dsn)]
    assert [":".join(dsn.options[name] for name in ("host", "port") if name in dsn.options) for dsn in asked] == hosts
    assert {(dsn.hosts, dsn.path) for dsn in asked} == {((), "d")}


@pytest.mark.urls
@pytest.mark.parametrize("place", ["no-such-host.invalid,[::1]:1,{place}", "[::1]:1,{place}", "{place},[::1]:1"])
def test_a_list_with_an_ipv6_address_is_opened_on_every_python(place: str) -> None:
    async def scenario(url: str) -> None:
        account, _, rest = url.partition("@")
        server, _, database = rest.partition("/")
        for option in ("", "?target_session_attrs=prefer-standby"):
            await touch(f"{account}@{place.format(place=server)}/{database}{option}")

    on_postgres(scenario)


@pytest.mark.urls
def test_a_socket_is_named_in_the_place_of_the_host() -> None:
    async def scenario(url: str) -> None:
        parts = parse_url(url)
        link = await asyncpg.connect(url)
        folder = (await link.fetchval("SHOW unix_socket_directories")).split(",")[0]
        await link.close()
        await touch(msgspec.structs.replace(parts, hosts=(Host(folder, parts.hosts[0].port),)).build())

    on_postgres(scenario)


@pytest.mark.urls
def test_everything_may_stand_in_options() -> None:
    async def scenario(url: str) -> None:
        parts = parse_url(url)
        (host,) = parts.hosts
        for slash in ("", "/"):
            options = f"host={host.name}&port={host.port}&user={parts.user}&dbname={parts.path}"
            engine = await open_engine(f"postgresql://{slash}?{options}", SCHEMA)
            assert (await engine.health()).settings["database"] == parts.path
            await engine.close()

    on_postgres(scenario)


@pytest.mark.urls
def test_a_host_that_is_not_known_is_passed_over() -> None:
    async def scenario(url: str) -> None:
        await touch(url.replace("@", "@no-such-host.invalid,"))
        await touch(url.replace("/perdure", ",no-such-host.invalid/perdure"))
        both = "postgresql://u@no-such-host.invalid,nor-this-one.invalid/d?connect_timeout=3600"
        assert "check the host name" in await refusal(UnavailableError, touch(both))

    on_postgres(scenario)


@pytest.mark.urls
def test_what_cannot_be_reached_says_why() -> None:
    async def scenario(url: str) -> None:
        place = url.rpartition("/")[0]
        assert "does not exist" in await refusal(InvalidError, touch(f"{place}/nowhere"))
        login = await refusal(
            InvalidError,
            touch(url.replace("postgres:", "nobody_here:", 1).replace("//postgres@", "//nobody_here:secret@")),
        )
        assert "secret" not in login
        nobody = "postgresql://u:secret@127.0.0.1:1/d?connect_timeout=0.2"
        unreached = await refusal(UnavailableError, touch(nobody))
        assert "secret" not in unreached
        assert "tried for 0.2 s" in unreached
        # These would be tried for an hour if they were taken for a server on its way back.
        unknown = "postgresql://u:secret@no-such-host.invalid/d?connect_timeout=3600"
        assert "check the host name" in await refusal(UnavailableError, touch(unknown))
        assert "does not speak TLS" in await refusal(InvalidError, touch(f"{url}?sslmode=require&connect_timeout=3600"))

    on_postgres(scenario)


def test_schemas_are_stores_of_their_own() -> None:
    async def scenario(url: str) -> None:
        first = await open_engine(url, SCHEMA)
        second = await open_engine(f"{url}?schema=other", SCHEMA)
        await first.transact(SCOPE, [Put("items", ("a",), {"n": 1})])
        assert await second.view(SCOPE, [Get("items", [("a",)])]) == [[None]]
        await second.transact(SCOPE, [notes("t", "x")])
        assert await first.view(SCOPE, [Heads("notes", ["t"])]) == [[0]]
        assert (await second.health()).settings["schema"] == "other"
        await first.close()
        await second.close()

    on_postgres(scenario)


def test_a_migration_is_planned_and_then_done() -> None:
    async def scenario(url: str) -> None:
        fresh = await plan_migration(url, SCHEMA)
        assert (fresh.current, fresh.wanted) == (None, 1)
        assert fresh.steps
        engine = await open_engine(url, SCHEMA)
        await engine.transact(SCOPE, [Put("items", ("a",), {"n": 1}), notes("t", "x")])
        await engine.close()
        assert (await plan_migration(url, SCHEMA)).steps == ()
        plan = await plan_migration(url, NEWER)
        assert (plan.current, plan.wanted, len(plan.steps)) == (1, 2, 3)
        await touch(url, NEWER)
        assert (await plan_migration(url, NEWER)).steps == ()
        engine = await open_engine(url, NEWER)
        await engine.transact(SCOPE, [Put("items", ("b",), {"weight": 3}), Put("extra", ("e",), {"v": "x"})])
        (old, new), entries = await engine.view(SCOPE, [Get("items", [("a",), ("b",)]), Read("notes", "t")])
        assert (old["n"], old["weight"], new["weight"], len(entries)) == (1, None, 3, 1)
        assert await engine.check() == []
        await engine.close()

    on_postgres(scenario)


def test_newer_other_and_foreign_databases_are_refused() -> None:
    async def scenario(url: str) -> None:
        await touch(url, NEWER)
        assert "upgrade Perdure" in await refusal(UnsupportedError, touch(url))
        await touch(f"{url}?schema=other")
        assert "other declarations" in await refusal(UnsupportedError, touch(f"{url}?schema=other", OTHER))
        link = await asyncpg.connect(url)
        await link.execute("DROP SCHEMA other CASCADE; CREATE SCHEMA other; CREATE TABLE other.items (x int)")
        assert "another program" in await refusal(UnsupportedError, touch(f"{url}?schema=other"))
        assert await link.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'other'") == 1
        await link.close()

    on_postgres(scenario)


def test_a_killed_migration_leaves_the_old_state() -> None:
    async def scenario(url: str) -> None:
        await touch(url)
        for step in (1, 2):
            assert migrating(url, f"postgres.in_migration=crash@{step}").wait(60) == -9
            plan = await plan_migration(url, NEWER)
            assert (plan.current, len(plan.steps)) == (1, 3)
        # Killed behind the index, which is built outside the transaction: all that is left is to give it its name.
        assert migrating(url, "postgres.in_migration=crash@3").wait(60) == -9
        plan = await plan_migration(url, NEWER)
        assert (plan.current, len(plan.steps)) == (2, 1)
        assert "CONCURRENTLY" in plan.steps[0]
        await touch(url, NEWER)
        assert (await plan_migration(url, NEWER)).steps == ()

    on_postgres(scenario)


def test_two_that_open_at_once_make_the_tables_once() -> None:
    async def scenario(url: str) -> None:
        await asyncio.gather(*[touch(url) for _ in range(4)])
        workers = [migrating(url) for _ in range(3)]
        assert [worker.wait(60) for worker in workers] == [0, 0, 0]
        assert (await plan_migration(url, NEWER)).steps == ()

    on_postgres(scenario)


def test_read_only_verifies_and_refuses() -> None:
    async def scenario(url: str) -> None:
        assert "holds no store yet" in await refusal(UnsupportedError, touch(url, read_only=True))
        engine = await open_engine(url, SCHEMA)
        await engine.transact(SCOPE, [Put("items", ("a",), {"n": 1})])
        await engine.close()
        assert "needs 2" in await refusal(UnsupportedError, touch(url, NEWER, read_only=True))
        reader = await open_engine(url, SCHEMA, read_only=True)
        ((row,),) = await reader.view(SCOPE, [Get("items", [("a",)])])
        assert row["n"] == 1
        assert "read-only" in await refusal(UnsupportedError, reader.transact(SCOPE, [Put("items", ("b",), {})]))
        taking = reader.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"n": 1})
        assert "read-only" in await refusal(UnsupportedError, taking)
        await reader.close()

    on_postgres(scenario)


def test_migrate_no_writes_but_never_changes_the_schema() -> None:
    async def scenario(url: str) -> None:
        assert "perdure migrate" in await refusal(UnsupportedError, touch(f"{url}?migrate=no"))
        await touch(url)
        assert "perdure migrate" in await refusal(UnsupportedError, touch(f"{url}?migrate=no", NEWER))
        engine = await open_engine(f"{url}?migrate=no", SCHEMA)
        await engine.transact(SCOPE, [Put("items", ("a",), {"n": 1})])
        await engine.close()

    on_postgres(scenario)


def test_a_pool_of_the_callers_is_used_and_not_closed() -> None:
    async def scenario(url: str) -> None:
        async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
            engine = await open_engine(url, SCHEMA, pool=pool)
            await asyncio.gather(*[engine.transact(SCOPE, [notes(f"t{n}", "x")]) for n in range(20)])
            heads = await engine.view(SCOPE, [Heads("notes", [f"t{n}" for n in range(20)])])
            assert heads == [[1] * 20]
            assert engine.capabilities.watch == "poll"
            await engine.close()
            await engine.close()
            assert await pool.fetchval("SELECT 1") == 1
        assert "asyncpg pool" in await refusal(InvalidError, open_engine(url, SCHEMA, pool=object()))
        assert "close it after the store" in await refusal(UnavailableError, open_engine(url, SCHEMA, pool=pool))
        fresh = asyncpg.create_pool(url)
        assert "await asyncpg.create_pool" in await refusal(UnavailableError, open_engine(url, SCHEMA, pool=fresh))

    on_postgres(scenario)


def test_a_pool_is_refused_that_is_not_what_the_url_and_the_options_say() -> None:
    async def scenario(url: str) -> None:
        elsewhere = url.rpartition("/")[0]
        async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
            assert "the URL names 'other'" in await refusal(InvalidError, touch(f"{elsewhere}/other", pool=pool))
            assert (await plan_migration(url, SCHEMA)).current is None, "nothing was made on the way"
            engine = await open_engine(elsewhere, SCHEMA, pool=pool)
            assert (await engine.health()).settings["database"] == url.rpartition("/")[2]
            await engine.close()

    on_postgres(scenario)


def test_sessions_that_are_not_ours_are_not_said_to_be_quicker_than_they_are() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres", durable=True), "opening")
        async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
            said = await refusal(InvalidError, touch(url, pool=pool, durability="process"))
        assert "synchronous_commit=off" in said
        assert said == await refusal(InvalidError, touch(f"{url}?prepared=no", durability="process"))
        settings = {"synchronous_commit": "off"}
        async with asyncpg.create_pool(url, min_size=1, max_size=2, server_settings=settings) as pool:
            engine = await open_engine(url, SCHEMA, pool=pool, durability="process")
            assert engine.capabilities.durability == "process"
            await engine.close()

    asyncio.run(main())


def test_a_pool_that_others_hold_is_waited_for_in_bounded_time() -> None:
    async def scenario(url: str) -> None:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            engine = await open_engine(url, SCHEMA, pool=pool)
            borrowed: Any = engine._pool  # the test makes it impatient while somebody holds the connection
            patience = borrowed._timeout
            async with pool.acquire():
                borrowed._timeout = 0.2
                assert "are in use" in await refusal(UnavailableError, engine.view(SCOPE, [Heads("notes", ["t"])]))
                assert "are in use" in await refusal(UnavailableError, engine.transact(SCOPE, [notes("t", "x")]))
                assert "are in use" in await refusal(UnavailableError, engine.health())
                borrowed._timeout = patience
            await engine.transact(SCOPE, [notes("t", "x")])
            await engine.close()

    on_postgres(scenario)


def test_bodies_are_the_same_whatever_a_callers_pool_does_with_json() -> None:
    async def codecs(connection: Any) -> None:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    async def scenario(url: str) -> None:
        plain = await open_engine(url, SCHEMA)
        async with asyncpg.create_pool(url, min_size=1, max_size=4, init=codecs) as pool:
            engine = await open_engine(url, SCHEMA, pool=pool)
            await engine.transact(SCOPE, [Put("items", ("a",), {"due": 1}, b'{"a": 1}'), notes("t", "x")])
            await engine.transact(SCOPE, [Patch("items", ("a",), {}, body=b'"text"'), Delete("items", ("none",))])
            await asyncio.gather(
                *[engine.transact(SCOPE, [Put("items", (f"b{n}",), {}, b"[2]"), notes(f"t{n}", "y")]) for n in range(9)]
            )
            asked = [Get("items", [("a",), ("b8",)]), Read("notes", "t"), Read("notes", "t8")]
            through, around = await engine.view(SCOPE, asked), await plain.view(SCOPE, asked)
            assert through == around
            assert [row.body for row in through[0]] == ['"text"', "[2]"]
            assert await engine.view(SCOPE, asked[1:2]) == around[1:2]
            taken = await engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"n": 1})
            assert [row.body for row in taken.rows] == ['"text"']
            await engine.close()
        await plain.close()

    on_postgres(scenario)


def test_durability_is_told_as_it_is() -> None:
    async def scenario(url: str) -> None:
        engine = await open_engine(url, SCHEMA, durability="process")
        health = await engine.health()
        assert engine.capabilities.durability == "process"
        assert health.settings["synchronous_commit"] == "off"
        assert any("synchronous_commit is off" in problem for problem in health.problems)
        await engine.close()

    on_postgres(scenario)


def test_roles_need_no_more_rights_than_the_page_says() -> None:
    async def scenario(url: str) -> None:
        await touch(url)
        link = await asyncpg.connect(url)
        worker, report = f"worker_{os.getpid()}", f"report_{os.getpid()}"
        await link.execute(
            f"CREATE ROLE {worker} LOGIN; CREATE ROLE {report} LOGIN;"
            f"GRANT USAGE ON SCHEMA perdure TO {worker}, {report};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO {worker};"
            f"GRANT SELECT ON ALL TABLES IN SCHEMA perdure TO {report}"
        )
        try:
            writer = await open_engine(url.replace("//postgres@", f"//{worker}@"), SCHEMA)
            await writer.transact(SCOPE, [Put("items", ("a",), {"n": 1}), notes("t", "x"), Delete("items", ("none",))])
            await writer.close()
            theirs = url.replace("//postgres@", f"//{report}@")
            reader = await open_engine(theirs, SCHEMA, read_only=True)
            assert await reader.view(SCOPE, [Heads("notes", ["t"])]) == [[1]]
            await reader.close()
            other = await open_engine(theirs, SCHEMA)
            said = await refusal(UnsupportedError, other.transact(SCOPE, [notes("t", "y")]))
            assert "grant the user the missing right" in said
            await other.close()
            said = await refusal(UnsupportedError, touch(f"{theirs}?schema=other"))
            assert "permission denied for database" in said
            await link.execute(f"CREATE SCHEMA given AUTHORIZATION {worker}")
            await touch(url.replace("//postgres@", f"//{worker}@") + "?schema=given")
        finally:
            await link.execute(f"DROP OWNED BY {worker}, {report}; DROP ROLE {worker}, {report}")
            await link.close()

    on_postgres(scenario)


def test_damage_is_found() -> None:
    async def scenario(url: str) -> None:
        engine = await open_engine(url, SCHEMA)
        await engine.transact(SCOPE, [notes("t", "x", "y", "z"), notes("u", "x")])
        assert await engine.check() == []
        link = await asyncpg.connect(url)
        await link.execute("DELETE FROM perdure.notes WHERE seq = 2")
        await link.execute("UPDATE perdure.notes__heads SET last = 7 WHERE topic = 'u'")
        found = await engine.check()
        assert any("'t'" in line and "2 entries but ends at 3" in line for line in found), found
        assert any("'u'" in line and "its head says 7" in line for line in found), found
        await link.execute("DROP INDEX perdure.items__due")
        assert await engine.check() == ["index items__due is missing"]
        await link.close()
        await engine.close()

    on_postgres(scenario)
