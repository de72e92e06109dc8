"""What comes from a store is checked as it comes in: every column, and the depth of every body."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.audit.samples import rich

import perdure
from perdure import Message, limits
from perdure.audit import verify
from perdure.engines.memory import open_memory
from perdure.errors import CorruptError
from perdure.kernel import codec
from perdure.kernel.ops import Get, Heads, Inc, Patch, Read, ReadOp, Row, Scan
from perdure.kernel.schema import Log, Table
from perdure.stores.answer_checks import answer_check
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store

CHECK = answer_check(SCHEMA)
WRONG: dict[str, tuple[Any, ...]] = {
    "int": ("1", 1.0, True, b"1", -1, limits.INTEGER_MAX + 1, [1]),
    "text": (7, b"x", 1.5, True, {}),
}


def _sound_rows() -> dict[str, list[Any]]:
    """One row of every table and one entry of the log, as a store wrote them."""

    async def main() -> dict[str, list[Any]]:
        store = Store(await open_memory(SCHEMA), "default")
        await rich(store)
        reads = [Scan(table.name) for table in SCHEMA.tables]
        rows = await store.engine.view("default", [*reads, Read("messages", "t")])
        return dict(zip([*SCHEMA.table, "messages"], rows, strict=True))

    return asyncio.run(main())


def _damaged(table: Table, row: Row) -> Iterator[tuple[str, Row]]:
    for place, column in enumerate((*table.key, *table.columns)):
        for value in WRONG[column.type]:
            whole = [*row.key, *row.values]
            whole[place] = value
            width = len(table.key)
            yield (
                f"{table.name}.{column.name}",
                Row(tuple(whole[:width]), tuple(whole[width:]), row.rev, row.body, row.positions),
            )
    for rev in ("1", None, 0, 2**53, 1.0):
        yield f"{table.name}.rev", Row(row.key, row.values, rev, row.body, row.positions)  # type: ignore[arg-type]


def test_every_column_of_every_table_is_checked() -> None:
    sound = _sound_rows()
    for table in SCHEMA.tables:
        row = sound[table.name][-1]
        reads: list[ReadOp] = [Scan(table.name), Get(table.name, [row.key]), Get(table.name, [row.key, row.key])]
        CHECK(reads, [[row], [row], [None, row]])
        for name, damaged in _damaged(table, row):
            with pytest.raises(CorruptError, match=name):
                CHECK(reads[:1], [[row, damaged]])
            if damaged.key == row.key:
                for read, answer in ((reads[1], [damaged]), (reads[2], [None, damaged])):
                    with pytest.raises(CorruptError, match=name):
                        CHECK([read], [answer])


def test_every_column_of_a_log_is_checked() -> None:
    log: Log = SCHEMA.log["messages"]
    entry = _sound_rows()["messages"][0]
    read = Read("messages", "t")
    CHECK([read], [[entry]])
    for place, (name, kind) in enumerate([("seq", "int"), ("", ""), *[(c.name, c.type) for c in log.columns]]):
        for value in WRONG.get(kind, ()):
            with pytest.raises(CorruptError, match=f"messages.{name}"):
                CHECK([read], [[entry, (*entry[:place], value, *entry[place + 1 :])]])
    for body in (None, 7, [1]):
        with pytest.raises(CorruptError, match="body"):
            CHECK([read], [[entry, (*entry[:-1], body)]])
    with pytest.raises(CorruptError, match="length"):
        CHECK([Heads("messages", ["t"])], [["9"]])


def test_stored_json_may_nest_so_deeply_and_no_deeper() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"\\"]":', "}]")):
        levels = codec.STORED_DEPTH // (1 + (opening[0] == "[" and len(opening) > 1))
        codec.decode(f"{opening * levels}1{closing * levels}".encode(), "here")
        for deeper in (levels + 1, 500, 50_000):
            with pytest.raises(CorruptError, match="here"):
                codec.decode(f"{opening * deeper}1{closing * deeper}".encode(), "here")
    flat = codec.encode([{"a": "[[[["}] * 1_000)
    assert len(codec.decode(flat, "here")) == 1_000


@pytest.mark.parametrize("damage", ["abc", 1.5, b"\x01"])
def test_nothing_is_computed_with_a_number_that_is_none(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        store = await perdure.open(path, housekeeping=False)
        await store.threads.create("t")
        with sqlite3.connect(path) as raw:
            raw.execute("UPDATE thread_heads SET children = ?", (damage,))
        raw.close()
        with pytest.raises(CorruptError, match="children"):
            await store.engine.transact("default", [Patch("thread_heads", ("t",), {"children": Inc(1)})])
        with pytest.raises(CorruptError, match="children"):
            await store.threads.create("child", parent_thread_id="t")
        await store.close()

    asyncio.run(main())


def test_an_audit_goes_on_after_what_it_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        store = await perdure.open(path, housekeeping=False)
        for n in range(4):
            await store.commit(f"t{n}", messages=[Message.user("x", id="a"), Message.user("y", id="b")])
        with sqlite3.connect(path) as raw:
            raw.execute("UPDATE threads SET title = CAST(x'ff' AS TEXT) WHERE thread = 't0'")
            raw.execute("UPDATE messages SET role = CAST(x'ff' AS TEXT) WHERE thread = 't1' AND seq = 1")
            raw.execute("UPDATE messages SET body = ? WHERE thread = 't2' AND seq = 2", ("[" * 9_999 + "]" * 9_999,))
            raw.execute("UPDATE thread_heads SET version = 'many' WHERE thread = 't3'")
        raw.close()
        findings = [str(finding) for finding in await verify(store)]
        for place in ("threads of thread 't0'", "message 1 of thread 't1'", "message 2 of thread 't2'", "thread 't3'"):
            assert any(place in finding for finding in findings), (place, findings)
        await store.close()

    asyncio.run(main())


def test_a_damaged_thread_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def main() -> None:
        store = await perdure.open(path, housekeeping=False)
        await store.commit("t", messages=[Message.user("x")], state={"plan": 1}, key="k")
        with sqlite3.connect(path) as raw:
            raw.execute("UPDATE state SET schema = 'abc', body = '[[['")
            raw.execute("UPDATE keys SET count = 1.5")
        raw.close()
        with pytest.raises(CorruptError, match=r"state\.schema"):
            await store.state.get("t", "plan")
        await store.threads.delete("t")
        assert await verify(store) == []
        await store.close()

    asyncio.run(main())
