"""OpenAI's Responses API.

Both ways: text, images, files, function calls and custom tool calls with their results, reasoning items with their
encrypted content, the ids of items, and unknown items and parts, which go back only to this format. Other items that
ask the caller to do something (they have a `call_id`: shell, patch, computer) are tool calls too, named by their type.

A response is one message, however many items it has; so are neighbouring items of the model in an input. Not carried:
`is_error` (say it in the text), thinking that did not come from this API or that nothing follows (left out), what
another provider ran or hid (left out), audio, video and media of the model (refused, or left out with
`skip_unsupported=True`). A call without input is sent with `{}`, empty text as no text. Message ids, runs,
visibility, metadata and the other fields of Perdure are not part of any request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from perdure.errors import InvalidError, short_repr
from perdure.formats.call_ids import with_sound_ids
from perdure.formats.carrying import carried, carry, rest, wrap
from perdure.formats.openai_usage import read_usage
from perdure.formats.reading import Payload, answer_fields, items_of, list_at, make, part_of, plain, read_parts, text_at
from perdure.formats.responses_items import (
    FORM,
    answers_call,
    call_kind,
    read_item,
    read_output,
    read_part,
    write_continued,
    write_item,
    write_parts,
)
from perdure.formats.responses_results import write_result
from perdure.formats.streams import Collector
from perdure.formats.writing import Conversation, Sendable, first_results, fresh, messages_of, short
from perdure.model.message import Block, Message, MessageFields, ToolResult, Usage

Item = dict[str, Any]
_WHOLE = ("response.completed", "response.incomplete")
_FAILED = ("response.failed", "error")
_SENT = frozenset(("role", "status", "phase", "item"))
"""Fields of an input message that go back; of the others, an answer and a stored item bring some."""


def to_input(conversation: Conversation, *, skip_unsupported: bool = False) -> list[Sendable]:
    """The `input` of a request, from records or messages.

    Args:
        conversation: what `store.messages.history` returns, or messages in order.
        skip_unsupported: leave out the blocks that this format cannot carry, instead of raising `InvalidError`.
    """
    items: list[Item] = []
    kinds: dict[str, Any] = {}
    for i, message in enumerate(first_results(messages_of(conversation))):
        path = f"messages[{i}]"
        if message.role == "assistant":
            items += _write_answer(message, path, skip=skip_unsupported)
            kinds |= {call.id: call_kind(call) for call in message.tool_calls}
        elif message.role == "tool":
            items += _write_results(message, kinds, path, skip=skip_unsupported)
        elif message.role in ("user", "system"):
            items += _write_said(message, path, skip=skip_unsupported)
        else:
            raise InvalidError(f"{FORM} has no role {short_repr(message.role)}", path=path)
    return [fresh(item) for item in items]


def from_input(items: str | Iterable[Payload]) -> list[Message]:
    """Messages from the `input` of a request; neighbouring items of the model become one message.

    Args:
        items: the items, in order: dicts, or objects of the SDK; or the text of one user message.
    """
    if isinstance(items, str):
        return [Message.user(items)]
    messages: list[Message] = []
    answer: list[Block] = []
    for i, payload in enumerate(items_of(items, "input")):
        item, path = plain(payload, f"input[{i}]"), f"input[{i}]"
        message = _read_said(item, path)
        if message is None:
            answer += read_item(item, path)
            continue
        if answer:
            messages.append(Message.assistant(answer))
            answer = []
        messages.append(message)
    return with_sound_ids([*messages, Message.assistant(answer)] if answer else messages)


def from_message(item: Payload, **fields: Unpack[MessageFields]) -> Message:
    """One item of an input or an output.

    Args:
        item: a dict, or an object of the SDK.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    data = plain(item, "item")
    message = _read_said(data, "item")
    if message is None:
        return with_sound_ids([make("assistant", read_item(data, "item"), carry(FORM, {}), fields)])[0]
    return make(message.role, message.content, message.extra, fields)


def from_response(response: Payload, **fields: Unpack[MessageFields]) -> Message:
    """The message of a whole response, with its model, stop reason and usage; its id is kept as `response_id`.

    Args:
        response: what `responses.create` returned, as a dict or an object of the SDK.
        **fields: fields of `Message` to set, such as `id` or `metadata`.
    """
    data = plain(response, "response")
    status = data.get("status", "completed")
    if status not in ("completed", "incomplete"):
        raise InvalidError(f"the response is {short_repr(status)}", path="response", hint="ask the model again")
    items = [plain(item, "response.output") for item in list_at(data.get("output"), "response.output")]
    answered = {item.get("call_id") for item in items if answers_call(item)}
    content: list[Block] = []
    for i, item in enumerate(items):
        # What the provider ran itself is no call for the caller to answer.
        ran = isinstance(item.get("call_id"), str) and item["call_id"] in answered
        content += [wrap(FORM, item)] if ran else read_item(item, f"response.output[{i}]")
    known = answer_fields(data, part_of(data, "incomplete_details").get("reason") or status, _usage)
    named = {"response_id": data["id"]} if isinstance(data.get("id"), str) else {}
    return with_sound_ids([make("assistant", content, carry(FORM, named), {**known, **fields})])[0]


def _usage(data: Item) -> Usage:
    return read_usage(data, FORM, received="input", sent="output")


def _write_answer(message: Message, path: str, *, skip: bool) -> list[Item]:
    items: list[Item] = []
    for i, block in enumerate(message.content):
        part = write_continued(block)
        if part and items and isinstance(items[-1].get("content"), list):
            items[-1]["content"].append(part)
            continue
        item = write_item(block)
        if item is not None:
            items += [item] if item else []
        elif not skip:
            hint = "leave such blocks out yourself, or all of them with skip_unsupported=True"
            raise InvalidError(f"{FORM} cannot carry this block", path=f"{path}.content[{i}]", hint=hint)
    while items and items[-1].get("type") == "reasoning":
        items.pop()  # what it led to was withdrawn, or never came, and the API refuses it alone
    return items


def _write_results(message: Message, kinds: dict[str, Any], path: str, *, skip: bool) -> list[Item]:
    results = [block for block in message.content if isinstance(block, ToolResult)]
    named = [(result, kinds.get(result.tool_use_id, "function_call")) for result in results]
    return [write_result(result, kind, path, skip=skip) for result, kind in named]


def _write_said(message: Message, path: str, *, skip: bool) -> list[Item]:
    others = carried(message, FORM, _SENT)
    item = others.pop("item", None)
    if isinstance(item, dict):
        return [item]
    return [{"role": message.role, "content": short(write_parts(message.content, path, skip=skip)), **others}]


def _read_said(item: Item, path: str) -> Message | None:
    """The message of an item that did not come from the model; else None."""
    role = item.get("role")
    if item.get("type", "message") == "message" and role in ("user", "system", "developer"):
        others = rest(item, "type", "role", "content")
        if role == "developer":
            role, others["role"] = "system", "developer"
        return make(role, read_parts(item.get("content"), path, read_part), carry(FORM, others), {})
    if answers_call(item):
        return make("tool", [read_output(item, path)], carry(FORM, {}), {})
    if item.get("type") in ("mcp_approval_response", "compaction_trigger"):
        return make("user", [], carry(FORM, {"item": item}), {})
    return None


class Stream(Collector):
    """Collects a streamed answer: `add` each event, then take the `message`.

    The last event of the stream holds the whole response; the message is whole when it has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self._response: Item | None = None
        self._items: dict[int, Item] = {}

    def _take(self, data: Item) -> str | None:
        kind = data.get("type")
        if kind in _FAILED:
            error = part_of(part_of(data, "response"), "error") or data.get("message")
            raise InvalidError(f"the response failed: {short_repr(error)}", hint="ask the model again")
        if kind in _WHOLE:
            self._response = plain(data.get("response"), "event.response")
        if kind == "response.output_item.done" and type(data.get("output_index")) is int:
            self._items[data["output_index"]] = plain(data.get("item"), "event.item")
        if kind == "response.output_text.delta":
            return text_at(data, "delta", "event") or None
        return None

    def _missing(self) -> str | None:
        return "its response.completed" if self._response is None else None

    def _make(self, fields: MessageFields) -> Message:
        response = self._response or {}
        if not response.get("output"):  # some servers send the items in events of their own only
            response = {**response, "output": [self._items[index] for index in sorted(self._items)]}
        return from_response(response, **fields)
