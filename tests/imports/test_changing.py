"""A file that changes between the check and the import: no thread lands that was not checked line by line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.imports.hostile import hostile_files
from tests.imports.judging import content, valid_lines

from perdure import InvalidError, Message
from perdure.engines.memory import open_memory
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines


async def fresh() -> Store:
    return Store(await open_memory(SCHEMA), "default", owner=False)


def first_then(*readings: list[bytes]) -> Callable[[], list[bytes]]:
    """A source whose every reading is another."""
    left = iter(readings)
    return lambda: next(left)


async def _long_thread() -> list[bytes]:
    store = await fresh()
    await store.commit("long", messages=[Message.user(f"message {n}", id=f"m{n}") for n in range(900)])
    return [line async for line in export_lines(store)]


@pytest.mark.parametrize("words", [b"message 3", b"message 899", b"long"])
def test_a_thread_that_is_not_the_checked_one_does_not_land(words: bytes) -> None:
    """Also where its first chunks were written already, and where the change alone would be valid."""

    async def scenario() -> None:
        lines, store = await _long_thread(), await fresh()
        changed = [line.replace(words, words[:-1] + b"X") for line in lines]
        with pytest.raises(InvalidError, match=r"line \d+: .*the file changed during the import"):
            await import_lines(store, first_then(lines, changed))
        if left := await content(store.engine, "default"):
            raise AssertionError(f"there is {left[:3]}")

    asyncio.run(scenario())


def test_only_threads_that_were_checked_land_from_a_file_that_becomes_hostile() -> None:
    async def scenario() -> None:
        lines = await valid_lines()
        store = await fresh()
        await import_lines(store, lambda: lines)
        whole = await _threads(store)
        for name, hostile in list(hostile_files(lines))[::17]:
            store = await fresh()
            with suppress(InvalidError):
                await import_lines(store, first_then(lines, hostile))
            landed = await _threads(store)
            if not landed.items() <= whole.items():
                raise AssertionError(f"{name}: {landed.keys()} are not what was checked")

    asyncio.run(scenario())


async def _threads(store: Store) -> dict[str, list[bytes]]:
    """The lines of each thread that is there."""
    page = await store.threads.list(limit=200)
    found = {}
    for thread in page.items:
        lines = [line async for line in export_lines(store, [thread.id])]
        found[thread.id] = lines[1:-1]
    return found
