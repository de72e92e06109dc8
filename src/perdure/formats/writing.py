"""Writing a request: its messages in the order that providers insist on, their blocks as parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.errors import InvalidError
from perdure.formats.reading import items_of
from perdure.model.faithful import Opaque
from perdure.model.message import Block, Message, MessageRecord

Conversation = Iterable[Message | MessageRecord]
Sendable = Any
"""A part of a request: plain JSON data, typed so that the typed dicts of each SDK accept it."""


def messages_of(conversation: Conversation) -> list[Message]:
    """The messages themselves, from records or as they are."""
    messages = []
    for i, item in enumerate(items_of(conversation, "messages")):
        message = item.message if isinstance(item, MessageRecord) else item
        if type(message) is not Message:
            hint = "pass what store.messages.history returns, or a list of Message"
            raise InvalidError(f"not a Message but {type(item).__name__}", path=f"messages[{i}]", hint=hint)
        messages.append(message)
    return messages


def results_after_calls(messages: Sequence[Message]) -> list[Message]:
    """Each result behind the message that called, before anything said in between: providers insist on it."""
    positions: dict[str, int] = {}
    behind: list[list[Message]] = []
    for message in messages:
        position = positions.get(message.tool_call_id or "") if message.role == "tool" else None
        if position is None:
            behind.append([message])
            if message.role == "assistant":
                positions.update((call.id, len(behind) - 1) for call in message.tool_calls)
        else:
            behind[position].append(message)
    return [message for group in behind for message in group]


def write_blocks(
    blocks: Iterable[Block], write: Callable[[Block], dict[str, Any] | None], form: str, path: str, *, skip: bool
) -> list[dict[str, Any]]:
    """Each block as a part, empty ones left out; a block without any is refused, or left out if the caller said so."""
    parts = []
    for i, block in enumerate(blocks):
        part = write(block)
        if part is not None:
            parts += [part] if part else []
        elif not skip:
            kind = block.kind if isinstance(block, Opaque) else type(block).__struct_config__.tag
            hint = "leave such blocks out yourself, or all of them with skip_unsupported=True"
            raise InvalidError(f"{form} cannot carry this {kind} block", path=f"{path}.content[{i}]", hint=hint)
    return parts


def short(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One plain text, or none, is written as a string: every server takes that."""
    if not parts:
        return ""
    text = parts[0].get("text")
    return text if len(parts) == 1 and parts[0].keys() == {"type", "text"} and isinstance(text, str) else parts


def fresh(value: Any) -> Any:
    """JSON data that shares nothing with the stored messages, so that a caller may change it."""
    if isinstance(value, dict):
        return {name: fresh(item) for name, item in value.items()}
    return [fresh(item) for item in value] if isinstance(value, (list, tuple)) else value
