"""The shape of a message: every rule that can be checked by looking at the message alone.

Refusals come before any I/O and name the message and the block. Tool calls stand only on assistant messages, ids of
calls are unique within a message, and a tool message answers exactly one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, shown
from perdure.model.faithful import NO_EXTRA, Opaque
from perdure.model.message import (
    Audio,
    Base64Source,
    Compaction,
    Document,
    Image,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    Video,
    refuse_foreign_calls,
)  # fmt: skip
from perdure.model.plain import check_json
from perdure.rules.names import check_count, check_id, check_word

_KNOWN_TYPES = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (Text, Image, Audio, Video, Document, Thinking, ToolUse, ToolResult, Base64Source, UrlSource)
)
_PLAIN_ROLES = frozenset(("system", "user", "assistant", "tool"))


def check_messages(messages: Sequence[Message], *, stored: bool = False) -> None:
    """Check each message and that no id repeats among them; what is `stored` already may hold what is now refused."""
    if not isinstance(messages, (list, tuple)):
        raise InvalidError(f"messages is a list of Message, not a {type(messages).__name__}", hint="messages=[message]")
    if len(messages) > limits.COMMIT_MESSAGES:
        raise InvalidError(f"{len(messages)} messages in one commit, the limit is {limits.COMMIT_MESSAGES}")
    seen: set[str] = set()
    for i, message in enumerate(messages):
        check_message(message, f"messages[{i}]")
        if message.extra is not NO_EXTRA and not stored:
            refuse_foreign_calls(message.extra, f"messages[{i}]")
        if message.id is not None:
            if message.id in seen:
                raise InvalidError(f"the message id {message.id!r} appears twice", path=f"messages[{i}]")
            seen.add(message.id)


def check_message(message: Any, path: str) -> None:
    """Refuse a message whose shape is wrong."""
    if type(message) is not Message:
        hint = "use Message.user(…), Message.assistant(…), Message.tool(…) or Message.from_json(…)"
        raise InvalidError(f"not a Message but {type(message).__name__}", path=path, hint=hint)
    if type(message.role) is not str or message.role not in _PLAIN_ROLES:
        check_word(message.role, f"{path}.role")
    if message.visibility not in ("all", "internal"):
        check_word(message.visibility, f"{path}.visibility")
    if message.id is not None:
        check_id(message.id, f"{path}.id")
    _check_producer(message, path)
    if type(message.content) is not list:
        raise InvalidError("content is a list of blocks", path=path, hint="Message.user('text') makes one for you")
    for i, block in enumerate(message.content):
        _check_block(block, f"{path}.content[{i}]")
    _check_tools(message, path)
    if message.compaction is not None:
        _check_compaction(message.compaction, path)
        if message.role == "tool" or message.tool_calls:
            raise InvalidError("a summary neither calls a tool nor answers one", path=path)
    if message.metadata is not None:
        _check_object(message.metadata, f"{path}.metadata")
    if message.extra is not NO_EXTRA:
        _check_extra(message, path)


def _check_producer(message: Message, path: str) -> None:
    if message.run_id is not None:
        check_id(message.run_id, f"{path}.run_id")
    if message.step is not None:
        check_count(message.step, f"{path}.step")
    if message.sender_agent_id is not None:
        check_id(message.sender_agent_id, f"{path}.sender_agent_id")


def _check_tools(message: Message, path: str) -> None:
    results = [block for block in message.content if type(block) is ToolResult]
    if message.role == "tool":
        if len(results) != 1 or len(message.content) != 1:
            raise InvalidError(
                "a tool message holds exactly one tool_result", path=path, hint="Message.tool(call_id, …)"
            )
    elif results:
        raise InvalidError(f"a {message.role} message must not hold a tool_result", path=path, hint="use role tool")
    calls = [block for block in message.content if type(block) is ToolUse]
    if calls and message.role != "assistant":
        raise InvalidError(f"a {message.role} message must not hold tool calls", path=path)
    ids = [call.id for call in calls]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise InvalidError(f"the tool call id {twice!r} appears twice", path=path)


def _check_compaction(mark: Compaction, path: str) -> None:
    if type(mark) is not Compaction or type(mark.from_seq) is not int or type(mark.to_seq) is not int:
        raise InvalidError("compaction is a Compaction(from_seq, to_seq)", path=path)
    if not 1 <= mark.from_seq <= mark.to_seq <= limits.INTEGER_MAX:
        raise InvalidError(
            f"the compaction range {shown(mark.from_seq)}..{shown(mark.to_seq)} must be 1-based and not empty",
            path=path,
        )
    if mark.extra is not NO_EXTRA:
        _check_extra(mark, f"{path}.compaction")


def check_summary_place(mark: Compaction, own_seq: int, path: str) -> None:
    """A summary stands after everything it covers."""
    if mark.to_seq >= own_seq:
        raise InvalidError(
            f"the compaction range ends at {mark.to_seq} but the summary itself would be seq {own_seq}", path=path
        )


def _check_block(block: Any, path: str) -> None:
    kind = type(block)
    if kind is Text:
        _check_str(block.text, f"{path}.text")
    elif kind is ToolUse:
        check_id(block.id, f"{path}.id", most=limits.ID_BYTES)
        check_id(block.name, f"{path}.name", most=limits.NAME_BYTES)
        check_json(block.input, f"{path}.input")
    elif kind is ToolResult:
        check_id(block.tool_use_id, f"{path}.tool_use_id")
        _check_result(block, path)
    elif kind is Thinking:
        _check_str(block.thinking, f"{path}.thinking")
        _check_optional_str(block.signature, f"{path}.signature")
    elif kind in (Image, Audio, Video, Document):
        _check_source(block.source, f"{path}.source")
        if kind is Document:
            _check_optional_str(block.title, f"{path}.title")
    elif kind is Opaque:
        _check_opaque(block, path)
        return
    else:
        hint = "use Text, Image, ToolUse …, or Message.from_json for anything else"
        raise InvalidError(f"not a block but {kind.__name__}", path=path, hint=hint)
    if block.extra is not NO_EXTRA:
        _check_extra(block, path)


def _check_result(block: ToolResult, path: str) -> None:
    if type(block.content) is not list or type(block.is_error) is not bool:
        raise InvalidError("a tool_result has a list of blocks and a boolean is_error", path=path)
    for i, inner in enumerate(block.content):
        if type(inner) in (ToolUse, ToolResult):
            raise InvalidError("a tool_result must not hold tool calls or results", path=f"{path}.content[{i}]")
        _check_block(inner, f"{path}.content[{i}]")


def _check_source(source: Any, path: str) -> None:
    if type(source) is Base64Source:
        _check_str(source.media_type, f"{path}.media_type")
        _check_str(source.data, f"{path}.data")
    elif type(source) is UrlSource:
        _check_str(source.url, f"{path}.url")
    elif type(source) is Opaque:
        _check_opaque(source, path)
        return
    else:
        raise InvalidError("a source is a Base64Source or a UrlSource", path=path)
    if source.extra is not NO_EXTRA:
        _check_extra(source, path)


def _check_opaque(block: Opaque, path: str) -> None:
    data: Any = block.data
    if not isinstance(data, dict) or type(data.get("type")) is not str:
        raise InvalidError("an opaque block is an object with a text field `type`", path=path)
    if data["type"] in _KNOWN_TYPES:
        # It would be read back as what its type says, by rules that nobody held it to.
        raise InvalidError(f"{shown(data['type'])} is a known type and cannot be opaque", path=path)
    check_json(dict(block.data), path)


def _check_extra(record: Any, path: str) -> None:
    if not isinstance(record.extra, Mapping):
        raise InvalidError(f"extra is a mapping of unknown fields, not {shown(record.extra)}", path=path)
    known = set(record.__struct_fields__) - {"extra"}
    for name, value in record.extra.items():
        if name in known or (name == "type" and record.__struct_config__.tag_field):
            raise InvalidError(f"extra holds {shown(name)}, which is a field of its own", path=path)
        check_json({name: value}, path)


def _check_object(value: Any, path: str) -> None:
    if type(value) is not dict:
        raise InvalidError("must be an object", path=path)
    check_json(value, path)


def _check_str(value: Any, path: str) -> None:
    if type(value) is not str:
        raise InvalidError(f"must be text, not {shown(value)}", path=path)
    if not value.isascii():
        check_json(value, path)


def _check_optional_str(value: Any, path: str) -> None:
    if value is not None:
        _check_str(value, path)
