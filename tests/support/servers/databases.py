"""Empty databases on a test server, by the hundred: made once in a process, then emptied for every test.

Deleting a few rows takes a millisecond where making tables again takes a hundred. The record of the schema (a table
with `meta` in its name) stays, so that whoever opens the database finds it as an engine left it, only empty.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from tests.support.servers.local import Server

from perdure.kernel.url import parse_url

_made: set[str] = set()
_labels: list[str] = []
_REDIS_DATABASES = 15
"""A plain Redis has sixteen; the first is left alone, for it may be somebody's."""


async def fresh_database(server: Server, label: str) -> str:
    """The URL of a database of this process with this label, in which nothing is stored."""
    kinds = {"postgres": _fresh_postgres, "mysql": _fresh_mysql, "redis": _fresh_redis}
    return await kinds[server.name](server, label)


def _with_database(url: str, database: str) -> str:
    return msgspec.structs.replace(parse_url(url), path=database).build()


def _database_name(label: str) -> str:
    return f"perdure_test_{label}_{os.getpid()}"


async def _fresh_postgres(server: Server, label: str) -> str:
    import asyncpg

    database = _database_name(label)
    url = _with_database(server.url, database)
    if url not in _made:
        link = await asyncpg.connect(server.url)
        try:
            await link.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
            await link.execute(f'CREATE DATABASE "{database}"')
        finally:
            await link.close()
        _made.add(url)
        return url
    link = await asyncpg.connect(url)
    try:
        await link.execute(_EMPTY_POSTGRES)
    finally:
        await link.close()
    return url


_EMPTY_POSTGRES = """
DO $$ DECLARE found record; BEGIN
  FOR found IN SELECT schemaname, tablename FROM pg_catalog.pg_tables
    WHERE schemaname <> 'information_schema' AND schemaname NOT LIKE 'pg\\_%' AND tablename NOT LIKE '%meta%'
  LOOP EXECUTE format('DELETE FROM %I.%I', found.schemaname, found.tablename); END LOOP;
END $$
"""
_MYSQL_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type = 'BASE TABLE' AND table_name NOT LIKE '%%meta%%'
"""


async def _fresh_mysql(server: Server, label: str) -> str:
    database = _database_name(label)
    url = _with_database(server.url, database)
    if url not in _made:
        old = await _mysql(server.url, ("SHOW DATABASES LIKE %s", (database,)))
        await _mysql(server.url, *[f"DROP DATABASE `{name}`" for (name,) in old], f"CREATE DATABASE `{database}`")
        _made.add(url)
        return url
    tables = await _mysql(url, (_MYSQL_TABLES, (database,)))
    await _mysql(url, *[f"DELETE FROM `{table}`" for (table,) in tables])
    return url


async def _mysql(url: str, *statements: Any) -> Any:
    """Run statements as one transaction; the rows of the last one."""
    import asyncmy

    parts = parse_url(url)
    link = await asyncmy.connect(
        host=parts.hosts[0].name,
        port=parts.hosts[0].port or 3306,
        user=parts.user,
        password=parts.password,
        database=parts.path,
    )
    try:
        async with link.cursor() as cursor:
            for statement in statements:
                await cursor.execute(*(statement if isinstance(statement, tuple) else (statement,)))
            rows = await cursor.fetchall() if statements else ()
        await link.commit()
        return rows
    finally:
        await link.ensure_closed()


async def _fresh_redis(server: Server, label: str) -> str:
    from redis.asyncio import Redis

    if label not in _labels:
        _labels.append(label)
    worker = int("".join(filter(str.isdigit, os.environ.get("PYTEST_XDIST_WORKER", ""))) or 0)
    url = _with_database(server.url, str(1 + (3 * worker + _labels.index(label)) % _REDIS_DATABASES))
    client = Redis.from_url(url)
    try:
        await client.flushdb()
    finally:
        await client.aclose()
    return url
