"""Lists of threads are the same by a join, which SQLite answers, and by rows, as other engines answer them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import CorruptError, Store
from perdure.kernel.ops import Patch

FILTERS: list[dict[str, Any]] = [
    {},
    {"root": True},
    {"resource_id": "u"},
    {"resource_id": "u", "root": True},
    {"parent_thread_id": "t0"},
    {"resource_id": "u", "parent_thread_id": "t0"},
    {"resource_id": "nobody"},
]


async def _fill(store: Store) -> None:
    for number in range(12):
        await store.threads.create(
            f"t{number}",
            title=None if number % 3 else f"title {number}",
            resource_id="u" if number % 2 else None,
            parent_thread_id="t0" if number in (3, 4, 7) else None,
            custom={"n": number} if number % 4 else None,
        )
    await store.runs.start("t5", "agent")
    await store.commit("t6", messages=[perdure.Message.user("hello")], fence=4)
    engine, scope = store.engine, store.scope
    # As an older version left them, and as a newer one may.
    await engine.transact(scope, [Patch("thread_heads", (name,), {"child": None}) for name in ("t2", "t7", "t9")])
    await engine.transact(scope, [Patch("threads", ("t8",), {}, body=b'{"custom":{"k":1},"future":[1]}')])


async def _pages(store: Store, limit: int, **options: Any) -> list[Any]:
    cursor, pages = None, []
    while True:
        page = await store.threads.list(limit=limit, cursor=cursor, **options)
        pages.append((page.items, page.next_cursor))
        cursor = page.next_cursor
        if cursor is None:
            return pages


def _with_store(path: Path, work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await perdure.open(f"sqlite:///{path}") as store:
            await work(store)

    asyncio.run(main())


def _by_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.threads._context.kernel, "join", None)


def test_every_list_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(store: Store) -> None:
        await _fill(store)
        asked = [(limit, {**options, "order": order}) for options in FILTERS for order in ("active", "created")
                 for limit in (1, 5, 50)]  # fmt: skip
        assert store.threads._context.kernel.join is not None
        joined = [await _pages(store, limit, **options) for limit, options in asked]
        _by_rows(store, monkeypatch)
        assert joined == [await _pages(store, limit, **options) for limit, options in asked]
        assert [len(items) for items, _ in joined[2]] == [12]

    _with_store(tmp_path / "a.db", work)


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("UPDATE thread_heads SET version = 'many' WHERE thread = 't4'", "thread_heads.version"),
        ("UPDATE thread_heads SET version = NULL WHERE thread = 't4'", "thread_heads.version"),
        ("UPDATE threads SET title = 5.5 WHERE thread = 't4'", None),  # kept as text
        ("UPDATE threads SET title = x'00ff' WHERE thread = 't4'", "threads.title"),
        ("UPDATE threads SET rev = -1 WHERE thread = 't4'", "threads.rev"),
        ("UPDATE threads SET body = NULL WHERE thread = 't4'", "body"),
        ("UPDATE threads SET body = '{' WHERE thread = 't4'", "cannot be read"),
        ("DELETE FROM threads WHERE thread = 't4'", "its row in threads is missing"),
    ],
)
def test_damage_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, wrong: str | None) -> None:
    path = tmp_path / "a.db"
    _with_store(path, _fill)
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()

    async def outcome(store: Store) -> str:
        try:
            page = await store.threads.list()
        except CorruptError as error:
            return f"{error.where}: {error}"
        return repr(page.items)

    async def work(store: Store) -> None:
        joined = await outcome(store)
        _by_rows(store, monkeypatch)
        assert joined == await outcome(store)
        assert (wrong is None) == joined.startswith("[Thread(")
        assert wrong is None or (joined.startswith("thread 't4': ") and wrong in joined)

    _with_store(path, work)
