"""Faithful JSON: what goes in comes out equal, and what is not JSON is refused with its path.

msgspec does the encoding, after `model.plain` has checked the value, because it would quietly turn NaN into null, bytes
into base64 and datetimes into text. Unknown fields and block types are the model's business (`model.faithful`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import CorruptError, InvalidError
from perdure.model.plain import check_json

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """JSON bytes of a value that was checked, or of a record."""
    return _encoder.encode(value)


def encode_checked(value: Any, path: str, most: int) -> bytes:
    """Check, encode, and refuse more than `most` bytes."""
    check_json(value, path, most)
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"stored JSON is damaged: {error}", where=where) from None
