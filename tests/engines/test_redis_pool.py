"""A caller's redis-py client as the pool of a store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, Redis, Sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from tests.engines.borrowed_pools import ClientProvider, chosen
from tests.engines.redis_place import DEADLINE, empty, engine_at, refusal, until
from tests.engines.toys import SCHEMA, SCOPE, notes
from tests.support.proxy import Proxy

import perdure
from perdure import Message
from perdure.engines.redis import open_engine
from perdure.engines.redis.connections.borrowed_client import normal
from perdure.errors import InvalidError, OutcomeUnknown, UnavailableError
from perdure.ids import new_id
from perdure.kernel.ops import Heads
from perdure.testkit.kit import registry, run_case

CLIENTS: dict[str, dict[str, Any]] = {
    "default": {},
    "old protocol": {"protocol": 2, "health_check_interval": 1},
    "decoding": {"protocol": 3, "decode_responses": True, "max_connections": 3},
    "one connection": {"max_connections": 1},
}


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Any]:
    """A client whose connections must all be back in the end."""
    client = Redis.from_url(url, **options)
    try:
        yield client
        assert not client.connection_pool._in_use_connections
        assert await client.ping()
    finally:
        await client.aclose()


@asynccontextmanager
async def behind_a_proxy(**options: Any) -> AsyncIterator[tuple[str, Any, Proxy]]:
    """The URL of an empty database, a client of it, and the proxy that the client goes through."""
    url = await empty()
    with Proxy("127.0.0.1", urlsplit(url).port or 0) as proxy:
        async with client_of(proxy.through(url), **options) as client:
            yield url, client, proxy


@pytest.mark.parametrize(("identity", "kind"), chosen(CLIENTS))
def test_case_on_a_callers_client(identity: str, kind: str) -> None:
    asyncio.run(run_case(registry()[identity], ClientProvider(**CLIENTS[kind])))


def test_the_client_is_used_and_never_closed() -> None:
    async def main() -> None:
        url = await empty()
        async with client_of(url) as client:
            store = await perdure.open(url, pool=client)
            await asyncio.gather(*[store.commit(f"t{n}", messages=[Message.user("x")]) for n in range(40)])
            health = await store.health()
            assert health.settings["tls"] is None
            assert store.capabilities().watch == "push"
            await store.close()
            assert len(client.connection_pool._available_connections) == 16, "connections= is the most at once"
            await store.close()
            assert await client.ping()

    asyncio.run(main())


def test_what_is_no_client_of_one_server_is_refused() -> None:
    async def main() -> None:
        url = await empty()
        async with client_of(url) as client:
            blocking = redis.Redis.from_url(url)
            named = Sentinel([("127.0.0.1", 1)]).master_for("name")
            for other in (object(), client.connection_pool, client.pipeline(), blocking):
                error = await refusal(open_engine(url, SCHEMA, pool=other))
                assert type(error) is InvalidError
                assert "redis.asyncio.Redis client" in str(error)
            assert "sentinels" in str(await refusal(open_engine(url, SCHEMA, pool=named)))
            for several in ("redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/name"):
                assert "accepts no pool" in str(await refusal(open_engine(several, SCHEMA, pool=client)))
            blocking.close()
            await named.aclose()

    asyncio.run(main())


def test_the_database_is_the_clients() -> None:
    async def main() -> None:
        url = await empty()
        number = int(url.rpartition("/")[2])
        async with client_of(url) as client:
            error = await refusal(open_engine(f"redis://localhost/{number + 1}", SCHEMA, pool=client))
            assert f"the client uses the database {number}" in str(error)
            async with engine_at("redis://elsewhere", pool=client) as engine:
                await engine.transact(SCOPE, [notes("t", new_id())])
                assert (await engine.health()).settings["url"] == f"redis://elsewhere:6379/{number}"
            async with engine_at(url) as plain:
                assert await plain.view(SCOPE, [Heads("notes", ["t"])]) == [[1]]

    asyncio.run(main())


def test_a_server_that_refuses_the_client_is_named() -> None:
    async def main() -> None:
        url = await empty()
        gone = Redis(host="127.0.0.1", port=1)
        error = await refusal(open_engine("redis://somewhere", SCHEMA, pool=gone))
        assert type(error) is UnavailableError
        assert "cannot be reached through the client" in str(error)
        many = Redis.from_url(f"{url.rpartition('/')[0]}/99999")
        error = await refusal(open_engine("redis://somewhere", SCHEMA, pool=many))
        assert "no database with this number" in str(error)
        await asyncio.gather(gone.aclose(), many.aclose())

    asyncio.run(main())


def test_a_cancelled_request_leaves_the_client_usable() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (url, client, proxy):
            engine = await open_engine(url, SCHEMA, pool=client)
            await engine.transact(SCOPE, [notes("t", new_id())])
            for _ in range(3):
                proxy.half_open()
                sent = proxy.seen["up"]
                writing = asyncio.create_task(engine.transact(SCOPE, [notes("t", new_id())]))
                reading = asyncio.create_task(engine.view(SCOPE, [Heads("notes", ["t"])]))
                for _ in range(100):
                    await asyncio.sleep(0)
                writing.cancel()
                reading.cancel()
                await asyncio.wait({writing, reading})
                assert writing.cancelled() or isinstance(writing.exception(), OutcomeUnknown)
                await asyncio.to_thread(proxy.heal)
                assert proxy.seen["up"] >= sent
                assert await client.echo("mine") == b"mine", "nobody reads the reply to a request of ours"
                assert (await engine.view(SCOPE, [Heads("notes", ["t"])]))[0][0] >= 1
            await engine.close()

    asyncio.run(main())


def test_a_commit_whose_reply_is_lost_is_not_sent_again() -> None:
    async def main() -> None:
        again = {"retry": Retry(NoBackoff(), 5), "retry_on_error": [redis.ConnectionError, redis.TimeoutError]}
        async with behind_a_proxy(**again) as (url, client, proxy):
            engine = await open_engine(url, SCHEMA, pool=client)
            await engine.transact(SCOPE, [notes("t", new_id())])
            for landed in range(2, 6):
                await asyncio.to_thread(proxy.cut_after, 1, "down")
                assert type(await refusal(engine.transact(SCOPE, [notes("t", new_id())]))) is OutcomeUnknown
                assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[landed]], "it landed once"
            await asyncio.to_thread(proxy.cut_after, 1, "down")
            assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[5]], "a read is asked again"
            await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_a_client_in_use_is_waited_for_in_bounded_time(waits: bool) -> None:
    async def main() -> None:
        url = await empty()
        kind = BlockingConnectionPool if waits else redis.asyncio.ConnectionPool
        client = Redis.from_pool(kind.from_url(url, max_connections=1))
        engine = await open_engine("redis://h?connect_timeout=0.3", SCHEMA, pool=client)
        held = await client.connection_pool.get_connection()
        for call in (engine.transact(SCOPE, [notes("t", new_id())]), engine.view(SCOPE, [Heads("notes", ["t"])])):
            error = await refusal(call)
            assert type(error) is UnavailableError
            assert "stayed in use" in str(error)
        waiting = asyncio.create_task(engine.transact(SCOPE, [notes("t", new_id())]))
        for _ in range(20):
            await asyncio.sleep(0)
        await client.connection_pool.release(held)
        await waiting
        await engine.close()
        await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("protocol", [2, 3])
def test_hints_come_on_a_connection_of_the_client(protocol: int) -> None:
    async def main() -> None:
        url = await empty()
        async with client_of(url, protocol=protocol) as client, engine_at(url) as other:
            engine = await open_engine(url, SCHEMA, pool=client)
            watch = engine.watch(SCOPE, ["a"])
            assert await watch.wait(DEADLINE), "it begins with a ring"
            assert len(client.connection_pool._in_use_connections) == 1
            second = engine.watch(SCOPE, ["b"])
            assert await second.wait(DEADLINE)
            await other.transact(SCOPE, [notes("t", new_id())], ["b"])
            assert await second.wait(DEADLINE)
            watch.close()
            second.close()

            async def is_back() -> bool:
                return not client.connection_pool._in_use_connections

            await until(is_back)
            third = engine.watch(SCOPE, ["a"])
            assert await third.wait(DEADLINE)
            await engine.close()
            assert await is_back(), "closing the store gives it back"

    asyncio.run(main())


def test_a_client_with_one_connection_polls() -> None:
    async def main() -> None:
        url = await empty()
        async with client_of(url, max_connections=1) as client:
            engine = await open_engine(url, SCHEMA, pool=client)
            assert engine.capabilities.watch == "poll"
            watch = engine.watch(SCOPE, ["a"])
            assert await watch.wait(DEADLINE)
            await engine.transact(SCOPE, [notes("t", "x")])
            watch.close()
            await engine.close()

    asyncio.run(main())


def test_a_client_of_another_event_loop_is_refused() -> None:
    async def use(client: Any) -> None:
        await client.ping()

    async def main(client: Any, url: str) -> None:
        error = await refusal(open_engine(url, SCHEMA, pool=client))
        assert type(error) is InvalidError
        assert "another event loop" in str(error)
        await client.connection_pool.disconnect()

    url = asyncio.run(empty())
    client = Redis.from_url(url)
    first = asyncio.new_event_loop()
    first.run_until_complete(use(client))
    asyncio.run(main(client, url))
    first.run_until_complete(asyncio.sleep(0))
    first.run_until_complete(asyncio.sleep(0))
    first.close()


def test_replies_of_the_new_protocol_read_as_those_of_the_old() -> None:
    assert normal({b"a": b"1", b"b": [True, False, 1.5, {b"c"}]}) == [b"a", b"1", b"b", [1, None, b"1.5", [b"c"]]]
    assert normal([b"a", "b", 3, None, float("inf")]) == [b"a", b"b", 3, None, b"inf"]


def test_redis_py_is_imported_only_with_a_client() -> None:
    code = "import sys, perdure.engines.redis; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
