"""A database on this process's MariaDB or MySQL, and statements run on it past the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure.engines.mysql.connections.connect import flavour, open_connection
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.target import parse_target

DEADLINE = 240.0
"""Starting a server is part of the first test that wants one."""


async def emptied(label: str) -> str:
    """The URL of an empty database, tables included."""
    try:
        url = await fresh_database(server("mysql"), label)
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
    database = parse_target(url).database
    await sql(url, f"DROP DATABASE `{database}`; CREATE DATABASE `{database}`")
    return url


async def connect(url: str) -> Connection:
    """A connection of its own."""
    return await open_connection(parse_target(url))


async def stranger(url: str) -> Connection:
    """A connection that may hold a transaction open for as long as a test takes, and is not hung up on."""
    connection = await connect(url)
    name, _ = flavour(connection.version)
    setting = "idle_transaction_timeout" if name == "MariaDB" else "wait_timeout"
    await connection.run(f"SET SESSION {setting} = 600")
    return connection


async def sql(url: str, statements: str) -> list[Rows]:
    """Run statements on a connection of their own."""
    connection = await connect(url)
    try:
        return await connection.run(statements)
    finally:
        await connection.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """A test's body, which may never hang."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await work

    asyncio.run(bounded())
