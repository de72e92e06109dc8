"""Blocks of Anthropic's Messages API: text, images, documents, calls, results and thinking, both ways.

A block of a type that is not known stays as it is; what the API refuses is left out.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from typing import Any

from perdure.errors import InvalidError, short_repr
from perdure.formats.carrying import carried, carry, rest
from perdure.formats.reading import plain, read_parts, read_text, text_at
from perdure.formats.sources import media_type
from perdure.formats.writing import write_blocks
from perdure.model.faithful import Opaque, Untyped
from perdure.model.message import (
    Base64Source,
    Block,
    Document,
    Image,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
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
Turn = dict[str, Any]


def write_content(blocks: list[Block], role: str, path: str, *, skip: bool) -> list[Turn]:
    """Blocks in their place: a message of this role, or a `result`."""

    def write(block: Block) -> Turn | None:
        if _left_out(block, role):
            return {}
        return _write_block(block, path, skip=skip) if _has_place(block, role) else None

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


def short(blocks: list[Turn]) -> str | list[Turn]:
    """One plain text is written as a string."""
    plain_text = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return blocks[0]["text"] if plain_text else blocks


def _write_block(block: Block, path: str, *, skip: bool) -> Turn | None:
    """A block as the API takes it; None if there is none for it. `skip` leaves such blocks out of a tool result."""
    if isinstance(block, Opaque):
        return None if block.kind in _FOREIGN else dict(block.data)
    if isinstance(block, Text):
        fields: Turn = {"type": "text", "text": block.text}
    elif isinstance(block, ToolUse):
        fields = {"type": "tool_use", "id": _call_id(block.id), "name": block.name, "input": _object(block.input)}
    elif isinstance(block, ToolResult):
        content = write_content(block.content, "result", path, skip=skip)
        fields = {"type": "tool_result", "tool_use_id": _call_id(block.tool_use_id), "content": short(content)}
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


def read_block(block: Turn, path: str) -> Block:
    """A block of the API; one of an unknown type stays as it is."""
    kind = text_at(block, "type", path)
    if kind == "text":
        return read_text(block, path, FORM)
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
    content = read_parts(block.get("content"), path, read_block)
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
