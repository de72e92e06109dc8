"""Many small things in one call: four times as many may take ten times as long, not sixteen times as a square would.

These are lists of ids, documents and messages, and paths of tool calls and summaries, as long as the limits allow.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.budget.measuring import TIMES, Cost

from perdure import Message, Store, ToolUse
from perdure.errors import InvalidError

Step = Callable[[Store, int], Awaitable[Any]]
PART = 4
ATTEMPTS = 4


@dataclass(frozen=True)
class Growing:
    """A call with `many` things, made in a scope of its own."""

    run: Step
    many: int = 1_000
    setup: Step | None = None


def texts(count: int, name: str = "m") -> list[Message]:
    """Small messages with ids."""
    return [Message.user("x", id=f"{name}{n}") for n in range(count)]


async def _thread(store: Store, many: int) -> None:
    await store.commit("t", messages=[Message.user("hello")])


async def _queue(store: Store, many: int) -> None:
    await _thread(store, many)
    await store.pending.append("t", texts(many))


async def _log(store: Store, messages: list[Message]) -> None:
    for start in range(0, len(messages), 1_000):
        await store.commit("t", messages=messages[start : start + 1_000])


async def _calls(store: Store, many: int) -> None:
    """Calls, each answered only at the end."""
    asked = [Message.assistant([ToolUse(f"c{n}", "f")]) for n in range(many)]
    await _log(store, [*asked, *[Message.tool(f"c{n}") for n in range(many)]])


async def _one_call_id(store: Store, many: int) -> None:
    """One id, used and withdrawn all the time."""
    turn = [Message.assistant([ToolUse("c", "f")]), Message.retraction("c")]
    await _log(store, turn * (many // 2))


async def _summaries(store: Store, many: int) -> None:
    """Every second message is covered by a summary of its own."""
    await _log(store, texts(many))
    await _log(store, [Message.summary("s", n, n) for n in range(1, many, 2)])


async def _labels(store: Store, many: int) -> None:
    await _log(store, texts(many))
    for n in range(many):
        await store.branches.label("t", f"m{n}", f"label {n}")


async def _documents(store: Store, many: int) -> None:
    await store.commit("t", state={f"d{n}": n for n in range(many)})


async def _guarded(store: Store, many: int) -> Any:
    revs = {doc.name: doc.rev for doc in await store.state.list("t")}
    return await store.commit("t", expect_state=revs, state={"d0": 1})


async def _repeated_call(store: Store, many: int) -> None:
    """The last of many calls repeats an id, and is refused."""
    calls = [ToolUse(f"c{n}", "f") for n in range(many)]
    try:
        await store.commit("t", messages=[Message.assistant([*calls, calls[-1]])])
    except InvalidError:
        return
    raise LookupError("a repeated call was accepted")


GROWING: dict[str, Growing] = {
    "commit, messages with ids": Growing(lambda s, n: s.commit("t", messages=texts(n), key="k")),
    "commit, a repeated call": Growing(_repeated_call, 9_000),
    "commit, documents": Growing(_documents),
    "commit, guards of documents": Growing(_guarded, setup=_documents),
    "state.list": Growing(lambda s, n: s.state.list("t"), setup=_documents),
    "pending.append": Growing(lambda s, n: s.pending.append("t", texts(n)), setup=_thread),
    "pending.append, to as many": Growing(
        lambda s, n: s.pending.append("t", texts(n, "more")), 500, lambda s, n: _queue(s, 500)
    ),
    "pending.reorder": Growing(
        lambda s, n: s.pending.reorder("t", [f"m{i}" for i in reversed(range(n))]), setup=_queue
    ),
    "pending.retract": Growing(lambda s, n: s.pending.retract("t", "m0"), setup=_queue),
    "pending.freeze": Growing(lambda s, n: s.pending.freeze("t", expect_ids=[f"m{i}" for i in range(n)]), setup=_queue),
    "messages.unfinished_calls": Growing(lambda s, n: s.messages.unfinished_calls("t"), 4_000, _calls),
    "messages.history, calls": Growing(lambda s, n: s.messages.history("t"), 4_000, _calls),
    "messages.history, one call id": Growing(lambda s, n: s.messages.history("t"), 8_000, _one_call_id),
    "messages.external, one call id": Growing(lambda s, n: s.messages.external("t"), 8_000, _one_call_id),
    "messages.history, summaries": Growing(lambda s, n: s.messages.history("t"), 4_000, _summaries),
    "messages.history, summaries, limit": Growing(lambda s, n: s.messages.history("t", limit=3), 4_000, _summaries),
    "branches.labels": Growing(lambda s, n: s.branches.labels("t"), 500, _labels),
}


async def growth_cost(name: str, growing: Growing, store: Store) -> Cost:
    """How much longer the call takes with four times as many; the cheapest attempts are compared."""
    few, many = [], []
    for attempt in range(ATTEMPTS):
        few.append(await _seconds(growing, store.scoped(f"{name[:40]} few {attempt}"), growing.many // PART))
        many.append(await _seconds(growing, store.scoped(f"{name[:40]} many {attempt}"), growing.many))
        if min(many) <= TIMES * min(few):
            break
    return Cost(name, f"{PART} times as many", min(many) / min(few), TIMES)


async def _seconds(growing: Growing, store: Store, many: int) -> float:
    if growing.setup is not None:
        await growing.setup(store, many)
    start = time.process_time()
    await growing.run(store, many)
    return time.process_time() - start
