"""How MySQL answers the hot reads of the product and finds the rows of a commit: by index, unsorted, never a scan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.engines.mysql_place import connect, emptied, run
from tests.engines.test_sqlite_plans import HOT_READS

from perdure.engines.mysql import open_engine
from perdure.engines.mysql.queries import Queries
from perdure.engines.mysql.transaction import Transaction
from perdure.engines.sql.refs import Earlier
from perdure.kernel.ops import Append, Check, Drop, Inc, Op, Patch, Put
from perdure.stores.layout import SCHEMA

_OPS: list[Op] = [
    Patch("thread_heads", ("t",), {"version": Inc()}),
    Patch("branches", ("t", 0), {"name": "n"}),
    Check("runs", ("r",), {"status": "running"}),
    Put("keys", ("t", "k"), {}),
    Append("messages", "t", [("m", "user", 0, None, None, None, None, b"{}")]),
    Drop("messages", "u"),
]


def _parts(plan: Any) -> Iterator[dict[str, Any]]:
    """Every object inside an EXPLAIN in JSON."""
    if isinstance(plan, dict):
        yield plan
        for value in plan.values():
            yield from _parts(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _parts(value)


def _faults(plan: Any) -> list[str]:
    """What a plan must not do: read a whole table or index, or sort."""
    found = [f"{p['table_name']}: {p['access_type']}" for p in _parts(plan) if p.get("access_type") in ("ALL", "index")]
    return found + [key for p in _parts(plan) for key in p if key in ("filesort", "temporary_table")]


def _statements() -> list[str]:
    queries = Queries(SCHEMA)
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
            assert _faults(json.loads(plan)) == [], statement
        (((plan,),),) = await wire.run("EXPLAIN FORMAT=JSON SELECT * FROM messages ORDER BY rev")
        assert len(_faults(json.loads(plan))) == 2, "a scan that sorts must be seen as one"
        await wire.goodbye()

    run(scenario())
