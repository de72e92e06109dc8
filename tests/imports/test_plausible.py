"""Values that are valid and would never wear off: an import refuses them with the line, and says what to do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.imports.judging import valid_lines

from perdure import InvalidError, Message, limits
from perdure.clock import ManualClock, system_clock
from perdure.engines.memory import open_memory
from perdure.kernel.ops import Scan
from perdure.rules.columns import TIMES
from perdure.stores.cleanup import sweep
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import import_lines

DAY = 24 * 3600 * 1000


def changed(lines: list[bytes], name: str, **columns: Any) -> list[bytes]:
    """The file with these columns in every line of a table or log that has them."""
    parsed = [json.loads(line) for line in lines]
    for line in parsed:
        if name in (line.get("table"), line.get("log")):
            line["columns"] |= {column: columns[column] for column in columns if column in line["columns"]}
    return [json.dumps(line).encode() for line in parsed]


async def imported(lines: list[bytes], now: int | None = None) -> Store:
    store = Store(await open_memory(SCHEMA, clock=ManualClock(now or system_clock())), "default", owner=False)
    await import_lines(store, lambda: lines)
    return store


def test_a_fence_that_nobody_can_pass_is_refused() -> None:
    async def scenario() -> None:
        lines = await valid_lines()
        for fence in (limits.IMPORT_NUMBER_MAX + 1, limits.INTEGER_MAX):
            with pytest.raises(InvalidError, match=r"line \d+: thread_heads.fence is .*your workers have reached"):
                await imported(changed(lines, "thread_heads", fence=fence))
        store = await imported(changed(lines, "thread_heads", fence=limits.IMPORT_NUMBER_MAX))
        await store.commit("t", messages=[Message.user("next")], fence=limits.IMPORT_NUMBER_MAX + 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["queues", "pending"])
def test_a_revision_that_cannot_rise_is_refused(name: str) -> None:
    async def scenario() -> None:
        lines = await valid_lines()
        with pytest.raises(InvalidError, match=rf"line \d+: {name}.revision is"):
            await imported(changed(lines, name, revision=limits.INTEGER_MAX))
        store = await imported(changed(lines, name, revision=limits.IMPORT_NUMBER_MAX))
        await store.pending.append("t", [Message.user("one more")])

    asyncio.run(scenario())


@pytest.mark.parametrize("name", sorted(TIMES))
def test_a_time_to_come_is_refused(name: str) -> None:
    async def scenario() -> None:
        lines, late = await valid_lines(), system_clock() + 2 * DAY
        for column in set(TIMES[name]) - {"deleted_at", "erased_at"} | (
            {"deleted_at"} if name == "branches" else set()
        ):
            with pytest.raises(InvalidError, match=rf"line \d+: {name}\.{column} is {late}, a time to come"):
                await imported(changed(lines, name, **{column: late}))

    if TIMES[name]:
        asyncio.run(scenario())


def test_the_stores_own_clock_says_what_is_to_come() -> None:
    async def scenario() -> None:
        lines = await valid_lines()
        with pytest.raises(InvalidError, match=r"a time to come \(check the clock"):
            await imported(lines, system_clock() - 2 * DAY)
        await imported(lines, system_clock() - DAY // 2)

    asyncio.run(scenario())


def test_every_key_that_is_imported_expires() -> None:
    async def scenario() -> None:
        lines, clock = await valid_lines(), ManualClock(system_clock())
        store = Store(await open_memory(SCHEMA, clock=clock), "default", owner=False)
        await import_lines(store, lambda: lines)
        clock.advance(limits.KEY_RETENTION_MS + limits.IMPORT_AHEAD_MS + 1_000)
        await sweep(store._context)
        if (await store.engine.view("default", [Scan("keys")]))[0]:
            raise AssertionError("a key is still there")

    asyncio.run(scenario())
