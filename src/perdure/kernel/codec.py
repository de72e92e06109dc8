"""Faithful JSON: what goes in comes out equal, and what is not JSON is refused with its path.

msgspec does the encoding; the checks here exist because it would quietly turn NaN into null, bytes into base64 and
datetimes into text. Unknown fields and block types are the model's business; this module knows plain values only.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import CorruptError, InvalidError

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

_HINTS = {
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
        elif kind is int or kind is bool or item is None:
            continue
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
            raise InvalidError(f"the key {key!r} is not a string", path=where, hint="JSON objects have string keys")
        _check_text(key, where)
        stack.append((child, f"{where}.{key}", depth))


def _check_text(text: str, where: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidError("the text holds a lone surrogate, which UTF-8 cannot carry", path=where) from None


def encode(value: Any) -> bytes:
    """JSON bytes of a value that was checked, or of a record."""
    return _encoder.encode(value)


def encode_checked(value: Any, path: str, most: int) -> bytes:
    """Check, encode, and refuse more than `most` bytes."""
    check_json(value, path)
    data = _encoder.encode(value)
    if len(data) > most:
        raise InvalidError(f"{len(data):,} bytes of JSON, the limit is {most:,}", path=path)
    return data


def decode(data: bytes | str | None, where: str) -> Any:
    """The value of stored JSON; damage is a `CorruptError` that names the record."""
    if data is None:
        return None
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"stored JSON is damaged: {error}", where=where) from None
