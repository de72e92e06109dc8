"""What an open store holds at its server, and what it does in sessions that were made by others or are gone."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, eventually, notes
from tests.support.proxy import Proxy
from tests.support.servers import fresh_database, server

import perdure
from perdure import Message, Store
from perdure.engines.postgres import PostgresEngine, open_engine
from perdure.engines.postgres.connections.connect import STATEMENTS_KEPT
from perdure.engines.postgres.connections.permits import Permits
from perdure.engines.postgres.migrate import fingerprint
from perdure.engines.postgres.schema.tables import SERVER_CLOCK
from perdure.errors import ConflictError, UnavailableError
from perdure.kernel.ops import Put

HOSTILE = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "idle_in_transaction_session_timeout": "1ms",
    "lock_timeout": "1ms",
    "statement_timeout": "1ms",
    "standard_conforming_strings": "off",
    "enable_indexscan": "off",
    "enable_nestloop": "off",
}
EVIL = """CREATE SCHEMA IF NOT EXISTS evil;
CREATE OR REPLACE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT to_timestamp(0)'"""


async def _alter(url: str, settings: dict[str, str]) -> None:
    """Make every later session of a database begin with these settings."""
    link = await asyncpg.connect(url)
    try:
        name = url.rpartition("/")[2]
        await link.execute(EVIL)
        await link.execute(f'ALTER DATABASE "{name}" RESET ALL')
        await link.execute(f'ALTER DATABASE "{name}" SET search_path = evil, pg_catalog')
        for setting, value in settings.items():
            await link.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def _stores(kind: str, url: str, count: int) -> AsyncIterator[list[Store]]:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=8) if kind == "pool" else None
    if kind == "pgbouncer":
        url = f"{server('pgbouncer').url.rpartition('/')[0]}/{url.rpartition('/')[2]}?prepared=no"
    stores = [await perdure.open(url, pool=pool) for _ in range(count)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()
        if pool is not None:
            await pool.close()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("kind", ["own", "pool", "pgbouncer"])
def test_no_isolation_level_of_a_database_reaches_a_caller(kind: str, isolation: str) -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), f"isolation_{kind}")
        await _alter(url, {"default_transaction_isolation": isolation})
        async with _stores(kind, url, 2) as stores:

            async def write(store: Store, who: int) -> None:
                for number in range(8):
                    await store.commit("t", messages=[Message.user("x")], state={f"d{who}": number})

            await asyncio.gather(*[write(store, who) for who, store in enumerate(stores * 4)])
            assert len((await stores[0].messages.list("t", limit=100)).items) == 64
            health = await stores[0].health()
            assert health.settings["transaction_isolation"] == "read committed"
            assert health.settings["overridden"]["default_transaction_isolation"] == isolation
            assert not [problem for problem in health.problems if "transactions" in problem]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["own", "pgbouncer"])
def test_hostile_settings_of_a_database_change_nothing(kind: str) -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), f"hostile_{kind}")
        await _alter(url, HOSTILE)
        async with _stores(kind, url, 1) as (store,):
            first = await store.commit("t", messages=[Message.user("back\\slash")], state=dict.fromkeys("abcd", 1))
            await store.commit("t", messages=[Message.user("x")], state={"a": 2}, key="once")
            assert first.at > 10**12, "the clock is the server's, not that of a schema in front of its own"
            assert (await store.load("t")).version == 2
            assert len((await store.threads.list()).items) == 1
            await store.threads.delete("t")
            told = (await store.health()).settings["overridden"]
            assert told.items() >= {k: v for k, v in HOSTILE.items() if k != "enable_indexscan"}.items()

    asyncio.run(main())


def test_time_limits_of_a_callers_pool_are_told_by_health() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "limits")
        limited = {"statement_timeout": "90s"}
        async with asyncpg.create_pool(url, min_size=1, max_size=2, server_settings=limited) as pool:
            store = await perdure.open(url, pool=pool)
            assert "statement_timeout is 90s: statements that take longer fail" in (await store.health()).problems
            await store.close()

    asyncio.run(main())


def test_a_callers_pool_keeps_its_settings() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "kept")
        await _alter(url, {"default_transaction_isolation": "serializable"})
        # Nothing is reset between two uses: what we leave behind in a session, the next user of it finds.
        pool = await asyncpg.create_pool(url, min_size=1, max_size=1, reset=_keep_everything)
        store = await perdure.open(url, pool=pool)
        assert store.capabilities().round_trips_per_commit == 3
        async with pool.acquire() as link:
            before = await link.fetch("SELECT name, setting FROM pg_settings ORDER BY name")
        await asyncio.gather(*[store.commit(f"t{n}", messages=[Message.user("x")]) for n in range(9)])
        await store.runs.list(thread_id="t1", status="running")
        async with pool.acquire() as link:
            assert await link.fetch("SELECT name, setting FROM pg_settings ORDER BY name") == before
        await store.close()
        await pool.close()

    asyncio.run(main())


async def _keep_everything(_connection: Any) -> None:
    return


async def _statements_kept(engine: Any) -> list[int]:
    """Per connection of a store's pool, how many statements its server session keeps prepared."""
    pool = engine._pool
    held = [await pool.acquire() for _ in range(pool.size)]
    found = [(await connection.fetch("SELECT count(*) FROM pg_prepared_statements"))[0][0] for connection in held]
    for connection in held:
        pool.release(connection)
    return found


def test_commits_of_many_shapes_leave_few_statements_at_the_server() -> None:
    async def main() -> None:
        store = await perdure.open(await fresh_database(server("postgres"), "shapes") + "?connections=3")
        rng = random.Random(7)

        async def write(thread: str) -> None:
            for number in range(60):
                names = rng.sample([f"d{n}" for n in range(20)], rng.randint(1, 11))
                docs = {doc.name: doc.rev for doc in await store.state.list(thread)} if number else {}
                guarded = {name: docs.get(name) for name in names if rng.random() < 0.4}
                state = {name: {"n": number} for name in names}
                await store.commit(thread, messages=[Message.user("x")], state=state, expect_state=guarded or None)

        await asyncio.gather(*[write(f"t{n}") for n in range(4)])
        kept = await _statements_kept(store.engine)
        assert max(kept) <= 50, "documents are arrays: their number and their guards make no new statement"
        await store.close()

    asyncio.run(main())


def test_a_wrong_guard_among_many_documents_is_named_and_nothing_is_written() -> None:
    async def main() -> None:
        store = await perdure.open(await fresh_database(server("postgres"), "shapes"))
        await store.commit("t", messages=[Message.user("x")], state={f"d{n}": 0 for n in range(5)})
        revs = {doc.name: doc.rev for doc in await store.state.list("t")}
        state = {f"d{n}": 1 for n in range(8)}
        for guards, wrong in (
            ({**revs, "d3": 1}, "d3"),
            ({**revs, "d7": 5}, "d7"),
            ({"d1": revs["d1"], "d2": None}, "d2"),
        ):
            with pytest.raises(ConflictError, match=wrong):
                await store.commit("t", messages=[Message.user("x")], state=state, expect_state=guards)
        assert {doc.name: doc.rev for doc in await store.state.list("t")} == revs
        await store.commit("t", messages=[Message.user("x")], state=state, expect_state={**revs, "d7": None})
        assert {doc.name: doc.value for doc in await store.state.list("t")} == state
        await store.close()

    asyncio.run(main())


def test_a_connection_keeps_no_more_statements_than_it_may() -> None:
    async def main() -> None:
        engine = await open_engine(await fresh_database(server("postgres"), "frame") + "?connections=1", SCHEMA)
        for number in range(STATEMENTS_KEPT * 2):
            await engine._pool.ask(f"SELECT 1 AS c{number}")
        (kept,) = await _statements_kept(engine)
        assert STATEMENTS_KEPT - 1 <= kept <= STATEMENTS_KEPT + 1
        await engine.close()

    asyncio.run(main())


def _tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def _sessions(url: str, name: str) -> int:
    link = await asyncpg.connect(url)
    try:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
        return int(await link.fetchval(asked, name))
    finally:
        await link.close()


def test_a_cancelled_close_is_finished_by_the_next() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "closing")
        engine = await open_engine(f"{url}?application_name=closing", SCHEMA)
        watch = engine.watch(SCOPE, ["a"])
        await asyncio.gather(*[engine.transact(SCOPE, [notes(f"t{n}", "x")], ["a"]) for n in range(20)])
        held = await engine._pool.acquire()
        closing = asyncio.create_task(engine.close())
        await eventually(lambda: _refused(engine))
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        engine._pool.release(held)
        await engine.close()
        await engine.close()
        assert _tasks() == set()

        async def gone() -> None:
            if await _sessions(url, "closing"):
                raise UnavailableError("sessions are left")

        await eventually(gone)
        watch.close()

    asyncio.run(main())


def test_two_closes_at_once_both_end_when_the_work_does() -> None:
    """The second must not wait for connections that the first has taken out of use already."""

    async def main() -> None:
        url = await fresh_database(server("postgres"), "closers")
        engine = await open_engine(f"{url}?connections=2&command_timeout=86400", SCHEMA)
        held = await engine._pool.acquire()
        closers = [asyncio.create_task(engine.close()) for _ in range(2)]
        await eventually(lambda: _refused(engine))
        engine._pool.release(held)
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*closers)

    asyncio.run(main())


async def _refused(engine: PostgresEngine) -> None:
    """Raise until the pool is being closed."""
    if engine._pool.refusal is None:
        raise UnavailableError("it is still open")


def test_a_connection_that_was_dropped_without_a_word_costs_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engines.postgres.connections.pool.IDLE_SECONDS", 0.0)
    monkeypatch.setattr("perdure.engines.postgres.connections.pool.TRIAL_SECONDS", 0.5)

    async def main() -> None:
        url = await fresh_database(server("postgres"), "frame")
        with Proxy("127.0.0.1", urlsplit(url).port or 0) as proxy:
            engine = await open_engine(f"{proxy.through(url)}?connect_timeout=60", SCHEMA)
            await asyncio.gather(*[engine.transact(SCOPE, [notes(f"t{n}", "x")]) for n in range(20)])
            opened = engine._pool.counters()["opened"]
            proxy.half_open()
            sent = asyncio.create_task(engine.transact(SCOPE, [notes("t", "x")]))
            await eventually(lambda: _dropped(engine))
            proxy.heal()
            assert (await sent).seqs == {("notes", "t"): 1}
            assert engine._pool.counters()["opened"] > opened
            await engine.close()

    asyncio.run(main())


async def _dropped(engine: PostgresEngine) -> None:
    """Raise until no idle connection is left."""
    if engine._pool.counters()["idle"] or not engine._pool.counters()["discarded"]:
        raise UnavailableError("some are left")


def test_permits_are_given_in_the_order_of_asking_and_waiting_has_an_end() -> None:
    async def main() -> None:
        permits, order = Permits(1), list[int]()
        await permits.take(DEADLINE)

        async def take(who: int) -> None:
            await permits.take(DEADLINE)
            order.append(who)
            permits.give_back()

        waiting = [asyncio.create_task(take(who)) for who in range(5)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        permits.give_back()
        late = asyncio.create_task(take(9))
        await asyncio.wait([*waiting, late])
        assert order == [0, 2, 3, 4, 9]
        await permits.take(DEADLINE)
        with pytest.raises(TimeoutError):
            await permits.take(0.0)
        permits.give_back()
        await permits.take(DEADLINE)

    asyncio.run(main())


def test_a_failure_that_nobody_expects_does_not_silence_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "frame")
        engine = await open_engine(url, SCHEMA)
        hub: Any = engine._hub

        def broken(*_: Any) -> Any:
            raise ValueError("broken")

        with monkeypatch.context() as patched:
            patched.setattr("perdure.engines.postgres.watch._payloads", broken)
            await engine.transact(SCOPE, [notes("t", "x")], ["a"])
            await asyncio.wait(_tasks(), timeout=DEADLINE)
        assert hub._sender is None
        await engine.close()

    asyncio.run(main())


def test_members_of_a_batch_fail_with_errors_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        engine = await open_engine(await fresh_database(server("postgres"), "frame"), SCHEMA)
        pool: Any = engine._pool

        async def unavailable() -> Any:
            await asyncio.sleep(0)
            raise UnavailableError("nobody is there", hint="start it")

        with monkeypatch.context() as patched:
            patched.setattr(pool, "acquire", unavailable)
            puts = [engine.transact(SCOPE, [Put("items", (f"i{n}",), {})]) for n in range(8)]
            errors = await asyncio.gather(*puts, return_exceptions=True)
        assert len({id(error) for error in errors}) == 8
        assert {str(error) for error in errors} == {"nobody is there (start it)"}
        await engine.close()

    asyncio.run(main())


def test_a_commit_that_waited_carries_the_time_at_which_it_arrived() -> None:
    """Those that wait for a partition are not always served in the order in which they came: the order is that of the
    seqs, and `at` is the time at which the server received a commit."""

    async def main() -> None:
        url = await fresh_database(server("postgres"), "waiting")
        stores = [await perdure.open(url) for _ in range(3)]
        await stores[0].commit("t", messages=[Message.user("first")])
        # Within its transaction the first would see the sessions as they were when it first looked.
        link, looking = await asyncpg.connect(url), await asyncpg.connect(url)
        began = await looking.fetchval(f"SELECT {SERVER_CLOCK}")
        async with link.transaction():
            await link.execute("SELECT FROM perdure.messages__heads WHERE thread = 't' FOR UPDATE")
            commits = []
            for count, store in enumerate(stores, 1):
                commits.append(asyncio.create_task(store.commit("t", messages=[Message.user("x")])))
                await eventually(lambda n=count: _waiting(looking, n))
        receipts = await asyncio.gather(*commits)
        ended = await looking.fetchval(f"SELECT {SERVER_CLOCK}")
        for connection in (link, looking):
            await connection.close()
        for store in stores:
            await store.close()
        assert sorted(seq for receipt in receipts for seq in receipt.seqs) == [2, 3, 4]
        assert all(began <= receipt.at <= ended for receipt in receipts)

    asyncio.run(main())


async def _waiting(link: Any, count: int) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    if await link.fetchval(waits) < count:
        raise UnavailableError("not all of them wait yet")


def test_functions_that_change_get_a_new_name() -> None:
    """Builds of one schema version share a database, and whichever opens last replaces the functions: those that are
    running go on calling them. So what a function takes and does stays as it is under its name; a change of that is a
    function with another name beside it (`carry_out_2`), and only then the value here changes."""
    assert fingerprint("perdure") == "f72264b21ecfd75d"
