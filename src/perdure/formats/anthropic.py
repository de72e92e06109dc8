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

from collections.abc import Iterable
from typing import Any, Unpack

from perdure.errors import InvalidError, short_repr
from perdure.formats.anthropic_blocks import FORM, Turn, read_block, short, write_content
from perdure.formats.arguments import read_arguments
from perdure.formats.call_ids import with_sound_ids
from perdure.formats.carrying import carry, rest
from perdure.formats.reading import (
    Payload,
    answer_fields,
    items_of,
    list_at,
    make,
    make_usage,
    part_of,
    plain,
    read_parts,
    text_at,
)
from perdure.formats.streams import Collector
from perdure.formats.writing import Conversation, Sendable, fresh, messages_of, results_after_calls
from perdure.model.halves import with_whole_characters
from perdure.model.message import Message, MessageFields, ToolResult, ToolUse, Usage

_ANSWER = ("role", "content", "id", "type", "model", "stop_reason", "usage")


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
        blocks = write_content(message.content, message.role, f"messages[{i}]", skip=skip_unsupported)
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
            turns.append({"role": message.role, "content": short(blocks)})
    return fresh(system), fresh(turns)


def from_messages(messages: Iterable[Payload], system: Any = None) -> list[Message]:
    """Messages from the `messages` and the `system` of a request; each tool result becomes a message of its own.

    Args:
        messages: the turns, in order: dicts, or objects of the SDK.
        system: the instructions, as text or as a list of blocks.
    """
    read: list[Message] = []
    if system:
        read.append(Message.system(read_parts(system, "system", read_block)))
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
    content = read_parts(list_at(data.get("content"), "response.content"), "response", read_block)
    if any(isinstance(block, ToolResult) for block in content):
        raise InvalidError("an answer must not hold a tool_result", path="response.content")
    message = make(
        "assistant",
        content,
        carry(FORM, rest(data, *_ANSWER)),
        {**_known(data), **fields},
    )
    return with_sound_ids([message])[0]


def _known(data: Turn) -> MessageFields:
    return answer_fields(data, data.get("stop_reason"), _usage)


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


def _read_turn(turn: Turn, path: str, fields: MessageFields) -> list[Message]:
    role = turn.get("role")
    if role not in ("user", "assistant", "system"):
        raise InvalidError(f"unknown role {short_repr(role)}", path=path)
    content = read_parts(turn.get("content"), path, read_block)
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
    return [
        *read,
        make(role, blocks, carry(FORM, others), {**_known(turn), **fields}),
    ]


class Stream(Collector):
    """Collects a streamed answer: `add` each event, then take the `message`.

    The events may come from `messages.create(stream=True)` or from `messages.stream()`. The message is whole when its
    `message_stop` has come.
    """

    def __init__(self) -> None:
        super().__init__()
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
            text = with_whole_characters("".join(items))
            whole[name] = read_arguments(text) if text else before
        else:
            whole[name] = with_whole_characters((before if isinstance(before, str) else "") + "".join(items))
    return whole
