"""How MySQL answers the hot reads of the product and finds the rows of a commit: by index, unsorted, never a scan."""

from __future__ import annotations

import json

import pytest
from tests.conformance.test_conformance import public_methods
from tests.engines import every_call
from tests.engines.mysql_place import connect, emptied, run
from tests.engines.mysql_plans import examine, faults, touched
from tests.engines.test_sqlite_plans import HOT_READS
from tests.support.servers import ServerMissing, servers_required

from perdure.clock import system_clock
from perdure.engines.mysql import open_engine
from perdure.engines.mysql.read.queries import Queries
from perdure.engines.mysql.write.transaction import Transaction
from perdure.engines.shared.references import Earlier
from perdure.kernel.ops import Append, Check, Drop, Inc, Op, Patch, Put
from perdure.stores.schema import SCHEMA

SCAN = "SELECT * FROM messages ORDER BY rev"

_OPS: list[Op] = [
    Patch("thread_heads", ("t",), {"version": Inc()}),
    Patch("branches", ("t", 0), {"name": "n"}),
    Check("runs", ("r",), {"status": "running"}),
    Put("keys", ("t", "k"), {}),
    Append("messages", "t", [("m", "user", 0, None, None, None, None, b"{}")]),
    Drop("messages", "u"),
]


def _statements() -> list[str]:
    queries = Queries(SCHEMA, system_clock)
    reads = [next(queries.answering("s", read, Earlier(SCHEMA, [], []))) for read in HOT_READS]
    locking = Transaction(SCHEMA, "s", 1, _OPS).locking().split(";")
    return [*[one for asked in reads for one in asked], *[one for one in locking if one.startswith("SELECT")]]


def test_hot_statements_walk_an_index() -> None:
    async def scenario() -> None:
        url = await emptied("plans")
        engine = await open_engine(url, SCHEMA)
        await engine.close()
        wire = await connect(url)
        filler = ", ".join(f"('s', 't{n}', {n}, {n}, 1)" for n in range(300))
        await wire.run(f"INSERT INTO thread_heads (scope, thread, updated_at, created_at, rev) VALUES {filler}")
        entries = ", ".join(f"('s', 't', {n}, 1, 'm{n}', 0, '{{}}')" for n in range(1, 300))
        await wire.run(f"INSERT INTO messages (scope, thread, seq, rev, id, branch, body) VALUES {entries}")
        await wire.run("ANALYZE TABLE thread_heads, messages")
        for statement in _statements():
            (((plan,),),) = await wire.run(f"EXPLAIN FORMAT=JSON {statement}")
            assert faults(statement, json.loads(plan)) == [], statement
        (((plan,),),) = await wire.run(f"EXPLAIN FORMAT=JSON {SCAN}")
        assert len(faults(SCAN, json.loads(plan))) == 2, "a scan that sorts must be seen as one"
        await wire.goodbye()

    run(scenario())


def test_a_scan_is_seen_by_the_rows_it_touches() -> None:
    async def scenario() -> None:
        url = await emptied("plans")
        await (await open_engine(url, SCHEMA)).close()
        wire = await connect(url)
        filler = ", ".join(f"('s', 't{n}', {n}, 1)" for n in range(300))
        await wire.run(f"INSERT INTO queues (scope, thread, count, rev) VALUES {filler}")
        reads, answered = await touched(wire, "SELECT * FROM queues WHERE count = 7")
        assert (reads >= 300, answered) == (True, 1)
        assert await touched(wire, "SELECT * FROM queues WHERE scope = 's' AND thread = 't7'") == (1, 1)
        await wire.goodbye()

    run(scenario())


def test_every_public_method_is_looked_at() -> None:
    assert sorted(public_methods() - every_call.WITHOUT_THE_ENGINE) == sorted(every_call.CALLS)


def test_every_statement_walks_its_index_though_the_server_was_never_asked_to_look() -> None:
    async def scenario() -> None:
        try:
            figures = await examine(threads=400, messages=4)
        except ServerMissing as missing:
            if servers_required():
                raise
            pytest.skip(str(missing))
        assert figures["statements"] > 150

    run(scenario())
