"""Previews: the beginning of a message's text, on one line, for lists of branches.

A preview needs the text of a message and nothing else, so a body is glanced at: what is not text is skipped without
being built, whatever it weighs. A body that a glance cannot make sense of is read in full, which reports its damage.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.model.message import ToolResult, text_of
from perdure.stores.records import MessageEntry, message_record

_MOST = 80


class _Block(msgspec.Struct, gc=False):
    """As much of a block as a preview shows."""

    type: str
    text: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    content: list[_Block] | msgspec.UnsetType = msgspec.UNSET


class _Body(msgspec.Struct, gc=False):
    content: list[_Block]


_glance = msgspec.json.Decoder(_Body).decode


def preview(thread_id: str, entry: MessageEntry) -> str:
    """The first 80 characters of a message: its text, else its calls, else what a tool answered."""
    text = _glanced(entry)
    if text is None:
        text = _read(thread_id, entry)
    text = " ".join(text.split())
    return text[: _MOST - 1] + "…" if len(text) > _MOST else text


def only_calls(entry: MessageEntry) -> bool:
    """Whether a message consists of tool calls and thinking: people see it only once a call has a result."""
    try:
        kinds = {block.type for block in _glance(entry.body).content}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return "tool_use" in kinds and kinds <= {"tool_use", "thinking"}


def _glanced(entry: MessageEntry) -> str | None:
    """The message's text, or None if a glance is not enough to know."""
    if None in (entry.id, entry.role, entry.branch, entry.visibility, entry.at):
        return None
    try:
        blocks = _glance(entry.body).content
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        return None
    text = _texts(blocks)
    if text is None or text.strip():
        return text
    calls = [block.name for block in blocks if block.type == "tool_use"]
    if calls:
        names = [name for name in calls if isinstance(name, str)]
        return f"[{', '.join(names)}]" if len(names) == len(calls) else None
    results = [block.content for block in blocks if block.type == "tool_result"]
    return "" if not results or isinstance(results[0], msgspec.UnsetType) else _texts(results[0])


def _texts(blocks: Sequence[_Block]) -> str | None:
    """The text blocks joined; None if one of them has no text."""
    texts = [block.text for block in blocks if block.type == "text"]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(texts) else None


def _read(thread_id: str, entry: MessageEntry) -> str:
    record = message_record(thread_id, entry, None)
    if record.text.strip():
        return record.text
    calls = ", ".join(call.name for call in record.message.tool_calls)
    results = [block for block in record.content if isinstance(block, ToolResult)]
    return f"[{calls}]" if calls else text_of(results[0].content) if results else ""
