"""More than one server: a cluster of three, a master that fails over, a server behind TLS."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis
from redis.crc import key_slot
from tests.engines.redis_place import DEADLINE, engine_at, refusal, until
from tests.engines.toys import SCHEMA, notes

from perdure.engines.redis import open_engine
from perdure.errors import OutcomeUnknown, UnavailableError, UnsupportedError
from perdure.kernel.ops import Put, Read, Scan
from perdure.testkit.servers import redis_cluster, redis_sentinel, server

SCOPES = [f"scope-{n}" for n in range(12)]


async def _empty_cluster() -> Any:
    found = redis_cluster()
    for member in found.members:
        client = Redis(port=member.port)
        await client.flushall()
        await client.aclose()
    return found


def test_scopes_are_spread_over_a_cluster_and_all_are_found() -> None:
    async def main() -> None:
        cluster = await _empty_cluster()
        async with engine_at(cluster.url) as engine:
            for scope in SCOPES:
                await engine.transact(scope, [Put("items", ("x",), {"due": 1}), notes("t", "a")])
            assert await engine.scopes() == sorted(SCOPES)
            assert await engine.check() == []
            for scope in SCOPES:
                ((row,), entries) = await engine.view(scope, [Scan("items", "due", ()), Read("notes", "t")])
                assert (row.key, len(entries)) == (("x",), 1)
                taken = await engine.take(scope, "items", "due", (), upto={"due": 5}, limit=1, set={"due": 9})
                assert len(taken.rows) == 1
            health = await engine.health()
            assert len(health.settings["servers"]) == 3
            assert any("failover" in line for line in health.problems)
        held = []
        for member in cluster.members:
            client = Redis(port=member.port)
            held.append(await client.dbsize())
            await client.aclose()
        assert all(held)

    asyncio.run(main())


def test_hints_cross_a_cluster() -> None:
    async def main() -> None:
        cluster = await _empty_cluster()
        async with engine_at(cluster.url) as here, engine_at(cluster.url) as there:
            watches = [here.watch(scope, ["topic"]) for scope in SCOPES]
            for scope, watch in zip(SCOPES, watches, strict=True):
                async with asyncio.timeout(DEADLINE):
                    # The subscription is under way: a hint before it stands is lost, and the next is not.
                    while not await watch.wait(0.05):
                        await there.transact(scope, [Put("items", ("x",), {})], ["topic"])
                watch.close()

    asyncio.run(main())


def test_a_slot_that_moved_is_followed_while_it_moves_and_after() -> None:
    async def main() -> None:
        cluster = await _empty_cluster()
        scope = "wanderer"
        slot = key_slot(b"perdure:{wanderer}:")
        clients: list[Any] = [Redis(port=member.port) for member in cluster.members]
        names = [(await c.execute_command("CLUSTER", "MYID")).decode() for c in clients]
        async with engine_at(cluster.url) as engine:
            await engine.transact(scope, [notes("t", "a")])
            (origin,) = [
                i for i, c in enumerate(clients) if await c.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
            ]
            goal = (origin + 1) % 3
            await clients[goal].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[origin])
            await clients[origin].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[goal])
            moved = await clients[origin].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            address = ("127.0.0.1", cluster.members[goal].port)
            await clients[origin].execute_command("MIGRATE", *address, "", 0, 5000, "KEYS", *moved)
            for client in (clients[goal], clients[origin], clients[(origin + 2) % 3]):
                await client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[goal])
            await engine.transact(scope, [notes("t", "b")])
            (entries,) = await engine.view(scope, [Read("notes", "t")])
            assert [entry[2] for entry in entries] == ["a", "b"]
            assert await clients[goal].execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
            for client in clients:
                await client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[goal])
        for client in clients:
            await client.aclose()

    asyncio.run(main())


def test_a_failover_is_followed() -> None:
    async def main() -> None:
        watched = redis_sentinel()
        try:
            async with engine_at(watched.url) as engine:
                await engine.transact("s", [Put("items", ("x",), {})])
                replica = Redis(port=watched.members[1].port)
                await until(lambda: replica.exists("perdure:{s}:t:items:x"))
                await replica.aclose()
                watched.members[0].kill()
                ended: set[type] = set()
                async with asyncio.timeout(DEADLINE):
                    while True:
                        try:
                            await engine.transact("s", [Put("items", ("y",), {})])
                            break
                        except (OutcomeUnknown, UnavailableError) as error:
                            ended.add(type(error))
                            await asyncio.sleep(0.02)
                (rows,) = await engine.view("s", [Scan("items")])
                assert [row.key for row in rows] == [("x",), ("y",)]
                assert UnavailableError in ended
                assert any("failover" in line for line in (await engine.health()).problems)
        finally:
            watched.restart()
        error = await refusal(open_engine(watched.url.replace("/perdure", "/nobody"), SCHEMA))
        assert isinstance(error, UnavailableError)
        assert "nobody" in str(error)

    asyncio.run(main())


def test_tls_is_spoken_and_certificates_are_checked() -> None:
    async def main() -> None:
        secured = server("redis-tls")
        async with engine_at(secured.url) as engine:
            await engine.transact("tls", [notes("t", "a")])
            watch = engine.watch("tls", ["topic"])
            await engine.transact("tls", [notes("t", "b")], ["topic"])
            assert await watch.wait(DEADLINE)
            watch.close()
        untrusted = await refusal(open_engine(secured.url.partition("?")[0], SCHEMA))
        plain = await refusal(open_engine(secured.url.partition("?")[0].replace("rediss", "redis"), SCHEMA))
        assert isinstance(untrusted, UnavailableError)
        assert isinstance(plain, UnavailableError)

    asyncio.run(main())


def test_a_cluster_is_not_opened_as_one_server() -> None:
    async def main() -> None:
        cluster = await _empty_cluster()
        error = await refusal(open_engine(f"redis://127.0.0.1:{cluster.members[0].port}", SCHEMA))
        assert isinstance(error, UnsupportedError)
        assert "redis+cluster://" in str(error)

    asyncio.run(main())
