"""Looking below the stores, and holding a writer back: how cases read what is stored and stage a race.

`dump` reads every row and log entry of a scope straight from the engine. `overtaken` lets one client plan a write,
holds it at the moment of writing, lets another client finish, and then releases it: the worst interleaving, each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.errors import PerdureError
from perdure.kernel.engine import Engine, Health, Watch
from perdure.kernel.ops import Applied, Op, Read, ReadOp, Row, Scan, Taken
from perdure.stores.store import Store
from perdure.testkit.kit import Kit, equal, raises

E = TypeVar("E", bound=BaseException)
Dump = dict[str, list[Any]]
Act = Callable[[Store], Awaitable[Any]]


async def dump(store: Store, *partitions: str) -> Dump:
    """Everything stored in the store's scope: rows by table, entries by log and thread (or other given partition)."""
    schema = store.engine.schema
    tables = await store.engine.view(store.scope, [Scan(table.name) for table in schema.tables])
    contents: Dump = {table.name: rows for table, rows in zip(schema.tables, tables, strict=True)}
    names = sorted({*partitions, *(str(row.key[0]) for row in contents["threads"])})
    for log in schema.logs:
        reads = [Read(log.name, name) for name in names]
        logs = await store.engine.view(store.scope, reads) if reads else []
        contents.update({f"{log.name}/{name}": entries for name, entries in zip(names, logs, strict=True) if entries})
    return contents


async def untouched(store: Store, kind: type[E], attempt: Awaitable[Any], what: str = "") -> E:
    """The attempt must raise this error and leave every stored byte as it was."""
    before = await dump(store)
    error = await raises(kind, attempt, what)
    equal(await dump(store), before, f"{what or 'the refused call'} left something behind")
    return error


def belongs_to(contents: Dump, thread_id: str) -> dict[str, Any]:
    """What of a dump names this thread anywhere: in a key, a column or a body."""
    left: dict[str, Any] = {}
    for table, rows in contents.items():
        mine = [row for row in rows if thread_id in _words(row)]
        if mine or table.endswith(f"/{thread_id}"):
            left[table] = mine
    return left


def _words(row: Any) -> str:
    values = [*row.key, *row.columns.values(), row.body] if isinstance(row, Row) else row
    return "\n".join(value.decode() if isinstance(value, bytes) else str(value) for value in values)


async def overtaken(kit: Kit, slow: Act, fast: Act, *, passes: int = 0) -> tuple[Any, Any]:
    """Both outcomes (result or error) when `fast` runs wholly between `slow`'s planning and its write.

    `passes` is how many writes of `slow` go through before the one that is held.
    """
    gate = GatedEngine((await kit.second()).engine, passes)
    held = Store(gate, kit.store.scope, owner=False)
    task = asyncio.ensure_future(outcome(slow(held)))
    arrival = asyncio.ensure_future(gate.arrived.wait())
    await asyncio.wait([task, arrival], return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    second = await outcome(fast(kit.store))
    gate.released.set()
    return await task, second


async def outcome(attempt: Awaitable[Any]) -> Any:
    """What an attempt returns, or the refusal that it raises."""
    try:
        return await attempt
    except PerdureError as error:
        return error


async def together(*attempts: Awaitable[Any]) -> list[Any]:
    """The outcomes of attempts that run at the same time."""
    return await asyncio.gather(*(outcome(attempt) for attempt in attempts))


class GatedEngine:
    """An engine whose first transaction, after some that pass, waits at the gate until it is let go."""

    def __init__(self, engine: Engine, passes: int = 0) -> None:
        self._engine = engine
        self._passes = passes
        self.schema = engine.schema
        self.capabilities = engine.capabilities
        self.arrived = asyncio.Event()
        self.released = asyncio.Event()

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Wait at the gate, then apply."""
        self._passes -= 1
        if self._passes >= 0:
            return await self._engine.transact(scope, ops, hints)
        self.arrived.set()
        await self.released.wait()
        return await self._engine.transact(scope, ops, hints)

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer from one snapshot."""
        return await self._engine.view(scope, reads)

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Claim the first rows of an index."""
        return await self._engine.take(scope, scan, changes, hints)

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        return self._engine.watch(scope, topics)

    def blocking(self) -> Engine | None:
        """No view for blocking callers: the gate belongs to one loop."""
        return None

    async def scopes(self) -> list[str]:
        """Scopes that hold something."""
        return await self._engine.scopes()

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions of a log that hold an entry."""
        return await self._engine.partitions(scope, log, after=after, limit=limit)

    async def check(self) -> list[str]:
        """The engine's own integrity check."""
        return await self._engine.check()

    async def health(self) -> Health:
        """The real settings."""
        return await self._engine.health()

    async def close(self) -> None:
        """Nothing: the client that was wrapped is closed by its owner."""
