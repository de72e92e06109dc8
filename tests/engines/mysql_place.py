"""A database on this process's MariaDB or MySQL, and statements run on it past the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure.engines.mysql.connections.connection import Rows, Wire, flavour, open_wire
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


async def connect(url: str) -> Wire:
    """A connection of its own."""
    return await open_wire(parse_target(url))


async def stranger(url: str) -> Wire:
    """A connection that may hold a transaction open for as long as a test takes, and is not hung up on."""
    wire = await connect(url)
    name, _ = flavour(wire.version)
    setting = "idle_transaction_timeout" if name == "MariaDB" else "wait_timeout"
    await wire.run(f"SET SESSION {setting} = 600")
    return wire


async def sql(url: str, statements: str) -> list[Rows]:
    """Run statements on a connection of their own."""
    wire = await connect(url)
    try:
        return await wire.run(statements)
    finally:
        await wire.goodbye()


def run(work: Coroutine[Any, Any, None]) -> None:
    """A test's body, which may never hang."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await work

    asyncio.run(bounded())
