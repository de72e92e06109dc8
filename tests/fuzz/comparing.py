"""Comparisons that forgive nothing: 1 is not True and not 1.0, and NaN is itself."""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

import msgspec
from tests.fuzz.spelling import deep
from tests.fuzz.target import Broken

from perdure.cli.escaping import to_json_text
from perdure.cli.render import whole_message
from perdure.model.message import MessageRecord
from perdure.stores.summaries import summary

_JOINERS = "\u200c\u200d"


def alike(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same to the last type."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (one == other and repr(one) == repr(other))
    return bool(one == other)


def insist_alike(one: Any, other: Any, kind: str) -> None:
    """Raise unless they are."""
    with deep():
        if not alike(one, other):
            raise Broken(kind, f"{one!r:.300} is not {other!r:.300}")


def steering(text: str, *, lines: bool = False) -> str | None:
    """The first character that a terminal would obey or that hides or reverses text; None if there is none."""
    for character in text:
        if character in _JOINERS or (lines and character == "\n"):
            continue
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            return repr(character)
    return None


def insist_harmless(text: str, kind: str, *, lines: bool = False) -> None:
    """Raise if a terminal would obey any of it."""
    found = steering(text, lines=lines)
    if found is not None:
        raise Broken(kind, f"{found} in {text!r:.300}")


def check_json_output(document: Any) -> None:
    """What `--json` writes means the same as the document, and steers no terminal."""
    text = to_json_text(document)
    insist_alike(json.loads(text), msgspec.to_builtins(document), "the JSON output is another document")
    insist_harmless(text, "JSON output steers a terminal")


def check_shown(record: MessageRecord) -> None:
    """A message as `log` and `tree` write it, and as `--json` does."""
    drawn = "\n".join(line.plain for line in whole_message(record, 80))
    insist_harmless(drawn, "a message steers a terminal", lines=True)
    insist_harmless(summary(record, {}), "a summary steers a terminal")
    check_json_output(record.to_json())
