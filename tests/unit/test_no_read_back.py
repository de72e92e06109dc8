"""A write is the last thing a store asks of the engine: once it landed, nothing can fail any more.

A read after the write would cost a second trip, and if it failed the caller would be told that the write had not been
possible. So the engine here refuses every read after a write, as a connection that broke just then would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from perdure import DeliveryMode, Doc, Message, Store
from perdure.engines.memory import MemoryEngine
from perdure.errors import UnavailableError
from perdure.kernel.ops import Applied, Op, ReadOp
from perdure.stores.schema import SCHEMA

Act = Callable[[Store], Awaitable[Any]]


class BreakingEngine:
    """Counts what is asked; once armed, it answers reads until the first write landed, and none after it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.armed = False
        self.views = 0
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply, and count."""
        applied: Applied = await self._engine.transact(scope, ops, hints)
        self.writes += self.armed
        return applied

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer, unless the write has landed."""
        if self.writes:
            raise UnavailableError("the connection broke after the write")
        self.views += self.armed
        answers: list[Any] = await self._engine.view(scope, reads)
        return answers


async def scene(engine: BreakingEngine) -> Store:
    """A store with one thread that has a parent, two branches, a run, a document and two pending messages."""
    store = Store(engine)
    await store.threads.create("p")
    await store.threads.create("t", parent_thread_id="p")
    await store.commit("t", messages=[Message.user(text, id=text) for text in "abc"])
    await store.branches.fork("t", at="b", name="side")
    await store.commit("t", messages=[Message.user("d", id="d")], branch="side")
    await store.pending.append("t", [Message.user("x", id="x"), Message.user("y", id="y")])
    engine.armed = True
    return store


WRITES: list[tuple[str, int, Act]] = [
    ("create", 0, lambda s: s.threads.create("new", title="x", custom={"a": 1})),
    ("create-child", 1, lambda s: s.threads.create("new", parent_thread_id="p")),
    ("update", 1, lambda s: s.threads.update("t", title="new")),
    ("move", 2, lambda s: s.threads.update("t", parent_thread_id=None)),
    ("fork-at", 2, lambda s: s.branches.fork("t", at="a")),
    ("fork-root", 1, lambda s: s.branches.fork("t", at=None, switch=True)),
    ("fork-before", 3, lambda s: s.branches.fork("t", before="b")),
    ("fork-before-first", 3, lambda s: s.branches.fork("t", before="d")),
    ("fork-messages", 2, lambda s: s.branches.fork("t", at="a", messages=[Message.user("e")], switch=True)),
    ("fork-keyed", 2, lambda s: s.branches.fork("t", at="a", messages=[Message.user("e")], key="k")),
    ("checkout-switch", 2, lambda s: s.branches.checkout("t", "d")),
    ("checkout-fork", 3, lambda s: s.branches.checkout("t", "a")),
    ("switch", 2, lambda s: s.branches.switch("t", 1)),
    ("rename", 2, lambda s: s.branches.rename("t", 1, "other")),
    ("label", 1, lambda s: s.branches.label("t", "a", "here")),
    ("append", 1, lambda s: s.pending.append("t", [Message.user("z")], mode=DeliveryMode(barrier=True))),
    ("append-brought", 1, lambda s: s.pending.append("t", [Message.user("z", id="z")])),
    ("edit", 1, lambda s: s.pending.edit("t", "x", Message.user("changed"))),
    ("retract", 1, lambda s: s.pending.retract("t", "x")),
    ("reorder", 1, lambda s: s.pending.reorder("t", ["y", "x"])),
    ("freeze", 1, lambda s: s.pending.freeze("t")),
    ("commit", 0, lambda s: s.commit("t", messages=[Message.user("e")], key="k")),
    ("start", 0, lambda s: s.runs.start("t", "agent", messages=[Message.user("q")])),
    ("put", 0, lambda s: s.state.put("t", "doc", Doc({"a": 1}, schema=2))),
]


@pytest.mark.parametrize(("views", "act"), [case[1:] for case in WRITES], ids=[case[0] for case in WRITES])
def test_nothing_is_read_after_the_write(views: int, act: Act) -> None:
    async def scenario() -> None:
        engine = BreakingEngine(MemoryEngine(SCHEMA))
        await act(await scene(engine))

        assert (engine.views, engine.writes) == (views, 1)

    asyncio.run(scenario())
