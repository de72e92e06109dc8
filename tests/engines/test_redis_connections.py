"""The connections of the Redis engine: who waits is served in order and not for ever, who is silent is given up on, and
what was closed is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.engines.redis_place import DEADLINE, client_at, empty, engine_at, refusal, until
from tests.engines.toys import SCHEMA, SCOPE, notes, watching
from tests.support.proxy import Proxy
from tests.support.servers import server

from perdure import limits
from perdure.engines.redis import open_engine
from perdure.engines.redis.connections import pool
from perdure.engines.redis.connections.connection import Connection
from perdure.errors import UnavailableError
from perdure.kernel.engine import Watch
from perdure.kernel.ops import Read

NEVER = "command_timeout=80000"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy("127.0.0.1", urlsplit(server("redis").url).port or 0) as found:
        yield found


def test_who_waits_for_a_connection_is_told_when_none_comes_back(proxy: Proxy) -> None:
    async def main() -> None:
        options = "connections=1&command_timeout=0.5&connect_timeout=2"
        async with engine_at(f"{proxy.through(await empty())}?{options}") as engine:
            await engine.transact(SCOPE, [notes("t", "a")])
            proxy.half_open()
            # The first is sent. The second gets its turn when that is given up, and opens a connection meanwhile.
            works = [asyncio.create_task(engine.transact(SCOPE, [notes("t", f"n{n}")])) for n in range(3)]
            error = await refusal(works[2])
            assert isinstance(error, UnavailableError)
            assert "all 1 connections" in str(error)
            assert "connections=" in (error.hint or "")
            await asyncio.gather(*works, return_exceptions=True)
            proxy.heal()
            await engine.transact(SCOPE, [notes("t", "b")])

    asyncio.run(main())


def test_a_cancelled_waiter_hands_its_turn_on() -> None:
    async def main() -> None:
        async with engine_at(f"{await empty()}?connections=1&{NEVER}") as engine:
            await engine.transact(SCOPE, [notes("t", "a")])

            async def read_then_cancel(others: list[asyncio.Task[Any]]) -> None:
                await engine.view(SCOPE, [Read("notes", "t")])
                # At this point the turn was handed to the first of them, which does not know it yet.
                for other in others:
                    other.cancel()

            for count in (1, 2, 3):
                waiting: list[asyncio.Task[Any]] = []
                reading = asyncio.create_task(read_then_cancel(waiting))
                await asyncio.sleep(0)
                waiting += [asyncio.create_task(engine.view(SCOPE, [Read("notes", "t")])) for _ in range(count)]
                last = asyncio.create_task(engine.view(SCOPE, [Read("notes", "t")]))
                async with asyncio.timeout(DEADLINE):
                    await reading
                    assert len((await last)[0]) == 1
                await asyncio.wait(waiting)
                assert all(task.cancelled() for task in waiting)

    asyncio.run(main())


def test_idle_connections_that_were_dropped_without_a_word_are_replaced(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with engine_at(f"{proxy.through(await empty())}?connections=4&{NEVER}") as engine:
            proxy.delay(0.02)
            await asyncio.gather(*[engine.transact(SCOPE, [notes("t", f"n{n}")]) for n in range(4)])
            proxy.delay(0)
            proxy.strand()
            # As if they had been idle for long.
            monkeypatch.setattr(pool, "_IDLE_CHECK", 0.0)
            async with asyncio.timeout(DEADLINE):
                await engine.transact(SCOPE, [notes("t", "later")])
                assert len((await engine.view(SCOPE, [Read("notes", "t")]))[0]) == 5

    asyncio.run(main())


def test_a_watcher_survives_a_server_that_accepts_and_stays_silent(proxy: Proxy) -> None:
    async def main() -> None:
        url = await empty()
        async with engine_at(f"{proxy.through(url)}?connect_timeout=1") as here:
            watch = await watching(here, "topic")
            accepted = proxy.accepted
            proxy.half_open()
            proxy.cut()
            await until(_true(lambda: proxy.accepted >= accepted + 2))
            for _ in range(3):
                assert await watch.wait(DEADLINE), "everybody is rung every second"
            proxy.heal()
            await _hears_others(url, watch)
            watch.close()

    asyncio.run(main())


def test_a_subscription_that_was_dropped_without_a_word_is_made_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_CHECK_MS", 50)

    async def main() -> None:
        url = await empty()
        async with engine_at(proxy.through(url)) as here:
            watch = await watching(here, "topic")
            accepted = proxy.accepted
            proxy.strand()
            await until(_true(lambda: proxy.accepted > accepted))
            await _hears_others(url, watch)
            watch.close()

    asyncio.run(main())


def test_a_listener_to_which_nothing_is_said_stays_connected() -> None:
    """The deadline of its login is not its own: otherwise it would be lost, and made again, every few seconds."""

    async def main() -> None:
        place, loop = urlsplit(await empty()), asyncio.get_running_loop()
        connection = Connection("here", 0.05)
        await loop.create_connection(lambda: connection, place.hostname, place.port)
        assert await connection.is_alive(DEADLINE)
        listening = asyncio.create_task(connection.listen(lambda reply: None))
        overdue = asyncio.Event()
        loop.call_later(0.2, overdue.set)  # timers fire in their order
        await overdue.wait()
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        connection.abort()

    asyncio.run(main())


def _true(question: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        return question()

    return ask


async def _hears_others(url: str, watch: Watch) -> None:
    """The watch is rung for each of some commits by somebody else."""
    async with client_at(url) as client, engine_at(url) as there:
        await until(client.pubsub_channels)
        for n in range(3):
            # What rang because the connection was made again is awaited first.
            while await watch.wait(0.2):
                pass
            await there.transact(SCOPE, [notes("t", f"n{n}")], ["topic"])
            assert await watch.wait(DEADLINE)


def test_a_close_that_was_cancelled_is_finished_by_the_next(proxy: Proxy) -> None:
    async def main() -> None:
        url = await empty()
        async with client_at(url) as client:
            others = {found["id"] for found in await client.client_list()}
            engine = await open_engine(f"{proxy.through(url)}?connections=3&{NEVER}", SCHEMA)
            watch = await watching(engine, "topic")
            proxy.delay(0.02)
            await asyncio.gather(*[engine.transact(SCOPE, [notes("t", f"n{n}")]) for n in range(3)])
            proxy.delay(0)
            proxy.strand()
            stuck = asyncio.create_task(engine.transact(SCOPE, [notes("t", "stuck")]))
            await asyncio.sleep(0)
            closing = asyncio.create_task(engine.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            stuck.cancel()
            await asyncio.gather(stuck, return_exceptions=True)
            async with asyncio.timeout(DEADLINE):
                await engine.close()
            assert [task for task in asyncio.all_tasks() if "Hub._listen" in repr(task.get_coro())] == []

            async def gone() -> bool:
                return {found["id"] for found in await client.client_list()} <= others

            await until(gone)
            watch.close()
            assert "closed" in str(await refusal(engine.view(SCOPE, [Read("notes", "t")])))
            await engine.close()

    asyncio.run(main())
