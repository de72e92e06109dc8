"""Which PostgreSQL driver, and how bodies are stored: one-statement commits through asyncpg and psycopg 3, one client
and 16 connections, then the same statement over tables with other storage settings.

    python bench/drivers.py postgresql://user@host:port/database

The figures behind the engine's choices. Statement and bytes are those of the raw baseline (`raw_postgres.py`); the
server syncs every commit. It creates and drops a schema of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import psycopg
from harness import Case, cost, interleave, speed
from raw_postgres import COMMIT, DDL, Prepared, bodies, prepare
from report import Report
from workload import bare, history

SCHEMA = "perdure_drivers"
SETTINGS = {"search_path": SCHEMA}
STORAGE = {
    "default (pglz over 2 KB)": "",
    "lz4 over 2 KB": "alter table messages alter body set compression lz4",
    "external (no compression)": "alter table messages alter body set storage external",
    "inline, uncompressed to 8 KB": "alter table messages alter body set storage main; "
    "alter table messages set (toast_tuple_target=8160)",
    "inline, fillfactor 80 on pointers": "alter table messages alter body set storage main; "
    "alter table messages set (toast_tuple_target=8160); "
    "alter table threads set (fillfactor=80); alter table runs set (fillfactor=80)",
}
Send = Callable[[str, int, Prepared], Awaitable[Any]]
_threads = iter(range(10**9))


def by_asyncpg(connection: Any) -> Send:
    return lambda thread, seq, commit: connection.execute(COMMIT, *commit.arguments(thread, seq))


_NAMED = COMMIT
for _number in range(9, 0, -1):
    _NAMED = _NAMED.replace(f"${_number}", f"%(p{_number})s")


def by_psycopg(connection: Any) -> Send:
    cursor = connection.cursor(binary=True)

    def send(thread: str, seq: int, commit: Prepared) -> Awaitable[Any]:
        named = {f"p{number}": value for number, value in enumerate(commit.arguments(thread, seq), 1)}
        sent: Awaitable[Any] = cursor.execute(_NAMED, named, prepare=True)
        return sent

    return send


def writers(name: str, admin: Any, sends: list[Send], count: int) -> Case:
    """`count` commits on a thread of its own for every sender at once."""
    work: list[tuple[Send, str, list[Prepared]]] = []

    async def setup() -> None:
        work.clear()
        for send in sends:
            thread = f"{next(_threads):012d}"
            await admin.execute("insert into threads(id, version, updated_at) values($1, 0, 0)", thread)
            await admin.execute("insert into runs values($1, '')", thread)
            work.append((send, thread, [prepare(bare(index)) for index in range(count)]))

    async def client(send: Send, thread: str, commits: list[Prepared]) -> None:
        for number, commit in enumerate(commits):
            await send(thread, 2 * number, commit)

    async def run() -> int:
        await asyncio.gather(*(client(*one) for one in work))
        return count * len(work)

    return Case(name, run, setup)


async def drivers(report: Report, url: str, admin: Any, rounds: int) -> None:
    fast = [await asyncpg.connect(url, server_settings=SETTINGS) for _ in range(16)]
    slow = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(16)]
    for connection in slow:
        await connection.execute(f"set search_path={SCHEMA}")
    for clients, count in ((1, 150), (16, 25)):
        cases = [
            writers(f"asyncpg, {clients}", admin, [by_asyncpg(c) for c in fast[:clients]], count),
            writers("the same again (control)", admin, [by_asyncpg(c) for c in fast[-clients:]], count),
            writers(f"psycopg 3, {clients}", admin, [by_psycopg(c) for c in slow[:clients]], count),
        ]
        await interleave(cases, rounds)
        report.cases(f"One-statement commit, {clients} connections", cases, cases[0])
        report.promise(f"asyncpg vs psycopg 3, {clients} connections", None, speed(cases[0], cases[2]), at_least=True)
    for connection in (*fast, *slow):
        await connection.close()


async def storage(report: Report, url: str, rounds: int) -> None:
    connections, appends, loads, rows = [], [], [], []
    decode = msgspec.json.Decoder().decode
    for number, (name, alter) in enumerate(STORAGE.items()):
        schema = f"{SCHEMA}_{number}"
        connection = await asyncpg.connect(url, server_settings={"search_path": schema})
        try:
            await connection.execute(f"drop schema if exists {schema} cascade; create schema {schema};" + DDL + alter)
        except asyncpg.FeatureNotSupportedError as missing:
            rows.append([name, "not built in", str(missing)])
            await connection.close()
            continue
        connections.append((connection, schema))
        filled = "insert into messages select 'long', n, b from unnest($1::bytea[]) with ordinality u(b, n)"
        await connection.execute(filled, bodies(history(5000).messages))
        await connection.execute("vacuum analyze")
        size = await connection.fetchval("select pg_total_relation_size('messages')")
        appends.append(writers(name, connection, [by_asyncpg(connection)], 150))

        async def load(connection: Any = connection) -> int:
            found = await connection.fetch("select body from messages where thread='long' order by seq")
            return len([decode(body) for (body,) in found]) // 5000

        loads.append(Case(name, load))
        rows.append([name, f"{size / 5000:,.0f} B", f"{await wal_bytes(connection, appends[-1]):,.0f} B"])
    report.table("Bytes", ["body stored", "per message", "WAL a commit"], rows)
    await interleave(appends, rounds)
    report.cases("Append, by how bodies are stored", appends, appends[0])
    await interleave(loads, rounds)
    report.cases("Load of 5,000", loads, loads[0], slower=True)
    report.promise("inline uncompressed, load vs default (time)", None, cost(loads[-1], loads[0]), at_least=False)
    for connection, schema in connections:
        await connection.execute(f"drop schema {schema} cascade")
        await connection.close()


async def wal_bytes(connection: Any, case: Case) -> float:
    """WAL bytes a commit, without the full images that follow a checkpoint: the second run finds its pages touched."""
    where, spent = "select pg_current_wal_insert_lsn() - '0/0'", 0.0
    for _ in range(2):
        if case.setup is not None:
            await case.setup()
        before = await connection.fetchval(where)
        done = await case.run()
        spent = float(await connection.fetchval(where) - before) / done
    return spent


async def main(url: str, rounds: int) -> None:
    report = Report()
    admin = await asyncpg.connect(url, server_settings=SETTINGS)
    print(
        await admin.fetchval("select version()"), "synchronous_commit", await admin.fetchval("show synchronous_commit")
    )
    await admin.execute(f"drop schema if exists {SCHEMA} cascade; create schema {SCHEMA};" + DDL)
    await drivers(report, url, admin, rounds)
    await storage(report, url, rounds)
    await admin.execute(f"drop schema {SCHEMA} cascade")
    await admin.close()
    report.finish(None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15))
