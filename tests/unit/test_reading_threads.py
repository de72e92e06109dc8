"""Long answers become records in the thread that read them, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.sync
from perdure import CorruptError, Message, NotFoundError
from perdure.stores import branch_paths, parents, threads


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each answer that became records, whether that was in the main thread."""
    seen: list[bool] = []

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen.append(threading.current_thread() is threading.main_thread())
            return function(*args, **options)

        return call

    for module, name in ((branch_paths, "path_records"), (parents, "message_records"), (threads, "listed_threads")):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    return seen


async def read_everything(store: perdure.Store) -> None:
    await store.messages.history("t")
    await store.load("t")
    await store.messages.page("t")
    await store.messages.list("t")
    await store.threads.list()


@pytest.mark.parametrize("options", [{}, {"retry_ms": 1_000}], ids=["once", "with patience"])
def test_a_file_is_decoded_where_it_was_read(tmp_path: Path, places: list[bool], options: dict[str, Any]) -> None:
    async def story() -> None:
        async with perdure.open(f"sqlite:///{tmp_path / 'a.db'}", **options) as store:
            await store.commit("t", messages=[Message.user("one"), Message.assistant("two")])
            await read_everything(store)
            with pytest.raises(NotFoundError):
                await store.messages.history("missing")

    asyncio.run(story())
    assert places == [False] * 5


def test_other_callers_have_no_such_thread(tmp_path: Path, places: list[bool]) -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            await store.commit("t", messages=[Message.user("one")])
            await read_everything(store)

    asyncio.run(story())
    with perdure.sync.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.commit("t", messages=[Message.user("one")])
        store.messages.history("t")
    assert places == [True] * 5, "threads are joined on SQLite only"


def test_damage_that_is_noticed_there_is_an_error_here(tmp_path: Path) -> None:
    import sqlite3

    async def story() -> None:
        async with perdure.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
            await store.commit("t", messages=[Message.user("one")])
            with sqlite3.connect(tmp_path / "a.db") as file:
                file.execute("update messages set body = '{'")
            file.close()
            with pytest.raises(CorruptError, match="message 1 of thread 't'"):
                await store.messages.history("t")

    asyncio.run(story())
