"""Records and errors as plain JSON data, and a normaliser for what differs from run to run.

Ids, revs and cursors become `id-1`, `rev-1`, `cursor-1`, … in order of first appearance; times become `<time+ms>`,
counted from the clock's start, so that a wrong time still shows; folders and ports of this run get fixed names. What an
engine promises of durability is its own affair: `<durable>`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import msgspec

from perdure import Extra, Opaque, PerdureError

START = 1_700_000_000_000
_YEAR = 366 * 24 * 3600 * 1000
_MINTED = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
_MADE_NAME = re.compile(r"\b(branch-\d+-)[0-9a-hjkmnp-tv-z]{6}\b")
_TIME = re.compile(r"(?<![\d.])17[0-3]\d{10}(?!\d)")
_REV_KEYS = frozenset(("rev", "if_rev"))
_LARGE = 1 << 32
"""Numbers in a conflict from here on are revs: counts and versions stay far below."""


def plain(value: Any) -> Any:
    """A record, or anything made of records, as JSON data; fields of stored JSON only where they hold something."""
    if isinstance(value, Opaque):
        return dict(value.data)
    if isinstance(value, Extra):
        return dict(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in type(value).__struct_fields__}
        if "extra" in fields:
            fields = {name: held for name, held in fields.items() if held is not None and held != {}}
            tag = type(value).__struct_config__.tag
            fields = {"type": tag, **fields} if tag and "type" not in fields else fields
        return {name: plain(held) for name, held in fields.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    return value


def plain_error(error: BaseException) -> dict[str, Any]:
    """Everything a caller may read from an error."""
    if not isinstance(error, PerdureError):
        return {"class": type(error).__name__, "message": str(error)}
    facts: dict[str, Any] = {
        "class": type(error).__name__,
        "code": error.code,
        "retryable": error.retryable,
        "message": error.message,
        "hint": error.hint,
    }
    for name in ("path", "where", "key", "expected", "actual"):
        if getattr(error, name, None) is not None:
            facts[name] = plain(getattr(error, name))
    return facts


class Normaliser:
    """Replaces what differs between two runs, in the order in which it appears."""

    def __init__(self, replaced: dict[str, str]) -> None:
        self._texts = replaced
        self._names: dict[tuple[str, Any], str] = {}

    def __call__(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self(value[name], name) for name in sorted(value)}
        if isinstance(value, list):
            return [self(item, key) for item in value]
        if isinstance(value, str):
            return self._text(value, key)
        if type(value) is int:
            return self._number(value, key)
        return value

    def _name(self, kind: str, value: Any) -> str:
        if (kind, value) not in self._names:
            count = sum(1 for other, _ in self._names if other == kind)
            self._names[kind, value] = f"{kind}-{count + 1}"
        return self._names[kind, value]

    def _text(self, text: str, key: str) -> str:
        if key == "next_cursor":
            return self._name("cursor", text)
        if key == "durable":
            return "<durable>"
        for old, new in self._texts.items():
            text = text.replace(old, new)
        text = _MINTED.sub(lambda match: self._name("id", match[0]), text)
        text = _MADE_NAME.sub(r"\1<chance>", text)
        return _TIME.sub(lambda match: f"<time+{int(match[0]) - START}>", text)

    def _number(self, value: int, key: str) -> Any:
        if key in _REV_KEYS and value:
            return self._name("rev", value)
        if key in ("expected", "actual") and (("rev", value) in self._names or value >= _LARGE):
            return self._name("rev", value)
        return f"<time+{value - START}>" if abs(value - START) < _YEAR else value
