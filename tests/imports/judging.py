"""What an import may do with a hostile file: refuse it and change nothing, or accept it and leave sound data.

Sound means: the export says the same again, the auditor finds nothing, and deleting every thread removes every row.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.audit.samples import rich

from perdure import Message
from perdure.audit import verify
from perdure.clock import system_clock
from perdure.engines.memory import open_memory
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Read, Scan
from perdure.stores.cleanup import sweep
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines


async def valid_lines() -> list[bytes]:
    """An export with at least one of everything, written within the last minutes."""
    ticks = iter(range(system_clock() - 600_000, system_clock(), 1_000))
    store = Store(await open_memory(SCHEMA, clock=lambda: next(ticks)), "default", owner=False)
    await rich(store)
    return [line async for line in export_lines(store)]


async def content(engine: Engine, scope: str) -> list[Any]:
    """Every row and entry of a scope as the engine has it, revs included."""
    found: list[Any] = []
    for table in SCHEMA.tables:
        (rows,) = await engine.view(scope, [Scan(table.name)])
        found += [(table.name, row.key, row.values, row.rev, _bytes(row.body)) for row in rows]
    for log in SCHEMA.logs:
        for partition in await engine.partitions(scope, log.name, after=None, limit=1_000):
            (entries,) = await engine.view(scope, [Read(log.name, partition)])
            found += [(log.name, partition, *entry[:-1], _bytes(entry[-1])) for entry in entries]
    return found


def _bytes(body: bytes | str | None) -> bytes | None:
    return body.encode() if isinstance(body, str) else body


class Judge:
    """Imports file after file into one engine. The scope holds a thread already, so that there is something to lose."""

    def __init__(self, engine: Engine, prefix: str = "hostile") -> None:
        self._engine = engine
        self._prefix = prefix
        self._scopes = 0
        self._store: Store | None = None
        self._before: list[Any] = []
        self.accepted = self.refused = 0

    async def _fresh(self) -> Store:
        if self._store is None:
            self._scopes += 1
            self._store = Store(self._engine, f"{self._prefix}-{self._scopes}", owner=False)
            await self._store.commit("resident", messages=[Message.user("I live here", id="r1")], key="rk")
            self._before = await content(self._engine, self._store.scope)
        return self._store

    async def problem(self, lines: list[bytes]) -> str | None:
        """What is wrong with how an import treats this file; None if nothing is."""
        store = await self._fresh()
        try:
            await import_lines(store, lambda: lines)
        except PerdureError as refusal:
            self.refused += 1
            return await self._after_refusal(store, refusal)
        except Exception as error:  # noqa: BLE001 - what leaks is what we look for
            self._store = None
            return f"raised {error!r:.200}"
        self.accepted += 1
        self._store = None
        return await self._after_import(store, lines)

    async def _after_refusal(self, store: Store, refusal: PerdureError) -> str | None:
        now = await content(self._engine, store.scope)
        if now == self._before:
            return None
        self._store = None
        new = [item[:2] for item in now if item not in self._before]
        return f"was refused ({refusal!s:.120}), and yet there is {new[:3]}"

    async def _after_import(self, store: Store, lines: list[bytes]) -> str | None:
        chosen = [str(item[1][0]) for item in await content(self._engine, store.scope) if item[0] == "thread_heads"]
        imported = [thread for thread in chosen if thread != "resident"]
        again = [line async for line in export_lines(store, imported)]
        again += [line async for line in export_lines(store) if b'"table":"profiles"' in line]
        if _meanings(again) != _meanings(lines):
            return "was imported, and its export says something else"
        if findings := await verify(store):
            return f"was imported, and then: {findings[0]}"
        for thread in imported:
            await store.threads.delete(thread, strategy="detach")
        for owner in {json.loads(line)["key"][0] for line in again if b'"table":"profiles"' in line}:
            await store.profiles.clear(owner)
        await sweep(store._context)
        left = [item for item in await content(self._engine, store.scope) if item not in self._before]
        rest = [item[:2] for item in left if item[0] != "threads" or item[2][5] is None]
        return f"was imported and deleted, and yet there is {rest[:3]}" if rest else None


def _meanings(lines: list[bytes]) -> list[str]:
    """What the rows and entries say, in one order; a document that may have expired meanwhile is left out."""
    values = [value for line in lines if "columns" in (value := json.loads(line)) or "table" in value]
    soon = system_clock() + 3_600_000
    for value in values:
        value["columns"] = {name: column for name, column in value.get("columns", {}).items() if column is not None}
    return sorted(
        json.dumps(value, sort_keys=True) for value in values if value["columns"].get("expires_at", soon) >= soon
    )


@asynccontextmanager
async def closing_engine(engine: Engine) -> AsyncIterator[Engine]:
    """Close an engine in the end."""
    try:
        yield engine
    finally:
        await engine.close()
