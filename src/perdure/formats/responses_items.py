"""Items of the Responses API: the ones that a model puts out, and the parts of content inside of them.

An item of the model is one block, or several for the texts of one message: the first carries the item's own fields, the
others say that they continue it.
"""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError, short_repr
from perdure.formats.shared import (
    carried,
    carry,
    list_at,
    odd_spelling,
    plain,
    read_arguments,
    read_url,
    rest,
    text_at,
    unwrap,
    wrap,
    write_arguments,
    write_blocks,
    write_url,
)
from perdure.model.message import Base64Source, Block, Document, Image, Text, Thinking, ToolResult, ToolUse, UrlSource

FORM = "openai_responses"
Item = dict[str, Any]


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
        return [ToolUse(item["call_id"], kind, rest(item, "type", "call_id", "id", "status"), carry(FORM, others))]
    return [wrap(FORM, item)]


def _read_message(item: Item, path: str) -> list[Block]:
    content = item.get("content")
    others = rest(item, "type", "role", "content")
    if content is None or isinstance(content, str):
        return [Text(content, extra=carry(FORM, {"item": others} if others else {}))] if content else []
    blocks: list[Block] = []
    for i, part in enumerate(list_at(content, f"{path}.content")):
        data = plain(part, f"{path}.content[{i}]")
        if data.get("type") not in ("output_text", "text", "input_text") or not isinstance(data.get("text"), str):
            return [wrap(FORM, item)]  # a refusal, say: the item goes back whole
        fields = rest(data, "type", "text")
        if "id" in others:  # the parts of one item go back as one item
            fields |= {"continues": True} if blocks else {"item": others}
        elif others and not blocks:
            fields["item"] = others
        blocks.append(Text(data["text"], extra=carry(FORM, fields)))
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
        others = carried(block, FORM)
        summary = [{"type": "summary_text", "text": block.thinking}]
        return {"type": "reasoning", "summary": summary, **others} if "id" in others else {}
    return unwrap(block, FORM)


def _write_text(block: Text) -> Item:
    others = carried(block, FORM)
    item = others.pop("item", None)
    others.pop("continues", None)
    own = item if isinstance(item, dict) else {}
    if "id" not in own and not others:
        return {"role": "assistant", "content": block.text, **own}
    part = {"type": "output_text", "text": block.text, "annotations": [], **others}
    return {"type": "message", "role": "assistant", **own, "content": [part]}


def _write_call(call: ToolUse) -> Item:
    others = carried(call, FORM)
    text, kind = others.pop("arguments", None), others.pop("type", "function_call")
    if kind == "custom_tool_call" and isinstance(call.input, str):
        return {"type": kind, "call_id": call.id, "name": call.name, "input": call.input, **others}
    if kind in ("function_call", "custom_tool_call") or not isinstance(call.input, dict):
        spelled = write_arguments(call.input, text)
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": spelled, **others}
    return {"type": kind, "call_id": call.id, **others, **call.input}


def read_output(item: Item, path: str) -> ToolResult:
    """The result of a call."""
    kind, output = item["type"], item.get("output")
    others: Item = {} if kind == "function_call_output" else {"type": kind}
    if kind in ("function_call_output", "custom_tool_call_output"):
        others |= rest(item, "type", "call_id", "output")
        return ToolResult(item["call_id"], read_content(output, path), extra=carry(FORM, others))
    others |= rest(item, "type", "call_id")
    content: list[Block] = [Text(output)] if isinstance(output, str) and output else []
    return ToolResult(item["call_id"], content, extra=carry(FORM, others))


def read_content(content: Any, path: str) -> list[Block]:
    """The content of an input, as blocks."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    parts = list_at(content, f"{path}.content")
    return [_read_part(plain(part, f"{path}.content[{i}]"), f"{path}.content[{i}]") for i, part in enumerate(parts)]


def _read_part(part: Item, path: str) -> Block:
    kind = text_at(part, "type", path)
    if kind == "input_text":
        return Text(text_at(part, "text", path), extra=carry(FORM, rest(part, "type", "text")))
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
    sent = [block for block in blocks if not isinstance(block, Thinking)]
    return write_blocks(sent, _write_part, FORM, path, skip=skip)


def _write_part(block: Block) -> Item | None:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text, **carried(block, FORM)}
    if isinstance(block, Image):
        fields: Item = {"type": "input_image", "image_url": write_url(block.source), "detail": "auto"}
    elif isinstance(block, Document):
        name = "file_data" if isinstance(block.source, Base64Source) else "file_url"
        titled = {} if block.title is None else {"filename": block.title}
        fields = {"type": "input_file", name: write_url(block.source), **titled}
    else:
        return unwrap(block, FORM)
    return None if None in fields.values() else {**fields, **carried(block, FORM)}
