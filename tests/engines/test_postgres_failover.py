"""PostgreSQL with a standby: the primary is lost, the standby takes its place, and an open store goes on there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import count

import asyncpg
import pytest
from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, notes, watching
from tests.support.proxy import Proxy
from tests.support.servers import StandbyPair, standby_pair

import perdure
from perdure import Message, Store
from perdure.audit import verify
from perdure.engines.postgres import open_engine
from perdure.errors import OutcomeUnknown, UnavailableError
from perdure.kernel.ops import Heads

WRITERS = 8
AT_LEAST = 10
"""So many commits of each writer before the primary is lost, and so many after."""


@pytest.fixture
def pair() -> Iterator[StandbyPair]:
    made = standby_pair()
    yield made
    made.dispose()


class Writer:
    """Commits one message after the other on a thread of its own, again with the same key when it has to."""

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self.thread = thread
        self.acknowledged: list[tuple[int, str]] = []
        self.unanswered = 0
        self._progress = asyncio.Event()

    async def write(self, stop: asyncio.Event) -> None:
        for number in count():
            if stop.is_set():
                return
            name = f"{self.thread}-{number}"
            receipt = await self._commit(name)
            self.acknowledged.extend(zip(receipt.seqs, receipt.message_ids, strict=True))
            self._progress.set()

    async def _commit(self, name: str) -> perdure.Receipt:
        while True:
            try:
                return await self._store.commit(self.thread, messages=[Message.user(name, id=name)], key=name)
            except (OutcomeUnknown, UnavailableError):
                self.unanswered += 1
                await asyncio.sleep(0.01)

    async def reaches(self, length: int) -> None:
        while len(self.acknowledged) < length:
            self._progress.clear()
            await self._progress.wait()


def test_nothing_acknowledged_is_lost_with_the_primary() -> None:
    with contextlib.ExitStack() as stack:
        between: list[Proxy] = []

        def by_proxy(port: int) -> int:
            between.append(stack.enter_context(Proxy("127.0.0.1", port)))
            return between[0].port

        pair = standby_pair(by_proxy)
        stack.callback(pair.dispose)
        asyncio.run(_lose_the_primary(pair, between[0]))


async def _lose_the_primary(pair: StandbyPair, between: Proxy) -> None:
    async with perdure.open(pair.url) as store:
        writers = [Writer(store, f"t{n}") for n in range(WRITERS)]
        stop = asyncio.Event()
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.write(stop))
            for writer in writers:
                await writer.reaches(AT_LEAST)
            # The network goes first: what is acknowledged from now on the standby has never heard of.
            await asyncio.to_thread(between.drop)
            await asyncio.to_thread(pair.members[0].kill)
            before = {writer: len(writer.acknowledged) for writer in writers}
            await asyncio.to_thread(pair.promote)
            for writer in writers:
                await writer.reaches(before[writer] + AT_LEAST)
            stop.set()
        assert sum(writer.unanswered for writer in writers) > 0, "the primary was lost in the middle of something"
        for writer in writers:
            records = await store.messages.history(writer.thread)
            assert [(record.seq, record.message_id) for record in records] == writer.acknowledged
        assert await verify(store) == []
        assert (await store.health()).settings["standby"] is False


def test_a_primary_that_falls_silent_is_passed_over(pair: StandbyPair) -> None:
    async def main() -> None:
        with Proxy("127.0.0.1", pair.members[0].port) as proxy:
            url = f"{pair.url.replace(str(pair.members[0].port), str(proxy.port))}&connect_timeout=4&command_timeout=1"
            async with asyncio.timeout(DEADLINE):
                engine = await open_engine(url, SCHEMA)
                watch = await watching(engine, "topic")
                await engine.transact(SCOPE, [notes("t", "before")])
                # As a lost machine: no answer and no goodbye, neither to those who are connected nor to newcomers.
                proxy.half_open()
                await asyncio.to_thread(pair.promote)
                with pytest.raises(OutcomeUnknown):
                    await engine.transact(SCOPE, [notes("t", "nobody there")])
                await engine.transact(SCOPE, [notes("t", "after")])
                assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[2]]

                proxy.cut()
                assert await watch.wait(DEADLINE), "whoever watches is rung when it listens again"
                late = await open_engine(url, SCHEMA)
                await late.transact(SCOPE, [notes("t", "from another")], ["topic"])
                assert await watch.wait(DEADLINE)
                await late.close()
                await engine.close()

    asyncio.run(main())


def test_a_primary_that_was_made_read_only_is_left(pair: StandbyPair) -> None:
    async def main() -> None:
        primary, standby = pair.members
        with pytest.raises(UnavailableError) as caught:
            await open_engine(f"{standby.url}?target_session_attrs=read-write&connect_timeout=1", SCHEMA)
        assert "is what target_session_attrs asks for (tried for 1 s)" in str(caught.value)
        assert "which of them is the primary" in str(caught.value)

        async with asyncio.timeout(DEADLINE):
            engine = await open_engine(f"{pair.url}&connections=4", SCHEMA)
            await asyncio.gather(*[engine.transact(SCOPE, [notes(f"t{n}", "before")]) for n in range(16)])
            admin = await asyncpg.connect(primary.url)
            await admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            await admin.execute("SELECT pg_reload_conf()")
            await admin.close()
            await asyncio.to_thread(pair.promote)
            refused = 0
            while True:
                try:
                    await engine.transact(SCOPE, [notes("t0", "after")])
                    break
                except UnavailableError:
                    refused += 1
            assert refused <= 1, "one answer tells of all connections"
            assert await engine.view(SCOPE, [Heads("notes", ["t0"])]) == [[2]]
            await engine.close()

    asyncio.run(main())
