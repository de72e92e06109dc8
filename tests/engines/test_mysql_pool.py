"""A caller's asyncmy pool as the pool of a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncmy
import pytest
from asyncmy.constants import FIELD_TYPE
from asyncmy.cursors import DictCursor
from tests.engines.borrowed_pools import PoolProvider, chosen, end, mysql_pool
from tests.engines.mysql_place import emptied, run
from tests.engines.toys import SCHEMA, SCOPE, notes
from tests.support.proxy import Proxy

import perdure
from perdure import Message
from perdure.engines.mysql import open_engine
from perdure.engines.mysql.target import parse_target
from perdure.errors import InvalidError, OutcomeUnknown, PerdureError, UnavailableError
from perdure.ids import new_id
from perdure.kernel.ops import Heads
from perdure.testkit.kit import raises, registry, run_case

POOLS: dict[str, dict[str, Any]] = {
    "default": {},
    "converting": {"charset": "latin1", "cursor_cls": DictCursor, "autocommit": True, "sql_mode": "ANSI", "maxsize": 3},
    "one connection": {"maxsize": 1, "use_unicode": False},
}
VOLATILE = (
    *("timestamp", "rand_seed1", "rand_seed2", "last_insert_id", "identity", "insert_id", "pseudo_thread_id"),
    *("warning_count", "error_count", "in_transaction", "last_gtid"),
)
"""Variables that differ from one moment to the next."""


@asynccontextmanager
async def pool_of(url: str, **options: Any) -> AsyncIterator[Any]:
    """A pool whose connections must all be back in the end."""
    pool = await mysql_pool(url, **options)
    try:
        yield pool
        assert pool.size == pool.freesize
    finally:
        await end(pool)


@asynccontextmanager
async def behind_a_proxy(**options: Any) -> AsyncIterator[tuple[str, Any, Proxy]]:
    """The URL of an empty database, a pool of it, and the proxy that the pool goes through."""
    url = await emptied("pools")
    target = parse_target(url)
    with Proxy(target.host, target.port) as proxy:
        async with pool_of(proxy.through(url), **options) as pool:
            yield url, pool, proxy


async def variables(pool: Any) -> dict[str, Any]:
    async with pool.acquire() as connection:
        cursor = connection.cursor()
        await cursor.execute("SHOW SESSION VARIABLES")
        return {name: value for name, value in await cursor.fetchall() if name not in VOLATILE}


async def length(engine: Any) -> int:
    ((head,),) = await engine.view(SCOPE, [Heads("notes", ["t"])])
    return int(head)


@pytest.mark.parametrize(("identity", "kind"), chosen(POOLS))
def test_case_on_a_callers_pool(identity: str, kind: str) -> None:
    asyncio.run(run_case(registry()[identity], PoolProvider(**POOLS[kind])))


def test_the_pool_is_used_and_never_closed() -> None:
    async def scenario() -> None:
        url = await emptied("pools")
        async with pool_of(url, maxsize=4) as pool:
            store = await perdure.open(url, pool=pool)
            await asyncio.gather(*[store.commit(f"t{n}", messages=[Message.user("é")]) for n in range(20)])
            health = await store.health()
            assert health.settings["tls"] is None
            assert health.settings["connections"]["most"] == 4
            assert store.capabilities().round_trips_per_commit == 4
            await store.close()
            await store.close()
            assert (await variables(pool))["autocommit"] == "OFF"

    run(scenario())


@pytest.mark.parametrize("kind", ["default", "converting"])
def test_the_sessions_keep_their_settings(kind: str) -> None:
    async def scenario() -> None:
        url = await emptied("pools")
        wild = "SET SESSION tx_isolation = 'SERIALIZABLE', lock_wait_timeout = 7, sql_notes = OFF"
        options = {**POOLS[kind], "maxsize": 1, "init_command": wild, "cursor_cls": asyncmy.cursors.Cursor}
        async with pool_of(url, **options) as pool:
            before = await variables(pool)
            store = await perdure.open(url, pool=pool)
            await asyncio.gather(*[store.commit(f"t{n}", messages=[Message.user("漢")] * 12) for n in range(5)])
            (first, *_), *_ = (await store.messages.list("t1", limit=12)).items, None
            assert first.message.text == "漢"
            assert not [problem for problem in (await store.health()).problems if "transactions run" in problem]
            await store.close()
            assert await variables(pool) == before

    run(scenario())


def test_what_cannot_be_used_is_refused() -> None:
    async def scenario() -> None:
        url = await emptied("pools")
        elsewhere = f"{url.rpartition('/')[0]}/elsewhere"
        other = await raises(InvalidError, open_engine(url, SCHEMA, pool=object()))
        assert "asyncmy pool" in str(other)
        async with pool_of(url, minsize=0, maxsize=0) as none:
            assert "no connection" in str(await raises(InvalidError, open_engine(url, SCHEMA, pool=none)))
        async with pool_of(url) as pool:
            wrong = await raises(InvalidError, open_engine(elsewhere, SCHEMA, pool=pool))
            assert "the URL names 'elsewhere'" in str(wrong)
        closed = await raises(UnavailableError, open_engine(url, SCHEMA, pool=pool))
        assert "close it after the store" in str(closed)
        async with pool_of(url, conv={FIELD_TYPE.LONGLONG: lambda value: [value]}) as strange:
            assert "without conv=" in str(await raises(InvalidError, open_engine(url, SCHEMA, pool=strange)))

    run(scenario())


def test_a_cancelled_request_leaves_the_pool_usable() -> None:
    async def scenario() -> None:
        async with behind_a_proxy(maxsize=2) as (url, pool, proxy):
            engine = await open_engine(url, SCHEMA, pool=pool)
            await engine.transact(SCOPE, [notes("t", new_id())])
            for turns in (1, 5, 40, 200):
                proxy.half_open()
                calls = [asyncio.create_task(engine.transact(SCOPE, [notes("t", new_id())])) for _ in range(2)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
                await asyncio.to_thread(proxy.heal)
                assert (await variables(pool))["autocommit"] == "OFF"
                assert await length(engine) >= 1
            await engine.close()

    run(scenario())


def test_a_commit_whose_answer_is_lost_is_not_sent_again() -> None:
    async def scenario() -> None:
        async with behind_a_proxy(maxsize=2) as (url, pool, proxy):
            engine = await open_engine(url, SCHEMA, pool=pool)
            plain = await open_engine(url, SCHEMA)
            outcomes = []
            for cut in range(1, 1000, 20):
                before = await length(plain)
                await asyncio.to_thread(proxy.cut_after, cut, "down")
                try:
                    await engine.transact(SCOPE, [notes("t", new_id())])
                except OutcomeUnknown:
                    outcomes.append("unknown")
                    assert await length(plain) - before in (0, 1)
                except PerdureError:
                    outcomes.append("refused")
                    assert await length(plain) == before
                else:
                    assert await length(plain) == before + 1
                await asyncio.to_thread(proxy.heal)
            assert "unknown" in outcomes
            await asyncio.gather(engine.close(), plain.close())

    run(scenario())


def test_connections_that_died_in_the_pool_cost_no_commit() -> None:
    async def scenario() -> None:
        async with behind_a_proxy(minsize=3, maxsize=3) as (url, pool, proxy):
            engine = await open_engine(url, SCHEMA, pool=pool)
            await asyncio.to_thread(proxy.cut)
            await engine.transact(SCOPE, [notes("t", new_id())])
            assert await length(engine) == 1
            await engine.close()

    run(scenario())


def test_a_pool_in_use_is_waited_for_in_bounded_time() -> None:
    async def scenario() -> None:
        url = await emptied("pools")
        async with pool_of(url, maxsize=1) as pool:
            engine = await open_engine(f"{url}?connect_timeout=0.3", SCHEMA, pool=pool)
            async with pool.acquire():
                for call in (engine.transact(SCOPE, [notes("t", new_id())]), length(engine)):
                    assert "stayed in use" in str(await raises(UnavailableError, call))
                waiting = asyncio.create_task(engine.transact(SCOPE, [notes("t", new_id())]))
                for _ in range(20):
                    await asyncio.sleep(0)
            await waiting
            await engine.close()

    run(scenario())
