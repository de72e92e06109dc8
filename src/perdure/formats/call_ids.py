"""Ids of tool calls: servers send empty ones, and the same one twice, which no store takes.

An answer is paid for, so its calls are repaired rather than refused, and the results in the same conversation follow.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence

import msgspec

from perdure import limits
from perdure.model.message import Block, Message, ToolResult, ToolUse

_Aliases = dict[str, deque[str]]


def with_sound_ids(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls that can be stored: each has an id, and no other call of its message has the same."""
    aliases: _Aliases = {}
    return [_repaired(message, aliases) for message in messages]


def _repaired(message: Message, aliases: _Aliases) -> Message:
    if message.role == "assistant":
        content = _sound_calls(message.content, aliases)
    elif message.role == "tool" and aliases:
        content = [_renamed(block, aliases) for block in message.content]
    else:
        return message
    return message if content == message.content else msgspec.structs.replace(message, content=content)


def _sound_calls(blocks: list[Block], aliases: _Aliases) -> list[Block]:
    used = {block.id for block in blocks if isinstance(block, ToolUse)}
    ids: _Aliases = {}
    content: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolUse):
            own = ids.setdefault(block.id, deque())
            name = block.id
            if not _sound(name):
                name = f"call_{uuid.uuid4().hex}"
            elif own:
                name = _further(name, len(own) + 1, used)
            used.add(name)
            own.append(name)
            content.append(block if name == block.id else msgspec.structs.replace(block, id=name))
        else:
            content.append(block)
    for original, names in ids.items():
        aliases.pop(original, None)  # a later message may use the id again
        if list(names) != [original]:
            aliases[original] = names
    return content


def _sound(name: str) -> bool:
    return bool(name.strip()) and name.isprintable() and len(name.encode()) <= limits.ID_BYTES


def _further(name: str, number: int, used: set[str]) -> str:
    while f"{name}-{number}" in used:
        number += 1
    return f"{name}-{number}"


def _renamed(block: Block, aliases: _Aliases) -> Block:
    """A result with the id that its call has now; results of calls that shared one id come in the calls' order."""
    names = aliases.get(block.tool_use_id) if isinstance(block, ToolResult) else None
    return msgspec.structs.replace(block, tool_use_id=names.popleft()) if names else block
