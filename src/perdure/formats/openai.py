"""OpenAI's Chat Completions, which many other servers speak too.

Both ways: text, images, audio, files, tool calls with their arguments, tool results as text, names, refusals (as text
that says what it is), the developer role, and unknown parts, which go back only to this format.

Not carried: `is_error` (say it in the text), the order of text and calls within a message (text goes first), thinking
and what another provider ran or hid (left out), a source as URL of audio or files, video, anything but text in a tool
result, a system message or an answer. Blocks that cannot be carried are refused, or left out with
`skip_unsupported=True`. A call without input is sent with `{}`, empty text as no text. Message ids, runs, visibility,
metadata and the other fields of Perdure are not part of any request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from perdure.errors import InvalidError, short_repr
from perdure.formats.call_ids import with_sound_ids
from perdure.formats.carrying import carried, carry, rest
from perdure.formats.openai_chunks import joined, merge
from perdure.formats.openai_parts import (
    FORM,
    read_call,
    read_part,
    read_refusal,
    write_answered,
    write_call,
    write_instruction,
    write_part,
    write_refusal,
    write_text,
)
from perdure.formats.openai_usage import read_usage
from perdure.formats.reading import Payload, answer_fields, items_of, list_at, make, part_of, plain, read_parts, text_at
from perdure.formats.streams import Collector
from perdure.formats.writing import Conversation, Sendable, fresh, messages_of, results_after_calls, short, write_blocks
from perdure.model.message import Message, MessageFields, ToolResult, Usage

_SENT = {
    "system": frozenset(("role", "name")),
    "user": frozenset(("name",)),
    "assistant": frozenset(("name", "refusal", "audio", "reasoning_content", "reasoning_details", "extra_content")),
    "tool": frozenset(("name",)),
}
"""Fields that go back in a request; an answer brings more of them. The last three are other servers' own: some refuse
a conversation without the reasoning, or the signature in `extra_content`, that they sent."""


def to_messages(conversation: Conversation, *, skip_unsupported: bool = False) -> list[Sendable]:
    """The `messages` of a request, from records or messages.

    Args:
        conversation: what `store.messages.history` returns, or messages in order.
        skip_unsupported: leave out the blocks that this format cannot carry, instead of raising `InvalidError`.
    """
    ordered = results_after_calls(messages_of(conversation))
    sent = [_write(message, f"messages[{i}]", skip=skip_unsupported) for i, message in enumerate(ordered)]
    return [fresh(message) for message in sent if message]


def from_messages(messages: Iterable[Payload]) -> list[Message]:
    """Messages from the `messages` of a request: dicts, or objects of the SDK.

    Args:
        messages: the conversation, in order.
    """
    listed = enumerate(items_of(messages, "messages"))
    return with_sound_ids([_read(plain(message, f"messages[{i}]"), f"messages[{i}]", {}) for i, message in listed])


def from_message(message: Payload, **fields: Unpack[MessageFields]) -> Message:
    """One message, of a request or of an answer (`response.choices[0].message`).

    Args:
        message: a dict, or an object of the SDK.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    (read,) = with_sound_ids([_read(plain(message, "message"), "message", fields)])
    return read


def from_response(response: Payload, *, choice: int = 0, **fields: Unpack[MessageFields]) -> Message:
    """The message of a whole answer, with its model, stop reason and usage.

    Args:
        response: what `chat.completions.create` returned, as a dict or an object of the SDK.
        choice: which of the choices, if the request asked for several.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    data = plain(response, "response")
    choices = list_at(data.get("choices"), "response.choices")
    if type(choice) is not int or not -len(choices) <= choice < len(choices):
        raise InvalidError(f"there is no choice {short_repr(choice)} among {len(choices)}", path="response.choices")
    chosen = plain(choices[choice], "response.choices")
    return _answer(data, chosen, plain(chosen.get("message"), "response.choices.message"), fields)


class Stream(Collector):
    """Collects a streamed answer: `add` each chunk, then take the `message`.

    The message is whole when a chunk has said why the model stopped. Usage comes after that, in a chunk of its own, if
    the request asked for it (`stream_options={"include_usage": True}`): read the stream to its end. The message of a
    server that never sends it has no usage.
    """

    def __init__(self, *, choice: int = 0) -> None:
        """`choice` says which of the choices to collect, if the request asked for several."""
        super().__init__()
        self._choice = choice
        self._message: dict[str, Any] = {}
        self._response: dict[str, Any] = {}
        self._finish: Any = None
        self._usage_promised = False
        self._ended = False

    def _take(self, data: dict[str, Any]) -> str | None:
        self._usage_promised |= "usage" in data  # null in every chunk but the last, if it was asked for
        self._response.update({name: data[name] for name in ("model", "usage") if data.get(name)})
        texts = []
        for item in list_at(data.get("choices") or [], "chunk.choices"):
            choice = plain(item, "chunk.choices")
            if choice.get("index", 0) == self._choice:
                delta = part_of(choice, "delta")
                merge(self._message, delta)
                self._finish = choice.get("finish_reason") or self._finish
                texts += [delta.get("content"), delta.get("refusal")]
        return "".join(text for text in texts if isinstance(text, str)) or None

    def _missing(self) -> str | None:
        return None if self._finish else "the model said why it stopped"

    def _expecting(self) -> bool:
        return self._usage_promised and "usage" not in self._response and not self._ended

    def _make(self, fields: MessageFields) -> Message:
        self._ended = True  # the caller has read the stream to its end
        return _answer(self._response, {"finish_reason": self._finish}, joined(self._message), fields)


def _answer(data: dict[str, Any], choice: dict[str, Any], message: dict[str, Any], fields: MessageFields) -> Message:
    """A message with what the response around it says of it."""
    known = answer_fields(data, choice.get("finish_reason"), _usage)
    (read,) = with_sound_ids([_read({"role": "assistant", **message}, "response.message", {**known, **fields})])
    return read


def _usage(data: dict[str, Any]) -> Usage:
    return read_usage(data, FORM, received="prompt", sent="completion")


def _write(message: Message, path: str, *, skip: bool) -> dict[str, Any]:
    """The message as it is sent; empty if all that it holds is left out."""
    if message.role not in _SENT:
        raise InvalidError(f"{FORM} has no role {short_repr(message.role)}", path=path)
    others = carried(message, FORM, _SENT[message.role])
    if message.role == "tool":
        return {**others, **_write_result(message, path, skip=skip)}
    if message.role == "assistant":
        written = {**_sent_audio(others), **_write_assistant(message, path, skip=skip)}
        nothing = message.content and written == {"role": "assistant", "content": []}
        content = written["content"]
        return {} if nothing else {**written, "content": None if content is None else short(content)}
    write = write_part if message.role == "user" else write_instruction
    parts = write_blocks(message.content, write, FORM, path, skip=skip)
    return {"role": message.role, "content": short(parts), **others}


def _write_assistant(message: Message, path: str, *, skip: bool) -> dict[str, Any]:
    parts = write_blocks(message.content, write_answered, FORM, path, skip=skip)
    calls = [write_call(call) for call in message.tool_calls]
    refused = write_refusal(message.content)
    if not calls:
        return {"role": "assistant", "content": parts, **refused}
    return {"role": "assistant", "content": parts or None, **refused, "tool_calls": calls}


def _sent_audio(others: dict[str, Any]) -> dict[str, Any]:
    """An answer brings the sound itself; a request names it."""
    audio = others.pop("audio", None)
    return {**others, "audio": {"id": audio["id"]}} if isinstance(audio, dict) and "id" in audio else others


def _write_result(message: Message, path: str, *, skip: bool) -> dict[str, Any]:
    results = [block for block in message.content if isinstance(block, ToolResult)]
    if len(results) != 1:
        raise InvalidError("a tool message holds exactly one tool_result", path=path)
    (result,) = results
    parts = write_blocks(result.content, write_text, FORM, path, skip=skip)
    return {"role": "tool", "tool_call_id": result.tool_use_id, "content": short(parts)}


def _read(data: dict[str, Any], path: str, fields: MessageFields) -> Message:
    role = data.get("role")
    if data.get("function_call") is not None or role == "function":
        raise InvalidError("function_call has no id, so its result cannot be told", path=path, hint="use tool_calls")
    if role == "tool":
        result = ToolResult(
            tool_use_id=text_at(data, "tool_call_id", path), content=read_parts(data.get("content"), path, read_part)
        )
        return make("tool", [result], carry(FORM, rest(data, "role", "content", "tool_call_id")), fields)
    others = rest(data, "role", "content", "tool_calls")
    if role == "developer":
        role, others["role"] = "system", "developer"
    if role not in ("user", "system", "assistant"):
        raise InvalidError(f"unknown role {short_repr(role)}", path=path)
    content = read_parts(data.get("content"), path, read_part)
    if role == "assistant":
        content += read_refusal(others)
    if data.get("tool_calls") is not None:
        calls = list_at(data["tool_calls"], f"{path}.tool_calls")
        if calls and role != "assistant":
            raise InvalidError(f"a {role} message must not hold tool calls", path=path)
        content += [read_call(plain(call, path), f"{path}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return make(role, content, carry(FORM, others), fields)
