"""Plain JSON values: what is not JSON is refused, with the path where it stands.

No silent coercion: NaN, bytes, sets, tuples, datetimes, keys that are not text and lone surrogates all raise.
"""

from __future__ import annotations

import math
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, shown

_HINTS: dict[Any, str] = {
    bytes: "encode it yourself, for example as base64 text",
    set: "use a list",
    tuple: "use a list",
}


def check_json(value: Any, path: str) -> None:
    """Refuse anything that JSON cannot carry exactly, naming where it stands below `path`."""
    stack: list[tuple[Any, str, int]] = [(value, path, 1)]
    while stack:
        item, where, depth = stack.pop()
        kind = type(item)
        if kind is str:
            _check_text(item, where)
        elif kind is bool or item is None:
            continue
        elif kind is int:
            if item.bit_length() > limits.JSON_INTEGER_BITS:
                raise InvalidError(f"an integer of more than {limits.JSON_INTEGER_BITS} bits", path=where)
        elif kind is float:
            if not math.isfinite(item):
                raise InvalidError(f"{item} is not JSON", path=where, hint="use null or a string")
        elif kind is dict or kind is list:
            if depth > limits.JSON_DEPTH:
                raise InvalidError(f"nested deeper than {limits.JSON_DEPTH} levels", path=where)
            _push(stack, item, where, depth + 1)
        else:
            raise InvalidError(f"a {kind.__name__} is not JSON", path=where, hint=_HINTS.get(kind, "convert it first"))


def _push(stack: list[tuple[Any, str, int]], item: Any, where: str, depth: int) -> None:
    if type(item) is list:
        stack.extend((child, f"{where}[{i}]", depth) for i, child in enumerate(item))
        return
    for key, child in item.items():
        if type(key) is not str:
            raise InvalidError(
                f"the key {shown(key)} is not a string", path=where, hint="JSON objects have string keys"
            )
        _check_text(key, where)
        stack.append((child, f"{where}.{key}", depth))


def _check_text(text: str, where: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidError("the text holds a lone surrogate, which UTF-8 cannot carry", path=where) from None
