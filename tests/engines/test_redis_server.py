"""The Redis engine and its server: refusals in words, nothing half written, hints, settings, damage that is found."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import time
from urllib.parse import urlsplit

import pytest
from tests.engines.redis_place import DEADLINE, client_at, empty, engine_at, refusal, until
from tests.engines.toys import SCHEMA, SCOPE, eventually, note, notes, refused, watching
from tests.support.proxy import Proxy
from tests.support.servers import server
from tests.support.servers.local import LocalServer
from tests.support.servers.redis import RedisRecipe

from perdure.clock import system_clock
from perdure.engines.redis import open_engine
from perdure.engines.redis.connections.scripts import PROBE, REBUILD, lua
from perdure.engines.redis.write import index_lua, row_lua, transaction_scripts
from perdure.errors import CorruptError, InvalidError, OutcomeUnknown, UnavailableError, UnsupportedError
from perdure.kernel.ops import NOW, Append, Delete, Drop, Get, Op, Patch, Put, Read, Scan


def test_a_server_that_forgot_the_scripts_is_told_them_again() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            for n in range(3):
                await client.script_flush()
                await engine.transact(SCOPE, [Put("items", (f"{n}",), {})])
                await client.script_flush()
                assert len((await engine.view(SCOPE, [Scan("items")]))[0]) == n + 1

    asyncio.run(main())


def test_the_clock_is_the_servers_unless_another_is_given() -> None:
    async def main() -> None:
        async with engine_at(await empty(), clock=system_clock) as engine:
            before = time.time_ns() // 1_000_000
            applied = await engine.transact(SCOPE, [Put("items", ("x",), {"due": NOW})])
            ((row,),) = await engine.view(SCOPE, [Get("items", [("x",)])])
            assert row is not None
            assert row["due"] == applied.now
            assert abs(applied.now - before) < 60_000

    asyncio.run(main())


def test_any_text_is_kept_and_found(clock: object) -> None:
    odd = ["a:b", "{x}", "a\x00b", "a\x01", "\x01\x02", "%", "é𝄞", "", " "]

    async def main() -> None:
        async with engine_at(await empty()) as engine:
            for scope in ("plain", "{", "}{", "a:b"):
                rows = [Put("items", (f"k{t}",), {"owner": t, "rank": 1, "name": t}, t.encode() + b"\xff") for t in odd]
                await engine.transact(scope, [*rows, *[Append("notes", f"p{t}", [note(t)]) for t in odd]])
                for t in odd:
                    found = await engine.view(
                        scope,
                        [
                            Scan("items", "owned", (t,)),
                            Get("items", [(f"k{t}",)]),
                            Read("notes", f"p{t}", where={"id": t}),
                        ],
                    )
                    assert found[0] == found[1]
                    assert found[0][0]["name"] == t
                    assert found[0][0].body == t.encode() + b"\xff"
                    assert len(found[2]) == 1
                assert await engine.partitions(scope, "notes", limit=99) == sorted(
                    (f"p{t}" for t in odd), key=str.encode
                )
            assert await engine.scopes() == sorted(["plain", "{", "}{", "a:b"])
            assert await engine.check() == []
            await refused(engine.transact("plain", [Put("items", ("other",), {"name": "a\x00b"})]))
            assert isinstance(await refusal(engine.transact("s", [Put("items", ("\ud800",), {})])), InvalidError)

    asyncio.run(main())


def test_large_transactions_and_reads_pass_in_pieces() -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            await engine.transact(SCOPE, [Append("notes", "t", [note(f"n{i}", branch=i % 2) for i in range(9_000)])])
            rows = [Put("items", (f"k{i:05}",), {"rank": i, "owner": "o"}) for i in range(9_000)]
            await engine.transact(SCOPE, rows)
            read, scanned, tail = await engine.view(
                SCOPE,
                [Read("notes", "t"), Scan("items", "owned", ("o",)), Read("notes", "t", limit=70, desc=True)],
            )
            assert [entry[0] for entry in read] == list(range(1, 9_001))
            assert [row["rank"] for row in scanned] == list(range(9_000))
            assert [entry[0] for entry in tail] == list(range(9_000, 8_930, -1))
            await engine.transact(SCOPE, [Delete("items", (f"k{i:05}",)) for i in range(9_000)])
            assert (await engine.view(SCOPE, [Scan("items")])) == [[]]
            assert await engine.check() == []

    asyncio.run(main())


def test_very_many_values_may_be_asked_for_at_once() -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            await engine.transact(SCOPE, [Append("notes", "t", [note(f"n{i}", branch=i % 3) for i in range(9_000)])])
            rows = [
                Put("items", (f"k{i:04}",), {"rank": i, "owner": f"o{i % 2_000}" if i % 5 else None})
                for i in range(5_000)
            ]
            await engine.transact(SCOPE, rows)
            ids = tuple(f"n{i}" for i in range(0, 20_000, 2))
            owners = (None, *[f"o{i}" for i in range(1, 20_000, 2)])
            by_id, last, by_kind, owned = await engine.view(
                SCOPE,
                [
                    Read("notes", "t", where={"id": ids}),
                    Read("notes", "t", where={"id": (*ids, "n5", "n7", "n8")}, limit=5, upto=9, desc=True),
                    Read("notes", "t", where={"branch": (1, *range(10, 10_000))}),
                    Scan("items", where={"owner": owners}),
                ],
            )
            assert [entry[0] for entry in by_id] == list(range(1, 9_001, 2))
            assert [entry[0] for entry in last] == [9, 8, 7, 6, 5]
            assert [entry[0] for entry in by_kind] == list(range(2, 9_001, 3))
            assert [row["rank"] for row in owned] == [i for i in range(5_000) if i % 5 == 0 or i % 2]

    asyncio.run(main())


@pytest.fixture
def own() -> object:
    found = LocalServer(RedisRecipe(durable=True))
    yield found
    found.dispose()


def test_a_server_without_memory_refuses_and_keeps_its_data_whole(own: LocalServer) -> None:
    async def main() -> None:
        async with engine_at(own.url) as engine, client_at(own.url) as client:
            await engine.transact(SCOPE, [Put("items", ("x",), {"n": 1}, b"old"), notes("t", "a")])
            await client.config_set("maxmemory", "1mb")
            both: list[Op] = [notes("t", "b"), Put("items", ("x",), {"n": 2})]
            alone: list[Op] = [Patch("items", ("x",), {"n": 2})]
            for ops in (both, alone):
                error = await refusal(engine.transact(SCOPE, ops))
                assert isinstance(error, UnavailableError)
                assert "memory" in str(error)
            await client.config_set("maxmemory", "0")
            ((row,), entries) = await engine.view(SCOPE, [Get("items", [("x",)]), Read("notes", "t")])
            assert row is not None
            assert (row["n"], row.body, len(entries)) == (1, b"old", 1)
            assert await engine.check() == []

    asyncio.run(main())


def test_a_replica_refuses_writes_before_it_begins(own: LocalServer) -> None:
    async def main() -> None:
        async with engine_at(own.url) as engine, client_at(own.url) as client:
            await engine.transact(SCOPE, [notes("t", "a")])
            await client.replicaof("127.0.0.1", 1)  # where nobody is, nor comes while this runs
            error = await refusal(engine.transact(SCOPE, [notes("t", "b")]))
            assert isinstance(error, UnavailableError)
            await client.replicaof("NO", "ONE")
            await engine.transact(SCOPE, [notes("t", "b")])

    asyncio.run(main())


def test_eviction_is_refused_unless_accepted_and_health_tells_all(own: LocalServer) -> None:
    async def main() -> None:
        async with client_at(own.url) as client:
            async with engine_at(own.url) as engine:
                assert engine.capabilities.durability == "power"
                health = await engine.health()
                assert (health.ok, health.durability, health.problems) == (True, "power", ())
                await client.config_set("appendfsync", "everysec")
                health = await engine.health()
                assert (health.ok, health.durability) == (False, "process")
                assert any("appendfsync is everysec" in line for line in health.problems)
                await client.config_set("appendonly", "no")
                assert (await engine.health()).durability == "none"
            await client.config_set("maxmemory-policy", "allkeys-lru")
            async with engine_at(own.url):
                pass  # without a limit nothing is ever evicted
            await client.config_set("maxmemory", "100mb")
            error = await refusal(open_engine(own.url, SCHEMA))
            assert isinstance(error, UnsupportedError)
            assert "allkeys-lru" in str(error)
            async with engine_at(f"{own.url}?allow_eviction=yes") as engine:
                assert any("vanish" in line for line in (await engine.health()).problems)

    asyncio.run(main())


def test_settings_that_a_service_hides_count_as_unknown(own: LocalServer) -> None:
    async def main() -> None:
        async with client_at(own.url) as client:
            await client.acl_setuser("app", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"],
                                     categories=["+@all"], commands=["-config", "-info"])  # fmt: skip
        url = own.url.replace("redis://", "redis://app:secret@")
        async with engine_at(url) as engine:
            await engine.transact(SCOPE, [notes("t", "a")])
            health = await engine.health()
            assert (health.durability, engine.capabilities.durability) == ("none", "none")
            assert any("unknown" in line for line in health.problems)
            assert "secret" not in str(health)
        error = await refusal(open_engine(own.url.replace("redis://", "redis://app:wrong@"), SCHEMA))
        assert isinstance(error, InvalidError)
        assert "wrong" not in str(error)

    asyncio.run(main())


def test_a_commit_survives_a_user_without_channels(own: LocalServer) -> None:
    async def main() -> None:
        async with client_at(own.url) as client:
            await client.acl_setuser("mute", enabled=True, nopass=True, keys=["*"], reset_channels=True,
                                     categories=["+@all"])  # fmt: skip
        async with engine_at(own.url.replace("redis://", "redis://mute:x@")) as engine:
            await engine.transact(SCOPE, [notes("t", "a")], ["topic"])
            watch = engine.watch(SCOPE, ["other"])
            # The subscription is refused, so everybody is rung from time to time instead.
            assert await watch.wait(DEADLINE)
            watch.close()

    asyncio.run(main())


async def _limit(url: str, *commands: str) -> str:
    """A URL of a user that may do everything but what is said."""
    async with client_at(url) as client:
        rules = ("reset", "on", ">secret", "~*", "&*", "+@all", *commands)
        await client.execute_command("ACL", "SETUSER", "app", *rules)
    return url.replace("redis://", "redis://app:secret@")


@pytest.mark.parametrize("denied", ["hset", "hdel", "zadd", "zrem", "rpush", "unlink", "del", "set", "hmget"])
def test_a_user_that_cannot_finish_a_commit_is_refused_at_once(own: LocalServer, denied: str) -> None:
    async def main() -> None:
        limited = await _limit(own.url, f"-{denied}")
        error = await refusal(open_engine(limited, SCHEMA))
        assert isinstance(error, UnsupportedError)
        assert denied.upper() in str(error)
        assert "secret" not in str(error)
        async with client_at(own.url) as client:
            assert await client.keys("*") == []
        async with engine_at(own.url) as engine:
            await engine.transact(SCOPE, [notes("t", "a")])
        if denied != "hmget":
            async with engine_at(limited, read_only=True) as engine:
                assert len((await engine.view(SCOPE, [Read("notes", "t")]))[0]) == 1

    asyncio.run(main())


def test_the_permissions_of_the_documentation_suffice(own: LocalServer) -> None:
    async def main() -> None:
        rules = (
            "-@all resetkeys resetchannels ~perdure:* &perdure:* +@read +@write +@scripting +@connection +@pubsub +time"
        )
        limited = await _limit(own.url, *rules.split())
        async with engine_at(limited.replace("/0", "/1")) as engine:
            watch = await watching(engine, "topic")
            await engine.transact(SCOPE, [Put("items", ("x",), {"due": 1, "name": "n"}), notes("t", "a")], ["topic"])
            assert await watch.wait(DEADLINE)
            watch.close()
            assert len((await engine.view(SCOPE, [Scan("items", "due", ())]))[0]) == 1
            taken = await engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"due": 2})
            assert len(taken.rows) == 1
            await engine.transact(SCOPE, [Delete("items", ("x",)), Drop("notes", "t")])
            assert (await engine.scopes(), await engine.check()) == ([], [])
            assert engine.capabilities.durability == "none"
        async with client_at(own.url) as client:
            major = int((await client.info("server"))["redis_version"].partition(".")[0])
            await client.execute_command("ACL", "SETUSER", "app", "+config|get" if major >= 7 else "+config")
        async with engine_at(limited) as engine:
            assert engine.capabilities.durability == "power"

    asyncio.run(main())


def test_every_command_of_a_commit_is_probed() -> None:
    used = re.compile(r"\b(?:call|allowed)\('([A-Z]+)'")
    probed = set(used.findall(PROBE.text.decode()))
    written = lua("gate", "append_check", "append_write", "reads", "take")
    makers = [inspect.getsource(module) for module in (transaction_scripts, row_lua, index_lua)]
    for text in (written, *makers, REBUILD.text.decode()):
        found = set(used.findall(text))
        # Hints may be forbidden: a commit goes on without them.
        assert found
        assert found - {"PUBLISH"} <= probed


@pytest.mark.parametrize("denied", ["-hset", "-zadd"])
def test_a_commit_that_was_stopped_half_way_is_not_called_a_refusal(own: LocalServer, denied: str) -> None:
    async def main() -> None:
        url = await _limit(own.url)
        async with engine_at(url) as engine:
            await engine.transact(SCOPE, [Put("items", ("x",), {"due": 1}), notes("t", "a")])
            await _limit(own.url, denied)
            error = await refusal(engine.transact(SCOPE, [notes("t", "b"), Put("items", ("y",), {"due": 1})]))
            assert isinstance(error, OutcomeUnknown)
            assert "part of it may have been written" in str(error)
            taking = engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"due": 2})
            assert isinstance(await refusal(taking), OutcomeUnknown)
            await _limit(own.url, "-evalsha")
            # This was forbidden before anything ran.
            assert isinstance(await refusal(engine.transact(SCOPE, [notes("t", "c")])), UnsupportedError)

    asyncio.run(main())


def test_a_commit_that_meets_a_foreign_key_is_not_called_a_refusal() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await client.set("perdure:{acme}:k:items", "of somebody else")
            error = await refusal(engine.transact(SCOPE, [notes("t", "a"), Put("items", ("x",), {})]))
            assert isinstance(error, OutcomeUnknown)
            assert "WRONGTYPE" in str(error)

    asyncio.run(main())


def test_a_killed_server_leaves_the_outcome_open_and_is_found_again(own: LocalServer) -> None:
    async def main() -> None:
        async with engine_at(own.url) as engine:
            await engine.transact(SCOPE, [notes("t", "a")])
            if own.pid is None:
                raise RuntimeError("the server is down")
            os.kill(own.pid, signal.SIGSTOP)
            commit = asyncio.create_task(engine.transact(SCOPE, [notes("t", "b")]))
            for _ in range(5):
                await asyncio.sleep(0)
            own.kill()
            error = await refusal(commit)
            assert isinstance(error, OutcomeUnknown)
            assert isinstance(await refusal(engine.transact(SCOPE, [notes("t", "c")])), UnavailableError)
            assert isinstance(await refusal(engine.view(SCOPE, [Read("notes", "t")])), UnavailableError)
            own.restart()
            await eventually(lambda: engine.transact(SCOPE, [notes("t", "d")]))
            (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
            assert [entry[2] for entry in entries] in (["a", "d"], ["a", "b", "d"])

    asyncio.run(main())


def test_a_lost_subscription_is_made_again_and_rings_once(own: LocalServer) -> None:
    async def main() -> None:
        async with engine_at(own.url) as here:
            watch = await watching(here, "a")
            async with client_at(own.url) as client:
                async with engine_at(own.url) as there:
                    await there.transact(SCOPE, [notes("t", "x")], ["a"])
                    assert await watch.wait(DEADLINE)
                await client.client_kill_filter(_type="pubsub")
                assert await watch.wait(DEADLINE)
                await until(client.pubsub_channels)
                # Losing it rang and finding it again rang: whatever of that is still to come is awaited first.
                while await watch.wait(0.2):
                    pass
                async with engine_at(own.url) as there:
                    await there.transact(SCOPE, [notes("t", "y")], ["a"])
                    assert await watch.wait(DEADLINE)
            watch.close()

    asyncio.run(main())


def test_a_cancelled_commit_takes_its_connection_with_it() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(f"{url}?connections=1") as engine:
            await engine.transact(SCOPE, [notes("t", "a")])
            for n in range(20):
                task = asyncio.create_task(engine.transact(SCOPE, [notes("t", f"n{n}")]))
                for _ in range(n % 5):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
                assert [entry[0] for entry in entries] == list(range(1, len(entries) + 1))

    asyncio.run(main())


def test_close_finishes_what_was_submitted_and_leaves_no_connection() -> None:
    async def main() -> None:
        url = await empty()
        proxy = Proxy("127.0.0.1", urlsplit(url).port or 0)
        async with client_at(url) as client:
            others = {found["id"] for found in await client.client_list()}
            engine = await open_engine(proxy.through(f"{url}?connections=2"), SCHEMA)
            await engine.transact(SCOPE, [notes("t", "a")])
            proxy.delay(0.05)
            # More than there are connections: some wait for their turn, and one for a scope that is new.
            scopes = [SCOPE, "new", SCOPE, SCOPE]
            commits = [asyncio.create_task(engine.transact(s, [notes("t", f"n{i}")])) for i, s in enumerate(scopes)]
            read = asyncio.create_task(engine.scopes())
            await asyncio.sleep(0)
            await engine.close()
            assert all(commit.done() for commit in (*commits, read))
            assert len(await asyncio.gather(*commits)) == 4
            assert isinstance(await refusal(engine.view(SCOPE, [Read("notes", "t")])), UnavailableError)
            await engine.close()

            async def gone() -> bool:
                return {found["id"] for found in await client.client_list()} <= others

            await until(gone)
        proxy.close()
        async with engine_at(url) as engine:
            assert len((await engine.view(SCOPE, [Read("notes", "t")]))[0]) == 4

    asyncio.run(main())


def test_another_event_loop_is_refused_and_the_first_goes_on() -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            await engine.transact(SCOPE, [notes("t", "a")])

            def elsewhere() -> None:
                with pytest.raises(UnsupportedError, match="event loop"):
                    asyncio.run(engine.view(SCOPE, [Read("notes", "t")]))
                with pytest.raises(UnsupportedError, match="event loop"):
                    asyncio.run(engine.close())

            await asyncio.to_thread(elsewhere)
            await engine.transact(SCOPE, [notes("t", "b")])

    asyncio.run(main())


def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on() -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            await engine.transact(SCOPE, [notes("t", "a")])
            child = os.fork()
            if child == 0:
                try:
                    engine.transact(SCOPE, [notes("t", "b")]).send(None)
                except UnsupportedError as error:
                    os._exit(0 if "fork" in str(error) else 1)
                os._exit(2)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert status == 0
            await engine.transact(SCOPE, [notes("t", "b")])
        assert "closed" in str(await refusal(engine.view(SCOPE, [Read("notes", "t")])))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (("ZREM", "perdure:{acme}:i:items:due:", None), "is not in the index"),
        (("ZADD", "perdure:{acme}:i:items:due:", "0", "4503599627370497ghost"), "no row of items has"),
        (("DEL", "perdure:{acme}:t:items:x"), "has no row"),
        (("ZREM", "perdure:{acme}:k:items", "x"), "does not name"),
        (("HSET", "perdure:{acme}:t:items:x", "due", "8"), "is not in the index"),
        (("HDEL", "perdure:{acme}:u:items:name", "+n\x00"), "unique value"),
        (("HSET", "perdure:{acme}:u:items:name", "+m\x00", "x"), "no row of items has"),
        (("LPOP", "perdure:{acme}:l:notes:t"), "where 1 belongs"),
        (("DEL", "perdure:{acme}:q:notes:t"), "does not find its entry"),
        (("ZREM", "perdure:{acme}:p:notes", "t"), "not among the partitions"),
        (("DEL", "perdure:{acme}:l:notes:t"), "has no entries"),
        (("SREM", "perdure:scopes", "acme"), "not registered"),
    ],
)
def test_damage_is_found(damage: tuple[str | None, ...], told: str) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await engine.transact(SCOPE, [Put("items", ("x",), {"due": 7, "name": "n"}), notes("t", "a", "b")])
            assert await engine.check() == []
            member = "4503599627370503x"
            assert await client.execute_command(*[member if part is None else part for part in damage]) is not None
            assert any(told in line for line in await engine.check()), await engine.check()

    asyncio.run(main())


def test_an_index_that_leads_nowhere_is_damage_and_not_an_empty_page() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as engine, client_at(url) as client:
            await engine.transact(SCOPE, [Put("items", ("x",), {"due": 7})])
            await client.delete("perdure:{acme}:t:items:x")
            assert isinstance(await refusal(engine.view(SCOPE, [Scan("items", "due", ())])), CorruptError)
            await client.set("perdure:{acme}:l:notes:t", "something else")
            assert isinstance(await refusal(engine.view(SCOPE, [Read("notes", "t")])), CorruptError)

    asyncio.run(main())


def test_two_prefixes_and_two_databases_do_not_meet() -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(url) as one, engine_at(f"{url}?prefix=app") as other:
            await one.transact(SCOPE, [notes("t", "a")])
            assert await other.scopes() == []
            await other.transact("mine", [notes("t", "a")])
            assert (await one.scopes(), await other.scopes()) == ([SCOPE], ["mine"])
            assert (await one.check(), await other.check()) == ([], [])
            assert server("redis").url != url

    asyncio.run(main())
