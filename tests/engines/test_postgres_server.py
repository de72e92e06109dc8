"""PostgreSQL as a server that restarts, is reached through a pooler, and is shared: what an open engine does then."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from tests.engines.pacing import slow_clock
from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, eventually, notes, watching
from tests.support.servers import Server, fresh_database, server

from perdure.engines.postgres import PostgresEngine, open_engine
from perdure.errors import InvalidError, PerdureError, UnavailableError, UnsupportedError
from perdure.kernel.ops import Get, Heads, Put, Read, Ref, Scan, Segment


async def opened(label: str = "frame", options: str = "", **more: Any) -> PostgresEngine:
    return await open_engine(await fresh_database(server("postgres"), label) + options, SCHEMA, **more)


async def length(engine: PostgresEngine, topic: str) -> int:
    ((head,),) = await engine.view(SCOPE, [Heads("notes", [topic])])
    return int(head)


def test_a_view_is_one_statement() -> None:
    async def main() -> None:
        engine = await opened()
        await engine.transact(SCOPE, [notes("t", "a", "b", "c"), Put("items", ("i",), {"note": "j", "n": 1})])
        await engine.transact(SCOPE, [Put("items", ("j",), {"owner": "i", "rank": 1})])
        sent: list[str] = []
        pool: Any = engine._pool  # the test counts what is sent
        fetch = pool.fetch

        async def counted(connection: Any, sql: str, arguments: Any = (), **how: Any) -> Any:
            sent.append(sql)
            return await fetch(connection, sql, arguments, **how)

        pool.fetch = counted
        item, again, entries, segments, owned, heads, none = await engine.view(
            SCOPE,
            [
                Get("items", [("i",)]),
                Get("items", Ref(0, ("note",))),
                Read("notes", "t", after=1),
                Read("notes", "t", segments=(Segment(0, 0, 1), Segment(0, 2, None))),
                Scan("items", "owned", (Ref(0, ("id",)),)),
                Heads("notes", ["t", "nowhere"]),
                Get("items", []),
            ],
        )
        assert len(sent) == 1
        assert (item[0]["n"], again[0].key, owned[0].key) == (1, ("j",), ("j",))
        assert [entry[0] for entry in entries] == [2, 3]
        assert [entry[0] for entry in segments] == [1, 3]
        assert all(type(entry) is tuple and len(entry) == 7 for entry in entries + segments)
        assert (heads, none) == ([3, 0], [])
        await engine.close()

    asyncio.run(main())


def test_an_open_engine_survives_a_restart_of_its_server() -> None:
    async def main() -> None:
        mine: Server = server("postgres", durable=True)
        url = await fresh_database(mine, "restart")
        engine = await open_engine(f"{url}?connect_timeout=120", SCHEMA)
        watch = await watching(engine, "a")
        await engine.transact(SCOPE, [notes("t", "before")])
        await asyncio.to_thread(mine.kill)
        reading = asyncio.create_task(engine.view(SCOPE, [Heads("notes", ["t"])]))
        await asyncio.to_thread(mine.restart)
        assert await reading == [[1]]
        await engine.transact(SCOPE, [notes("t", "after")])
        assert await length(engine, "t") == 2
        assert await watch.wait(DEADLINE), "the lost listener rings once"
        await engine.close()

    asyncio.run(main())


def test_a_server_that_stays_away_is_unavailable_in_bounded_time() -> None:
    async def main() -> None:
        mine = server("postgres", durable=True)
        url = await fresh_database(mine, "restart")
        # A patience that is soon at its end may be too short for a busy machine too: then it is tried again.
        engine = await eventually(lambda: open_engine(f"{url}?connect_timeout=0.5", SCHEMA))
        await asyncio.to_thread(mine.kill)
        try:
            with pytest.raises(UnavailableError):
                await engine.view(SCOPE, [Heads("notes", ["t"])])
            with pytest.raises(PerdureError) as caught:
                await engine.transact(SCOPE, [notes("t", "x")])
            assert caught.value.retryable
        finally:
            await asyncio.to_thread(mine.restart)
        assert await eventually(lambda: length(engine, "t")) == 0
        await engine.close()

    asyncio.run(main())


def test_behind_pgbouncer_in_transaction_mode() -> None:
    async def main() -> None:
        direct = await fresh_database(server("postgres"), "pooled")
        pooler = server("pgbouncer").url
        url = pooler.rpartition("/")[0] + "/" + direct.rpartition("/")[2]
        engine = await open_engine(f"{url}?prepared=no&connections=8", SCHEMA)
        assert engine.capabilities.watch == "poll"
        watch = engine.watch(SCOPE, ["a"])
        await asyncio.gather(*[engine.transact(SCOPE, [notes(f"t{n % 5}", f"{n}")]) for n in range(40)])
        heads, entries = await engine.view(
            SCOPE, [Heads("notes", [f"t{n}" for n in range(5)]), Read("notes", "t0", segments=(Segment(0, 0, 3),))]
        )
        assert (heads, len(entries)) == ([8] * 5, 3)
        other = await open_engine(direct, SCHEMA)
        await other.transact(SCOPE, [notes("t0", "last")])
        assert await watch.wait(DEADLINE)
        taken = await engine.take(SCOPE, Scan("items", "due", (), limit=1, upto={"due": 1}), {"n": 1})
        assert taken.rows == []
        await other.close()
        await engine.close()

    asyncio.run(main())


def test_wake_ups_come_past_the_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engines.postgres.watch.POLL_SECONDS", 3600.0)

    async def main() -> None:
        direct = await fresh_database(server("postgres"), "pooled")
        pooled = server("pgbouncer").url.rpartition("/")[0] + "/" + direct.rpartition("/")[2]
        url = f"{pooled}?prepared=no&listen_url={quote(f'{direct}?sslmode=prefer', safe='')}"
        listening, writing = await open_engine(url, SCHEMA), await open_engine(url, SCHEMA)
        assert listening.capabilities.watch == "push"
        watch = await watching(listening, "a")
        await writing.transact(SCOPE, [notes("t", "x")], ["a"])
        assert await watch.wait(DEADLINE), "nobody asks again and again, so it was told"
        await asyncio.gather(writing.close(), listening.close())

    asyncio.run(main())


def test_a_pooler_that_was_not_announced_is_named_at_once() -> None:
    async def main() -> None:
        with pytest.raises(InvalidError, match=r"prepared=no") as caught:
            await open_engine(f"{server('pgbouncer').url}?connect_timeout=3600", SCHEMA)
        assert "behind PgBouncer" in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize("borrowed", [False, True])
def test_a_queue_for_connections_is_waited_for_while_it_moves(borrowed: bool) -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "frame")
        pass_time = slow_clock()
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as theirs:
            given = theirs if borrowed else None
            engine = await open_engine(
                f"{url}?connections=1&connect_timeout=0.5&command_timeout=0.5", SCHEMA, pool=given
            )
            pool = engine._pool  # the test fills and holds it

            async def ask() -> None:
                await pool.query("SELECT 1")
                pass_time(0.1)

            await asyncio.gather(*[ask() for _ in range(64)])
            held = await pool.acquire()
            try:
                for call in (engine.view(SCOPE, [Heads("notes", ["t"])]), engine.transact(SCOPE, [notes("t", "x")])):
                    asked: asyncio.Task[Any] = asyncio.create_task(call)
                    for _ in range(100):
                        pass_time(0.1)
                        await asyncio.sleep(0)
                    asked.cancel()  # which comes too late, unless it still waits
                    with pytest.raises(UnavailableError, match=r"all connections .* are in use"):
                        await asked
            finally:
                pool.release(held)
            assert await length(engine, "t") == 0
            await engine.close()

    asyncio.run(main())


def test_hints_reach_other_engines_by_notify_and_only_their_topics() -> None:
    async def main() -> None:
        here = await opened()
        there = await open_engine(await fresh_database(server("postgres"), "frame"), SCHEMA)
        assert here.capabilities.watch == "push"
        other = here.watch(SCOPE, ["b"])
        wanted = await watching(here, "a")
        assert await other.wait(DEADLINE)
        await there.transact(SCOPE, [notes("t", "x")], ["a"])
        assert await wanted.wait(DEADLINE)
        assert not await other.wait(0)
        await here.close()
        await there.close()

    asyncio.run(main())


@pytest.mark.parametrize("borrowed", [False, True])
def test_a_goodbye_on_an_idle_connection_is_no_unknown_outcome(borrowed: bool) -> None:
    """Between a server's goodbye and the end of its connection the driver refuses to send: then nothing was sent."""

    async def main() -> None:
        url = await fresh_database(server("postgres"), "goodbye")
        pool = await asyncpg.create_pool(url, min_size=1, max_size=3) if borrowed else None
        engine = await open_engine(url, SCHEMA, pool=pool)
        link = await asyncpg.connect(url)
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        said: list[str] = []
        for turn in range(60):
            await link.execute(f"SELECT pg_terminate_backend(pid) {others}")
            for step in range(4):
                try:
                    await engine.transact(SCOPE, [notes("t", f"{turn}-{step}")])
                except PerdureError as error:  # what was sent and not answered stays unknown
                    said.append(str(error))
                await asyncio.sleep(0.0003 * (turn % 5))
        assert not [words for words in said if "cannot" in words]
        await link.close()
        await engine.close()
        if pool is not None:
            await pool.close()

    asyncio.run(main())


def test_a_lost_listener_comes_back() -> None:
    async def main() -> None:
        engine = await opened()
        watch = await watching(engine, "a")
        link = await asyncpg.connect(server("postgres").url)
        ended = 0
        async with asyncio.timeout(DEADLINE):
            while not ended:
                ended = await link.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%perdure%'"
                )
        assert await watch.wait(DEADLINE)
        await link.close()
        await engine.close()

    asyncio.run(main())


def test_another_event_loop_is_refused() -> None:
    first = asyncio.new_event_loop()
    engine = first.run_until_complete(opened())
    with pytest.raises(UnsupportedError, match="another event loop"):
        asyncio.run(engine.view(SCOPE, [Heads("notes", ["t"])]))
    first.run_until_complete(engine.close())
    first.close()


def test_a_forked_child_is_refused_and_harms_nobody() -> None:
    async def main() -> None:
        engine = await opened()
        await engine.transact(SCOPE, [notes("t", "x")])
        child = os.fork()
        if child == 0:
            told = 1
            try:
                engine.watch(SCOPE, ["a"])
            except UnsupportedError as error:
                told = 0 if "fork" in str(error) else 2
            os._exit(told)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0
        assert await length(engine, "t") == 1
        await engine.close()

    asyncio.run(main())


def test_closing_finishes_what_was_submitted_and_refuses_the_rest() -> None:
    async def main() -> None:
        engine = await opened(options="?connections=4")
        work = [asyncio.create_task(engine.transact(SCOPE, [notes(f"t{n}", "x")])) for n in range(40)]
        work += [asyncio.create_task(engine.view(SCOPE, [Heads("notes", ["t0"])])) for _ in range(20)]
        await asyncio.sleep(0)
        await engine.close()
        await engine.close()
        await asyncio.gather(*work)
        with pytest.raises(UnavailableError, match="closed"):
            await engine.view(SCOPE, [Heads("notes", ["t"])])
        with pytest.raises(UnavailableError, match="closed"):
            await engine.transact(SCOPE, [notes("t", "x")])

    asyncio.run(main())


def test_a_body_that_is_not_json_is_refused() -> None:
    async def main() -> None:
        engine = await opened()
        with pytest.raises(InvalidError, match="json"):
            await engine.transact(SCOPE, [Put("items", ("a",), {}, b'{"half":')])
        assert await engine.view(SCOPE, [Get("items", [("a",)])]) == [[None]]
        await engine.close()

    asyncio.run(main())
