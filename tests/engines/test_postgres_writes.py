"""The write path of PostgreSQL: one statement a transaction, batches that harm nobody, locks in one order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from tests.engines.toys import SCHEMA, SCOPE, columns, note, notes, row
from tests.support.servers import fresh_database, server

from perdure.engines.postgres import open_engine
from perdure.engines.postgres.write.batching import MAX_BATCHES
from perdure.errors import OutcomeUnknown, PerdureError, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import (
    ABSENT,
    NOW,
    Append,
    AtMost,
    Check,
    Default,
    Delete,
    Drop,
    Get,
    Heads,
    Inc,
    Now,
    Op,
    Patch,
    Put,
    Read,
    Scan,
    Seq,
    Swap,
)  # fmt: skip

DEADLINE = 120.0
Scenario = Callable[[Any, "Statements"], Awaitable[None]]


class Statements:
    """Counts what an engine sends, and how many are under way at once."""

    def __init__(self, engine: Any) -> None:
        self.sent: list[str] = []
        self.under_way = self.most = 0
        self._fetch = engine._pool.fetch
        engine._pool.fetch = self.fetch

    async def fetch(self, connection: Any, sql: str, arguments: Any = (), **how: Any) -> Any:
        self.sent.append(sql)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await self._fetch(connection, sql, arguments, **how)
        finally:
            self.under_way -= 1


def on_postgres(scenario: Scenario, options: str = "") -> None:
    """Run a scenario on an empty database."""

    async def main() -> None:
        engine = await open_engine(await fresh_database(server("postgres"), "writes") + options, SCHEMA)
        try:
            async with asyncio.timeout(DEADLINE):
                await scenario(engine, Statements(engine))
        finally:
            await engine.close()

    asyncio.run(main())


def commit(number: int, *, expect: int | None = None) -> list[Op]:
    """The shape of a commit, on a thread of its own."""
    return [
        Append("notes", f"t{number}", [note(f"{number}-a"), note(f"{number}-b")], expect),
        Put("items", (f"i{number}",), {"n": Seq("notes"), "name": f"n{number}"}, b"{}"),
        Put("pairs", ("p", number), {"n": Seq("notes", 1)}),
    ]


async def together(engine: Any, transactions: list[list[Op]]) -> list[Any]:
    """Submit all at once; what came of each."""
    work = [engine.transact(SCOPE, ops) for ops in transactions]
    return await asyncio.gather(*work, return_exceptions=True)


def test_a_transaction_is_one_statement_whatever_it_holds() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        transactions: list[list[Op]] = [
            commit(1),
            [Patch("items", ("i1",), {"n": Inc(1)}, {"n": 2}), Check("pairs", ("p", 1), {"n": 1})],
            [Delete("items", ("i1",)), Delete("items", ("none",), ABSENT), notes("t1", "c"), Drop("notes", "u")],
            [Put("items", ("i1",), {"name": "x"}), Patch("items", ("i2",), {"n": 1}, default=Default({"name": "y"}))],
            [Put("items", (f"many{n}",), {"n": n}) for n in range(200)],
        ]
        for ops in transactions:
            before = len(statements.sent)
            await engine.transact(SCOPE, ops)
            assert len(statements.sent) == before + 1
        (rows,) = await engine.view(SCOPE, [Scan("items")])
        assert len(rows) == 202

    on_postgres(scenario)


def test_transactions_of_one_shape_share_statements() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        outcomes = await together(engine, [commit(n) for n in range(60)])
        assert [outcome.seqs for outcome in outcomes] == [{("notes", f"t{n}"): 2} for n in range(60)]
        assert len({outcome.rev for outcome in outcomes}) == 60
        assert len(statements.sent) <= MAX_BATCHES + 2
        assert statements.most <= MAX_BATCHES
        for n, outcome in enumerate(outcomes):
            found = await row(engine, "items", f"i{n}")
            assert found is not None
            assert (found.rev, found["n"], found["name"]) == (outcome.rev, 2, f"n{n}")
            (entries,) = await engine.view(SCOPE, [Read("notes", f"t{n}")])
            assert [(e[0], e[1], e[2]) for e in entries] == [(1, outcome.rev, f"{n}-a"), (2, outcome.rev, f"{n}-b")]

    on_postgres(scenario)


def test_however_many_entries_statements_are_few() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        counts = (1, 2, 3, 4, 5, 7, 100, 3)
        for at, count in enumerate(counts):
            await engine.transact(SCOPE, [notes("t", *[f"{at}-{n}" for n in range(count)])])
        assert len(set(statements.sent)) == 5
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        assert [entry[2] for entry in entries] == [f"{at}-{n}" for at, count in enumerate(counts) for n in range(count)]

    on_postgres(scenario)


@pytest.mark.parametrize("place", [0, 7, 29])
def test_a_conflict_in_a_batch_is_its_own(place: int) -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await together(engine, [commit(n) for n in range(30)])
        again = [[Append("notes", f"t{n}", [note(f"{n}-c")], 3 if n == place else 2)] for n in range(30)]
        outcomes = await together(engine, again)  # type: ignore[arg-type]
        refused = outcomes.pop(place)
        assert isinstance(refused, Conflict)
        assert (refused.op, refused.kind, refused.expected, refused.actual) == (0, "length", 3, 2)
        assert all(not isinstance(outcome, Exception) for outcome in outcomes)
        (heads,) = await engine.view(SCOPE, [Heads("notes", [f"t{n}" for n in range(30)])])
        assert heads == [2 if n == place else 3 for n in range(30)]

    on_postgres(scenario)


def test_a_unique_violation_in_a_batch_is_its_own() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await engine.transact(SCOPE, [Put("items", ("owner",), {"name": "n7"}), notes("t9", "9-b")])
        outcomes = await together(engine, [commit(n) for n in range(30)])
        refused = {n: outcome for n, outcome in enumerate(outcomes) if isinstance(outcome, Conflict)}
        assert {n: (c.op, c.kind, c.actual) for n, c in refused.items()} == {
            7: (1, "unique", {"name": "n7"}),
            9: (0, "unique", {"id": "9-b"}),
        }
        assert sum(isinstance(outcome, Exception) for outcome in outcomes) == 2
        (heads,) = await engine.view(SCOPE, [Heads("notes", ["t7", "t8", "t9"])])
        assert heads == [0, 2, 1]

    on_postgres(scenario)


def test_one_row_is_one_queue_in_the_client() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await engine.transact(SCOPE, [Put("items", ("a",), {"n": 0})])
        await together(engine, [[Patch("items", ("a",), {"n": Inc(1)})] for _ in range(50)])
        assert await columns(engine, "items", "a") == {"n": 50}
        assert statements.most == 1

    on_postgres(scenario)


def test_cancelled_members_of_a_batch_land_and_harm_nobody() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        tasks = [asyncio.create_task(engine.transact(SCOPE, commit(n))) for n in range(40)]
        await until_sent(statements, 2)  # the first alone, then a batch
        for task in tasks[1::3]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == len(tasks[1::3])
        assert not [o for n, o in enumerate(outcomes) if n % 3 != 1 and isinstance(o, BaseException)]
        await engine._writer.close()
        (heads,) = await engine.view(SCOPE, [Heads("notes", [f"t{n}" for n in range(40)])])
        # Whole or not at all; what had been sent is not undone.
        assert set(heads) <= {0, 2}
        assert [heads[n] for n in range(40) if n % 3 != 1] == [2] * 27
        assert any(heads[n] for n in range(1, 40, 3))
        sessions = await engine._pool.query("SELECT state FROM pg_stat_activity WHERE datname = current_database()")
        assert "idle in transaction" not in {session["state"] for session in sessions}

    on_postgres(scenario)


def test_a_lone_caller_that_is_cancelled_leaves_all_or_nothing_and_no_session_behind() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        for number in range(30):
            task = asyncio.create_task(engine.transact(SCOPE, commit(number)))
            await until_sent(statements, number + 1)
            for _ in range(number % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert not engine._writer._batcher._row_queues
            engine._writer._batcher._busy = False
        assert (await engine.transact(SCOPE, commit(30))).seqs == {("notes", "t30"): 2}
        for number in range(30):
            # In one view: the server may still be at work on what nobody waits for any more.
            heads, rows = await engine.view(SCOPE, [Heads("notes", [f"t{number}"]), Get("items", [(f"i{number}",)])])
            assert (heads[0], rows[0] is None) in ((0, True), (2, False))

    on_postgres(scenario)


def test_after_a_cancelled_commit_the_next_outlives_its_caller() -> None:
    """Else callers with less patience than a new connection takes would cut off one after the other."""

    async def scenario(engine: Any, statements: Statements) -> None:
        for number in (1, 2):
            task = asyncio.create_task(engine.transact(SCOPE, commit(number)))
            await until_sent(statements, number)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await engine._writer.close()
        (heads,) = await engine.view(SCOPE, [Heads("notes", ["t2"])])
        assert heads == [2]

    on_postgres(scenario)


def test_a_caller_that_gave_up_before_anything_was_sent_leaves_nothing() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        tasks = [asyncio.create_task(engine.transact(SCOPE, [notes("busy", f"n{n}")])) for n in range(20)]
        await until_sent(statements, 1)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await engine.transact(SCOPE, [notes("busy", "after")])
        (heads,) = await engine.view(SCOPE, [Heads("notes", ["busy"])])
        assert heads == [2]
        assert not engine._writer._batcher._row_queues

    on_postgres(scenario)


def test_a_locked_row_holds_up_only_whoever_wants_it() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await together(engine, [commit(n) for n in range(30)])
        stranger = await asyncpg.connect(await fresh_url(engine))
        holding = stranger.transaction()
        await holding.start()
        await stranger.execute("UPDATE perdure.notes__heads SET last = last WHERE topic IN ('t3', 't7')")
        tasks = [asyncio.create_task(engine.transact(SCOPE, [notes(f"t{n}", "more")])) for n in range(30)]
        free = [task for n, task in enumerate(tasks) if n not in (3, 7)]
        assert {outcome.seqs.popitem()[1] for outcome in await asyncio.gather(*free)} == {3}
        assert not tasks[3].done()
        assert not tasks[7].done()
        await holding.commit()
        assert {outcome.seqs.popitem()[1] for outcome in await asyncio.gather(tasks[3], tasks[7])} == {3}
        await stranger.close()

    on_postgres(scenario)


def test_a_row_that_came_while_the_statement_waited_is_no_conflict() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await engine.transact(SCOPE, [notes("t", "first")])
        stranger = await asyncpg.connect(await fresh_url(engine))
        holding = stranger.transaction()
        await holding.start()
        await stranger.execute("UPDATE perdure.notes__heads SET last = last")
        await stranger.execute("INSERT INTO perdure.items (scope, id, rev, n) VALUES ($1, 'late', 7, 1)", SCOPE)
        waiting = asyncio.create_task(
            engine.transact(SCOPE, [notes("t", "second"), Patch("items", ("late",), {"n": Inc(1)})])
        )
        await until_somebody_waits(stranger)
        await holding.commit()
        await waiting
        assert (await columns(engine, "items", "late"))["n"] == 2
        await stranger.close()

    on_postgres(scenario)


def test_a_lease_that_ended_while_the_statement_waited_is_free() -> None:
    """The server's time comes with the refusal: this client cannot know it."""

    async def scenario(engine: Any, statements: Statements) -> None:
        await engine.transact(SCOPE, [notes("t", "first"), Put("items", ("lease",), {"due": Now(3_600_000)})])
        stranger = await asyncpg.connect(await fresh_url(engine))
        for ended in (True, False):
            holding = stranger.transaction()
            await holding.start()
            await stranger.execute("UPDATE perdure.notes__heads SET last = last")
            moved = "due - 7200000" if ended else "due + 1"
            await stranger.execute(f"UPDATE perdure.items SET due = {moved} WHERE id = 'lease'")
            hold = Patch("items", ("lease",), {"due": Now(3_600_000), "n": Inc(1)}, {"due": AtMost(NOW)})
            waiting = asyncio.create_task(engine.transact(SCOPE, [notes("t", f"second {ended}"), hold]))
            await until_somebody_waits(stranger)
            await holding.commit()
            if ended:
                await waiting
            else:
                with pytest.raises(Conflict):
                    await waiting
        assert (await columns(engine, "items", "lease"))["n"] == 1
        await stranger.close()

    on_postgres(scenario)


def test_without_prepared_statements_everything_works() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        outcomes = await together(engine, [commit(n) for n in range(20)])
        assert [outcome.seqs for outcome in outcomes] == [{("notes", f"t{n}"): 2} for n in range(20)]
        outcomes = await together(engine, [commit(n, expect=2 if n else 1) for n in range(20, 22)] + [commit(3)])
        assert [type(outcome) for outcome in outcomes] == [Conflict] * 3
        await engine.transact(SCOPE, [Drop("notes", "t1"), Delete("items", ("i1",))])
        assert await row(engine, "items", "i1") is None

    on_postgres(scenario, "?prepared=no")


async def locked(link: Any, table: str, where: str) -> bool:
    """Does another transaction hold this row?"""
    try:
        await link.execute(f"SELECT 1 FROM perdure.{table} WHERE {where} FOR UPDATE NOWAIT")
    except asyncpg.LockNotAvailableError:
        return True
    return False


ROWS = [
    ("notes__heads", "topic = 't1'"),
    ("notes__heads", "topic = 't2'"),
    ("items", "id = 'i1'"),
    ("items", "id = 'i2'"),
    ("pairs", "b = 1"),
    ("pairs", "b = 2"),
]
"""What two commits lock, in the order in which they must: logs before tables, tables as declared, rows by key."""


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("held", range(len(ROWS)))
def test_rows_are_locked_in_one_order(held: int, shared: bool) -> None:
    """PostgreSQL does not promise it: the order of a statement's CTEs and of its rows is what keeps deadlocks away."""

    def change(number: int) -> list[Op]:
        return [
            Patch("pairs", ("p", number), {"n": Inc(1)}),
            Patch("items", (f"i{number}",), {"n": Inc(1)}),
            notes(f"t{number}", f"{number}-c"),
        ]

    async def scenario(engine: Any, statements: Statements) -> None:
        await together(engine, [commit(n) for n in (1, 2)])
        link = await asyncpg.connect(await fresh_url(engine))
        holder = link.transaction()
        await holder.start()
        table, where = ROWS[held]
        await link.execute(f"SELECT 1 FROM perdure.{table} WHERE {where} FOR UPDATE")
        if shared:
            work = asyncio.gather(*one_statement(engine, [change(2), change(1)]))
        else:
            work = asyncio.gather(*[engine.transact(SCOPE, [*change(2), *change(1)])])
        await until_somebody_waits(link)
        looker = await asyncpg.connect(await fresh_url(engine))
        found = [await locked(looker, *name) for name in ROWS]
        assert found == [place <= held for place in range(len(ROWS))]
        await holder.rollback()
        await work
        await link.close()
        await looker.close()

    on_postgres(scenario)


def one_statement(engine: Any, transactions: list[list[Op]]) -> list[Awaitable[Any]]:
    """Submit transactions so that they share a statement: one batch may be in flight."""
    batcher = engine._writer._batcher
    batcher._busy = True
    batcher._batches += MAX_BATCHES - 1
    batcher._batchable += MAX_BATCHES * len(transactions)
    return [asyncio.ensure_future(engine.transact(SCOPE, ops)) for ops in transactions]


async def fresh_url(engine: Any) -> str:
    """Another way into the engine's database."""
    return str(engine._pool._target.dsn)


async def until_sent(statements: Statements, count: int) -> None:
    """Until so many statements were sent."""
    while len(statements.sent) < count:  # noqa: ASYNC110 - the next turn of the loop, or the one after it
        await asyncio.sleep(0)


async def until_somebody_waits(link: Any, holder: Any = None) -> None:
    """Until the server says that a session waits for what `holder` has locked, or the asking one itself."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND $1 = ANY (pg_blocking_pids(pid))"
    while not await link.fetchval(waiting, (holder or link).get_server_pid()):  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.005)


def test_64_random_writers_on_two_engines_never_meet_a_deadlock() -> None:
    """Both engines write the same few rows in opposite orders, alone and in batches."""

    async def scenario(engine: Any, statements: Statements) -> None:
        other = await open_engine(await fresh_url(engine), SCHEMA)
        await engine.transact(SCOPE, [Put("items", (f"i{n}",), {"n": 0}) for n in range(8)])
        done: Counter[int] = Counter()
        refused = 0

        async def writer(seed: int) -> None:
            nonlocal refused
            dice = random.Random(seed)
            for _ in range(12):
                chosen = dice.sample(range(8), dice.randint(1, 4))
                ops: list[Op] = [Patch("items", (f"i{n}",), {"n": Inc(1)}) for n in chosen]
                if dice.random() < 0.5:
                    ops.append(Append("notes", f"t{dice.randrange(4)}", [note(f"{seed}-{dice.random()}")]))
                if dice.random() < 0.2:
                    ops.append(Delete("pairs", ("p", dice.randrange(3))))
                if dice.random() < 0.2:
                    ops.append(Drop("notes", f"u{dice.randrange(2)}"))
                dice.shuffle(ops)
                try:
                    await (engine, other)[seed % 2].transact(SCOPE, ops)
                except Conflict:
                    refused += 1
                    continue
                done.update(chosen)

        before = await deadlocks(engine)
        await asyncio.gather(*[writer(seed) for seed in range(64)])
        await other.close()
        (rows,) = await engine.view(SCOPE, [Scan("items")])
        assert {int(found.key[0][1:]): found["n"] for found in rows} == {n: done[n] for n in range(8)}
        assert refused == 0
        assert await deadlocks(engine) == before

    on_postgres(scenario)


async def deadlocks(engine: Any) -> int:
    """How many the server had to break in this database."""
    sql = "SELECT pg_stat_clear_snapshot(), deadlocks FROM pg_stat_database WHERE datname = current_database()"
    return int((await engine._pool.query(sql))[0]["deadlocks"])


def test_a_deadlock_with_a_stranger_is_retried_inside() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await engine.transact(SCOPE, [Put("items", (key,), {"n": 0}) for key in "ab"])
        link = await asyncpg.connect(await fresh_url(engine))
        for _ in range(3):
            async with link.transaction():
                await link.execute("SET LOCAL deadlock_timeout = '10min'")  # so that the engine is the one to give way
                await link.execute("UPDATE perdure.items SET n = n + 1 WHERE id = 'b'")
                work = asyncio.ensure_future(
                    engine.transact(SCOPE, [Patch("items", (key,), {"n": Inc(1)}) for key in "ab"])
                )
                await until_somebody_waits(link)
                await link.execute("UPDATE perdure.items SET n = n + 1 WHERE id = 'a'")
            await work
        assert [(await columns(engine, "items", key))["n"] for key in "ab"] == [6, 6]
        await link.close()

    on_postgres(scenario)


def test_a_server_killed_under_batches_loses_nothing_it_answered() -> None:
    """A stranger holds a row of one member, so that its whole batch is under way when the server dies."""

    async def main() -> None:
        place = server("postgres", durable=True)
        engine = await open_engine(await fresh_database(place, "killed"), SCHEMA)
        await engine.transact(SCOPE, [Put("items", ("i50",), {})])
        outcomes: dict[int, Any] = {}

        async def client(number: int) -> None:
            try:
                outcomes[number] = await engine.transact(SCOPE, commit(number))
            except PerdureError as error:
                outcomes[number] = error

        stranger, looker = [await asyncpg.connect(await fresh_url(engine)) for _ in range(2)]
        await stranger.execute("BEGIN; SELECT 1 FROM perdure.items WHERE id = 'i50' FOR UPDATE")
        clients = [asyncio.create_task(client(n)) for n in range(100)]
        await until_somebody_waits(looker, stranger)
        await asyncio.to_thread(place.kill)
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*clients)
        await asyncio.to_thread(place.restart)
        async with asyncio.timeout(DEADLINE):
            await engine.transact(SCOPE, commit(1000))
        assert isinstance(outcomes.pop(50), OutcomeUnknown)
        for number, outcome in outcomes.items():
            await compare(engine, number, outcome)
        # Whoever shared the statement is told the same, each with its own rev.
        unknown = [outcome.rev for outcome in outcomes.values() if isinstance(outcome, OutcomeUnknown)]
        assert len(set(unknown)) == len(unknown) > 0
        await engine.close()
        stranger.terminate()
        looker.terminate()

    asyncio.run(main())


async def compare(engine: Any, number: int, outcome: Any) -> None:
    """What is stored agrees with what the caller was told."""
    (heads,) = await engine.view(SCOPE, [Heads("notes", [f"t{number}"])])
    found = await row(engine, "items", f"i{number}")
    stored = (heads[0], found and found.rev)
    if isinstance(outcome, OutcomeUnknown):
        assert stored in ((0, None), (2, outcome.rev))
    elif isinstance(outcome, UnavailableError):
        assert stored == (0, None)
    else:
        assert stored == (2, outcome.rev)


def test_pointers_move_in_a_batch_as_alone() -> None:
    async def scenario(engine: Any, statements: Statements) -> None:
        await together(engine, [[Put("items", (f"i{n}",), {"owner": "r", "n": n})] for n in range(20)])
        moves = [[Patch("items", (f"i{n}",), {"owner": Swap("r", None), "n": Inc(5)}, {"n": n})] for n in range(20)]
        await together(engine, moves)  # type: ignore[arg-type]
        assert [await columns(engine, "items", f"i{n}") for n in range(20)] == [{"n": n + 5} for n in range(20)]

    on_postgres(scenario)
