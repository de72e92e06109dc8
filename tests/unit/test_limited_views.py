"""What a limited view reads, and what it answers when somebody writes between two of its reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from perdure import Message, Store
from perdure.engines.memory import MemoryEngine
from perdure.kernel.ops import Read, ReadOp
from perdure.stores.schema import SCHEMA

Act = Callable[[], Awaitable[Any]]


class WatchedEngine:
    """Counts the log entries that each view returns, and does something after the first view that reads the log."""

    def __init__(self) -> None:
        self._engine = MemoryEngine(SCHEMA)
        self.entries: list[int] = []
        self.meanwhile: Act | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer, count, and let somebody else act once."""
        answers = await self._engine.view(scope, reads)
        read = [len(answer) for ask, answer in zip(reads, answers, strict=True) if isinstance(ask, Read)]
        if read:
            self.entries.extend(read)
            act, self.meanwhile = self.meanwhile, None
            if act is not None:
                await act()
        return answers


def notes(count: int) -> list[Message]:
    return [Message.user("note", visibility="internal") for _ in range(count)]


def users(start: int, stop: int) -> list[Message]:
    return [Message.user(f"text {i}", id=f"u{i}") for i in range(start, stop)]


async def filled(engine: WatchedEngine, *messages: Message) -> Store:
    store = Store(engine)
    for start in range(0, len(messages), 500):
        await store.commit("t", messages=messages[start : start + 500])
    engine.entries.clear()
    return store


def test_a_limited_view_reads_little_of_a_long_path() -> None:
    async def run() -> None:
        engine = WatchedEngine()
        store = await filled(engine, *users(0, 3_000))
        for view in (store.messages.external, store.messages.history):
            engine.entries.clear()
            assert [r.message_id for r in await view("t", limit=5)] == [f"u{i}" for i in range(2_995, 3_000)]
            assert len(engine.entries) == 1
            assert sum(engine.entries) <= 20

    asyncio.run(run())


def test_a_hidden_tail_costs_what_it_hides() -> None:
    async def run() -> None:
        engine = WatchedEngine()
        store = await filled(engine, *users(0, 3_000), *notes(300))
        assert [r.message_id for r in await store.messages.external("t", limit=2)] == ["u2998", "u2999"]
        assert sum(engine.entries) <= 4 * 4 * 300
        assert len(engine.entries) <= 6

    asyncio.run(run())


def test_a_marker_that_lands_between_two_reads_is_not_seen() -> None:
    """The first read fixes the end of the path: the call was not taken back then, so it is shown whole."""

    async def run() -> None:
        engine = WatchedEngine()
        call = Message.from_json({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]})
        store = await filled(engine, *users(0, 2), call, Message.tool("c", "result", id="r"), *notes(40))
        expected = await store.messages.external("t", limit=3)
        assert [r.message_id for r in expected[::2]] == ["u1", "r"]

        async def retract() -> None:
            await store.commit("t", messages=[Message.retraction("c"), *users(2, 9)])
            await store.branches.fork("t", at="u0", name="other", switch=True)

        engine.meanwhile = retract
        assert await store.messages.external("t", limit=3) == expected
        assert engine.meanwhile is None

    asyncio.run(run())


def test_a_thread_that_is_made_anew_between_two_reads_is_not_mixed_with_the_old() -> None:
    async def run() -> None:
        engine = WatchedEngine()
        store = await filled(engine, *users(0, 40), *notes(30))

        async def replace() -> None:
            await store.threads.delete("t")
            await store.threads.create("t")
            await store.commit("t", messages=[Message.user(f"new {i}", id=f"n{i}") for i in range(40)])

        engine.meanwhile = replace
        assert [r.message_id for r in await store.messages.external("t", limit=3)] == ["n37", "n38", "n39"]

    asyncio.run(run())


def answered(count: int) -> list[Message]:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}
    calls = [Message.from_json({**call, "content": [{**call["content"][0], "id": f"c{n}"}]}) for n in range(count)]  # type: ignore[dict-item]
    return [message for n in range(count) for message in (calls[n], Message.tool(f"c{n}", "result"))]


def test_a_page_costs_the_same_wherever_it_is() -> None:
    """Of 3,000 records, with tool calls or without: the first page, one in the middle and the last."""

    async def run() -> None:
        for messages in (users(0, 3_000), answered(1_500)):
            engine = WatchedEngine()
            store = await filled(engine, *messages)
            for view in ("external", "raw"):
                for before in (None, 1_500, 1_501, 10, 11):
                    engine.entries.clear()
                    page = await store.messages.page("t", view=view, before=before, limit=5)  # type: ignore[arg-type]
                    assert len(page) == 5
                    assert sum(engine.entries) <= 40
                    assert len(engine.entries) <= 3

    asyncio.run(run())


def test_a_page_of_history_reads_from_the_end() -> None:
    async def run() -> None:
        engine = WatchedEngine()
        store = await filled(engine, *users(0, 1_000))
        await store.messages.page("t", view="history", limit=5)
        assert sum(engine.entries) <= 20
        engine.entries.clear()
        page = await store.messages.page("t", view="history", before=900, limit=5)
        assert [record.seq for record in page] == [895, 896, 897, 898, 899]
        assert sum(engine.entries) <= 500

    asyncio.run(run())


def test_a_thread_that_is_made_anew_during_a_page_is_not_mixed_with_the_old() -> None:
    async def run() -> None:
        engine = WatchedEngine()
        store = await filled(engine, *answered(20), *users(0, 20))

        async def replace() -> None:
            await store.threads.delete("t")
            await store.threads.create("t")
            await store.commit("t", messages=[Message.user(f"new {i}", id=f"n{i}") for i in range(40)])

        engine.meanwhile = replace
        page = await store.messages.page("t", before=40, limit=3)
        assert [record.message_id for record in page] == ["n36", "n37", "n38"]

    asyncio.run(run())
