"""Transactions on MySQL as the server sees them: two packets, retries that nobody sees, connections that break."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from tests.engines.mysql_place import connect, emptied, run, sql, stranger
from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, START, columns, do, note, notes, refused, row, watching

from perdure import limits
from perdure.clock import ManualClock
from perdure.engines.mysql import MysqlEngine, open_engine, watch
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.write.transaction import Transaction
from perdure.errors import InvalidError, OutcomeUnknown, UnavailableError, UnsupportedError
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    NOW,
    Append,
    AtMost,
    Default,
    Delete,
    Drop,
    Get,
    Heads,
    Inc,
    Patch,
    Put,
    Read,
    Ref,
    Scan,
)


async def fresh(options: str = "", **how: Any) -> tuple[str, MysqlEngine]:
    """An empty database and an engine on it."""
    url = await emptied("moves")
    return url, await open_engine(url + options, SCHEMA, **{"clock": ManualClock(START), **how})


class Packets:
    """Counts the packets that connections send, and can make one of them fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        self.fail: Any = None
        real = Connection.run

        async def counted(connection: Connection, text: str, **how: Any) -> list[Rows]:
            # The settings are read again at most once a second, whatever is sent meanwhile.
            if not text.startswith("SELECT @@GLOBAL."):
                self.sent.append(text)
            if self.fail is not None:
                self.fail(connection, text)
            return await real(connection, text, **how)

        patch.setattr(Connection, "run", counted)


def test_a_commit_is_two_packets_and_a_view_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        packets = Packets(monkeypatch)
        await do(engine, Put("items", ("a",), {"owner": "b"}), Delete("items", ("z",)), notes("t", "x", "y"))
        assert len(packets.sent) == engine.capabilities.round_trips_per_commit == 2
        packets.sent.clear()
        await engine.view(SCOPE, [Get("items", [("a",)])])
        await engine.view(SCOPE, [Get("items", [("a",)]), Scan("pairs"), Heads("notes", ["t"]), Read("notes", "t")])
        assert len(packets.sent) == 2
        packets.sent.clear()
        await engine.view(SCOPE, [Get("items", [("a",)]), Get("items", Ref(0, ("owner",)))])
        assert len(packets.sent) == 2
        await engine.close()

    run(scenario())


@pytest.mark.parametrize("condition", [{"n": AtMost(50)}, ANY, ABSENT, "rev"])
@pytest.mark.parametrize("table", ["items", "pairs"])
def test_many_deletions_are_few_statements(monkeypatch: pytest.MonkeyPatch, table: str, condition: Any) -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        keys: list[tuple[Any, ...]] = [(f"k{n:03}",) if table == "items" else (f"k{n % 7}", n) for n in range(150)]
        kept = keys[::10]
        if condition is ABSENT:
            await do(engine, *[Put(table, key, {"n": 1}) for key in kept])
            doomed = [Delete(table, key, ABSENT) for key in keys if key not in kept]
        else:
            rev = (await do(engine, *[Put(table, key, {"n": 1}) for key in keys])).rev
            wanted = rev if condition == "rev" else condition
            doomed = [Delete(table, key, wanted) for key in keys if key not in kept]
        packets = Packets(monkeypatch)
        await do(engine, *doomed)
        assert len(packets.sent) == 2
        assert sum(packet.count(";") + 1 for packet in packets.sent) <= 6
        (left,) = await engine.view(SCOPE, [Scan(table)])
        assert [found.key for found in left] == sorted(kept)
        await engine.close()

    run(scenario())


def test_one_refused_deletion_refuses_all_and_is_named() -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        await do(engine, *[Put("items", (f"k{n}",), {"n": n}) for n in range(9)])
        doomed = [Delete("items", (f"k{n}",), {"n": AtMost(6)}) for n in (3, 8, 1)]
        conflict = await refused(do(engine, *doomed))
        assert (conflict.op, conflict.kind, conflict.actual) == (1, "condition", {"n": 8})
        missing = await refused(do(engine, doomed[0], Delete("items", ("gone",), {"n": AtMost(6)})))
        assert (missing.op, missing.actual) == (1, None)
        (left,) = await engine.view(SCOPE, [Scan("items")])
        assert len(left) == 9
        await engine.close()

    run(scenario())


def test_keys_and_text_are_compared_and_kept_as_bytes() -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        ids = ["a", "A", "a ", "a  ", "á", "a\u0301", "😀", "x" * limits.ID_BYTES, "'; --", "\\", '"', "%s", "\x00"]
        await do(engine, *[Put("items", (name,), {"owner": name, "rank": 1, "name": name}) for name in ids])
        (rows,) = await engine.view(SCOPE, [Scan("items")])
        assert [found.key[0] for found in rows] == sorted(ids, key=str.encode)
        for name in ids:
            ((got,), owned) = await engine.view(SCOPE, [Get("items", [(name,)]), Scan("items", "owned", (name,))])
            assert (got["name"], [found.key for found in owned]) == (name, [(name,)])
        with pytest.raises(InvalidError):
            await do(engine, Put("items", ("x" * 5000,), {}))
        await engine.close()

    run(scenario())


def test_bodies_keep_their_bytes() -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        bodies = [b'{"b":1,  "a":[1e3]}', '{"t":"😀\\u0000\\\\\'"}'.encode(), b'"' + b"'" * 1000 + b'"']
        await do(engine, Append("plain", "t", [(body,) for body in bodies]), Put("items", ("a",), {}, bodies[1]))
        (entries, (kept,)) = await engine.view(SCOPE, [Read("plain", "t"), Get("items", [("a",)])])
        assert [entry[-1] for entry in entries] == bodies
        assert kept.body == bodies[1]
        await engine.close()

    run(scenario())


def test_the_largest_commit_fits_however_much_quoting_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        packets = Packets(monkeypatch)
        body = b'"' + b"\\\\" * ((limits.MESSAGE_BYTES - 2) // 2) + b'"'
        await do(engine, Append("plain", "t", [(body,), (body,)]))
        assert len(packets.sent) == 3
        (entries,) = await engine.view(SCOPE, [Read("plain", "t")])
        assert [entry[-1] == body for entry in entries] == [True, True]
        await engine.close()

    run(scenario())


def test_the_servers_clock_is_used_unless_another_is_given() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        assert (await do(engine, Put("items", ("a",), {"due": NOW}))).now == START
        await engine.close()
        engine = await open_engine(url, SCHEMA)
        applied = await do(engine, Put("items", ("a",), {"due": NOW}))
        ((((now,),)),) = await sql(url, "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
        assert (await columns(engine, "items", "a"))["due"] == applied.now
        assert abs(now - applied.now) < 60_000
        await engine.close()

    run(scenario())


async def _waiting_for(url: str, count: int) -> None:
    """Until so many transactions wait for locks."""
    look = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    while (await sql(url, f"DO SLEEP(0.01); {look}"))[0][0][0] < count:
        pass


def test_a_deadlock_is_run_again_and_never_seen() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        await do(engine, Put("items", ("a",), {"n": 1}), Put("items", ("b",), {"n": 1}))
        other = await stranger(url)
        await other.run("START TRANSACTION; UPDATE items SET n = 10, note = REPEAT('x', 200) WHERE id = 'b'")
        commit = asyncio.create_task(
            do(engine, Patch("items", ("a",), {"n": Inc()}), Patch("items", ("b",), {"n": Inc()}))
        )
        await _waiting_for(url, 1)
        # The other now waits for what we hold: one of the two is undone. The heavier one is not.
        await other.run("UPDATE items SET n = 10 WHERE id = 'a'; COMMIT")
        await commit
        assert (await columns(engine, "items", "a"))["n"] == 11
        assert (await columns(engine, "items", "b"))["n"] == 11
        assert (await engine.health()).settings["retried"] == 1
        await other.close()
        await engine.close()

    run(scenario())


@pytest.mark.parametrize(
    ("op", "ends"),
    [
        (Put("items", ("a",), {"n": 2}), {"n": 2}),
        (Patch("items", ("a",), {"n": Inc()}), {"n": 10}),
        (Delete("items", ("a",)), None),
    ],
)
def test_a_row_that_appears_meanwhile_counts(op: Any, ends: Any) -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        other = await stranger(url)
        await other.run(f"START TRANSACTION; INSERT INTO items (scope, id, n, rev) VALUES ('{SCOPE}', 'a', 9, 7)")
        commit = asyncio.create_task(do(engine, op, Put("items", ("b",), {})))
        await _waiting_for(url, 1)
        await other.run("COMMIT")
        await commit
        found = await row(engine, "items", "a")
        assert (found and {"n": found["n"]}) == ends
        await other.close()
        await engine.close()

    run(scenario())


def test_an_absent_row_that_appears_meanwhile_is_a_conflict_for_who_required_absence() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        other = await stranger(url)
        await other.run(f"START TRANSACTION; INSERT INTO items (scope, id, rev) VALUES ('{SCOPE}', 'a', 7)")
        commit = asyncio.create_task(refused(do(engine, Put("items", ("a",), {}, if_=ABSENT))))
        await _waiting_for(url, 1)
        await other.run("COMMIT")
        conflict = await commit
        assert (conflict.kind, conflict.actual) == ("condition", 7)
        await other.close()
        await engine.close()

    run(scenario())


def test_placeholders_leave_nothing_behind() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        await do(engine, Delete("items", ("a",)), Delete("items", ("b",), ABSENT), Drop("notes", "t"))
        await refused(do(engine, Delete("items", ("c",)), Patch("items", ("d",), {})))
        assert await sql(url, "SELECT * FROM items; SELECT * FROM notes__heads") == [(), ()]
        assert await engine.scopes() == []
        await engine.close()

    run(scenario())


OCCUPYING = (Delete("items", ("ghost",)), Drop("notes", "ghost"), Patch("items", ("a",), {"n": Inc()}))


async def _nothing_stayed_open(url: str, engine: MysqlEngine) -> None:
    """The next transactions on the engine's only connection commit nothing but themselves; no lock is held either."""
    await do(engine, Put("items", ("b",), {}))
    other = await open_engine(url, SCHEMA)
    await do(other, Patch("items", ("a",), {"note": "free"}))
    held = await sql(url, "SELECT id, n FROM items ORDER BY id; SELECT * FROM notes__heads")
    assert held == [(("a", 1), ("b", None)), ()]
    await other.close()
    await engine.close()


@pytest.mark.parametrize("step", ["decide", "writing", "owners"])
def test_whatever_fails_between_the_packets_leaves_no_transaction_open(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def scenario() -> None:
        url, engine = await fresh("?connections=1")
        await do(engine, Put("items", ("a",), {"n": 1}))
        # An entry without its head: an append meets a duplicate, and somebody asks whose it is.
        await sql(url, f"INSERT INTO plain (scope, topic, seq, rev, body) VALUES ('{SCOPE}', 't', 1, 7, '1')")

        def fail(*_: Any) -> None:
            raise RuntimeError("a defect")

        with monkeypatch.context() as patch:
            patch.setattr(Transaction, step, fail)
            with pytest.raises(RuntimeError, match="a defect"):
                await do(engine, *OCCUPYING, Append("plain", "t", [(b"1",)]))
        await _nothing_stayed_open(url, engine)

    run(scenario())


@pytest.mark.parametrize("broken", [Put("items", ("c",), {"note": "\ud800"}), Put("items", ("\ud800",), {})])
def test_text_that_is_no_text_is_refused_and_leaves_no_transaction_open(broken: Put) -> None:
    async def scenario() -> None:
        url, engine = await fresh("?connections=1")
        await do(engine, Put("items", ("a",), {"n": 1}))
        with pytest.raises(InvalidError, match="surrogate"):
            await do(engine, *OCCUPYING, broken)
        await _nothing_stayed_open(url, engine)

    run(scenario())


@pytest.mark.parametrize(
    "op",
    [
        Put("items", ("ghost",), {"n": 2}, b"{}", ABSENT),
        Put("items", ("ghost",), {"n": 2}, b"{}"),
        Patch("items", ("ghost",), {"n": Inc()}, default=Default({"n": 2}, b"{}")),
        Delete("items", ("ghost",), ABSENT),
    ],
)
def test_a_placeholder_that_was_committed_counts_as_absent(op: Any) -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        await sql(url, f"INSERT INTO items (scope, id, note, rev) VALUES ('{SCOPE}', 'ghost', 'old', 0)")
        applied = await do(engine, op)
        found = await row(engine, "items", "ghost")
        if isinstance(op, Delete):
            assert found is None
        else:
            assert found is not None
            assert (found.rev, found["n"], found["note"], found.body) == (applied.rev, 2, None, b"{}")
        await engine.close()

    run(scenario())


def test_one_busy_row_does_not_occupy_every_connection() -> None:
    async def scenario() -> None:
        url, engine = await fresh("?connections=2")
        await do(engine, Put("items", ("hot",), {}))
        other = await stranger(url)
        await other.run("START TRANSACTION; SELECT * FROM items WHERE id = 'hot' FOR UPDATE")
        waiting = [asyncio.create_task(do(engine, Patch("items", ("hot",), {"n": Inc()}))) for _ in range(8)]
        await _waiting_for(url, 1)
        await do(engine, Put("items", ("cold",), {}))
        await other.run("ROLLBACK")
        await asyncio.gather(*waiting)
        assert (await columns(engine, "items", "hot"))["n"] == 8
        await other.close()
        await engine.close()

    run(scenario())


def test_a_cancelled_call_gives_its_connection_up() -> None:
    async def scenario() -> None:
        url, engine = await fresh("?connections=1")
        await do(engine, Put("items", ("a",), {"n": 1}))
        other = await stranger(url)
        await other.run("START TRANSACTION; SELECT * FROM items WHERE id = 'a' FOR UPDATE")
        commit = asyncio.create_task(do(engine, Patch("items", ("a",), {"n": Inc()})))
        await _waiting_for(url, 1)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert (await columns(engine, "items", "a"))["n"] == 1
        await other.run("ROLLBACK")
        await do(engine, Patch("items", ("a",), {"n": Inc()}))
        assert (await columns(engine, "items", "a"))["n"] == 2
        assert (await engine.health()).settings["connections"]["dropped"] == 1
        await other.close()
        await engine.close()

    run(scenario())


async def _kill_all(url: str) -> None:
    look = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = DATABASE()"
    connection = await connect(url)
    for (number,) in (await connection.run(look))[0]:
        await connection.run(f"KILL {number}")
    await connection.close()


def test_dead_connections_are_replaced_unseen() -> None:
    async def scenario() -> None:
        url, engine = await fresh("?connections=4")
        await asyncio.gather(*[do(engine, Put("items", (str(n),), {})) for n in range(8)])
        await _kill_all(url)
        await do(engine, Put("items", ("a",), {"n": 1}))
        await _kill_all(url)
        assert await columns(engine, "items", "a") == {"n": 1}
        await engine.close()

    run(scenario())


def test_a_connection_lost_before_the_commit_was_sent_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        _, engine = await fresh()

        def lose(connection: Connection, text: str) -> None:
            if text.startswith("START"):
                connection.broken = True
                raise OSError("cut")

        packets = Packets(monkeypatch)
        packets.fail = lose
        with pytest.raises(UnavailableError):
            await do(engine, Put("items", ("a",), {}))
        packets.fail = None
        assert await row(engine, "items", "a") is None
        await engine.close()

    run(scenario())


def test_a_connection_lost_after_the_commit_was_sent_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        _, engine = await fresh()

        def lose(connection: Connection, text: str) -> None:
            if text.endswith("COMMIT"):
                connection.broken = True
                raise OSError("cut")

        packets = Packets(monkeypatch)
        packets.fail = lose
        sent = len(packets.sent)
        with pytest.raises(OutcomeUnknown) as unknown:
            await do(engine, Put("items", ("a",), {}))
        assert unknown.value.rev > 0
        assert len(packets.sent) == sent + 2
        packets.fail = None
        await do(engine, Put("items", ("a",), {}))
        await engine.close()

    run(scenario())


def test_a_client_that_stops_between_its_packets_loses_its_locks() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        await do(engine, Put("items", ("a",), {"n": 1}))
        paused = await connect(url)
        await paused.run("START TRANSACTION; SELECT * FROM items WHERE id = 'a' FOR UPDATE")
        await do(engine, Patch("items", ("a",), {"n": Inc()}))
        assert (await columns(engine, "items", "a"))["n"] == 2
        paused.abort()
        await engine.close()

    run(scenario())


def test_hints_reach_other_processes_by_the_table() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        other = await open_engine(url, SCHEMA)
        elsewhere = other.watch(SCOPE, ["other"])
        watch = await watching(other, "jobs")
        assert await elsewhere.wait(DEADLINE)
        await engine.transact(SCOPE, [Put("items", ("a",), {})], ["jobs"])
        assert await watch.wait(DEADLINE)
        assert not await elsewhere.wait(0)
        watch.close()
        elsewhere.close()
        await other.close()
        await engine.close()

    run(scenario())


def test_old_hints_are_trimmed_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        monkeypatch.setattr(watch, "HINTS_KEPT", 3)
        for n in range(8):
            engine._hub._unsent.add((SCOPE, f"topic {n}"))
            await engine._hub._flush()
        (rows,) = await sql(url, "SELECT id FROM perdure_hints ORDER BY id")
        assert rows == ((5,), (6,), (7,), (8,))
        await engine.close()

    run(scenario())


def test_a_closed_or_forked_store_says_so() -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        child = os.fork()
        if child == 0:
            try:
                await engine.view(SCOPE, [Scan("items")])
            except UnsupportedError as error:
                os._exit(0 if "forked" in str(error) else 1)
            except BaseException:  # noqa: BLE001 - a child must never return into the test
                os._exit(2)
            os._exit(3)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0
        await do(engine, Put("items", ("a",), {}))
        await engine.close()
        await engine.close()
        with pytest.raises(UnavailableError, match="closed"):
            await engine.view(SCOPE, [Scan("items")])
        with pytest.raises(UnavailableError, match="closed"):
            await do(engine, Put("items", ("a",), {}))

    run(scenario())


def test_health_reads_the_servers_settings() -> None:
    async def scenario() -> None:
        url, engine = await fresh()
        ((((flush,),)),) = await sql(url, "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit")
        try:
            await sql(url, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
            weak = await engine.health()
            assert (weak.ok, weak.durability) == (False, "process")
            assert any("innodb_flush_log_at_trx_commit is 0" in told for told in weak.problems)
            await sql(url, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
            strong = await engine.health()
            assert strong.durability == "power"
            assert not any("innodb_flush_log_at_trx_commit" in told for told in strong.problems)
            assert strong.settings["flavour"] in ("MariaDB", "MySQL")
            assert strong.settings["isolation"] == "READ-COMMITTED"
        finally:
            await sql(url, f"SET GLOBAL innodb_flush_log_at_trx_commit = {flush}")
            await engine.close()

    run(scenario())


def test_a_refused_append_names_the_value_that_is_taken() -> None:
    async def scenario() -> None:
        _, engine = await fresh()
        await do(engine, notes("t", "a"))
        conflict = await refused(do(engine, Put("items", ("x",), {}), Append("notes", "t", [note("b"), note("a")])))
        assert (conflict.op, conflict.kind, conflict.actual) == (1, "unique", {"id": "a"})
        assert await row(engine, "items", "x") is None
        await engine.close()

    run(scenario())
