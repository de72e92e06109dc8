"""A small schema that touches every corner of the contract, and ways to open an engine on it."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.support.servers import fresh_database, server

from perdure.clock import Clock, ManualClock
from perdure.engines.memory import open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.errors import UnavailableError
from perdure.kernel.engine import Conflict, Engine, Watch
from perdure.kernel.ops import Append, Get, Op, Row
from perdure.kernel.schema import Index, Log, Schema, Table, integer, text

T = TypeVar("T")
DEADLINE = 60.0
Scenario = Callable[[Engine], Coroutine[Any, Any, None]]

SCHEMA = Schema(
    version=1,
    tables=(
        Table(
            "items",
            key=text("id"),
            columns=text("name", "owner", "note") + integer("n", "rank", "due"),
            indexes=(
                Index("owned", by=("owner",), order=("rank",)),
                Index("sparse", by=("owner",), order=("rank",), sparse=True),
                Index("due", by=(), order=("due",)),
                Index("two", by=("owner", "note"), order=("rank", "due")),
            ),
            unique=(("name",),),
        ),
        Table(
            "pairs",
            key=text("a") + integer("b"),
            columns=text("v") + integer("n"),
            indexes=(Index("by_n", by=("a",), order=("n",)),),
            unique=(("a", "v"),),
        ),
    ),
    logs=(
        Log(
            "notes",
            partition="topic",
            columns=text("id", "kind") + integer("branch", "at"),
            unique=("id",),
            segment="branch",
        ),
        Log("plain", partition="topic"),
        Log(
            "feed",
            partition="topic",
            columns=text("id", "kind") + integer("branch", "at"),
            unique=("id",),
            segment="branch",
            trim=True,
        ),
    ),
)

EMBEDDED = ("memory", "sqlite")
SERVERS = ("postgres", "mysql", "redis")
SCOPE = "acme"
START = 1_700_000_000_000


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that must never suspend."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the blocking view suspended")


async def empty_place(kind: str, directory: Path) -> str:
    """Where an engine finds nothing yet: a new file, or an emptied database on a server of this process."""
    if kind in SERVERS:
        return await fresh_database(server(kind), "toys")
    return str(directory / "toy.db")


async def open_at(kind: str, place: str, clock: Clock, *, durability: str = "power") -> Engine:
    """The engine of this name at that place."""
    if kind == "memory":
        return await open_memory(SCHEMA, clock=clock)
    if kind == "sqlite":
        return await open_sqlite(place, SCHEMA, clock=clock, durability=durability)
    opener: Any = importlib.import_module(f"perdure.engines.{kind}")
    engine: Engine = await opener.open_engine(place, SCHEMA, clock=clock, durability=durability)
    return engine


async def open_engine(kind: str, directory: Path, clock: ManualClock) -> Engine:
    """The engine of this name, empty."""
    return await open_at(kind, await empty_place(kind, directory), clock)


def run(kind: str, directory: Path, scenario: Scenario, clock: ManualClock) -> None:
    """Open, run the scenario, close. A kind that ends in `blocking` is driven without any event loop."""
    name, _, face = kind.partition("-")
    if face == "blocking":
        engine = drive(open_engine(name, directory, clock)).blocking()
        if engine is None:
            raise RuntimeError(f"{name} has no blocking view")
        try:
            drive(scenario(engine))
        finally:
            drive(engine.close())
        return

    async def main() -> None:
        engine = await open_engine(name, directory, clock)
        try:
            await scenario(engine)
        finally:
            await engine.close()

    asyncio.run(main())


async def watching(engine: Engine, *topics: str, scope: str = SCOPE) -> Watch:
    """A watcher whose hints come through from here on."""
    watch = engine.watch(scope, topics)
    if engine.blocking() is None:
        assert await watch.wait(DEADLINE), "on a server it is rung once, when listening begins"
    return watch


async def eventually(work: Callable[[], Awaitable[Any]], *also: type[Exception]) -> Any:
    """Try until the server answers; `also` names errors after which it is safe to try again."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return await work()
            except (UnavailableError, *also):
                await asyncio.sleep(0.02)


async def refused(work: Awaitable[Any]) -> Conflict:
    """The conflict that `work` must end in."""
    try:
        await work
    except Conflict as conflict:
        return conflict
    raise RuntimeError("no conflict was raised")


async def row(engine: Engine, table: str, *key: Any) -> Row | None:
    """One row."""
    ((found,),) = await engine.view(SCOPE, [Get(table, [key])])
    kept: Row | None = found
    return kept


async def columns(engine: Engine, table: str, *key: Any) -> dict[str, Any]:
    """The columns of a row that must exist, without the NULLs."""
    found = await row(engine, table, *key)
    if found is None:
        raise RuntimeError(f"{table} {key} is absent")
    return {name: value for name, value in found.columns.items() if value is not None}


async def do(engine: Engine, *ops: Op) -> Any:
    """One transaction."""
    return await engine.transact(SCOPE, ops)


def note(name: str, *, branch: int = 0, kind: str = "k", at: Any = None, body: bytes = b"{}") -> tuple[Any, ...]:
    """An entry of the log `notes`."""
    return (name, kind, branch, at, body)


def notes(topic: str, *names: str, expect: int | None = None, branch: int = 0) -> Append:
    """An append of several notes."""
    return Append("notes", topic, [note(name, branch=branch) for name in names], expect)


def raw(body: Any) -> bytes:
    """A body as bytes: engines hand it over as text or as bytes, as they have it."""
    return body.encode() if isinstance(body, str) else bytes(body)
