"""Declared ownership: what a thread owns goes with it, whatever its columns and indexes are called.

The schema is the product's with tables added as a store of the future would add them: one owned by a column of another
name, one whose rows are blanked, one that belongs to nobody, and a second log.
"""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import EMBEDDED, SERVERS
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure import Message
from perdure.audit import verify_engine
from perdure.audit.store import digest
from perdure.clock import ManualClock
from perdure.copy import copy_engine
from perdure.engines.memory import open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.errors import InvalidError, NotFoundError
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Append, Get, Heads, Op, Patch, Put, Scan
from perdure.kernel.schema import Blank, Index, Log, Schema, Table, integer, text
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines

START = 1_700_000_000_000
CHORES = Table(
    "chores",
    key=text("id"),
    columns=text("conversation", "what", "thread") + integer("at"),
    indexes=(Index("of", by=("conversation",), order=("at",)),),
    owner="conversation",
)
LETTERS = Table(
    "letters",
    key=text("id"),
    columns=text("sender", "address", "status") + integer("at"),
    indexes=(Index("sent", by=("sender",), order=("at",)), Index("status", by=("status",), order=("at",))),
    owner="sender",
    erase=Blank(columns=("address",), marks=(("status", "erased"),)),
)
NOTICES = Table("notices", key=text("thread"), columns=integer("at"))
"""Its key is called `thread`, and no thread owns it."""
TRAIL = Log("trail", partition="whose", columns=text("kind"), owner="whose")
TOY = Schema(SCHEMA.version + 1, (*SCHEMA.tables, CHORES, LETTERS, NOTICES), (*SCHEMA.logs, TRAIL))
MANY = 150


async def _open(kind: str, directory: Path, schema: Schema = TOY, name: str = "toy") -> Engine:
    clock = ManualClock(START)
    if kind == "memory":
        return await open_memory(schema, clock=clock)
    if kind == "sqlite":
        return await open_sqlite(str(directory / f"{name}.db"), schema, clock=clock)
    try:
        url = await fresh_database(server(kind), name)
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
    engine: Engine = await importlib.import_module(f"perdure.engines.{kind}").open_engine(url, schema, clock=clock)
    return engine


async def _fill(engine: Engine, thread: str) -> Store:
    """A thread with rows in every table that a thread owns, and rows beside it that mention its id."""
    store = Store(engine, owner=False)
    await store.commit(thread, messages=[Message.user("hello")], state={"plan": 1})
    ops: list[Op] = [
        Put("chores", (f"{thread}-{n}",), {"conversation": thread, "what": f"w{n}", "at": n}, b'{"n":1}')
        for n in range(MANY)
    ]
    ops += [
        Put("letters", (f"{thread}-a",), {"sender": thread, "address": "a@b.c", "status": "sent", "at": 1}, b'{"s":1}'),
        Put("letters", (f"{thread}-b",), {"sender": thread, "address": "d@e.f", "status": "new", "at": 2}, b'{"s":2}'),
        Put("chores", (f"other-{thread}",), {"conversation": "elsewhere", "thread": thread, "at": 1}, b"{}"),
        Put("notices", (thread,), {"at": 1}),
        Append("trail", thread, [("step", b'{"k":1}'), ("step", b'{"k":2}')]),
    ]
    await engine.transact(store.scope, ops)
    return store


async def _owned(engine: Engine, thread: str) -> tuple[int, int, int]:
    """How many chores and letters a thread owns, and how long its trail is."""
    chores, letters, lengths = await engine.view(
        "default",
        [Scan("chores", "of", (thread,)), Scan("letters", "sent", (thread,)), Heads("trail", [thread])],
    )
    return len(chores), len(letters), lengths[0]


@pytest.mark.parametrize("kind", [*EMBEDDED, *SERVERS])
def test_what_a_thread_owns_is_erased_and_nothing_else(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine = await _open(kind, tmp_path)
        await _fill(engine, "elsewhere")
        store = await _fill(engine, "t")
        assert await _owned(engine, "t") == (MANY, 2, 2)
        await store.threads.delete("t")
        assert await _owned(engine, "t") == (0, 0, 0)
        letters, notices, strays = await engine.view(
            store.scope,
            [
                Get("letters", [("t-a",), ("t-b",)]),
                Get("notices", [("t",)]),
                Get("chores", [("other-t",)]),
            ],
        )
        for letter in letters:
            assert (letter["sender"], letter["address"], letter["status"]) == (None, None, "erased")
            assert letter.body in (b"{}", "{}")
        assert notices[0] is not None, "a key that is called thread makes no thread its owner"
        assert strays[0] is not None, "nor does a column that is called thread"
        # Its own, those that name it in the column `thread`, and of the two letters it still has both.
        assert await _owned(engine, "elsewhere") == (MANY + 2, 2, 2)
        assert [finding.check for finding in await verify_engine(engine)] == []
        # A new thread of the same id starts with nothing, and erasing it does not meet what was blanked.
        await store.threads.create("t")
        await store.commit("t", messages=[Message.user("again")])
        await store.threads.delete("t")
        assert await engine.view(store.scope, [Get("letters", [("t-a",), ("t-b",)])]) == [letters]
        await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [*EMBEDDED, *SERVERS])
def test_what_a_thread_owns_is_exported_imported_and_copied(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine = await _open(kind, tmp_path)
        store = await _fill(engine, "t")
        await _fill(engine, "elsewhere")
        await _fill(engine, "gone")
        await store.threads.delete("gone")
        one = [line async for line in export_lines(store, ["t"])]
        assert _count(one) == {"chores": MANY, "letters": 2, "trail": 2, "notices": 0}
        every = [line async for line in export_lines(store)]
        assert _count(every) == {"chores": 2 * MANY + 3, "letters": 6, "trail": 4, "notices": 3}

        other = await _open("sqlite", tmp_path, name="other")
        imported = Store(other, owner=False)
        await import_lines(imported, lambda: every)
        assert [line async for line in export_lines(imported)] == every
        assert await _owned(other, "t") == (MANY, 2, 2)
        assert await verify_engine(other) == []

        copy = await _open("sqlite", tmp_path, name="copy")
        await copy_engine(engine, copy, last=("thread_heads",))
        assert [line async for line in export_lines(Store(copy, owner=False))] == every
        for each in (engine, other, copy):
            await each.close()

    asyncio.run(main())


def _count(lines: list[bytes]) -> dict[str, int]:
    names = ("chores", "letters", "trail", "notices")
    return {name: sum(f'"{name}"'.encode() in line for line in lines) for name in names}


def test_a_log_without_an_owner_is_neither_erased_nor_audited(tmp_path: Path) -> None:
    ticks = Log("ticks", partition="thread")
    schema = Schema(TOY.version, TOY.tables, (*TOY.logs, ticks))

    async def main() -> None:
        engine = await _open("sqlite", tmp_path, schema)
        await _fill(engine, "elsewhere")
        store = await _fill(engine, "t")
        await engine.transact(store.scope, [Append("ticks", "t", [(b"{}",)]), Append("ticks", "free", [(b"{}",)])])
        before = await digest(engine, store.scope)
        await store.threads.delete("t")
        assert await engine.view(store.scope, [Heads("ticks", ["t", "free"])]) == [[1, 1]]
        assert await verify_engine(engine) == []
        after = await digest(engine, store.scope)
        await engine.transact(store.scope, [Append("ticks", "free", [(b"{}",)])])
        assert len({before, after, await digest(engine, store.scope)}) == 3, "an audit sees every log"
        await engine.close()

    asyncio.run(main())


def test_a_letter_that_changes_while_it_is_blanked_is_read_again(tmp_path: Path) -> None:
    """A worker moves a letter to another thread, or deletes it, between the look and the transaction."""

    async def main() -> None:
        engine = await _open("memory", tmp_path)
        store = await _fill(engine, "t")
        transact, meddled = engine.transact, []

        async def meddle(scope: str, ops: Any, *topics: Any) -> Any:
            if not meddled and any(isinstance(op, Patch) and op.table == "letters" for op in ops):
                meddled.append(await transact(scope, [Patch("letters", ("t-a",), {"sender": "elsewhere"})]))
            return await transact(scope, ops, *topics)

        engine.transact = meddle  # type: ignore[method-assign]
        await store.threads.delete("t")
        assert meddled
        assert await _owned(engine, "t") == (0, 0, 0)
        ((moved, blanked),) = await engine.view(store.scope, [Get("letters", [("t-a",), ("t-b",)])])
        assert (moved["address"], blanked["address"]) == ("a@b.c", None)
        with pytest.raises(NotFoundError):
            await store.threads.get("t")
        await engine.close()

    asyncio.run(main())


def test_declarations_that_cannot_be_followed_are_refused() -> None:
    with pytest.raises(ValueError, match="no index is grouped by the owner"):
        Table("x", key=text("id"), columns=text("whose"), owner="whose")
    with pytest.raises(ValueError, match="the owner must be outside the key"):
        Table("x", key=text("whose"), owner="whose", erase=Blank())
    with pytest.raises(ValueError, match="no column nothing to blank"):
        Table(
            "x",
            key=text("id"),
            columns=text("whose") + integer("at"),
            indexes=(Index("of", by=("whose",), order=("at",)),),
            owner="whose",
            erase=Blank(columns=("nothing",)),
        )
    with pytest.raises(ValueError, match="the owner of a log is its partition"):
        Log("x", partition="a", columns=text("b"), owner="b")


def test_ownership_is_not_recorded_with_the_data() -> None:
    """So that a store of an older build is not foreign, and an older build opens a store of this one."""
    bare = Schema(
        TOY.version,
        tuple(Table(t.name, t.key, t.columns, t.indexes, t.unique) for t in TOY.tables),
        tuple(Log(log.name, log.partition, log.columns, log.unique, log.segment) for log in TOY.logs),
    )
    assert bare != TOY
    assert (bare.declaration(), bare.digest()) == (TOY.declaration(), TOY.digest())
    assert "owner" not in [name for table in SCHEMA.tables for name in table.column_names]
    assert SCHEMA.digest() == "2f33707dbf595e8e", "version 3 as earlier builds recorded it"


def test_an_import_refuses_entries_of_a_log_without_an_owner(tmp_path: Path) -> None:
    schema = Schema(TOY.version, TOY.tables, (*SCHEMA.logs, Log("trail", partition="whose", columns=text("kind"))))

    async def main() -> None:
        engine = await _open("memory", tmp_path)
        lines = [line async for line in export_lines(await _fill(engine, "t"), ["t"])]
        other = Store(await _open("memory", tmp_path, schema), owner=False)
        with pytest.raises(InvalidError, match="belongs to no thread"):
            await import_lines(other, lambda: lines)

    asyncio.run(main())
