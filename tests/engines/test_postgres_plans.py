"""How PostgreSQL answers every read of every store when it knows nothing about the tables: by the index that is meant.

In sessions of ours, in those of a caller's pool, and behind a pooler. To do the same at another size, and see how long
a list takes there: `python -m tests.engines.test_postgres_plans 10000 50`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import asyncpg
import pytest
from tests.engines.postgres_filled import PARENT, RESOURCE, Statement, explain, fill, nodes, record, touched
from tests.support.servers import fresh_database, server

import perdure
from perdure import Message, Store
from perdure.errors import AlreadyExists
from perdure.kernel.ops import Get, Heads, Inc, Max, Now, Read, Scan, Segment
from perdure.stores.cleanup import sweep

THREADS, MESSAGES = 3_000, 6
KINDS = ("own", "pool", "pgbouncer")
PAGE = 20
MOST = 4 * PAGE
"""No statement looks at more rows of a table than this, nor sorts more."""
T = "t-7"
SCOPE = "default"
HEAD, COLD = "thread_heads_pkey", "threads_pkey"
LOG, BY_ID = "messages_pkey", "messages__id"

ReadOp = Callable[[Store], Awaitable[Any]]


async def _first(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        return


async def _second_page(listing: Callable[..., Awaitable[Any]], **how: Any) -> None:
    cursor = (await listing(limit=PAGE, **how)).next_cursor
    assert cursor is not None
    await listing(limit=PAGE, cursor=cursor, **how)


def _lists() -> Iterable[tuple[str, ReadOp, set[str]]]:
    """Listings, of which there is a first page and a next one."""
    chosen: list[tuple[str, dict[str, Any]]] = [
        ("", {}),
        ("resource_", {"resource_id": RESOURCE}),
        ("parent_", {"parent_thread_id": PARENT}),
        ("family_", {"parent_thread_id": PARENT, "resource_id": RESOURCE}),
        ("", {"root": True}),
        ("resource_", {"root": True, "resource_id": RESOURCE}),
    ]
    for order in ("active", "created"):
        for prefix, how in chosen:
            used = {f"thread_heads__{prefix}{order}", COLD}
            asked = {**how, "order": order}
            yield f"threads.list {asked}", lambda s, a=asked: s.threads.list(limit=PAGE, **a), used
            if "root" in how:
                continue  # there are few of them
            yield f"threads.list {asked} on", lambda s, a=asked: _second_page(s.threads.list, **a), used
    yield (
        "threads.children",
        lambda s: s.threads.children(PARENT, limit=PAGE),
        {"thread_heads__parent_active", COLD, HEAD},
    )
    for index, how in (("created", {}), ("status", {"status": "running"}), ("agent", {"agent_id": "planner"})):
        used = {f"runs__{index}", HEAD}
        yield f"runs.list {how}", lambda s, a=how: s.runs.list(limit=PAGE, **a), used
        yield f"runs.list {how} on", lambda s, a=how: _second_page(s.runs.list, **a), used
    for index, how in (("thread", {"thread_id": T}), ("thread_status", {"thread_id": T, "status": "running"})):
        yield f"runs.list {how}", lambda s, a=how: s.runs.list(limit=PAGE, **a), {f"runs__{index}", HEAD}
    yield "pending.threads", lambda s: s.pending.threads(limit=PAGE), {"queues__waiting", HEAD}


async def _run_id(store: Store) -> str:
    run = await store.runs.latest(T)
    assert run is not None
    return run.id


def _records() -> Iterable[tuple[str, ReadOp, set[str]]]:
    """Reads of one thread."""
    yield "threads.get", lambda s: s.threads.get(T), {COLD, HEAD}
    yield "threads.validate_parent", lambda s: s.threads.validate_parent("t-8", T), {COLD, HEAD}
    yield "runs.latest", lambda s: s.runs.latest(T), {HEAD, "runs_pkey"}

    async def get_run(store: Store) -> None:
        await store.runs.get(await _run_id(store))

    async def run_state(store: Store) -> None:
        await store.state.list(T, run_id=await _run_id(store))

    yield "runs.get", get_run, {HEAD, "runs_pkey"}
    yield "state.list of a run", run_state, {HEAD, "runs_pkey", "state_pkey"}
    yield "state.get", lambda s: s.state.get(T, "plan"), {HEAD, "state_pkey"}
    yield "state.list", lambda s: s.state.list(T), {HEAD, "state_pkey"}
    yield "pending.list", lambda s: s.pending.list(T), {HEAD, "queues_pkey", "pending__position", BY_ID}
    yield "branches.list", lambda s: s.branches.list(T), {HEAD, "branches_pkey", BY_ID}
    yield "branches.get", lambda s: s.branches.get(T, "other"), {HEAD, "branches_pkey", BY_ID}
    yield "branches.current", lambda s: s.branches.current(T), {HEAD, "branches_pkey", BY_ID}
    yield "branches.labels", lambda s: s.branches.labels(T), {HEAD, "labels_pkey"}
    yield "messages.list", lambda s: s.messages.list(T, limit=3), {HEAD, LOG}
    yield "messages.find", lambda s: s.messages.find(T, "m3-7"), {HEAD, LOG, BY_ID, "branches_pkey"}
    yield "messages.range", lambda s: s.messages.range(T, 2, 5), {HEAD, LOG, "branches_pkey"}
    yield "messages.history", lambda s: s.messages.history(T), {HEAD, LOG}
    yield "messages.history of a branch", lambda s: s.messages.history(T, branch="other"), {HEAD, LOG, "branches_pkey"}
    yield "messages.path", lambda s: s.messages.path(T, limit=3), {HEAD, LOG}
    yield "messages.page", lambda s: s.messages.page(T, limit=3, before=9), {HEAD, LOG}
    yield "messages.external", lambda s: s.messages.external(T, limit=3), {HEAD, LOG}
    yield "messages.unfinished_calls", lambda s: s.messages.unfinished_calls(T), {HEAD, LOG}
    yield "messages.follow", lambda s: _first(s.messages.follow(T)), {HEAD, LOG}
    yield (
        "load",
        lambda s: s.load(T),
        {HEAD, COLD, LOG, "branches_pkey", "runs_pkey", "state_pkey"},
    )


async def _refused(store: Store) -> None:
    """A commit that has to be explained reads everything about it."""
    with contextlib.suppress(AlreadyExists):
        await store.commit(T, messages=[Message.user("again", id="m2-7")], state={"a": 1, "b": 2}, key="k9")


def _internals() -> Iterable[tuple[str, ReadOp, set[str]]]:
    """What stores, housekeeping, export and copy ask of the engine."""

    def view(*reads: Any) -> ReadOp:
        return lambda s: s.engine.view(SCOPE, reads)

    yield "many keys", view(Get("state", [(T, "", name) for name in ("plan", "memo", "x")])), {"state_pkey"}
    yield "many threads", view(Get("thread_heads", [(f"t-{n}",) for n in range(PAGE)])), {HEAD}
    yield "many ids", view(Read("messages", T, where={"id": ("m2-7", "m3-7")}, limit=5)), {BY_ID}
    yield "many heads", view(Heads("messages", ["t-1", "t-2", "x"])), {"messages__heads_pkey"}
    yield "segments", view(Read("messages", T, segments=(Segment(0, 0, 2), Segment(1, 2, None)), limit=5)), {LOG}
    yield "old keys", view(Scan("keys", "age", upto={"at": 5}, limit=500)), {"keys__age"}
    yield "half-deleted", view(Scan("threads", "deleted", where={"erased_at": None}, limit=500)), {"threads__deleted"}
    gone = Scan("threads", "deleted", upto={"deleted_at": 5, "erased_at": 5}, limit=500)
    yield "tombstones", view(gone), {"threads__deleted"}
    yield (
        "children to detach",
        view(Scan("thread_heads", "parent_created", (PARENT,), limit=PAGE)),
        {"thread_heads__parent_created"},
    )
    running = Scan("runs", "thread_status", (T, "running"), where={"branch": 0}, limit=1)
    yield "runs of a branch", view(running), {"runs__thread_status"}
    for table, after in (("threads", ("t-5",)), ("state", ("t-5", "", "memo")), ("branches", ("t-5", 0))):
        yield f"copy of {table}", view(Scan(table, after=after, limit=PAGE)), {f"{table}_pkey"}
    for table in ("branches", "labels", "state", "keys", "pending"):
        yield f"erasure of {table}", view(Scan(table, eq=(T,), limit=PAGE)), {f"{table}_pkey"}
    yield "erasure of runs", view(Scan("runs", "thread", (T,), limit=PAGE)), {"runs__thread"}
    yield "partitions", lambda s: s.engine.partitions(SCOPE, "messages", limit=PAGE), {LOG}
    yield "a refused commit", _refused, {HEAD, COLD, "branches_pkey", "keys_pkey", "runs_pkey", BY_ID}
    due = Scan("runs", "status", ("running",), limit=5, upto={"created_at": 10**15})
    yield "take", lambda s: s.engine.take(SCOPE, due, {"steps": Inc(1)}), {"runs__status", "runs_pkey"}
    now = Scan("runs", "status", ("running",), limit=5, upto={"created_at": Now(5)})
    yield (
        "take of what is due",
        lambda s: s.engine.take(SCOPE, now, {"steps": Max(Now(-9))}),
        {"runs__status", "runs_pkey"},
    )


async def _write(store: Store) -> None:
    """Commits alone and many at once, state, queues, branches, a deletion, a sweep."""
    await asyncio.gather(
        *[
            store.commit(f"t-{n}", messages=[Message.user("x")], state={"a": n, "b": n, "c": n, "d": n})
            for n in range(20, 40)
        ]
    )
    await store.commit("t-40", messages=[Message.user("x")], run=perdure.NewRun(agent_id="helper"), key="once")
    await store.pending.append("t-40", [Message.user("later")])
    await store.state.put("t-40", "plan", {})
    await store.branches.fork("t-40", at="m3-40", name="third")
    await store.threads.update("t-41", title="new")
    await store.threads.delete("t-42")
    await sweep(store._context)


@contextlib.asynccontextmanager
async def _opened(kind: str, url: str) -> AsyncIterator[Store]:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=4) if kind == "pool" else None
    if kind == "pgbouncer":
        url = f"{server('pgbouncer').url.rpartition('/')[0]}/{url.rpartition('/')[2]}?prepared=no"
    store = await perdure.open(url, pool=pool, housekeeping=False)
    try:
        yield store
    finally:
        await store.close()
        if pool is not None:
            await pool.close()


async def _plans(store: Store, statement: Statement, *, analyze: bool) -> list[dict[str, Any]]:
    """The plan, or, in a session that is not set up, both that the server may choose from."""
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    modes = ("force_generic_plan", "force_custom_plan") if not statement.set_up else (None,)
    connection = await pool.acquire()
    try:
        return [await explain(connection, statement, mode=mode, analyze=analyze) for mode in modes]
    finally:
        pool.release(connection)


def _faults(plan: dict[str, Any]) -> list[str]:
    found = []
    for node in nodes(plan):
        kind, table = node["Node Type"], node.get("Relation Name")
        if (table and kind not in ("Index Scan", "Index Only Scan", "ModifyTable")) or kind.startswith("Bitmap"):
            found.append(f"{kind} of {table}")
        if "Actual Rows" in node and (table or kind == "Sort") and touched(node) > MOST:
            found.append(f"{kind} looks at {touched(node):g} rows of {table}")
    return found


def _indexes(plan: dict[str, Any]) -> set[str]:
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


async def _check_reads(store: Store) -> None:
    sent = record(store)
    for name, ask, expected in (*_lists(), *_records(), *_internals()):
        sent.clear()
        await ask(store)
        used: set[str] = set()
        for statement in list(sent):
            for plan in await _plans(store, statement, analyze="INSERT" not in statement.sql):
                assert _faults(plan) == [], (name, statement.sql)
                used |= _indexes(plan)
        assert used == expected, name


async def _check_writes(store: Store) -> None:
    sent = record(store)
    await _write(store)
    statements = {statement.sql: statement for statement in sent}
    assert any("unnest" in sql and "OFFSET 0" in sql for sql in statements), "commits travelled together"
    for statement in statements.values():
        for plan in await _plans(store, statement, analyze=False):
            assert _faults(plan) == [], statement.sql


@pytest.mark.parametrize("kind", KINDS)
def test_without_statistics_every_statement_uses_its_index(kind: str) -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "plans")
        await fill(url, THREADS, MESSAGES)
        async with _opened(kind, url) as store:
            await _check_reads(store)
            await _check_writes(store)

    asyncio.run(main())


def test_a_plan_that_scans_or_sorts_is_seen_as_one() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "plans")
        await fill(url, 200, 3)
        async with _opened("pool", url) as store:
            sql = 'SELECT * FROM perdure.messages ORDER BY "rev"'
            (plan, _) = await _plans(store, Statement(sql, (), set_up=False), analyze=True)
            assert len(_faults(plan)) == 3

    asyncio.run(main())


async def measure(threads: int, messages: int) -> None:
    """The same checks at another size, and the time of a list in a store of that size and in one of 100 threads."""
    for kind in KINDS:
        took = []
        for size in (100, threads):
            url = await fresh_database(server("postgres"), f"plans{size}{kind}")
            await fill(url, size, messages)
            async with _opened(kind, url) as store:
                for _ in range(20):
                    await store.threads.list()
                times = []
                for _ in range(200):
                    began = time.perf_counter()
                    await store.threads.list()
                    times.append(time.perf_counter() - began)
                took.append(sorted(times)[len(times) // 2] * 1000)
                if size == threads:
                    await _check_reads(store)
        print(f"{kind}: a list takes {took[0]:.2f} ms at 100 threads, {took[1]:.2f} ms at {threads}", flush=True)


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]), int(sys.argv[2])))
