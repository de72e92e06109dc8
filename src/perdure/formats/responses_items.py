"""Items of the Responses API: the ones that a model puts out, and the parts of content inside of them.

An item of the model is one block, or several for the texts of one message: the first carries the item's own fields, the
others say that they continue it.
"""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError, short_repr
from perdure.formats.arguments import odd_spelling, read_arguments, write_arguments
from perdure.formats.carrying import carried, carry, rest, unwrap, wrap
from perdure.formats.reading import list_at, plain, read_parts, read_text, text_at
from perdure.formats.sources import read_url, write_url
from perdure.formats.writing import write_blocks
from perdure.model.faithful import Opaque
from perdure.model.message import Base64Source, Block, Document, Image, Text, Thinking, ToolResult, ToolUse, UrlSource

FORM = "openai_responses"
Item = dict[str, Any]
_SENT_OF_CALL = {
    "function_call": frozenset(("id", "status", "caller", "namespace", "async", "arguments")),
    "custom_tool_call": frozenset(("id", "caller", "namespace", "async")),
}
_SENT_OF_REASONING = frozenset(("id", "summary", "content", "encrypted_content", "status"))
_SENT_OF_TEXT = frozenset(("annotations", "logprobs", "item", "continues", "type"))
_SENT_OF_MESSAGE = frozenset(("id", "status", "phase"))
_SENT_OF_PART = frozenset(("detail", "prompt_cache_breakpoint"))
_NEVER_SENT = ("created_by", "parsed", "parsed_arguments")
"""Fields of items that a response, or the SDK, adds to what a request takes."""


def answers_call(item: Item) -> bool:
    """Is this the result of a call, whatever its kind?"""
    return isinstance(item.get("call_id"), str) and str(item.get("type")).endswith("_output")


def read_item(item: Item, path: str) -> list[Block]:
    """An item that the model put out, as blocks; what is not exactly known stays whole."""
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") == "assistant":
        return _read_message(item, path)
    if kind == "message":
        raise InvalidError(f"unknown role {short_repr(item.get('role'))}", path=path)
    if kind == "function_call":
        text = text_at(item, "arguments", path)
        others = {**rest(item, "type", "call_id", "name", "arguments"), **odd_spelling(text)}
        called = text_at(item, "call_id", path), text_at(item, "name", path)
        return [ToolUse(*called, read_arguments(text), extra=carry(FORM, others))]
    if kind == "custom_tool_call":
        others = {**rest(item, "call_id", "name", "input"), "type": kind}
        called = text_at(item, "call_id", path), text_at(item, "name", path)
        return [ToolUse(*called, text_at(item, "input", path), extra=carry(FORM, others))]
    if kind == "reasoning":
        return [_read_reasoning(item)]
    if isinstance(kind, str) and kind.endswith("_call") and isinstance(item.get("call_id"), str):
        others = {"type": kind, **{name: item[name] for name in ("id", "status") if item.get(name) is not None}}
        asked = {name: item[name] for name in item if name not in ("type", "call_id", "id", "status")}
        return [ToolUse(item["call_id"], kind, _without_nulls(asked), carry(FORM, others))]
    return [wrap(FORM, item)]


def _read_message(item: Item, path: str) -> list[Block]:
    content = item.get("content")
    others = rest(item, "type", "role", "content")
    if content is None or isinstance(content, str):
        return [Text(content, extra=carry(FORM, {"item": others} if others else {}))] if content else []
    blocks: list[Block] = []
    for i, part in enumerate(list_at(content, f"{path}.content")):
        data = plain(part, f"{path}.content[{i}]")
        name = "refusal" if data.get("type") == "refusal" else "text"
        if data.get("type") not in ("output_text", "text", "input_text", name) or not isinstance(data.get(name), str):
            return [wrap(FORM, item)]  # the item goes back whole
        fields = {**rest(data, "type", name), **({"type": name} if name == "refusal" else {})}
        if "id" in others:  # the parts of one item go back as one item
            fields |= {"continues": True} if blocks else {"item": others}
        elif others and not blocks:
            fields["item"] = others
        blocks.append(Text(data[name], extra=carry(FORM, fields)))
    return blocks


def _read_reasoning(item: Item) -> Thinking:
    summary = item.get("summary")
    texts = [part["text"] for part in summary if _has_text(part)] if isinstance(summary, list) else []
    others = rest(item, "type", "summary")
    if len(texts) != 1 or summary != [{"type": "summary_text", "text": texts[0]}]:
        others["summary"] = summary if isinstance(summary, list) else []
    return Thinking("\n\n".join(texts), extra=carry(FORM, others))


def _has_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def write_item(block: Block) -> Item | None:
    """A block of the model as an item; empty for what is left out, None for what cannot be carried."""
    if isinstance(block, Text):
        return _write_text(block) if block.text else {}
    if isinstance(block, ToolUse):
        return _write_call(block)
    if isinstance(block, Thinking):
        others = carried(block, FORM, _SENT_OF_REASONING)
        summary = [{"type": "summary_text", "text": block.thinking}]
        return {"type": "reasoning", "summary": summary, **others} if "id" in others else {}
    if isinstance(block, Opaque):  # what another provider ran or hid is left out
        return request_fields(unwrap(block, FORM) or {})
    return None


def _write_text(block: Text) -> Item:
    others = carried(block, FORM, _SENT_OF_TEXT)
    item = others.pop("item", None)
    others.pop("continues", None)
    own = {name: item[name] for name in item if name in _SENT_OF_MESSAGE} if isinstance(item, dict) else {}
    if "id" not in own and not others:
        return {"role": "assistant", "content": block.text, **own}
    return {"type": "message", "role": "assistant", **own, "content": [_output_part(block, others)]}


def _output_part(block: Text, others: Item) -> Item:
    if others.pop("type", None) == "refusal":
        return {"type": "refusal", "refusal": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], **others}


def write_continued(block: Block) -> Item | None:
    """A further part of the item before it; None if the block begins an item."""
    others = carried(block, FORM, _SENT_OF_TEXT - {"item"}) if isinstance(block, Text) else {}
    return _output_part(block, others) if isinstance(block, Text) and others.pop("continues", False) else None


def call_kind(call: ToolUse) -> str:
    """The type of the item that a call is sent as."""
    kind = carried(call, FORM, ("type",)).get("type")
    own = str if kind == "custom_tool_call" else dict
    return kind if isinstance(kind, str) and isinstance(call.input, own) else "function_call"


def _write_call(call: ToolUse) -> Item:
    kind = call_kind(call)
    others = carried(call, FORM, _SENT_OF_CALL.get(kind, _SENT_OF_CALL["function_call"]))
    text = others.pop("arguments", None)
    if kind == "custom_tool_call":
        return {"type": kind, "call_id": call.id, "name": call.name, "input": call.input, **others}
    if kind == "function_call":
        spelled = write_arguments(call.input, text)
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": spelled, **others}
    return {"type": kind, "call_id": call.id, **others, **request_fields(call.input)}


def _without_nulls(item: Item) -> Item:
    """Null says nothing; an empty list does, where a field is required."""
    return {name: value for name, value in item.items() if value is not None}


def request_fields(item: Item) -> Item:
    """An item without what a request does not take."""
    return {name: value for name, value in item.items() if name not in _NEVER_SENT}


def read_output(item: Item, path: str) -> ToolResult:
    """The result of a call."""
    kind, output = item["type"], item.get("output")
    others: Item = {} if kind == "function_call_output" else {"type": kind}
    if kind in ("function_call_output", "custom_tool_call_output"):
        others |= rest(item, "type", "call_id", "output")
        return ToolResult(item["call_id"], read_parts(output, path, read_part), extra=carry(FORM, others))
    others |= _without_nulls({name: item[name] for name in item if name not in ("type", "call_id")})
    content: list[Block] = [Text(output)] if isinstance(output, str) and output else []
    return ToolResult(item["call_id"], content, extra=carry(FORM, others))


def read_part(part: Item, path: str) -> Block:
    """A part of an input as a block; what is not exactly known stays whole."""
    kind = text_at(part, "type", path)
    if kind == "input_text":
        return read_text(part, path, FORM)
    if kind == "input_image" and isinstance(part.get("image_url"), str) and part.get("file_id") is None:
        others = rest(part, "type", "image_url")
        if others.get("detail") == "auto":
            del others["detail"]
        return Image(read_url(part["image_url"]), extra=carry(FORM, others))
    title = part.get("filename")
    if kind == "input_file" and part.get("file_id") is None and (title is None or isinstance(title, str)):
        if isinstance(part.get("file_url"), str) and part.get("file_data") is None:
            return Document(UrlSource(part["file_url"]), title, carry(FORM, rest(part, "type", "file_url", "filename")))
        source = read_url(part["file_data"]) if isinstance(part.get("file_data"), str) else None
        if isinstance(source, Base64Source) and part.get("file_url") is None:
            return Document(source, title, carry(FORM, rest(part, "type", "file_data", "filename")))
    return wrap(FORM, part)


def write_parts(blocks: list[Block], path: str, *, skip: bool) -> list[Item]:
    """Blocks of an input as parts of its content; thinking is left out."""
    return write_blocks(blocks, _write_part, FORM, path, skip=skip)


def _write_part(block: Block) -> Item | None:
    if isinstance(block, Thinking):
        return {}
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text, **carried(block, FORM, _SENT_OF_PART - {"detail"})}
    if isinstance(block, Image):
        fields: Item = {"type": "input_image", "image_url": write_url(block.source), "detail": "auto"}
    elif isinstance(block, Document):
        name = "file_data" if isinstance(block.source, Base64Source) else "file_url"
        titled = {} if block.title is None else {"filename": block.title}
        fields = {"type": "input_file", name: write_url(block.source), **titled}
    else:
        return unwrap(block, FORM)
    return None if None in fields.values() else {**fields, **carried(block, FORM, _SENT_OF_PART)}
