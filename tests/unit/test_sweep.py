"""The sweep goes on until everything is done, however much one crash left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Message, NotFoundError, failpoints, limits
from perdure.kernel.ops import NOW, Heads, Put, Scan
from perdure.stores.cleanup import sweep
from perdure.stores.tombstones import ARRIVING


class Died(Exception):
    """The process that was deleting is gone."""


def _die(_name: str) -> Any:
    raise Died


def test_more_tombstones_than_a_chunk_are_finished_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLEANUP_ROWS", 2)

    async def story() -> None:
        async with perdure.open("memory://", housekeeping=False) as store:
            family = [f"child {i}" for i in range(7)]
            await store.threads.create("parent")
            for child in family:
                await store.threads.create(child, parent_thread_id="parent")
                await store.commit(child, messages=[Message.user("secret")])
            failpoints.arm("delete.after_tombstone", _die)
            with pytest.raises(Died):
                await store.threads.delete("parent", strategy="cascade")
            with pytest.raises(NotFoundError):
                await store.threads.get("child 6")
            await sweep(store._context)
            assert await store.engine.view(store.scope, [Heads("messages", family)]) == [[0] * len(family)]
            await store.threads.create("child 6")

    try:
        asyncio.run(story())
    finally:
        failpoints.disarm()


def test_imports_in_progress_do_not_keep_later_deletions_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLEANUP_ROWS", 3)

    async def story() -> None:
        async with perdure.open("memory://", housekeeping=False) as store:
            arriving = {"created_at": NOW, "deleted_at": NOW}
            for number in range(10):
                await store.engine.transact(store.scope, [Put("threads", (f"arriving {number}",), arriving, ARRIVING)])
            await store.commit("doomed", messages=[Message.user("secret")])
            failpoints.arm("delete.after_tombstone", _die)
            with pytest.raises(Died):
                await store.threads.delete("doomed")
            await sweep(store._context)
            heads, rows = await store.engine.view(
                store.scope, [Heads("messages", ["doomed"]), Scan("threads", where={"erased_at": None})]
            )
            assert heads == [0]
            assert len(rows) == 10, "the imports are left alone"

    try:
        asyncio.run(story())
    finally:
        failpoints.disarm()
