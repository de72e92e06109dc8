"""`retry_ms` against a real PostgreSQL: connections are cut and the server is killed while keyed commits are made.

No call of a writer may fail, and each commit takes effect once, however often its answer was lost.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.faults.link import Link
from tests.support.servers import server

import perdure
from perdure import Message, Store
from perdure.audit import verify

RETRY_MS = 120_000
WRITERS = 4
CUTS = 25
DEADLINE = 300


class Writer:
    """Commits one message after the other under keys, and never handles an error."""

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self.thread = thread
        self.written: list[str] = []
        self.replayed = 0

    async def write(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            text = str(len(self.written))
            receipt = await self._store.commit(self.thread, messages=[Message.user(text)], key=f"k-{text}")
            self.replayed += receipt.replayed
            self.written.append(text)
            await self._store.threads.get(self.thread)


async def everybody_writes(writers: list[Writer], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until each writer has made three more commits."""
    goals = [len(writer.written) + 3 for writer in writers]
    while any(len(writer.written) < goal for writer, goal in zip(writers, goals, strict=True)):
        assert not any(task.done() for task in tasks), "a writer gave up"
        await asyncio.sleep(0.005)


async def stored(store: Store, thread: str) -> list[str]:
    return [record.text for record in await store.messages.path(thread)]


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))


def test_keyed_commits_survive_cut_connections(seed: int) -> None:
    dice = random.Random(seed)

    async def scenario() -> None:
        local = server("postgres")
        async with Link.to(local.url) as link, perdure.open(link.url, retry_ms=RETRY_MS) as store:
            writers = [Writer(store, f"retry-{seed}-{n}") for n in range(WRITERS)]
            stop = asyncio.Event()
            tasks = [asyncio.create_task(writer.write(stop)) for writer in writers]
            for number in range(CUTS):
                before = link.cut_after("down" if number % 2 else "up", dice.randrange(200))
                while link.proxy.cuts == before:
                    assert not any(task.done() for task in tasks), "a writer gave up"
                    await asyncio.sleep(0.001)
                await everybody_writes(writers, tasks)
            stop.set()
            await asyncio.gather(*tasks)
            for writer in writers:
                assert await stored(store, writer.thread) == writer.written
            assert sum(writer.replayed for writer in writers), "no answer was lost after its commit landed"
            assert await verify(store) == []

    run(scenario())


def test_keyed_commits_survive_a_server_that_is_killed() -> None:
    async def scenario() -> None:
        local: Any = server("postgres", durable=True)
        async with perdure.open(local.url, retry_ms=RETRY_MS) as store:
            writers = [Writer(store, f"t-{n}") for n in range(WRITERS)]
            stop = asyncio.Event()
            tasks = [asyncio.create_task(writer.write(stop)) for writer in writers]
            for _ in range(2):
                await asyncio.to_thread(local.kill)
                await asyncio.to_thread(local.restart)
                await everybody_writes(writers, tasks)
            stop.set()
            await asyncio.gather(*tasks)
            for writer in writers:
                assert await stored(store, writer.thread) == writer.written
            assert await verify(store) == []

    run(scenario())
