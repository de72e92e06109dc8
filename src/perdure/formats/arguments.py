"""The arguments of tool calls, which some providers send as text: as values, and in the spelling of the model."""

from __future__ import annotations

import json
from typing import Any

from perdure.errors import InvalidError, short_repr
from perdure.model.plain import check_json


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
    """Arguments as JSON text: the very text that the model sent, if it is JSON and still says the same."""
    spelled = compact(value)
    if isinstance(text, str) and _is_json(text) and compact(read_arguments(text)) == spelled:
        return text
    return "{}" if value is None else spelled


def _is_json(text: str) -> bool:
    """Many servers read the arguments of earlier calls, and refuse the whole conversation for what is not JSON."""
    return bool(text.strip()) and read_arguments(text) != text


def compact(value: Any) -> str:
    """JSON text as models write it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidError(f"{short_repr(value)} is not JSON", path="input") from None


def odd_spelling(text: str) -> dict[str, Any]:
    """The text of arguments as a field to carry, if writing them again would give another text."""
    return {} if not _is_json(text) or compact(read_arguments(text)) == text else {"arguments": text}
