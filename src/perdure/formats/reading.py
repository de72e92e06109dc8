"""Reading the JSON of a provider, whose origin is unknown: each value is checked before a message holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.formats.carrying import carry, rest
from perdure.model.faithful import Extra, as_dict
from perdure.model.message import Block, Message, MessageFields, Text, Usage


class Dumps(Protocol):
    """An object of an SDK, which gives its JSON by `model_dump`."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool, warnings: bool) -> dict[str, Any]:
        """Its fields as plain JSON data."""
        ...


Payload = Mapping[str, Any] | Dumps


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


def part_of(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside an object; empty if it is missing."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def read_parts(content: Any, path: str, read: Callable[[dict[str, Any], str], Block]) -> list[Block]:
    """Content as blocks: none, one text, or a list of parts, each of which `read` turns into a block."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(content)]
    parts = list_at(content, f"{path}.content")
    return [read(plain(part, f"{path}.content[{i}]"), f"{path}.content[{i}]") for i, part in enumerate(parts)]


def read_text(part: Mapping[str, Any], path: str, form: str) -> Text:
    """A part that is text, with what else it holds."""
    return Text(text_at(part, "text", path), extra=carry(form, rest(part, "type", "text")))


def make(role: str, content: Sequence[Block], extra: Extra, fields: MessageFields) -> Message:
    """A message of a format, with the fields that the caller adds."""
    whole: MessageFields = {**fields, "extra": extra}
    if "extra" in fields:
        whole["extra"] = Extra({**fields["extra"], **extra})
    return Message(role=role, content=list(content), **whole)


def answer_fields(
    data: Mapping[str, Any], stop_reason: Any, read_usage: Callable[[dict[str, Any]], Usage]
) -> MessageFields:
    """What an answer says of itself, beside its content: its model, why it stopped, and its usage."""
    known: MessageFields = {}
    if isinstance(data.get("model"), str):
        known["model"] = data["model"]
    if isinstance(stop_reason, str):
        known["stop_reason"] = stop_reason
    if data.get("usage") is not None:
        known["usage"] = read_usage(plain(data["usage"], "response.usage"))
    return known


def make_usage(counts: dict[str, Any], form: str, others: dict[str, Any]) -> Usage:
    """Token counts of a response; what a provider leaves out or misspells counts as 0."""
    sound = {name: value for name, value in counts.items() if type(value) is int and 0 <= value <= limits.INTEGER_MAX}
    return Usage(**sound, extra=carry(form, {name: value for name, value in others.items() if value}))
