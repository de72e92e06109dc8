"""OpenAI's Chat Completions, which many other servers speak too.

Both ways: text, images, audio, files, tool calls with their arguments, tool results as text, names, refusals, the
developer role, and unknown parts, which go back only to this format.

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
from perdure.formats.openai_chunks import joined, merge
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
    odd_spelling,
    part_of,
    plain,
    read_arguments,
    read_url,
    rest,
    results_after_calls,
    text_at,
    unwrap,
    wrap,
    write_arguments,
    write_blocks,
    write_url,
)
from perdure.formats.streams import Collector
from perdure.model.faithful import Opaque
from perdure.model.message import (
    Audio,
    Base64Source,
    Block,
    Document,
    Image,
    Message,
    MessageFields,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)

FORM = "openai"
_SENT = {
    "system": frozenset(("role", "name")),
    "user": frozenset(("name",)),
    "assistant": frozenset(("name", "refusal", "audio", "reasoning_content", "reasoning_details", "extra_content")),
    "tool": frozenset(("name",)),
}
"""Fields that go back in a request; an answer brings more of them. The last three are other servers' own: some refuse
a conversation without the reasoning, or the signature in `extra_content`, that they sent."""
_SENT_OF_CALL = frozenset(("type", "arguments", "extra_content"))
_SENT_OF_PART = frozenset(("prompt_cache_breakpoint", "cache_control", "image_url", "input_audio", "file"))
_SENT_INSIDE = {"image_url": ("detail",), "input_audio": (), "file": ("file_id",)}
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


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
                texts.append(delta.get("content"))
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
    known: MessageFields = {}
    if isinstance(data.get("model"), str):
        known["model"] = data["model"]
    if isinstance(choice.get("finish_reason"), str):
        known["stop_reason"] = choice["finish_reason"]
    if data.get("usage") is not None:
        known["usage"] = _usage(plain(data["usage"], "response.usage"))
    (read,) = with_sound_ids([_read({"role": "assistant", **message}, "response.message", {**known, **fields})])
    return read


def _usage(data: dict[str, Any]) -> Usage:
    read, written = part_of(data, "prompt_tokens_details"), part_of(data, "completion_tokens_details")
    counts = {
        "input_tokens": data.get("prompt_tokens"),
        "output_tokens": data.get("completion_tokens"),
        "cache_read_tokens": read.get("cached_tokens"),
        "cache_write_tokens": read.get("cache_write_tokens"),
        "reasoning_tokens": written.get("reasoning_tokens"),
    }
    others = rest(data, "prompt_tokens", "completion_tokens", "total_tokens")
    others["prompt_tokens_details"] = _counted(rest(read, "cached_tokens", "cache_write_tokens"))
    others["completion_tokens_details"] = _counted(rest(written, "reasoning_tokens"))
    return make_usage(counts, FORM, others)


def _counted(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _write(message: Message, path: str, *, skip: bool) -> dict[str, Any]:
    """The message as it is sent; empty if all that it holds is left out."""
    if message.role not in _SENT:
        raise InvalidError(f"{FORM} has no role {short_repr(message.role)}", path=path)
    others = carried(message, FORM, _SENT[message.role])
    if message.role == "tool":
        return {**others, **_write_result(message, path, skip=skip)}
    if message.role == "assistant":
        written = {**_write_assistant(message, path, skip=skip), **_sent_audio(others)}
        nothing = message.content and written == {"role": "assistant", "content": []}
        return {} if nothing else {**written, "content": _short(written["content"])}
    write = write_part if message.role == "user" else _write_instruction
    parts = write_blocks(message.content, write, FORM, path, skip=skip)
    return {"role": message.role, "content": _short(parts), **others}


def _write_assistant(message: Message, path: str, *, skip: bool) -> dict[str, Any]:
    parts = write_blocks(message.content, _write_answered, FORM, path, skip=skip)
    calls = [_write_call(call) for call in message.tool_calls]
    if not calls:
        return {"role": "assistant", "content": parts}
    return {"role": "assistant", "content": parts or None, "tool_calls": calls}


def _sent_audio(others: dict[str, Any]) -> dict[str, Any]:
    """An answer brings the sound itself; a request names it."""
    audio = others.pop("audio", None)
    return {**others, "audio": {"id": audio["id"]}} if isinstance(audio, dict) and "id" in audio else others


def _write_result(message: Message, path: str, *, skip: bool) -> dict[str, Any]:
    results = [block for block in message.content if isinstance(block, ToolResult)]
    if len(results) != 1:
        raise InvalidError("a tool message holds exactly one tool_result", path=path)
    (result,) = results
    parts = write_blocks(result.content, _write_text, FORM, path, skip=skip)
    return {"role": "tool", "tool_call_id": result.tool_use_id, "content": _short(parts)}


def _short(parts: list[dict[str, Any]] | None) -> str | list[dict[str, Any]] | None:
    """One plain text, or none, is written as a string: every server takes that."""
    if parts is None:
        return None
    if not parts:
        return ""
    text = parts[0].get("text")
    return text if len(parts) == 1 and parts[0].keys() == {"type", "text"} and isinstance(text, str) else parts


def _write_text(block: Block) -> dict[str, Any] | None:
    if isinstance(block, Thinking):
        return {}
    fields = {"type": "text", "text": block.text} if isinstance(block, Text) else None
    return None if fields is None else {**fields, **carried(block, FORM, _SENT_OF_PART)}


def _write_instruction(block: Block) -> dict[str, Any] | None:
    return unwrap(block, FORM) if isinstance(block, Opaque) else _write_text(block)


def _write_answered(block: Block) -> dict[str, Any] | None:
    """A block of an answer: its calls have a place of their own; what another provider hid or ran is left out."""
    if isinstance(block, ToolUse):
        return {}
    return unwrap(block, FORM) or {} if isinstance(block, Opaque) else _write_text(block)


def write_part(block: Block) -> dict[str, Any] | None:
    """A block as a part of content; empty if it is left out, None if there is none for it."""
    if isinstance(block, (Text, Thinking)):
        return _write_text(block)
    if isinstance(block, Image):
        return _write_nested(block, "image_url", {"url": write_url(block.source)})
    if isinstance(block, Audio) and isinstance(block.source, Base64Source):
        form = _AUDIO_FORMATS.get(media_type(block.source))
        return _write_nested(block, "input_audio", {"data": block.source.data, "format": form})
    if isinstance(block, Document) and isinstance(block.source, Base64Source):
        named = {} if block.title is None else {"filename": block.title}
        return _write_nested(block, "file", {"file_data": write_url(block.source), **named})
    return unwrap(block, FORM)


def _write_nested(block: Image | Audio | Document, name: str, inner: dict[str, Any]) -> dict[str, Any] | None:
    if None in inner.values():
        return None
    others = carried(block, FORM, _SENT_OF_PART)
    own = {key: value for key, value in part_of(others, name).items() if key in _SENT_INSIDE[name]}
    return {"type": name, name: {**inner, **own}, **rest(others, *_SENT_INSIDE)}


def _write_call(call: ToolUse) -> dict[str, Any]:
    others = carried(call, FORM, _SENT_OF_CALL)
    text = others.pop("arguments", None)
    if others.pop("type", "function") == "custom" and isinstance(call.input, str):
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.input}, **others}
    spelled = {"name": call.name, "arguments": write_arguments(call.input, text)}
    return {"id": call.id, "type": "function", "function": spelled, **others}


def _read(data: dict[str, Any], path: str, fields: MessageFields) -> Message:
    role = data.get("role")
    if data.get("function_call") is not None or role == "function":
        raise InvalidError("function_call has no id, so its result cannot be told", path=path, hint="use tool_calls")
    if role == "tool":
        result = ToolResult(
            tool_use_id=text_at(data, "tool_call_id", path), content=_read_content(data.get("content"), path)
        )
        return make("tool", [result], carry(FORM, rest(data, "role", "content", "tool_call_id")), fields)
    others = rest(data, "role", "content", "tool_calls")
    if role == "developer":
        role, others["role"] = "system", "developer"
    if role not in ("user", "system", "assistant"):
        raise InvalidError(f"unknown role {short_repr(role)}", path=path)
    content = _read_content(data.get("content"), path)
    if data.get("tool_calls") is not None:
        calls = list_at(data["tool_calls"], f"{path}.tool_calls")
        if calls and role != "assistant":
            raise InvalidError(f"a {role} message must not hold tool calls", path=path)
        content += [_read_call(plain(call, path), f"{path}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return make(role, content, carry(FORM, others), fields)


def _read_content(content: Any, path: str) -> list[Block]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    parts = list_at(content, f"{path}.content")
    return [read_part(plain(part, f"{path}.content[{i}]"), f"{path}.content[{i}]") for i, part in enumerate(parts)]


def read_part(part: dict[str, Any], path: str) -> Block:
    """A part of content as a block; what is not exactly known stays whole."""
    kind = text_at(part, "type", path)
    inner = part_of(part, kind)
    if kind == "text":
        return Text(text_at(part, "text", path), extra=carry(FORM, rest(part, "type", "text")))
    if kind == "image_url" and isinstance(inner.get("url"), str):
        return Image(read_url(inner["url"]), extra=_nested(part, kind, "url"))
    if kind == "input_audio" and isinstance(inner.get("data"), str) and inner.get("format") in tuple(_AUDIO):
        source = Base64Source(_AUDIO[inner["format"]], inner["data"])
        return Audio(source, extra=_nested(part, kind, "data", "format"))
    if kind == "file" and isinstance(inner.get("file_data"), str) and isinstance(inner.get("filename", ""), str):
        data = read_url(inner["file_data"])
        if isinstance(data, Base64Source):
            return Document(data, inner.get("filename"), extra=_nested(part, kind, "file_data", "filename"))
    return wrap(FORM, part)


def _nested(part: dict[str, Any], kind: str, *known: str) -> Any:
    inner = rest(part[kind], *known)
    return carry(FORM, {**rest(part, "type", kind), **({kind: inner} if inner else {})})


def _read_call(call: dict[str, Any], path: str) -> ToolUse:
    kind = call.get("type") or "function"
    others = rest(call, "id", "type", "function", "custom", "index")
    name = text_at(call, "id", path) if call.get("id") is not None else ""
    if kind == "function":
        function = plain(call.get("function"), f"{path}.function")
        called, arguments = text_at(function, "name", f"{path}.function"), function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            return ToolUse(name, called, arguments, extra=carry(FORM, others))
        text = text_at(function, "arguments", f"{path}.function") if arguments is not None else ""
        others |= odd_spelling(text)
        return ToolUse(name, called, read_arguments(text), extra=carry(FORM, others))
    if kind == "custom":
        custom = plain(call.get("custom"), f"{path}.custom")
        extra = carry(FORM, {**others, "type": "custom"})
        return ToolUse(name, text_at(custom, "name", path), text_at(custom, "input", path), extra=extra)
    raise InvalidError(f"unknown type of tool call {short_repr(kind)}", path=path, hint="function and custom are known")
