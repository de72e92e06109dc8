"""What the tests of export and import share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.audit.verify import verify
from perdure.stores.transfer.export import export_lines, import_lines

Lines = list[bytes]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@asynccontextmanager
async def fresh(scope: str = "default") -> AsyncIterator[Store]:
    async with perdure.open("memory://", scope=scope) as store:
        yield store


async def exported(store: Store, threads: list[str] | None = None) -> Lines:
    return [line async for line in export_lines(store, threads)]


async def refuse(store: Store, lines: Lines, error: type[Exception], words: str, **options: Any) -> None:
    """The import fails with these words and leaves nothing behind."""
    before = await exported(store)
    with pytest.raises(error, match=words):
        await import_lines(store, lambda: lines, **options)
    if await exported(store) != before:
        raise AssertionError("the refused import changed the store")
    findings = await verify(store)
    if findings:
        raise AssertionError(f"the refused import left damage: {findings}")


def edited(lines: Lines, number: int, change: Callable[[dict[str, Any]], None]) -> Lines:
    line = json.loads(lines[number - 1])
    change(line)
    return [*lines[: number - 1], json.dumps(line).encode(), *lines[number:]]


def number_of(lines: Lines, words: str) -> int:
    return next(i for i, line in enumerate(lines, 1) if words in line.decode())
