"""Helpers that the cases share: commit texts, enqueue, change a run, race, and look at texts, ids and seqs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from perdure import limits
from perdure.errors import ConflictError, InvalidError
from perdure.model.branch import Branch
from perdure.model.message import Message, MessageRecord, Text, ToolUse
from perdure.model.page import Page
from perdure.model.pending import DeliveryMode, PendingMessage
from perdure.model.receipt import Receipt
from perdure.model.run import NewRun, Run, RunChange
from perdure.stores.follower import Follower
from perdure.stores.store import Store
from perdure.testkit.kit import CaseFailed, Kit, collect, equal, raises

ItemT = TypeVar("ItemT")
T = TypeVar("T")

_OTHER_SPELLINGS = "Aa0-_=!é"

HOSTILE_IDS = (
    "it's",
    'say "hi"',
    "100%",
    "under_score",
    "back\\slash",
    "semi;colon -- drop",
    "a/b/../c",
    "new%0Aline",
    "{braces} $dollar `tick`",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301",
    "\u00e9",
    "Case",
    "case",
    "trailing ",
    " leading",
    "\u2028separator",
    "null",
    "0",
    "00",
    "-1",
    "x" * 256,
    "\u00e9" * 128,
)
"""Ids that quoting, patterns, normalisation or number parsing would spoil; all legal, all different."""

REFUSED_IDS: tuple[Any, ...] = (
    "",
    " ",
    " \u00a0 ",
    "nul\x00",
    "line\nfeed",
    "tab\t",
    "\x7f",
    "\x85",
    "\ud800",
    "x" * 257,
    "\u00e9" * 128 + "x",
    7,
    b"bytes",
    ["list"],
)
"""Values that are not valid ids of anything."""


async def say(store: Store, thread_id: str, *texts: str, branch: int | str | None = None) -> list[str]:
    """Commit one user message per text; their ids are the texts themselves."""
    messages = [Message.user(text, id=text) for text in texts]
    return (await store.commit(thread_id, messages=messages, branch=branch)).message_ids


async def path(kit: Kit, branch: int | str | None = None, **query: Any) -> list[str]:
    """The ids on a branch's path in the thread `t`."""
    return ids(await kit.store.messages.history("t", branch=branch, **query))


def fork_x(kit: Kit, **fields: Any) -> Branch:
    """The branch `x` that was just forked after the second message of the thread `t`."""
    return Branch(thread_id="t", id=1, name="x", parent=0, fork_seq=2, created_at=kit.clock.now, **fields)


async def paged_ids(ask: Callable[..., Awaitable[Page[Any]]], limit: int) -> list[str]:
    """The ids of a whole list, read in pages: `ask` takes `limit` and `cursor`. All pages but the last must be full."""
    names, cursor = [], None
    while True:
        page = await ask(limit=limit, cursor=cursor)
        names += [item.id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return names
        equal(len(page.items), limit, "a page that is not the last is full")


def texts(records: Iterable[MessageRecord]) -> list[str]:
    """The texts of some records."""
    return [record.text for record in records]


def ids(records: Iterable[MessageRecord]) -> list[str]:
    """The message ids of some records."""
    return [record.message_id for record in records]


def seqs(records: Iterable[MessageRecord]) -> list[int]:
    """The seqs of some records."""
    return [record.seq for record in records]


def parents(records: Iterable[MessageRecord]) -> dict[str, str | None]:
    """Each message's parent."""
    return {record.message_id: record.parent_id for record in records}


def calling(*calls: str, text: str = "", **fields: Any) -> Message:
    """An assistant message that asks for tools; each call's id is given, the tool is always `search`."""
    blocks = [Text(text)] if text else []
    return Message.assistant([*blocks, *(ToolUse(call, "search", {"q": call}) for call in calls)], **fields)


async def expect_cursor_guarded(ask: Any, cursor: str) -> None:
    """A cursor with any character changed, removed or added is refused."""
    for i in range(len(cursor)):
        for other in _OTHER_SPELLINGS:
            if cursor[i] != other:
                await raises(InvalidError, ask(cursor[:i] + other + cursor[i + 1 :]), f"character {i} as {other!r}")
        await raises(InvalidError, ask(cursor[:i] + cursor[i + 1 :]), f"without character {i}")
    for damaged in ("", "x", cursor + "A", cursor + "=", " " + cursor, cursor * 2, "3", "\ud800", 3, b"x"):
        await raises(InvalidError, ask(damaged), f"cursor {damaged!r}")


@contextmanager
def _limited(**smaller: int) -> Iterator[None]:
    """Lower some limits for a while."""
    before = {name: getattr(limits, name) for name in smaller}
    for name, value in smaller.items():
        setattr(limits, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(limits, name, value)


def small_pieces() -> AbstractContextManager[None]:
    """Have erasing take one row and one entry at a time, so that it can be interrupted at many points."""
    return _limited(ERASE_ROWS=1, ERASE_ENTRIES=1)


def small_families() -> AbstractContextManager[None]:
    """Have a deletion change at most four threads in one transaction, and reach larger families two by two."""
    return _limited(CASCADE_THREADS=4, DISPERSED_THREADS=2)


def conflict(error: ConflictError, expected: object, actual: object) -> None:
    """A conflict names the expected and the actual value."""
    equal(error.expected, expected, f"expected of {error}")
    equal(error.actual, actual, f"actual of {error}")


async def commit_texts(store: Store, thread: str, *texts: str, **options: Any) -> Receipt:
    """Commit plain user messages, with any option of a commit."""
    receipt: Receipt = await store.commit(thread, messages=[Message.user(text) for text in texts], **options)
    return receipt


def pending_texts(items: Sequence[PendingMessage]) -> list[str]:
    """What some pending messages say."""
    return [item.message.text for item in items]


async def queue_texts(store: Store, thread: str) -> list[str]:
    """What waits in a thread's queue, checked for dense positions."""
    items = (await store.pending.list(thread)).items
    equal([item.position for item in items], list(range(1, len(items) + 1)), "positions of the queue")
    return pending_texts(items)


async def enqueue(store: Store, thread: str, *texts: str, mode: DeliveryMode | None = None) -> list[str]:
    """Append plain user messages to a queue; their ids."""
    items = await store.pending.append(thread, [Message.user(text) for text in texts], mode=mode)
    return [item.id for item in items]


async def move(store: Store, change: RunChange | NewRun, thread: str = "t", **options: Any) -> Run:
    """Commit a run's move; the run after it, as both the receipt and the store show it."""
    run = (await store.commit(thread, run=change, **options)).run
    if run is None:
        raise CaseFailed("the receipt of a run's move carries no run")
    equal(await store.runs.get(run.id), run, "the run as stored, against the receipt")
    return run


async def race(*calls: Coroutine[Any, Any, T]) -> tuple[list[T], list[ConflictError]]:
    """Run calls at the same time: what the winners returned, and the conflicts of the others."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    lost = [item for item in outcomes if isinstance(item, ConflictError)]
    for item in outcomes:
        if isinstance(item, BaseException) and not isinstance(item, ConflictError):
            raise item
    return [item for item in outcomes if not isinstance(item, BaseException)], lost


class Died(Exception):
    """Simulates the end of the process at a failpoint."""


def die(name: str) -> None:
    """A failpoint's action: nothing after this point happens."""
    raise Died(name)


async def everything(store: Store, thread: str = "t") -> str:
    """One thread with all that a thread can own; the id of its first message."""
    receipt = await store.commit(thread, messages=[Message.user("a"), Message.user("b")], key="k")
    await store.branches.fork(thread, at=receipt.message_ids[0], name="side", switch=True)
    await store.branches.label(thread, receipt.message_ids[0], "here")
    run = await store.runs.start(thread, "agent", run_id="r", messages=[Message.user("q")])
    await store.commit(thread, run=run.wait(), state={"doc": 1}, run_state={"memo": 2}, fence=1)
    await enqueue(store, thread, "waiting")
    return receipt.message_ids[0]


async def reading(*followers: Follower[ItemT]) -> list[asyncio.Task[list[ItemT]]]:
    """Tasks that read the followers to their ends, and have begun to."""
    tasks = [asyncio.create_task(collect(follower)) for follower in followers]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks
