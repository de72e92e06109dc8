"""Messages on one line, as a tree shows them: text, calls, results, and a word for everything else.

Everything stored may have been written by a stranger, so all of it is escaped (`model.visible_text`).
"""

from __future__ import annotations

from typing import Any

from perdure.model.faithful import Opaque
from perdure.model.message import (
    INTERNAL,
    Audio,
    Base64Source,
    Block,
    Document,
    Image,
    MessageRecord,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    Video,
    text_of,
)
from perdure.model.visible_text import one_line, to_json_text

_MEDIA = (Image, Audio, Video, Document)
_ARGUMENT = 60


def call_text(call: ToolUse, most: int = 400) -> str:
    """A tool call as people write one: `weather(city="Kyoto", days=2)`."""
    values: Any = call.input
    if isinstance(values, dict):
        parts = [f"{one_line(name, 40)}={one_line(to_json_text(value), _ARGUMENT)}" for name, value in values.items()]
        arguments = ", ".join(parts)
    else:
        arguments = "" if values is None else one_line(to_json_text(values), _ARGUMENT)
    return f"{one_line(call.name, 60)}({one_line(arguments, most)})"


def other_text(block: Block) -> str:
    """Anything that is neither text nor tool: what it is and where, never its bytes."""
    if isinstance(block, Opaque):
        return f"[{one_line(str(block.kind), 40)} {one_line(to_json_text(dict(block.data)), 120)}]"
    kind = str(block.__struct_config__.tag)
    source = block.source if isinstance(block, _MEDIA) else None
    title = f" {one_line(block.title, 80)}" if isinstance(block, Document) and block.title else ""
    if isinstance(source, UrlSource):
        return f"[{kind}{title} {one_line(source.url, 120)}]"
    if isinstance(source, Base64Source):
        return f"[{kind}{title} {one_line(source.media_type, 40)}, {len(source.data) * 3 // 4:,} bytes]"
    return f"[{kind}{title}]"


def summary(record: MessageRecord, calls: dict[str, str]) -> str:
    """A message on one line. `calls` remembers what was called, so that a result can name its call."""
    message = record.message
    if message.compaction is not None:
        span = f"[summary of #{message.compaction.from_seq}–#{message.compaction.to_seq}]"
        return f"{span} {one_line(record.text)}"
    parts = [one_line(record.text)] if record.text.strip() else []
    for call in message.tool_calls:
        calls[call.id] = call.name
        parts.append(f"→ {call_text(call, 100)}")
    for block in record.content:
        if isinstance(block, ToolResult):
            parts.append(_result_summary(block, calls, retracted=message.visibility == INTERNAL))
        elif not isinstance(block, Text | ToolUse | Thinking):
            parts.append(other_text(block))
    return " ".join(parts) or ("[thinking]" if record.content else "[empty]")


def _result_summary(block: ToolResult, calls: dict[str, str], *, retracted: bool) -> str:
    name = one_line(calls.get(block.tool_use_id, block.tool_use_id), 60)
    if retracted:
        return f"[{name} retracted]"
    content = one_line(text_of(block.content)) or " ".join(other_text(inner) for inner in block.content)
    return f"← {name}{' failed' if block.is_error else ''}: {content}"
