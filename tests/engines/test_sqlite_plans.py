"""How SQLite answers the hot reads and writes of the product: by index, unsorted, touching no index needlessly."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from perdure.engines.sql.embedded.read import Queries
from perdure.engines.sql.embedded.schema import DDL
from perdure.engines.sql.embedded.statements import Statements
from perdure.engines.sql.embedded.write import Session
from perdure.kernel.ops import (
    ANY,
    NOW,
    Append,
    Get,
    Heads,
    Inc,
    Op,
    Patch,
    Put,
    Read,
    ReadOp,
    Ref,
    Scan,
    Segment,
    Seq,
    Swap,
)
from perdure.stores.schema import SCHEMA

HOT_READS: list[ReadOp] = [
    Get("thread_heads", [("t",)]),
    Get("threads", [(f"t{n}",) for n in range(50)]),
    Get("state", [("t", "", f"n{n}") for n in range(9)]),
    Scan("thread_heads", "active", (0,), desc=True, limit=50),
    Scan("thread_heads", "active", (1,), desc=True, limit=50, after=(9, "t")),
    Scan("thread_heads", "created", (None,), desc=True, limit=50, after=(9, "t")),
    Scan("thread_heads", "resource_active", ("u", 0), desc=True, limit=50, after=(9, "t")),
    Scan("thread_heads", "resource_active", ("u", None), desc=True, limit=50, after=(9, "t")),
    Scan("thread_heads", "family_active", ("u", "p"), desc=True, limit=50, after=(9, "t")),
    Scan("runs", "agent", ("a",), desc=True, limit=50, after=(9, "r")),
    Scan("thread_heads", "parent_active", ("p",), desc=True, limit=50),
    Scan("branches", eq=("t",), limit=200),
    Scan("branches", eq=("t",), after=("t", 5), limit=200),
    Scan("state", eq=("t", "")),
    Scan("runs", "thread", ("t",), desc=True, limit=50, after=(9, "r")),
    Scan("runs", "thread_status", ("t", "running"), desc=True, limit=50),
    Scan("pending", "position", ("t",), limit=200),
    Scan("keys", "age", limit=500, upto={"at": 9}),
    Read("messages", "t"),
    Read("messages", "t", after=10, upto=60),
    Read("messages", "t", desc=True, limit=50),
    Read("messages", "t", where={"branch": 0}, desc=True, limit=50),
    Read("messages", "t", segments=(Segment(0, 0, 5), Segment(1, 5, None))),
    Read("messages", "t", segments=tuple(Segment(n, n, n + 1) for n in range(20))),
    Read("messages", "t", where={"id": "m"}),
    Heads("messages", ["t"]),
]


class Explained:
    """A connection that keeps what it was asked, so that the plans can be looked at."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in DDL.create_all(SCHEMA):
            self.connection.execute(statement)
        self.asked: list[str] = []

    def plans(self) -> Iterator[tuple[str, str]]:
        asked, self.asked = self.asked, []
        self.connection.set_trace_callback(None)
        for sql in asked:
            if sql.startswith(("SELECT", "UPDATE", "DELETE")):
                rows = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
                yield sql, "; ".join(detail for *_, detail in rows)


@pytest.fixture
def explained() -> Iterator[Explained]:
    found = Explained()
    found.connection.set_trace_callback(found.asked.append)
    yield found
    found.connection.close()


@pytest.mark.parametrize("read", HOT_READS, ids=str)
def test_hot_reads_walk_an_index(explained: Explained, read: ReadOp) -> None:
    Queries(SCHEMA).view(explained.connection.cursor(), "s", [read])
    plans = list(explained.plans())
    assert plans
    for sql, plan in plans:
        found = plan.replace("SCAN j VIRTUAL TABLE", "").replace("SCAN s VIRTUAL TABLE", "")
        assert "SEARCH" in found, (sql, plan)
        assert "SCAN" not in found, (sql, plan)
        if not (isinstance(read, Read) and "id" in read.where):
            assert "TEMP B-TREE" not in found, (sql, plan)


def test_a_ref_is_answered_by_key(explained: Explained) -> None:
    reads: list[ReadOp] = [Scan("thread_heads", "active", (0,), limit=9), Get("threads", Ref(0, ("thread",)))]
    Queries(SCHEMA).view(explained.connection.cursor(), "s", reads)
    assert all("SEARCH" in plan for _, plan in explained.plans())


def _bare_commit() -> list[Op]:
    return [
        Patch(
            "thread_heads", ("t",), {"version": Inc(2), "updated_at": NOW, "open_run": Swap(None, "r")}, {"branch": 0}
        ),
        Patch(
            "branches", ("t", 0), {"head": "m2", "head_seq": Seq("messages"), "length": Inc(2)}, {"deleted_at": None}
        ),
        Append("messages", "t", [(f"m{n}", "user", 0, "all", "r", 1, NOW, b"{}") for n in (1, 2)]),
        Patch("runs", ("r",), {"steps": Inc(1), "updated_at": NOW, "output_last": Seq("messages")}),
    ]


def _prepared(explained: Explained) -> Session:
    session = Session(explained.connection, Statements(SCHEMA), Queries(SCHEMA))
    rows: list[Op] = [
        Put("thread_heads", ("t",), {"version": 0, "branch": 0, "updated_at": 1, "created_at": 1}),
        Put("branches", ("t", 0), {"name": "main"}),
        Put("runs", ("r",), {"thread": "t", "status": "running", "created_at": 1}),
    ]
    session.apply("s", 1, 1, rows)
    explained.asked.clear()
    return session


def test_a_bare_commit_is_six_statements(explained: Explained) -> None:
    session = _prepared(explained)
    session.apply("s", 2, 2, _bare_commit())
    kinds = [sql.split()[0] for sql in explained.asked]
    assert kinds == ["SELECT", "UPDATE", "UPDATE", "UPDATE", "INSERT", "INSERT"]
    assert all("SEARCH" in plan and "SCAN" not in plan for _, plan in explained.plans())


def test_updates_touch_only_the_indexes_of_what_they_set(explained: Explained) -> None:
    session = _prepared(explained)
    session.apply("s", 2, 2, _bare_commit())
    updates = [sql for sql in explained.asked if sql.startswith("UPDATE")]
    explained.connection.set_trace_callback(None)
    roots = dict(explained.connection.execute("SELECT rootpage, name FROM sqlite_master").fetchall())
    opened = [_written(explained.connection, sql, roots) for sql in updates]
    assert opened == [
        {"thread_heads", *[f"thread_heads__{name}active" for name in ("", "resource_", "parent_", "family_")]},
        {"branches"},
        {"runs"},
    ]


def _written(connection: sqlite3.Connection, sql: str, roots: dict[int, str]) -> set[str]:
    steps = connection.execute(f"EXPLAIN {sql}").fetchall()
    return {roots[p2] for _, opcode, _, p2, *_ in steps if opcode == "OpenWrite"}


def test_shapes_are_bounded(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engines.sql.terms.MAX_SHAPES", 8)
    monkeypatch.setattr("perdure.engines.sql.terms.MAX_SHAPES", 8)
    session = _prepared(explained)
    columns = list(SCHEMA.table["runs"].columns)
    for n in range(2**5):
        chosen = {c.name: None for i, c in enumerate(columns[5:10]) if n >> i & 1}
        session.apply("s", n + 3, n, [Patch("runs", ("r",), chosen, ANY)])
        session.queries.view(session.cursor, "s", [Scan("runs", where=chosen), Read("messages", "t", where={})])
    assert len(session.tables["runs"].patches) <= 8
