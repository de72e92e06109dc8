"""A PostgreSQL store with many threads that the server has never analysed, and what its statements would do there.

One thread that has a little of everything is written through the store and then copied inside the server. Autovacuum is
off, so the planner knows nothing but the sizes of the files: as in a store that is being filled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg
import msgspec

import perdure
from perdure import Message
from perdure.engines.postgres.connections.pool import OwnPool
from perdure.engines.postgres.connections.session_settings import BEGIN
from perdure.stores import schema
from perdure.stores.store import Store

RESOURCE, PARENT, TEMPLATE = "user", "root", "t"
_RENAMED = ("thread", "waiting", "run", "active_run", "open_run", "latest_run", "parent_run_id")
_RENAMED_IDS = ("id", "message", "head", "fork")
_SHIFTED = ("created_at", "updated_at", "at")


class Statement(msgspec.Struct, frozen=True):
    """What was sent: its text, its arguments, and whether in a transaction that sets up the session."""

    sql: str
    arguments: tuple[Any, ...]
    set_up: bool


async def fill(url: str, threads: int, messages: int) -> None:
    """Make a root thread and `threads` children of it, alike but for their names."""
    store = await perdure.open(url)
    await _template(store, messages)
    await store.close()
    link = await asyncpg.connect(url)
    try:
        for name in (*schema.SCHEMA.table, *schema.SCHEMA.log, *[f"{log}__heads" for log in schema.SCHEMA.log]):
            await link.execute(f'ALTER TABLE perdure."{name}" SET (autovacuum_enabled = off)')
            await _copy(link, name, threads)
    finally:
        await link.close()


async def _template(store: Store, messages: int) -> None:
    await store.threads.create(PARENT)
    await store.threads.create(TEMPLATE, resource_id=RESOURCE, parent_thread_id=PARENT)
    run = await store.runs.start(TEMPLATE, "planner", messages=[Message.user("m-1", id="m1")])
    more = [Message.assistant(f"m-{n}", id=f"m{n}") for n in range(2, messages + 1)]
    await store.commit(TEMPLATE, messages=more, state={"plan": {"step": 1}, "memo": {}}, key="k1")
    await store.branches.fork(TEMPLATE, at="m2", name="other")
    await store.branches.label(TEMPLATE, "m1", "first")
    await store.pending.append(TEMPLATE, [Message.user("later", id="p1")])
    await store.state.put(TEMPLATE, "scratch", {}, run_id=run.id)


async def _copy(link: Any, table: str, copies: int) -> None:
    rows = await link.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'perdure' AND table_name = $1", table
    )
    columns = [row[0] for row in rows]
    chosen = ", ".join(_copied(column, table) for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    if "thread" not in columns:
        return
    await link.execute(
        f'INSERT INTO perdure."{table}" ({names}) SELECT {chosen} FROM generate_series(1, {copies}) AS g,'
        f" (SELECT * FROM perdure.\"{table}\" WHERE thread = '{TEMPLATE}') AS t"
    )


def _copied(column: str, table: str) -> str:
    quoted = f't."{column}"'
    if column in _RENAMED or (column in _RENAMED_IDS and table != "threads"):
        return f"CASE WHEN {quoted} <> '' THEN {quoted} || '-' || g ELSE {quoted} END"
    return f"{quoted} + g" if column in _SHIFTED else quoted


def record(store: Store) -> list[Statement]:
    """Everything that the store's engine sends from now on."""
    sent: list[Statement] = []
    pool: Any = store.engine._pool  # type: ignore[attr-defined]  # the test looks at what is sent
    fetch = pool.fetch

    async def recorded(connection: Any, sql: str, arguments: Any = (), **how: Any) -> Any:
        set_up = pool.needs_setup or (how.get("tuned", False) and not isinstance(pool, OwnPool))
        sent.append(Statement(sql, tuple(arguments), set_up))
        return await fetch(connection, sql, arguments, **how)

    pool.fetch = recorded
    return sent


async def explain(connection: Any, statement: Statement, *, mode: str | None, analyze: bool) -> dict[str, Any]:
    """The plan of a statement as it is prepared in this session, run inside a transaction that is rolled back."""
    given = ", ".join(map(literal, statement.arguments))
    options = f"FORMAT JSON{', ANALYZE, TIMING OFF' if analyze else ''}"
    await connection.execute(BEGIN if statement.set_up else "BEGIN")
    try:
        if mode is not None:
            await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        await connection.execute(f"PREPARE explained AS {statement.sql}")
        ((text,),) = await connection.fetch(f"EXPLAIN ({options}) EXECUTE explained{f'({given})' if given else ''}")
    finally:
        await connection.execute("ROLLBACK; DEALLOCATE explained")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def literal(value: Any) -> str:
    """A value as SQL has it."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"ARRAY[{', '.join(map(literal, value))}]" if value else "'{}'"
    return "'" + str(value).replace("'", "''") + "'"


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A plan's nodes."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def touched(node: Mapping[str, Any]) -> float:
    """How many rows a node looked at, over all its loops."""
    removed = sum(node.get(f"Rows Removed by {how}", 0) for how in ("Filter", "Index Recheck", "Join Filter"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])
