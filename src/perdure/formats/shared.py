"""What the formats share: reading JSON of unknown origin, arguments of calls, data URLs, and what is carried along.

A format keeps what has no field of its own in `extra`, under its own name: `Extra(openai={"detail": "low"})`. A part
that it does not know at all becomes an `Opaque` block whose type is the format's name and whose `item` is the part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model.faithful import NO_EXTRA, Extra, Opaque, Untyped, as_dict
from perdure.model.message import Base64Source, Block, Message, MessageFields, MessageRecord, Source, UrlSource, Usage
from perdure.model.plain import check_json


class Dumps(Protocol):
    """An object of an SDK, which gives its JSON by `model_dump`."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool, warnings: bool) -> dict[str, Any]:
        """Its fields as plain JSON data."""
        ...


Payload = Mapping[str, Any] | Dumps
Conversation = Iterable[Message | MessageRecord]
Sendable = Any
"""A part of a request: plain JSON data, typed so that the typed dicts of each SDK accept it."""


def plain(value: Any, path: str) -> dict[str, Any]:
    """The JSON object that a caller gave, as a dict of its own or as an object of an SDK."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        value = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    fields = as_dict(value)
    if fields is None:
        raise InvalidError(f"must be an object, not {short_repr(value)}", path=path)
    return fields


def items_of(items: Any, path: str) -> list[Any]:
    """What a caller gave as the items of a conversation, in order."""
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise InvalidError(f"must be a list, not {short_repr(items)}", path=path)
    return list(items)


def messages_of(conversation: Conversation) -> list[Message]:
    """The messages themselves, from records or as they are."""
    messages = []
    for i, item in enumerate(items_of(conversation, "messages")):
        message = item.message if isinstance(item, MessageRecord) else item
        if type(message) is not Message:
            hint = "pass what store.messages.history returns, or a list of Message"
            raise InvalidError(f"not a Message but {type(item).__name__}", path=f"messages[{i}]", hint=hint)
        messages.append(message)
    return messages


def first_results(messages: Sequence[Message]) -> list[Message]:
    """The messages without second results of a call, which providers refuse."""
    answered: set[str] = set()
    sent: list[Message] = []
    for message in messages:
        call_id = message.tool_call_id if message.role == "tool" else None
        if call_id is None:
            answered.difference_update(call.id for call in message.tool_calls)
        elif call_id in answered:
            continue
        else:
            answered.add(call_id)
        sent.append(message)
    return sent


def results_after_calls(messages: Sequence[Message]) -> list[Message]:
    """Each result behind the message that called, before anything said in between: providers insist on it."""
    positions: dict[str, int] = {}
    behind: list[list[Message]] = []
    for message in first_results(messages):
        position = positions.get(message.tool_call_id or "") if message.role == "tool" else None
        if position is None:
            behind.append([message])
            if message.role == "assistant":
                positions.update((call.id, len(behind) - 1) for call in message.tool_calls)
        else:
            behind[position].append(message)
    return [message for group in behind for message in group]


def text_at(fields: Mapping[str, Any], name: str, path: str) -> str:
    """A field that must be text."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidError(f"{name!r} must be text, not {short_repr(value)}", path=path)
    return value


def list_at(value: Any, path: str) -> list[Any]:
    """A value that must be a list; a tuple, as callers write them, is one too."""
    if isinstance(value, (list, tuple)):
        return list(value)
    raise InvalidError(f"must be a list, not {short_repr(value)}", path=path)


def rest(fields: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The fields that have no other home; null and empty lists, which SDKs fill in, say nothing."""
    return {name: value for name, value in fields.items() if name not in known and value is not None and value != []}


def carry(form: str, fields: dict[str, Any]) -> Extra:
    """Fields of one format, as unknown ones of the record that they came with."""
    return Extra.holding({form: fields}) if fields else NO_EXTRA


def carried(record: Any, form: str, sent: Container[str]) -> dict[str, Any]:
    """The fields of one format that a record carries, of those that may be `sent`: answers also bring others."""
    fields = record.extra.get(form)
    return {name: fields[name] for name in fields if name in sent} if isinstance(fields, dict) else {}


def fresh(value: Any) -> Any:
    """JSON data that shares nothing with the stored messages, so that a caller may change it."""
    if isinstance(value, dict):
        return {name: fresh(item) for name, item in value.items()}
    return [fresh(item) for item in value] if isinstance(value, (list, tuple)) else value


def wrap(form: str, item: dict[str, Any]) -> Opaque:
    """A part that has no block of its own, whole."""
    return Opaque(Untyped(type=form, item=item))


def unwrap(block: Block, form: str) -> dict[str, Any] | None:
    """The part inside a block that `wrap` made for this format; else None."""
    if isinstance(block, Opaque) and block.kind == form and isinstance(block.data.get("item"), dict):
        return dict(block.data["item"])
    return None


def make(role: str, content: Sequence[Block], extra: Extra, fields: MessageFields) -> Message:
    """A message of a format, with the fields that the caller adds."""
    whole: MessageFields = {**fields, "extra": extra}
    if "extra" in fields:
        whole["extra"] = Extra({**fields["extra"], **extra})
    return Message(role=role, content=list(content), **whole)


def write_blocks(
    blocks: Iterable[Block], write: Callable[[Block], dict[str, Any] | None], form: str, path: str, *, skip: bool
) -> list[dict[str, Any]]:
    """Each block as a part, empty ones left out; a block without any is refused, or left out if the caller said so."""
    parts = []
    for i, block in enumerate(blocks):
        part = write(block)
        if part is not None:
            parts += [part] if part else []
        elif not skip:
            kind = block.kind if isinstance(block, Opaque) else type(block).__struct_config__.tag
            hint = "leave such blocks out yourself, or all of them with skip_unsupported=True"
            raise InvalidError(f"{form} cannot carry this {kind} block", path=f"{path}.content[{i}]", hint=hint)
    return parts


def read_arguments(text: str) -> Any:
    """The arguments of a call; models also send text that is not JSON, which stays text, and nothing at all."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant)
        check_json(value, "arguments")
    except (ValueError, RecursionError):
        return text
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def write_arguments(value: Any, text: Any = None) -> str:
    """Arguments as JSON text: the very text that the model sent, if it still says the same."""
    spelled = compact(value)
    if isinstance(text, str) and compact(read_arguments(text)) == spelled:
        return text
    return "{}" if value is None else spelled


def compact(value: Any) -> str:
    """JSON text as models write it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidError(f"{short_repr(value)} is not JSON", path="input") from None


def odd_spelling(text: str) -> dict[str, Any]:
    """The text of arguments as a field to carry, if writing them again would give another text."""
    return {} if compact(read_arguments(text)) == text else {"arguments": text}


def read_url(url: str) -> Source:
    """The source behind a URL; a `data:` URL holds the data itself."""
    head, mark, data = url.partition(";base64,")
    if mark and head.startswith("data:"):
        return Base64Source(media_type=head.removeprefix("data:"), data=data)
    return UrlSource(url)


def media_type(source: Base64Source) -> str:
    """The bare type: providers refuse the parameters that may follow it."""
    return source.media_type.partition(";")[0].strip()


def write_url(source: Source) -> str | None:
    """The URL of a source; None if it has none."""
    if isinstance(source, Base64Source):
        return f"data:{media_type(source)};base64,{source.data}"
    return source.url if isinstance(source, UrlSource) else None


def make_usage(counts: dict[str, Any], form: str, others: dict[str, Any]) -> Usage:
    """Token counts of a response; what a provider leaves out or misspells counts as 0."""
    sound = {name: value for name, value in counts.items() if type(value) is int and 0 <= value <= limits.INTEGER_MAX}
    return Usage(**sound, extra=carry(form, {name: value for name, value in others.items() if value}))


def part_of(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside an object; empty if it is missing."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}
