"""More than one server: a cluster of three, a master that fails over, a server behind TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from redis.asyncio import Redis
from tests.engines.redis_place import DEADLINE, client_at, engine_at, refusal, until
from tests.engines.toys import SCHEMA, notes, watching
from tests.support.servers import ServerSet, redis_cluster, server
from tests.support.servers.asking import redis_answer
from tests.support.servers.local import LocalServer
from tests.support.servers.redis_sets import MASTER, sentinel

from perdure.engines.redis import open_engine
from perdure.engines.redis.connections.reply_shapes import data
from perdure.engines.redis.connections.routing import Network, key_slot
from perdure.engines.redis.target import parse
from perdure.errors import InvalidError, OutcomeUnknown, UnavailableError, UnsupportedError
from perdure.kernel.ops import ABSENT, Put, Read, Scan

SCOPES = [f"scope-{n}" for n in range(12)]
FAILOVER_DEADLINE = 120.0
"""A sentinel that stood still for two seconds trusts its clock again after thirty."""


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
                taken = await engine.take(scope, Scan("items", "due", (), limit=1, upto={"due": 5}), {"due": 9})
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
            watches = [await watching(here, "topic", scope=scope) for scope in SCOPES]
            for scope, watch in zip(SCOPES, watches, strict=True):
                assert not await watch.wait(0)
                await there.transact(scope, [Put("items", ("x",), {})], ["topic"])
                assert await watch.wait(DEADLINE)
                watch.close()

    asyncio.run(main())


class Move:
    """The slot of a scope on its way from one node of a cluster to another, step by step as its operator takes them."""

    def __init__(self, cluster: Any, scope: str) -> None:
        self.slot = key_slot(f"perdure:{{{scope}}}:".encode())
        self.ports = [member.port for member in cluster.members]
        self.clients: list[Any] = [Redis(port=port) for port in self.ports]
        self.origin = self.goal = 0
        self.names: list[str] = []

    async def __aenter__(self) -> Move:
        self.names = [(await c.execute_command("CLUSTER", "MYID")).decode() for c in self.clients]
        (self.origin,) = [number for number in range(3) if await self.keys(number)]
        self.goal = (self.origin + 1) % 3
        await self._slot(self.goal, "IMPORTING", self.names[self.origin])
        await self._slot(self.origin, "MIGRATING", self.names[self.goal])
        return self

    async def __aexit__(self, *_: object) -> None:
        owner = self.goal if await self.keys(self.goal) else self.origin
        for number in (owner, *{0, 1, 2} - {owner}):
            await self._slot(number, "NODE", self.names[owner])
        for client in self.clients:
            await client.aclose()

    async def _slot(self, number: int, *arguments: str) -> None:
        await self.clients[number].execute_command("CLUSTER", "SETSLOT", self.slot, *arguments)

    async def keys(self, number: int) -> list[bytes]:
        found: list[bytes] = await self.clients[number].execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 100)
        return sorted(found)

    async def move(self, *names: bytes) -> None:
        goal = ("127.0.0.1", self.ports[self.goal])
        await self.clients[self.origin].execute_command("MIGRATE", *goal, "", 0, 5000, "KEYS", *names)

    async def finish(self) -> None:
        for number in (self.goal, self.origin, (self.origin + 2) % 3):
            await self._slot(number, "NODE", self.names[self.goal])


@pytest.mark.parametrize("everything_moved", [False, True])
def test_a_scope_that_is_being_moved_is_neither_read_nor_written(everything_moved: bool) -> None:
    async def main() -> None:
        cluster = await _empty_cluster()
        async with engine_at(cluster.url) as engine:
            # Every node knows the scripts: none has that as a reason to refuse.
            for scope in (*SCOPES, "wanderer"):
                await engine.transact(scope, [Put("items", ("x",), {"due": 1}), notes("t", "a")])
                await engine.view(scope, [Read("notes", "t")])
                await engine.take(scope, Scan("items", "due", (), limit=1, upto={"due": 0}), {"due": 2})
            async with Move(cluster, "wanderer") as move:
                held = await move.keys(move.origin)
                for batch in ([], held[: len(held) // 2], held[len(held) // 2 :] if everything_moved else []):
                    if batch:
                        await move.move(*batch)
                    for work in (
                        engine.view("wanderer", [Read("notes", "t")]),
                        engine.transact("wanderer", [notes("t", "b")]),
                        engine.transact("wanderer", [Put("items", ("x",), {}, if_=ABSENT)]),
                        engine.take("wanderer", Scan("items", "due", (), limit=1, upto={"due": 5}), {"due": 9}),
                    ):
                        error = await refusal(work)
                        assert isinstance(error, UnavailableError), error
                        assert "being moved" in str(error)
                    assert sorted(await move.keys(move.origin) + await move.keys(move.goal)) == held
                await move.move(*held)
                await move.finish()
                await engine.transact("wanderer", [notes("t", "b")])
                (entries, rows) = await engine.view("wanderer", [Read("notes", "t"), Scan("items", "due", ())])
                assert [entry[2] for entry in entries] == ["a", "b"]
                assert [row["due"] for row in rows] == [1]
                assert not await move.keys(move.origin)
            assert await engine.check() == []

    asyncio.run(main())


def test_more_bytes_than_an_answer_cost_the_connection() -> None:
    async def main() -> None:
        served: list[Any] = []

        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            while line := await reader.readline():
                if line.strip() == b"FIRST":
                    writer.write(b"+one\r\n+more\r\n")
                elif line.strip() == b"REFUSED":
                    writer.write(b"-ERR no\r\n+more\r\n")
                elif line.strip() == b"SECOND":
                    writer.write(b"+two\r\n")
                elif line.strip() == b"PING":
                    writer.write(b"+PONG\r\n")
            writer.close()
            await writer.wait_closed()

        listening = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        network = Network(parse(f"redis://127.0.0.1:{port}?connections=1"))
        assert await network.request(b"k", b"FIRST", shape=data) == b"one"
        assert await network.request(b"k", b"SECOND", shape=data) == b"two"
        assert isinstance(await refusal(network.request(b"k", b"REFUSED", shape=data)), UnsupportedError)
        assert await network.request(b"k", b"SECOND", shape=data) == b"two"
        await network.close()
        await asyncio.gather(*served, return_exceptions=True)
        listening.close()
        assert len(served) == 3

    asyncio.run(main())


def test_a_failover_is_followed() -> None:
    async def main() -> None:
        # Servers of its own: who was killed is not the master any more when he comes back.
        watched = sentinel(durable=False)
        try:
            async with engine_at(watched.url) as engine:
                await engine.transact("s", [Put("items", ("x",), {})])
                master, replica = _master_first(watched)
                async with client_at(replica.url) as client:
                    await until(lambda: client.exists("perdure:{s}:t:items:x"))
                master.kill()
                async with asyncio.timeout(FAILOVER_DEADLINE):
                    while True:
                        try:
                            await engine.transact("s", [Put("items", ("y",), {})])
                            break
                        except (OutcomeUnknown, UnavailableError):
                            await asyncio.sleep(0.02)
                (rows,) = await engine.view("s", [Scan("items")])
                assert [row.key for row in rows] == [("x",), ("y",)]
                assert any("failover" in line for line in (await engine.health()).problems)
                async with client_at(replica.url) as client:
                    assert await client.exists("perdure:{s}:t:items:y")
            error = await refusal(open_engine(watched.url.replace("/perdure", "/nobody"), SCHEMA))
            assert isinstance(error, UnavailableError)
            assert "nobody" in str(error)
        finally:
            watched.dispose()

    asyncio.run(main())


def _master_first(watched: ServerSet) -> list[LocalServer]:
    """The two that hold data; which of them is the master the sentinel alone knows."""
    asked = watched.members[2]
    named = redis_answer(asked.port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
    return sorted(watched.members[:2], key=lambda member: b"%d" % member.port not in named)


@pytest.mark.urls
def test_tls_is_spoken_and_certificates_are_checked() -> None:
    async def main() -> None:
        secured = server("redis-tls")
        async with engine_at(secured.url) as engine:
            await engine.transact("tls", [notes("t", "a")])
            watch = await watching(engine, "topic", scope="tls")
            await engine.transact("tls", [notes("t", "b")], ["topic"])
            assert await watch.wait(DEADLINE)
            watch.close()
        untrusted = await refusal(open_engine(secured.url.partition("?")[0], SCHEMA))
        plain = await refusal(open_engine(secured.url.partition("?")[0].replace("rediss", "redis"), SCHEMA))
        assert isinstance(untrusted, UnavailableError)
        assert isinstance(plain, UnavailableError)

    asyncio.run(main())


def test_sentinels_are_asked_with_tls_where_the_master_is() -> None:
    async def main() -> None:
        secured = server("redis-tls")
        certificate = Path(parse_qs(urlsplit(secured.url).query)["ssl_ca_certs"][0])
        served: list[Any] = []

        async def stand_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            while line := await reader.readline():
                if line.strip() == b"SETINFO":
                    writer.write(b"+OK\r\n")
                elif line.strip() == b"get-master-addr-by-name":
                    port = str(urlsplit(secured.url).port)
                    writer.write(f"*2\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n".encode())
            writer.close()

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        listening = await asyncio.start_server(stand_in, "127.0.0.1", 0, ssl=context)
        port = listening.sockets[0].getsockname()[1]
        async with engine_at(f"rediss+sentinel://127.0.0.1:{port}/main?ssl_ca_certs={certificate}") as engine:
            await engine.transact("watched", [notes("t", "a")])
        untrusted = await refusal(open_engine(f"rediss+sentinel://127.0.0.1:{port}/main", SCHEMA))
        plain = await refusal(open_engine(f"redis+sentinel://127.0.0.1:{port}/main?connect_timeout=0.5", SCHEMA))
        assert isinstance(untrusted, UnavailableError)
        assert isinstance(plain, UnavailableError)
        await asyncio.gather(*served, return_exceptions=True)
        listening.close()
        assert served

    asyncio.run(main())


@pytest.mark.urls
def test_a_cluster_is_not_opened_as_one_server() -> None:
    async def main() -> None:
        cluster = await _empty_cluster()
        error = await refusal(open_engine(f"redis://127.0.0.1:{cluster.members[0].port}", SCHEMA))
        assert isinstance(error, UnsupportedError)
        assert "redis+cluster://" in str(error)

    asyncio.run(main())


@pytest.mark.urls
@pytest.mark.parametrize("url", ["redis+cluster://{place}", "redis+sentinel://{place}/main"])
def test_one_server_is_not_opened_as_several(url: str) -> None:
    async def main() -> None:
        error = await refusal(open_engine(url.format(place=urlsplit(server("redis").url).netloc), SCHEMA))
        assert isinstance(error, InvalidError)
        assert error.hint == "use redis://host:port/0"

    asyncio.run(main())


@pytest.mark.urls
@pytest.mark.filterwarnings("ignore::perdure.kernel.transport.InsecureTransportWarning")
@pytest.mark.parametrize("end", ["://{host}/0", "+cluster://{host}", "+sentinel://{host}/main"])
@pytest.mark.parametrize(
    ("host", "hint"),
    [("no-such-host.invalid", "check the host name in the URL"), ("127.0.0.1:1", "is the server running?")],
)
def test_a_host_that_is_not_there_is_told_with_what_to_check(end: str, host: str, hint: str) -> None:
    async def main() -> None:
        error = await refusal(open_engine("redis" + end.format(host=host), SCHEMA))
        assert isinstance(error, UnavailableError)
        assert error.hint == hint

    asyncio.run(main())


@pytest.mark.urls
def test_a_database_that_the_server_does_not_have() -> None:
    async def main() -> None:
        error = await refusal(open_engine(f"redis://{urlsplit(server('redis').url).netloc}/999999", SCHEMA))
        assert isinstance(error, InvalidError)
        assert "0 to 15 by default" in (error.hint or "")

    asyncio.run(main())
