"""Group commit: members share a sync and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import SCOPE, columns, do, note, notes, open_engine, row

from perdure import failpoints
from perdure.clock import ManualClock
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.errors import CorruptError, OutcomeUnknown, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import PRESENT, Append, Delete, Heads, Inc, Patch, Put, Read

Batch = Callable[[SqliteEngine, list[Awaitable[Any]]], Awaitable[list[Any]]]


async def together(engine: SqliteEngine, work: list[Awaitable[Any]]) -> list[Any]:
    """Have the writer find all of this in its queue at once; outcomes in order."""
    writer = engine._database.writer
    assert writer is not None
    writer._lead.acquire()
    tasks = [asyncio.ensure_future(each) for each in work]
    while len(writer._jobs) < len(work):  # noqa: ASYNC110 - the writer has no event for it
        await asyncio.sleep(0)
    writer._lead.release()
    writer._hand_over()
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def on_sqlite(tmp_path: Path, clock: ManualClock) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    def run(scenario: Callable[[Any], Awaitable[None]]) -> None:
        async def main() -> None:
            engine = await open_engine("sqlite", tmp_path, clock)
            try:
                await scenario(engine)
            finally:
                await engine.close()

        asyncio.run(main())

    return run


class Traced:
    """What the writing connection executes while this is on."""

    def __init__(self, engine: SqliteEngine) -> None:
        committer = engine._database.committer
        assert committer is not None
        self.connection = committer.session.connection
        self.statements: list[str] = []

    def __enter__(self) -> Traced:
        self.connection.set_trace_callback(self.statements.append)
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.set_trace_callback(None)

    def count(self, start: str) -> int:
        return sum(statement.startswith(start) for statement in self.statements)


def test_a_batch_is_one_transaction_without_savepoints(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        with Traced(engine) as traced:
            outcomes = await together(engine, [do(engine, notes("t", f"{n}")) for n in range(20)])
        assert [outcome.seqs["notes", "t"] for outcome in outcomes] == list(range(1, 21))
        assert (traced.count("BEGIN"), traced.count("COMMIT"), traced.count("SAVEPOINT")) == (1, 1, 0)

    on_sqlite(scenario)


def test_a_member_refused_before_it_wrote_costs_nothing(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        with Traced(engine) as traced:
            outcomes = await together(engine, [do(engine, notes("t", f"{n}", expect=n % 3)) for n in range(9)])
        assert [type(outcome) is Conflict for outcome in outcomes] == [False] * 3 + [True] * 6
        assert (traced.count("COMMIT"), traced.count("SAVEPOINT"), traced.count("ROLLBACK")) == (1, 0, 0)

    on_sqlite(scenario)


def test_a_member_refused_after_it_wrote_touches_no_neighbour(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        await do(engine, Put("items", ("a",), {"n": 0}))
        half_way = [Patch("items", ("a",), {"n": Inc(100)}), notes("t", "bad"), Delete("items", ("none",), PRESENT)]
        members = [do(engine, Patch("items", ("a",), {"n": Inc(1)}), notes("t", f"{n}")) for n in range(6)]
        with Traced(engine) as traced:
            outcomes = await together(engine, [*members[:3], do(engine, *half_way), *members[3:]])
        assert [type(outcome) is Conflict for outcome in outcomes] == [False] * 3 + [True] + [False] * 3
        assert outcomes[3].op == 2
        assert await columns(engine, "items", "a") == {"n": 6}
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        assert [entry[2] for entry in entries] == ["0", "1", "2", "3", "4", "5"]
        assert (traced.count("COMMIT"), traced.count("SAVEPOINT")) == (1, 7)

    on_sqlite(scenario)


def test_members_see_their_predecessors(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        outcomes = await together(
            engine,
            [
                do(engine, Put("items", ("a",), {"name": "x"})),
                do(engine, Put("items", ("b",), {"name": "x"})),
                do(engine, Delete("items", ("a",), PRESENT)),
                do(engine, Put("items", ("c",), {"name": "x"})),
            ],
        )
        assert [type(outcome) is Conflict for outcome in outcomes] == [False, True, False, False]
        assert outcomes[1].kind == "unique"
        assert await row(engine, "items", "b") is None

    on_sqlite(scenario)


def test_nobody_is_told_before_the_commit(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        told: list[str] = []
        seen: list[list[str]] = []
        failpoints.arm("sqlite.before_commit", lambda _: seen.append(list(told)))

        async def work(name: str, expect: int) -> None:
            try:
                await do(engine, notes("t", name, expect=expect))
            except Conflict:
                told.append(f"{name} refused")
            else:
                told.append(name)

        await together(engine, [work("a", 0), work("b", 7), work("c", 1)])
        assert seen == [[]]
        assert sorted(told) == ["a", "b refused", "c"]

    on_sqlite(scenario)


def test_when_sqlite_gives_the_batch_up_members_run_alone(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        committer = engine._database.committer
        assert committer is not None

        def give_up(_: str) -> None:
            committer.session.cursor.execute("ROLLBACK")
            failpoints.arm("sqlite.after_member", give_up_again)
            raise sqlite3.OperationalError("the transaction is gone")

        def give_up_again(_: str) -> None:
            committer.session.cursor.execute("ROLLBACK")
            raise sqlite3.OperationalError("the transaction is gone")

        failpoints.arm("sqlite.after_member", give_up, after=2)
        outcomes = await together(engine, [do(engine, notes("t", f"{n}")) for n in range(4)])
        assert [outcome.seqs["notes", "t"] for outcome in outcomes] == [1, 2, 3, 4]

    on_sqlite(scenario)


def test_a_broken_member_gets_its_own_error(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        broken = do(engine, Append("notes", "t", [note("x", body=b"\xff")]))
        outcomes = await together(engine, [do(engine, notes("t", "a")), broken, do(engine, notes("t", "b"))])
        assert isinstance(outcomes[1], CorruptError)
        assert [outcomes[i].seqs["notes", "t"] for i in (0, 2)] == [1, 2]

    on_sqlite(scenario)


@pytest.mark.parametrize(("point", "landed"), [("sqlite.before_commit", 0), ("sqlite.after_commit", 3)])
def test_an_io_error_at_commit_is_an_unknown_outcome_and_a_new_connection(
    on_sqlite: Any, point: str, landed: int
) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        committer = engine._database.committer
        assert committer is not None
        first = committer.session.connection
        failpoints.arm(point, "error")
        members = [do(engine, notes("t", f"{n}")) for n in range(3)]
        outcomes = await together(engine, [*members, do(engine, notes("t", "late", expect=9))])
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in outcomes[:3])
        assert isinstance(outcomes[3], UnavailableError)
        assert len({outcome.rev for outcome in outcomes[:3]}) == 3
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        assert len(entries) == landed
        # The rev proves which landed.
        assert {entry[1] for entry in entries} == ({o.rev for o in outcomes[:3]} if landed else set())
        await do(engine, notes("t", "after", expect=landed))
        assert committer.session.connection is not first
        with pytest.raises(sqlite3.ProgrammingError):
            first.execute("SELECT 1")

    on_sqlite(scenario)


def test_an_error_before_the_transaction_begins_writes_nothing(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        failpoints.arm("sqlite.before_begin", "error")
        outcomes = await together(engine, [do(engine, notes("t", f"{n}")) for n in range(3)])
        assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
        failpoints.arm("sqlite.after_member", "error")
        with pytest.raises(UnavailableError):
            await do(engine, notes("t", "x"))
        assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[0]]
        await do(engine, notes("t", "x", expect=0))

    on_sqlite(scenario)


def test_more_than_one_batch_can_hold(on_sqlite: Any) -> None:
    async def scenario(engine: SqliteEngine) -> None:
        outcomes = await together(engine, [do(engine, notes("t", f"{n}")) for n in range(600)])
        assert [outcome.seqs["notes", "t"] for outcome in outcomes] == list(range(1, 601))

    on_sqlite(scenario)
