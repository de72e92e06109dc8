"""Messages for people, whole, as `log` writes them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from perdure.cli.escaping import visible
from perdure.cli.flow import flowed
from perdure.cli.terminal import ROLES, moment
from perdure.model.message import Block, MessageRecord, Thinking, ToolResult, ToolUse
from perdure.model.message import Text as TextBlock
from perdure.stores.summaries import call_text, other_text


def role_text(role: str) -> Text:
    """A role in its colour."""
    return Text(visible(role), style=ROLES.get(role, "bold"))


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
    return Text(f"{indent}{other_text(block)}", "magenta")


def _result(block: ToolResult, indent: str) -> Text:
    failed = "  failed" if block.is_error else ""
    text = Text().append(f"{indent}← ", "yellow").append(visible(block.tool_use_id), "dim").append(failed, "bold red")
    for inner in block.content:
        text.append("\n").append_text(_block(inner, indent + "  "))
    return text


def _indented(text: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" for line in visible(text, lines=True).split("\n"))
