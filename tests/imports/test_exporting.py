"""An export of a thread that is written to between two pages: everything of it is from one moment all the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure import Message, limits
from perdure.engines.memory import open_memory
from perdure.kernel.ops import ReadOp
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines

DOCUMENTS = 100


async def fresh() -> Store:
    return Store(await open_memory(SCHEMA), "default", owner=False)


async def _write(store: Store, number: int) -> None:
    """One commit that changes the first and the last document, and says so in the log."""
    state = {"doc-000": number, f"doc-{DOCUMENTS - 1:03}": number}
    await store.commit("t", messages=[Message.user(str(number))], state=state)


@pytest.mark.parametrize("writes", [0, 1, 2, 10**6])
def test_pages_of_two_moments_are_never_mixed(writes: int) -> None:
    """`writes` is how many of the export's views are followed by a commit: none, some, every one of them."""

    async def scenario() -> None:
        store, made = await fresh(), 0
        await store.commit("t", state={f"doc-{n:03}": 0 for n in range(DOCUMENTS)})
        view = store._context.view

        async def interrupted(*reads: ReadOp) -> list[Any]:
            nonlocal made
            answer = await view(*reads)
            if made < writes:
                made += 1
                store._context.view = view  # type: ignore[method-assign]
                await _write(store, made)
                store._context.view = interrupted  # type: ignore[method-assign]
            return answer

        store._context.view = interrupted  # type: ignore[method-assign]
        lines = [line async for line in export_lines(store)]
        parsed = [json.loads(line) for line in lines]
        documents = {line["key"][2]: line["body"] for line in parsed if line.get("table") == "state"}
        messages = [line for line in parsed if "log" in line]
        if len(documents) != DOCUMENTS:
            raise AssertionError(f"{len(documents)} documents")
        if not documents["doc-000"] == documents[f"doc-{DOCUMENTS - 1:03}"] == len(messages):
            raise AssertionError(f"{documents['doc-000']}, {documents['doc-099']}, {len(messages)} messages")
        copy = await fresh()
        await import_lines(copy, lambda: lines)
        if [line async for line in export_lines(copy)] != lines:
            raise AssertionError("the export of what was imported says something else")

    asyncio.run(scenario())


def test_heavy_rows_come_in_small_pages() -> None:
    """A queue of large messages is not read at once."""

    async def scenario() -> None:
        store = await fresh()
        text = "x" * (limits.MESSAGE_BYTES // 16)
        await store.threads.create("t")
        for number in range(60):
            await store.pending.append("t", [Message.user(text, id=f"p{number}")])
        view, most = store._context.view, 0

        async def counted(*reads: ReadOp) -> list[Any]:
            nonlocal most
            answers = await view(*reads)
            rows = [row for answer in answers if isinstance(answer, list) for row in answer]
            most = max(most, sum(len(getattr(row, "body", b"") or b"") for row in rows))
            return answers

        store._context.view = counted  # type: ignore[method-assign]
        count = 0
        async for line in export_lines(store):
            count += b'"pending"' in line
        if count != 60 or most > 17 * len(text):
            raise AssertionError(f"{count} messages, {most:,} bytes at once")

    asyncio.run(scenario())
