"""The shape of a message: every rule that can be checked by looking at the message alone.

Refusals come before any I/O and name the message and the block. Only assistant messages hold tool calls, ids of
calls are unique within a message, and a tool message answers exactly one call. Checks return a lower bound of the size
of what they checked, so that what is far too large is refused before it is encoded; a path is spelled on refusal only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model import message as blocks
from perdure.model.careful import fits
from perdure.model.faithful import NO_EXTRA, Faithful, Opaque, Untyped, fields_of
from perdure.model.message import Compaction, Message, Text, ToolResult, ToolUse, Usage, refuse_foreign_calls
from perdure.model.plain import below, check_json
from perdure.rules.checks import check_count, check_id, check_word

_KNOWN_TYPES = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        Text,
        blocks.Image,
        blocks.Audio,
        blocks.Video,
        blocks.Document,
        blocks.Thinking,
        ToolUse,
        ToolResult,
        blocks.Base64Source,
        blocks.UrlSource,
    )
)
_SOURCE_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in (blocks.Base64Source, blocks.UrlSource))
_PLAIN_ROLES = frozenset(("system", "user", "assistant", "tool"))
_COUNTS = tuple(name for name in Usage.__struct_fields__ if name != "extra")
_TOOL_BLOCKS = frozenset((ToolUse, ToolResult))
_MEDIA = frozenset((blocks.Image, blocks.Audio, blocks.Video, blocks.Document))


def check_messages(messages: Sequence[Message], *, stored: bool = False) -> None:
    """Check each message and that no id repeats among them; what is `stored` already may hold what is now refused."""
    if type(messages) not in (list, tuple):
        raise InvalidError(f"messages is a list of Message, not a {type(messages).__name__}", hint="messages=[message]")
    if len(messages) > limits.COMMIT_MESSAGES:
        raise InvalidError(f"{len(messages)} messages in one commit, the limit is {limits.COMMIT_MESSAGES}")
    ids: set[str] = set()
    size = 0
    for i, message in enumerate(messages):
        path = f"messages[{i}]"
        content = message.content if type(message) is Message else None
        if not stored and type(content) is list and (len(content) > 1 or ToolResult in map(type, content)):
            check_block_count(message, path)
        size += check_message(message, path)
        if message.extra is not NO_EXTRA and not stored:
            refuse_foreign_calls(message.extra, path)
        if message.id is not None:
            if message.id in ids:
                raise InvalidError(f"the message id {message.id!r} appears twice", path=path)
            ids.add(message.id)
        if size > limits.COMMIT_BYTES:
            raise InvalidError(f"more than {limits.COMMIT_BYTES:,} bytes of messages in one commit, which is the limit")


def check_block_count(message: Any, path: str) -> None:
    """Refuse a message of too many blocks; one that was stored by a build without this limit is still read."""
    content = message.content if type(message) is Message else None
    if type(content) is not list:
        return  # `check_message` reports it
    count = len(content)
    for block in content:
        if type(block) is ToolResult and type(block.content) is list:
            count += len(block.content)
    if count > limits.BLOCKS_PER_MESSAGE:
        raise InvalidError(
            f"{count:,} blocks, the limit for one message is {limits.BLOCKS_PER_MESSAGE:,}",
            path=path,
            hint="join small blocks, or spread them over several messages",
        )


def check_message(message: Any, path: str) -> int:
    """Refuse a message whose shape is wrong; its size as JSON is at least what is returned."""
    if type(message) is not Message:
        hint = "use Message.user(…), Message.assistant(…), Message.tool(…) or Message.from_json(…)"
        raise InvalidError(f"not a Message but {type(message).__name__}", path=path, hint=hint)
    try:
        if type(message.role) is not str or message.role not in _PLAIN_ROLES:
            check_word(message.role, "role")
        if type(message.visibility) is not str or message.visibility not in ("all", "internal"):
            check_word(message.visibility, "visibility")
        if message.id is not None:
            check_id(message.id, "id")
        if message.run_id is not None or message.step is not None or message.sender_agent_id is not None:
            _check_producer(message)
        if type(message.content) is not list:
            raise InvalidError("content is a list of blocks", path="", hint="Message.user('text') makes one for you")
        size = _check_blocks(message.content)
        if message.role == "tool" or not _TOOL_BLOCKS.isdisjoint(map(type, message.content)):
            _check_tools(message)
        plain = message.compaction is None and message.metadata is None and message.model is None
        if not (plain and message.stop_reason is None and message.usage is None and message.extra is NO_EXTRA):
            size += _check_rare(message)
    except InvalidError as error:
        raise below(error, path) from None
    if size > limits.MESSAGE_BYTES:
        raise _too_large(path)
    return size


def _too_large(path: str) -> InvalidError:
    return InvalidError(f"more than {limits.MESSAGE_BYTES:,} bytes, which is the limit", path=path)


def _check_rare(message: Message) -> int:
    """The fields that most messages leave at their defaults."""
    size = _check_optional_str(message.model, "model") + _check_optional_str(message.stop_reason, "stop_reason")
    if message.compaction is not None:
        size += _check_compaction(message.compaction)
        if message.role == "tool" or message.tool_calls:
            raise InvalidError("a summary neither calls a tool nor answers one", path="")
    if message.metadata is not None:
        size += _check_object(message.metadata, "metadata")
    if message.usage is not None:
        size += _check_usage(message.usage)
    if message.extra is not NO_EXTRA:
        size += _check_extra(message)
    return size


def _check_usage(usage: Any) -> int:
    if type(usage) is not Usage:
        raise InvalidError(f"must be a Usage, not {short_repr(usage)}", path="usage")
    for name in _COUNTS:
        check_count(getattr(usage, name), f"usage.{name}")
    return _check_extra_below(usage, "usage")


def _check_blocks(blocks: list[Any]) -> int:
    """Refuse what is not a block, or is malformed, naming its position in the content."""
    size = checked = 0
    try:
        for block in blocks:
            if type(block) is Text and type(block.text) is str and block.text.isascii() and block.extra is NO_EXTRA:
                size += len(block.text)
            else:
                size += _check_block(block)
            checked += 1
            if size > limits.MESSAGE_BYTES:
                break  # Many blocks may share one long text: the sum is refused before it is built.
    except InvalidError as error:
        raise below(error, f"content[{checked}]") from None
    if size > limits.MESSAGE_BYTES:
        raise _too_large("content")
    return size


def _check_producer(message: Message) -> None:
    if message.run_id is not None:
        check_id(message.run_id, "run_id")
    if message.step is not None:
        check_count(message.step, "step")
    if message.sender_agent_id is not None:
        check_id(message.sender_agent_id, "sender_agent_id")


def _check_tools(message: Message) -> None:
    kinds = [type(block) for block in message.content]
    if message.role == "tool":
        if kinds != [ToolResult]:
            raise InvalidError("a tool message holds exactly one tool_result", path="", hint="Message.tool(call_id, …)")
        return
    if ToolResult in kinds:
        hint = "use role tool; perdure.formats.anthropic.from_messages makes a tool message of each result"
        raise InvalidError(f"a {message.role} message must not hold a tool_result", path="", hint=hint)
    if ToolUse not in kinds:
        return
    if message.role != "assistant":
        raise InvalidError(f"a {message.role} message must not hold tool calls", path="")
    ids: set[str] = set()
    for call in message.tool_calls:
        if call.id in ids:
            raise InvalidError(f"the tool call id {call.id!r} appears twice", path="")
        ids.add(call.id)


def _check_compaction(mark: Compaction) -> int:
    if type(mark) is not Compaction or type(mark.from_seq) is not int or type(mark.to_seq) is not int:
        raise InvalidError("compaction is a Compaction(from_seq, to_seq)", path="")
    if not 1 <= mark.from_seq <= mark.to_seq <= limits.INTEGER_MAX:
        raise InvalidError(
            f"the compaction range {short_repr(mark.from_seq)}..{short_repr(mark.to_seq)} must be 1-based and"
            " not empty",
            path="",
        )
    return _check_extra_below(mark, "compaction")


def check_summary_place(mark: Compaction, own_seq: int, path: str) -> None:
    """A summary must come after everything it covers."""
    if mark.to_seq >= own_seq:
        raise InvalidError(
            f"the compaction range ends at {mark.to_seq} but the summary itself would be seq {own_seq}", path=path
        )


def _check_block(block: Any) -> int:
    kind = type(block)
    if kind is Text:
        size = _check_str(block.text, "text")
    elif kind is ToolUse:
        check_id(block.id, "id", most=limits.ID_BYTES)
        check_id(block.name, "name", most=limits.NAME_BYTES)
        size = check_json(block.input, "input")
    elif kind is ToolResult:
        check_id(block.tool_use_id, "tool_use_id")
        size = _check_result(block)
    elif kind is blocks.Thinking:
        size = _check_str(block.thinking, "thinking") + _check_optional_str(block.signature, "signature")
    elif kind in _MEDIA:
        size = _check_source(block.source)
        if kind is blocks.Document:
            size += _check_optional_str(block.title, "title")
    elif kind is Opaque:
        return _check_opaque(block)
    else:
        hint = "use Text, Image, ToolUse …, or Message.from_json for anything else"
        raise InvalidError(f"not a block but {kind.__name__}", path="", hint=hint)
    return size if block.extra is NO_EXTRA else size + _check_extra(block)


def _check_result(block: ToolResult) -> int:
    if type(block.content) is not list or type(block.is_error) is not bool:
        raise InvalidError("a tool_result has a list of blocks and a boolean is_error", path="")
    for i, inner in enumerate(block.content):
        if type(inner) in (ToolUse, ToolResult):
            raise InvalidError("a tool_result must not hold tool calls or results", path=f"content[{i}]")
    return _check_blocks(block.content)


def _check_source(source: Any) -> int:
    try:
        if type(source) is blocks.Base64Source:
            size = _check_str(source.media_type, "media_type") + _check_str(source.data, "data")
        elif type(source) is blocks.UrlSource:
            size = _check_str(source.url, "url")
        elif type(source) is Opaque:
            return _check_opaque(source, _SOURCE_TYPES)
        else:
            raise InvalidError("a source must be a Base64Source or a UrlSource", path="")
        return size if source.extra is NO_EXTRA else size + _check_extra(source)
    except InvalidError as error:
        raise below(error, "source") from None


def _check_opaque(block: Opaque, known: frozenset[str] = _KNOWN_TYPES) -> int:
    data: Any = block.data
    if type(data) not in (Untyped, dict) or type(data.get("type")) is not str:
        raise InvalidError("an opaque block is an object with a text field `type`", path="")
    if data["type"] in known:
        # It would be read back as its type, whose rules it was never checked against.
        raise InvalidError(f"{short_repr(data['type'])} is a known type and cannot be opaque", path="")
    return check_json(dict(data), "")


def _check_extra_below(record: Any, path: str) -> int:
    if record.extra is NO_EXTRA:
        return 0
    try:
        return _check_extra(record)
    except InvalidError as error:
        raise below(error, path) from None


def _check_extra(record: Any) -> int:
    fields = fields_of(record.extra, "")
    size = check_json(fields, "")
    kind: type[Faithful] = type(record)
    # What an older build stored under the name of a later field stays unknown, as long as it cannot be that field.
    unfit = {n for n in kind.ADDED.intersection(fields) if getattr(record, n) is None and not fits(kind, n, fields[n])}
    repeated = _known_names(kind).intersection(fields) - unfit
    if repeated:
        raise InvalidError(f"extra repeats the declared field {short_repr(min(repeated))}", path="")
    return size


@cache
def _known_names(kind: type[Faithful]) -> frozenset[str]:
    """What a record calls its own, and no unknown field may be called."""
    tag = {"type"} if kind.__struct_config__.tag_field else set()
    return frozenset(kind.__struct_fields__) - {"extra"} | tag


def _check_object(value: Any, path: str) -> int:
    if type(value) is not dict:
        raise InvalidError("must be an object", path=path)
    return check_json(value, path)


def _check_str(value: Any, path: str) -> int:
    if type(value) is not str:
        raise InvalidError(f"must be text, not {short_repr(value)}", path=path)
    if not value.isascii():
        check_json(value, path)
    return len(value)


def _check_optional_str(value: Any, path: str) -> int:
    return 0 if value is None else _check_str(value, path)
