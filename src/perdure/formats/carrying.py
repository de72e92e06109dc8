"""Carrying along what has no field of its own.

A format keeps such fields in `extra`, under its own name: `Extra(openai={"detail": "low"})`. A part that it does not
know at all becomes an `Opaque` block whose type is the format's name and whose `item` is the part.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from perdure.model.faithful import NO_EXTRA, Extra, Opaque, Untyped
from perdure.model.message import Block


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


def wrap(form: str, item: dict[str, Any]) -> Opaque:
    """A part that has no block of its own, whole."""
    return Opaque(Untyped(type=form, item=item))


def unwrap(block: Block, form: str) -> dict[str, Any] | None:
    """The part inside a block that `wrap` made for this format; else None."""
    if isinstance(block, Opaque) and block.kind == form and isinstance(block.data.get("item"), dict):
        return dict(block.data["item"])
    return None
