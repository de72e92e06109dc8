"""What the Redis tests share: an emptied database, an engine on it, and a plain client to look behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from tests.engines.toys import SCHEMA, START
from tests.support.servers import fresh_database, server

from perdure.clock import Clock, ManualClock
from perdure.engines.redis import RedisEngine, open_engine
from perdure.errors import PerdureError
from perdure.kernel.schema import Schema

DEADLINE = 60.0


async def empty() -> str:
    """The URL of an empty database."""
    return await fresh_database(server("redis"), "toys")


@asynccontextmanager
async def engine_at(
    url: str, schema: Schema = SCHEMA, clock: Clock | None = None, **options: Any
) -> AsyncIterator[RedisEngine]:
    """An engine for the length of a block."""
    engine = await open_engine(url, schema, clock=clock or ManualClock(START), **options)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def client_at(url: str) -> AsyncIterator[Any]:
    """A plain client for the length of a block."""
    client = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


async def until(true: Callable[[], Awaitable[Any]]) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + DEADLINE
    while not await true():
        if time.monotonic() > deadline:
            raise RuntimeError("it never became true")
        await asyncio.sleep(0.01)


async def refusal(work: Awaitable[Any]) -> PerdureError:
    """The error that `work` must end in."""
    try:
        await work
    except PerdureError as error:
        return error
    raise RuntimeError("nothing was refused")
