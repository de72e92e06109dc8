"""Messages for people: whole, as `log` writes them, and on one line, as `tree` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from perdure.cli.escaping import one_line, to_json_text, visible
from perdure.cli.flow import flowed
from perdure.cli.terminal import ROLES, moment
from perdure.model.faithful import Opaque
from perdure.model.message import (
    INTERNAL,
    Audio,
    Base64Source,
    Block,
    Document,
    Image,
    MessageRecord,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    Video,
    text_of,
)
from perdure.model.message import Text as TextBlock

_MEDIA = (Image, Audio, Video, Document)
_ARGUMENT = 60


def role_text(role: str) -> Text:
    """A role in its colour."""
    return Text(visible(role), style=ROLES.get(role, "bold"))


def call_text(call: ToolUse, most: int = 400) -> str:
    """A tool call as people write one: `weather(city="Kyoto", days=2)`."""
    values: Any = call.input
    if isinstance(values, dict):
        parts = [f"{one_line(name, 40)}={one_line(to_json_text(value), _ARGUMENT)}" for name, value in values.items()]
        arguments = ", ".join(parts)
    else:
        arguments = "" if values is None else one_line(to_json_text(values), _ARGUMENT)
    return f"{one_line(call.name, 60)}({one_line(arguments, most)})"


def whole_message(record: MessageRecord, width: int, *, branch: str | None = None) -> Iterator[Text]:
    """A message with everything in it, over several lines; its head is wrapped between ids, never inside one."""
    role = Text(f"#{record.seq} ", "dim").append_text(role_text(record.role))
    notes = [Text(note, "dim") for note in (moment(record.at), *_notes(record, branch))]
    yield from flowed([role, *notes], width, indent=4)
    for block in record.content:
        yield _block(block, indent="  ")


def _notes(record: MessageRecord, branch: str | None) -> list[str]:
    message = record.message
    notes = [visible(record.message_id)]
    if branch is not None:
        notes.append(f"on {visible(branch)}")
    if message.sender_agent_id is not None:
        notes.append(f"by {visible(message.sender_agent_id)}")
    if message.run_id is not None:
        notes.append(f"run {visible(message.run_id)}")
    if message.step is not None:
        notes.append(f"step {message.step}")
    if message.compaction is not None:
        notes.append(f"summary of #{message.compaction.from_seq}–#{message.compaction.to_seq}")
    if message.visibility != "all":
        notes.append(f"({visible(message.visibility)})")
    return notes


def _block(block: Block, indent: str) -> Text:
    if isinstance(block, TextBlock):
        return Text(_indented(block.text, indent))
    if isinstance(block, Thinking):
        return Text(_indented(block.thinking, indent), style="dim italic")
    if isinstance(block, ToolUse):
        text = Text().append(f"{indent}→ {call_text(block)}", "yellow")
        return text.append(f"  {visible(block.id)}", "dim")
    if isinstance(block, ToolResult):
        return _result(block, indent)
    return Text(f"{indent}{_other(block)}", "magenta")


def _result(block: ToolResult, indent: str) -> Text:
    failed = "  failed" if block.is_error else ""
    text = Text().append(f"{indent}← ", "yellow").append(visible(block.tool_use_id), "dim").append(failed, "bold red")
    for inner in block.content:
        text.append("\n").append_text(_block(inner, indent + "  "))
    return text


def _indented(text: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" for line in visible(text, lines=True).split("\n"))


def _other(block: Block) -> str:
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
        elif not isinstance(block, TextBlock | ToolUse | Thinking):
            parts.append(_other(block))
    return " ".join(parts) or ("[thinking]" if record.content else "[empty]")


def _result_summary(block: ToolResult, calls: dict[str, str], *, retracted: bool) -> str:
    name = one_line(calls.get(block.tool_use_id, block.tool_use_id), 60)
    if retracted:
        return f"[{name} retracted]"
    content = one_line(text_of(block.content)) or " ".join(_other(inner) for inner in block.content)
    return f"← {name}{' failed' if block.is_error else ''}: {content}"
