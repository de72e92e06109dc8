"""Short words for what cases do all the time: say something, look at texts, ids and seqs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.errors import CursorExpired
from perdure.model.message import Message, MessageRecord, Text, ToolUse
from perdure.stores.store import Store
from perdure.testkit.kit import raises

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
"""What is no id, whatever it names."""


async def say(store: Store, thread_id: str, *texts: str, branch: int | str | None = None) -> list[str]:
    """Commit one user message per text; their ids are the texts themselves."""
    messages = [Message.user(text, id=text) for text in texts]
    return (await store.commit(thread_id, messages=messages, branch=branch)).message_ids


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
                await raises(CursorExpired, ask(cursor[:i] + other + cursor[i + 1 :]), f"character {i} as {other!r}")
        await raises(CursorExpired, ask(cursor[:i] + cursor[i + 1 :]), f"without character {i}")
    for damaged in ("", "x", cursor + "A", cursor + "=", " " + cursor, cursor * 2, "3", "\ud800", 3, b"x"):
        await raises(CursorExpired, ask(damaged), f"cursor {damaged!r}")
