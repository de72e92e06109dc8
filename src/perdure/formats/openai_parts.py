"""The parts of a message of OpenAI's Chat Completions: content and tool calls, both ways."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError, short_repr
from perdure.formats.arguments import odd_spelling, read_arguments, write_arguments
from perdure.formats.carrying import carried, carry, rest, unwrap, wrap
from perdure.formats.reading import part_of, plain, read_text, text_at
from perdure.formats.sources import media_type, read_url, write_url
from perdure.model.faithful import Opaque
from perdure.model.message import Audio, Base64Source, Block, Document, Image, Text, Thinking, ToolUse

FORM = "openai"
_SENT_OF_CALL = frozenset(("type", "arguments", "extra_content"))
_SENT_OF_PART = frozenset(("prompt_cache_breakpoint", "cache_control", "image_url", "input_audio", "file"))
_SENT_INSIDE = {"image_url": ("detail",), "input_audio": (), "file": ("file_id",)}
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def write_text(block: Block) -> dict[str, Any] | None:
    """A block of text as a part; thinking is left out, and nothing else can be carried where text must be."""
    if isinstance(block, Thinking):
        return {}
    fields = {"type": "text", "text": block.text} if isinstance(block, Text) else None
    return None if fields is None else {**fields, **carried(block, FORM, _SENT_OF_PART)}


def write_instruction(block: Block) -> dict[str, Any] | None:
    """A block of a system message: text, or a part that is not known."""
    return unwrap(block, FORM) if isinstance(block, Opaque) else write_text(block)


def write_answered(block: Block) -> dict[str, Any] | None:
    """A block of an answer: calls and refusals have a place of their own; what others hid or ran is left out."""
    if isinstance(block, ToolUse) or is_refusal(block):
        return {}
    return unwrap(block, FORM) or {} if isinstance(block, Opaque) else write_text(block)


def is_refusal(block: Block) -> bool:
    """Is this the text of a refusal of this format?"""
    return isinstance(block, Text) and carried(block, FORM, ("type",)).get("type") == "refusal"


def read_refusal(fields: dict[str, Any]) -> list[Block]:
    """Take the refusal, which stands beside the content, out of an answer's fields: as text, people see it."""
    if not isinstance(fields.get("refusal"), str):
        return []
    words = fields.pop("refusal")
    return [Text(words, extra=carry(FORM, {"type": "refusal"}))] if words else []


def write_refusal(blocks: list[Block]) -> dict[str, Any]:
    """The refusal of an answer, as a field of its own."""
    words = [block.text for block in blocks if isinstance(block, Text) and is_refusal(block)]
    return {"refusal": "".join(words)} if words else {}


def write_part(block: Block) -> dict[str, Any] | None:
    """A block as a part of content; empty if it is left out, None if there is none for it."""
    if isinstance(block, (Text, Thinking)):
        return write_text(block)
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


def write_call(call: ToolUse) -> dict[str, Any]:
    """A call as it is sent, with the arguments in the model's own spelling."""
    others = carried(call, FORM, _SENT_OF_CALL)
    text = others.pop("arguments", None)
    if others.pop("type", "function") == "custom" and isinstance(call.input, str):
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.input}, **others}
    spelled = {"name": call.name, "arguments": write_arguments(call.input, text)}
    return {"id": call.id, "type": "function", "function": spelled, **others}


def read_part(part: dict[str, Any], path: str) -> Block:
    """A part of content as a block; what is not exactly known stays whole."""
    kind = text_at(part, "type", path)
    inner = part_of(part, kind)
    if kind == "text":
        return read_text(part, path, FORM)
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


def read_call(call: dict[str, Any], path: str) -> ToolUse:
    """A call of a function or of a custom tool."""
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
