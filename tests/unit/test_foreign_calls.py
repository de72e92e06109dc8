"""Messages that an older build stored with another vendor's `tool_calls` move from store to store as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from perdure import Message, Store
from perdure.audit.verify import verify
from perdure.copy import copy_store
from perdure.stores.transfer.export import export_lines
from perdure.stores.transfer.importing import import_lines
from perdure.testkit.cases.messages_foreign import CALLS, holding, store_as_before

EXPECTED = holding({"tool_calls": CALLS}, id="m")


async def filled(store: Store) -> None:
    await store.commit("t", messages=[Message.user("hello")])
    await store_as_before(store, EXPECTED)


def test_an_export_and_an_import_carry_them() -> None:
    async def run() -> None:
        async with perdure.open("memory://") as old, perdure.open("memory://") as new:
            await filled(old)
            assert await verify(old) == []
            lines = [line async for line in export_lines(old)]
            await import_lines(new, lambda: iter(lines))
            assert (await new.messages.get("t", "m")).message == EXPECTED

    asyncio.run(run())


def test_a_copy_carries_them(tmp_path: Path) -> None:
    async def run() -> None:
        source, target = (f"sqlite:///{tmp_path / name}.db" for name in ("old", "new"))
        async with perdure.open(source) as old:
            await filled(old)
        await copy_store(source, target)
        async with perdure.open(target) as new:
            assert (await new.messages.get("t", "m")).message == EXPECTED
            assert [record.message for record in await new.messages.history("t")][1] == EXPECTED

    asyncio.run(run())
