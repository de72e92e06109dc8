"""Results of tool calls as items of the Responses API, which has a shape of its own for each kind of call."""

from __future__ import annotations

from perdure.errors import InvalidError
from perdure.formats.reading import part_of
from perdure.formats.responses_items import FORM, Item, request_fields, write_parts
from perdure.formats.sources import write_url
from perdure.formats.writing import short
from perdure.model.message import Image, Text, ToolResult


def write_result(result: ToolResult, call_kind: str, path: str, *, skip: bool) -> Item:
    """A result as the item that answers a call of this kind; its own fields win over those made here."""
    others = request_fields(part_of(result.extra, FORM))
    kind = others.pop("type", f"{call_kind}_output")
    if "output" in others:
        made: Item = {}
    elif kind == "shell_call_output":
        outcome = {"type": "exit", "exit_code": 1 if result.is_error else 0}
        made = {"output": [{"stdout": _text(result), "stderr": "", "outcome": outcome}]}
    elif kind == "apply_patch_call_output":
        made = {"status": "failed" if result.is_error else "completed", "output": _text(result)}
    elif kind == "computer_call_output":
        made = {"output": {"type": "computer_screenshot", "image_url": _screenshot(result, path)}}
    elif kind == "local_shell_call_output":
        made = {"output": _text(result)}
    elif kind in ("function_call_output", "custom_tool_call_output"):
        made = {"output": short(write_parts(result.content, path, skip=skip))}
    elif others:
        made = {}
    else:
        hint = f"give the item's own fields: ToolResult(…, extra=Extra({FORM}={{'output': …}}))"
        raise InvalidError(f"{FORM} has no form of its own for a {kind}", path=path, hint=hint)
    return {"type": kind, "call_id": result.tool_use_id, **made, **others}


def _text(result: ToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, Text))


def _screenshot(result: ToolResult, path: str) -> str:
    urls = [write_url(block.source) for block in result.content if isinstance(block, Image)]
    if len(urls) != 1 or urls[0] is None:
        hint = "Message.tool(call_id, [Image(Base64Source('image/png', data))])"
        raise InvalidError("a computer_call is answered with one image, the screenshot", path=path, hint=hint)
    return urls[0]
