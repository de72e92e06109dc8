"""Anthropic's Messages API.

Both ways: text, images, documents, tool calls, tool results with their blocks and `is_error`, thinking with its
signature, cache control, citations, and blocks of unknown type, such as redacted thinking and server tools.

System messages are lifted out of the conversation and become one. The results of parallel calls share one user turn,
directly behind their calls. Left out, because the API refuses them: blank text, messages without content, thinking
without a signature or at the end of a message, and what another provider ran or hid. Refused, or left out with
`skip_unsupported=True`: audio, video, media in system and assistant messages, other formats' unknown parts of users.

Input that is no object is sent as `{"input": …}`, an error without content as the text "error", and a call id that the
API refuses as a substitute that is always the same. Message ids, runs, visibility, metadata and the other fields of
Perdure are not part of any request.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Unpack

from perdure.errors import InvalidError, short_repr
from perdure.formats.call_ids import with_sound_ids
from perdure.formats.shared import (
    Conversation,
    Payload,
    Sendable,
    carried,
    carry,
    fresh,
    items_of,
    list_at,
    make,
    make_usage,
    media_type,
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
_SENT: dict[type, frozenset[str]] = {
    Text: frozenset(("cache_control", "citations")),
    ToolUse: frozenset(("cache_control", "caller", "toolset_name")),
    ToolResult: frozenset(("cache_control", "toolset_name")),
    Thinking: frozenset(),
    Image: frozenset(("cache_control", "transformations")),
    Document: frozenset(("cache_control", "citations", "context")),
}
"""Fields that a block of a request may have; an answer brings more, and so does the SDK."""
_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_THOUGHTS = frozenset(("thinking", "redacted_thinking"))
_UNFIT = re.compile("[^a-zA-Z0-9_-]")
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
        blocks = _write_content(message.content, message.role, f"messages[{i}]", skip=skip_unsupported)
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
            turns.append({"role": message.role, "content": _short(blocks)})
    return fresh(system), fresh(turns)


def _write_content(blocks: list[Block], role: str, path: str, *, skip: bool) -> list[Turn]:
    """Blocks in their place: a message of this role, or a `result`."""

    def write(block: Block) -> Turn | None:
        if _left_out(block, role):
            return {}
        return write_block(block, path, skip=skip) if _has_place(block, role) else None

    written = write_blocks(blocks, write, FORM, path, skip=skip)
    while written and written[-1]["type"] in _THOUGHTS:
        written.pop()  # nothing follows: what it led to was withdrawn, or never came
    return written


def _left_out(block: Block, role: str) -> bool:
    """What the API is known to refuse and nobody misses."""
    if isinstance(block, Text):
        return not block.text.strip()
    if isinstance(block, Thinking):
        return not block.signature or role != "assistant"
    return role == "assistant" and isinstance(block, Opaque) and block.kind in _FOREIGN


def _has_place(block: Block, role: str) -> bool:
    if role == "system":
        return isinstance(block, Text)
    return not (role == "assistant" and isinstance(block, (Image, Document)))


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
    for i, turn in enumerate(items_of(messages, "messages")):
        read += _read_turn(plain(turn, f"messages[{i}]"), f"messages[{i}]", {})
    return with_sound_ids(read)


def from_message(message: Payload, **fields: Unpack[MessageFields]) -> Message:
    """One turn of a request, or an answer; the turn must not hold several results, or results and other blocks.

    Args:
        message: a dict, or an object of the SDK.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    read = with_sound_ids(_read_turn(plain(message, "message"), "message", fields))
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
    message = make("assistant", content, carry(FORM, rest(data, *_ANSWER)), {**_answer_fields(data), **fields})
    return with_sound_ids([message])[0]


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
        fields = {"type": "tool_use", "id": _call_id(block.id), "name": block.name, "input": _object(block.input)}
    elif isinstance(block, ToolResult):
        content = _write_content(block.content, "result", path, skip=skip)
        fields = {"type": "tool_result", "tool_use_id": _call_id(block.tool_use_id), "content": _short(content)}
        if block.is_error:
            fields |= {"content": fields["content"] or "error", "is_error": True}
    elif isinstance(block, Thinking):
        fields = {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
    elif isinstance(block, (Image, Document)):
        source = _write_source(block)
        if source is None:
            return None
        fields = {"type": "image" if isinstance(block, Image) else "document", "source": source}
        if isinstance(block, Document) and block.title is not None:
            fields["title"] = block.title
    else:
        return None
    others = carried(block, FORM, _SENT[type(block)])
    if isinstance(block, Text) and isinstance(others.get("citations"), list):
        others["citations"] = [_sent_citation(item) for item in others["citations"]]
    return {**fields, **others}


def _sent_citation(citation: Any) -> Any:
    """An answer names the file that it cites, a request does not."""
    return {k: v for k, v in citation.items() if k != "file_id"} if isinstance(citation, dict) else citation


def _call_id(name: str) -> str:
    """The id itself if the API takes it, else a substitute: the same for the call and its result, now and later."""
    if name and not _UNFIT.search(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_UNFIT.sub('_', name)[:40]}-{digest}"


def _object(value: Any) -> Turn:
    if isinstance(value, dict):
        return value
    return {} if value is None else {"input": value}


def _write_source(block: Image | Document) -> Turn | None:
    source = block.source
    if isinstance(source, Base64Source):
        kind = media_type(source)
        if isinstance(block, Document) and kind.startswith("text/"):
            return _write_plain_text(source)
        fits = kind in _IMAGE_TYPES if isinstance(block, Image) else kind == "application/pdf"
        return {"type": "base64", "media_type": kind, "data": source.data} if fits else None
    if isinstance(source, UrlSource):
        return {"type": "url", "url": source.url}
    return None if source.kind in _FOREIGN else dict(source.data)


def _write_plain_text(source: Base64Source) -> Turn | None:
    """A text document, which the API takes as text only."""
    try:
        text = base64.b64decode(source.data, validate=True).decode()
    except ValueError:
        return None
    return {"type": "text", "media_type": "text/plain", "data": text}


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
        signature = text_at(block, "signature", path) or None if block.get("signature") is not None else None
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
        self._response: Turn | None = None
        self._blocks: dict[int, Turn] = {}
        self._pieces: dict[int, dict[str, list[Any]]] = {}
        self._stopped = False

    def _take(self, data: Turn) -> str | None:
        kind, index = data.get("type"), data.get("index", 0)
        if type(index) is not int:
            raise InvalidError(f"the index of a block is an integer, not {short_repr(index)}", path="event")
        if kind == "message_start":
            self._response = plain(data.get("message"), "event.message")
            self._blocks, self._pieces = {}, {}
        elif kind == "content_block_start":
            self._blocks[index] = plain(data.get("content_block"), "event.content_block")
            self._pieces[index] = {}
        elif kind == "content_block_delta":
            return self._extend(index, plain(data.get("delta"), "event.delta"))
        elif kind == "message_delta" and self._response is not None:
            self._response.update(rest(plain(data.get("delta"), "event.delta")))
            counted = rest(part_of(data, "usage"))
            self._response["usage"] = {**part_of(self._response, "usage"), **counted}
        elif kind == "message_stop":
            self._stopped = True
        return None  # pings, and what the SDK's helper says twice

    def _extend(self, index: int, delta: Turn) -> str | None:
        if index not in self._blocks:
            raise InvalidError(f"a delta of the block {short_repr(index)}, which has not begun", path="event")
        kind = text_at(delta, "type", "event.delta")
        if kind not in _DELTAS:
            raise InvalidError(f"unknown type of delta {short_repr(kind)}", hint="ask for the answer without a stream")
        source, name = _DELTAS[kind]
        piece = delta.get(source) if kind == "citations_delta" else text_at(delta, source, "event.delta")
        self._pieces[index].setdefault(name, []).append(piece)
        return (delta["text"] or None) if kind == "text_delta" else None

    def _missing(self) -> str | None:
        if self._response is None:
            return "its message_start"
        return None if self._stopped else "its message_stop"

    def _make(self, fields: MessageFields) -> Message:
        content = [_whole_block(block, self._pieces[index]) for index, block in self._blocks.items()]
        return from_response({**(self._response or {}), "content": content}, **fields)


_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
    "citations_delta": ("citation", "citations"),
}
"""Where a delta has its piece, and the field that it is a piece of."""


def _whole_block(block: Turn, pieces: dict[str, list[Any]]) -> Turn:
    """A block with its pieces, joined once: joining at every delta would take time that grows with its square."""
    whole = dict(block)
    for name, items in pieces.items():
        before = block.get(name)
        if name == "citations":
            whole[name] = [*(before if isinstance(before, list) else []), *items]
        elif name == "input":
            text = "".join(items)
            whole[name] = read_arguments(text) if text else before
        else:
            whole[name] = (before if isinstance(before, str) else "") + "".join(items)
    return whole
