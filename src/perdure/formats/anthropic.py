"""Anthropic's Messages API.

Both ways: text, images, documents, tool calls, tool results with their blocks and `is_error`, thinking with its
signature, cache control, citations, and blocks of unknown type, such as redacted thinking and server tools.

System messages are lifted out of the conversation and become one. The results of parallel calls share one user turn,
directly behind their calls. Not carried: empty text and messages without content, which the API refuses (left out),
thinking without a signature (left out), audio, video and other formats' unknown parts (refused, or left out with
`skip_unsupported=True`). Input that is no object is sent as `{"input": …}`. Message ids, runs, visibility, metadata and
the other fields of Perdure are not part of any request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from perdure.errors import InvalidError, short_repr
from perdure.formats.shared import (
    Conversation,
    Payload,
    Sendable,
    carried,
    carry,
    list_at,
    make,
    make_usage,
    messages_of,
    part_of,
    plain,
    read_arguments,
    rest,
    results_after_calls,
    text_at,
    write_blocks,
)
from perdure.formats.streams import Collector
from perdure.model.faithful import Opaque, Untyped
from perdure.model.message import (
    Base64Source,
    Block,
    Document,
    Image,
    Message,
    MessageFields,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    Usage,
)

FORM = "anthropic"
_FOREIGN = frozenset(("openai", "openai_responses"))
_RESERVED = frozenset(("audio", "video", "base64", "url"))
"""Types that mean something else in Perdure, so that a block of this API must not be called so."""
_RESPONSE_ONLY = frozenset(("id", "type", "stop_sequence", "stop_details", "container", "diagnostics"))
"""Fields of an answer that a turn does not take back."""
_ANSWER = ("role", "content", "id", "type", "model", "stop_reason", "usage")
Turn = dict[str, Any]


def to_messages(conversation: Conversation, *, skip_unsupported: bool = False) -> tuple[list[Sendable], list[Sendable]]:
    """The `system` blocks and the `messages` of a request, from records or messages.

    Args:
        conversation: what `store.messages.history` returns, or messages in order.
        skip_unsupported: leave out the blocks that this format cannot carry, instead of raising `InvalidError`.
    """
    system: list[Turn] = []
    turns: list[Turn] = []
    results: list[Turn] | None = None
    for i, message in enumerate(results_after_calls(messages_of(conversation))):
        blocks = _write_content(message.content, f"messages[{i}]", skip=skip_unsupported)
        if message.role == "tool":
            if results is None:
                results = []
                turns.append({"role": "user", "content": results})
            results += blocks
        elif message.role == "system":
            system += blocks
        elif message.role not in ("user", "assistant"):
            raise InvalidError(f"{FORM} has no role {short_repr(message.role)}", path=f"messages[{i}]")
        elif blocks:
            results = None
            others = {name: value for name, value in carried(message, FORM).items() if name not in _RESPONSE_ONLY}
            turns.append({"role": message.role, "content": _short(blocks), **others})
    return system, turns


def _write_content(blocks: list[Block], path: str, *, skip: bool) -> list[Turn]:
    return write_blocks(_sendable(blocks), lambda block: write_block(block, path, skip=skip), FORM, path, skip=skip)


def _sendable(blocks: list[Block]) -> list[Block]:
    """Without what the API is known to refuse: empty text, and thinking that nobody signed."""
    return [
        block
        for block in blocks
        if not (isinstance(block, Text) and not block.text)
        and not (isinstance(block, Thinking) and block.signature is None)
    ]


def _short(blocks: list[Turn]) -> str | list[Turn]:
    """One plain text is written as a string."""
    plain_text = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return blocks[0]["text"] if plain_text else blocks


def from_messages(messages: Iterable[Payload], system: Any = None) -> list[Message]:
    """Messages from the `messages` and the `system` of a request; each tool result becomes a message of its own.

    Args:
        messages: the turns, in order: dicts, or objects of the SDK.
        system: the instructions, as text or as a list of blocks.
    """
    read: list[Message] = []
    if system:
        read.append(Message.system(_read_content(system, "system")))
    for i, turn in enumerate(messages):
        read += _read_turn(plain(turn, f"messages[{i}]"), f"messages[{i}]", {})
    return read


def from_message(message: Payload, **fields: Unpack[MessageFields]) -> Message:
    """One turn of a request, or an answer; the turn must not hold several results, or results and other blocks.

    Args:
        message: a dict, or an object of the SDK.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    read = _read_turn(plain(message, "message"), "message", fields)
    if len(read) != 1:
        raise InvalidError(f"this turn makes {len(read)} messages", path="message", hint="use from_messages([turn])")
    return read[0]


def from_response(response: Payload, **fields: Unpack[MessageFields]) -> Message:
    """The message of a whole answer, with its model, stop reason and usage.

    Args:
        response: what `messages.create` returned, as a dict or an object of the SDK.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    data = plain(response, "response")
    content = _read_content(list_at(data.get("content"), "response.content"), "response")
    if any(isinstance(block, ToolResult) for block in content):
        raise InvalidError("an answer must not hold a tool_result", path="response.content")
    return make("assistant", content, carry(FORM, rest(data, *_ANSWER)), {**_answer_fields(data), **fields})


def _answer_fields(data: Turn) -> MessageFields:
    """What an answer says of itself, beside its content."""
    known: MessageFields = {}
    if isinstance(data.get("model"), str):
        known["model"] = data["model"]
    if isinstance(data.get("stop_reason"), str):
        known["stop_reason"] = data["stop_reason"]
    if data.get("usage") is not None:
        known["usage"] = _usage(plain(data["usage"], "response.usage"))
    return known


def _usage(data: Turn) -> Usage:
    parts = (data.get("input_tokens"), data.get("cache_read_input_tokens"), data.get("cache_creation_input_tokens"))
    details = part_of(data, "output_tokens_details")
    counts = {
        # The API counts what was read from a cache, or written to one, beside the input.
        "input_tokens": sum(part for part in parts if type(part) is int),
        "output_tokens": data.get("output_tokens"),
        "cache_read_tokens": data.get("cache_read_input_tokens"),
        "cache_write_tokens": data.get("cache_creation_input_tokens"),
        "reasoning_tokens": details.get("thinking_tokens"),
    }
    known = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    others = rest(data, *known, "output_tokens_details")
    return make_usage(counts, FORM, {**others, "output_tokens_details": rest(details, "thinking_tokens")})


def write_block(block: Block, path: str, *, skip: bool) -> Turn | None:
    """A block as the API takes it; None if there is none for it. `skip` leaves such blocks out of a tool result."""
    if isinstance(block, Opaque):
        return None if block.kind in _FOREIGN else dict(block.data)
    if isinstance(block, Text):
        fields: Turn = {"type": "text", "text": block.text}
    elif isinstance(block, ToolUse):
        fields = {"type": "tool_use", "id": block.id, "name": block.name, "input": _object(block.input)}
    elif isinstance(block, ToolResult):
        content = _write_content(block.content, path, skip=skip)
        fields = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": _short(content)}
        if block.is_error:
            fields["is_error"] = True
    elif isinstance(block, Thinking):
        fields = {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
    elif isinstance(block, (Image, Document)):
        source = _write_source(block.source)
        if source is None:
            return None
        fields = {"type": "image" if isinstance(block, Image) else "document", "source": source}
        if isinstance(block, Document) and block.title is not None:
            fields["title"] = block.title
    else:
        return None
    return {**fields, **carried(block, FORM)}


def _object(value: Any) -> Turn:
    if isinstance(value, dict):
        return value
    return {} if value is None else {"input": value}


def _write_source(source: Source) -> Turn | None:
    if isinstance(source, Base64Source):
        return {"type": "base64", "media_type": source.media_type, "data": source.data, **carried(source, FORM)}
    if isinstance(source, UrlSource):
        return {"type": "url", "url": source.url, **carried(source, FORM)}
    return None if source.kind in _FOREIGN else dict(source.data)


def _read_turn(turn: Turn, path: str, fields: MessageFields) -> list[Message]:
    role = turn.get("role")
    if role not in ("user", "assistant", "system"):
        raise InvalidError(f"unknown role {short_repr(role)}", path=path)
    content = _read_content(turn.get("content"), path)
    results = [block for block in content if isinstance(block, ToolResult)]
    if results and role != "user":
        raise InvalidError(f"a turn of role {role} must not hold a tool_result", path=path)
    blocks = [block for block in content if not isinstance(block, ToolResult)]
    if role != "assistant" and any(isinstance(block, ToolUse) for block in blocks):
        raise InvalidError(f"a turn of role {role} must not hold a tool_use", path=path)
    others = rest(turn, *_ANSWER)
    if results and others:
        raise InvalidError(f"unknown field {short_repr(next(iter(others)))} of a turn with tool results", path=path)
    read = [make("tool", [result], carry(FORM, {}), fields) for result in results]
    if read and not blocks:
        return read
    return [*read, make(role, blocks, carry(FORM, others), {**_answer_fields(turn), **fields})]


def _read_content(content: Any, path: str) -> list[Block]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    blocks = list_at(content, f"{path}.content")
    return [read_block(plain(item, f"{path}.content[{i}]"), f"{path}.content[{i}]") for i, item in enumerate(blocks)]


def read_block(block: Turn, path: str) -> Block:
    """A block of the API; one of an unknown type stays as it is."""
    kind = text_at(block, "type", path)
    if kind == "text":
        return Text(text_at(block, "text", path), extra=carry(FORM, rest(block, "type", "text")))
    if kind == "tool_use":
        extra = carry(FORM, rest(block, "type", "id", "name", "input"))
        return ToolUse(text_at(block, "id", path), text_at(block, "name", path), block.get("input"), extra=extra)
    if kind == "tool_result":
        return _read_result(block, path)
    if kind == "thinking":
        signature = text_at(block, "signature", path) if block.get("signature") is not None else None
        extra = carry(FORM, rest(block, "type", "thinking", "signature"))
        return Thinking(text_at(block, "thinking", path), signature, extra=extra)
    if kind == "image":
        return Image(_read_source(block, path), extra=carry(FORM, rest(block, "type", "source")))
    if kind == "document":
        title = text_at(block, "title", path) if block.get("title") is not None else None
        return Document(_read_source(block, path), title, extra=carry(FORM, rest(block, "type", "source", "title")))
    if kind in _FOREIGN or kind in _RESERVED:
        raise InvalidError(f"unknown block type {short_repr(kind)}", path=path)
    return Opaque(Untyped(block))


def _read_result(block: Turn, path: str) -> ToolResult:
    content = _read_content(block.get("content"), path)
    if any(isinstance(inner, (ToolUse, ToolResult)) for inner in content):
        raise InvalidError("a tool_result must not hold tool calls or results", path=path)
    return ToolResult(
        tool_use_id=text_at(block, "tool_use_id", path),
        content=content,
        is_error=block.get("is_error") is True,
        extra=carry(FORM, rest(block, "type", "tool_use_id", "content", "is_error")),
    )


def _read_source(block: Turn, path: str) -> Source:
    source = plain(block.get("source"), f"{path}.source")
    kind = text_at(source, "type", f"{path}.source")
    if kind == "base64":
        extra = carry(FORM, rest(source, "type", "media_type", "data"))
        return Base64Source(text_at(source, "media_type", path), text_at(source, "data", path), extra=extra)
    if kind == "url":
        return UrlSource(text_at(source, "url", path), extra=carry(FORM, rest(source, "type", "url")))
    return Opaque(Untyped(source))


class Stream(Collector):
    """Collects a streamed answer: `add` each event, then take the `message`.

    The events may come from `messages.create(stream=True)` or from `messages.stream()`. The message is whole when its
    `message_stop` has come.
    """

    def __init__(self) -> None:
        self._response: Turn = {}
        self._blocks: dict[int, Turn] = {}
        self._inputs: dict[int, list[str]] = {}
        self._stopped = False

    def _take(self, data: Turn) -> str | None:
        kind, index = data.get("type"), data.get("index", 0)
        if type(index) is not int:
            raise InvalidError(f"the index of a block is an integer, not {short_repr(index)}", path="event")
        if kind == "message_start":
            self._response = plain(data.get("message"), "event.message")
        elif kind == "content_block_start":
            self._blocks[index] = plain(data.get("content_block"), "event.content_block")
        elif kind == "content_block_delta":
            return self._extend(index, plain(data.get("delta"), "event.delta"))
        elif kind == "message_delta":
            self._response.update(rest(plain(data.get("delta"), "event.delta")))
            counted = rest(part_of(data, "usage"))
            self._response["usage"] = {**part_of(self._response, "usage"), **counted}
        elif kind == "message_stop":
            self._stopped = True
        return None  # pings, and what the SDK's helper says twice

    def _extend(self, index: int, delta: Turn) -> str | None:
        if index not in self._blocks:
            raise InvalidError(f"a delta of the block {short_repr(index)}, which has not begun", path="event")
        block, kind = self._blocks[index], text_at(delta, "type", "event.delta")
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(text_at(delta, "partial_json", "event.delta"))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        elif kind in ("text_delta", "thinking_delta"):
            name = kind.removesuffix("_delta")
            block[name] = (block.get(name) or "") + text_at(delta, name, "event.delta")
            return (delta["text"] or None) if kind == "text_delta" else None
        elif kind == "signature_delta":
            block["signature"] = (block.get("signature") or "") + text_at(delta, "signature", "event.delta")
        else:
            raise InvalidError(f"unknown type of delta {short_repr(kind)}", hint="ask for the answer without a stream")
        return None

    def _missing(self) -> str | None:
        return None if self._stopped and self._response else "its message_stop"

    def _make(self, fields: MessageFields) -> Message:
        content = []
        for index, block in self._blocks.items():
            text = "".join(self._inputs.get(index, []))
            content.append({**block, "input": read_arguments(text)} if text else block)
        return from_response({**self._response, "content": content}, **fields)
