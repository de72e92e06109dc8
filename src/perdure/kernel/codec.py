"""Faithful JSON: what goes in comes out equal, and what is not JSON is refused with its path.

msgspec does the encoding, after `model.plain` has checked the value, because it would quietly turn NaN into null, bytes
into base64 and datetimes into text. Unknown fields and block types are the model's business (`model.faithful`).
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import CorruptError, InvalidError
from perdure.model.plain import check_json

STORED_DEPTH = 2 * limits.JSON_DEPTH
"""How deeply stored JSON may nest: what callers may write, and the record around it. Far below what makes msgspec,
`json` or a renderer raise `RecursionError`."""

NEVER_DEEP = 2 * STORED_DEPTH
"""No JSON of so few bytes nests deeper: every level takes an opening and a closing bracket."""

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError)
"""What decoders raise for stored bytes that are not the JSON they expect; `TypeError` for a body that is not text."""

_NO_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_STEPS = {ord("["): 1, ord("]"): -1}
_PEELED = 4

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
        check_depth(data, where)
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise CorruptError(f"stored JSON is damaged: {error}", where=where) from None


def check_depth(data: bytes | str, where: str) -> None:
    """Refuse stored JSON that is too long or nests too deeply, before anything is built of it; almost free for ordinary
    bodies."""
    if len(data) > limits.COMMIT_BYTES:
        raise CorruptError(f"stored JSON of {len(data):,} bytes, the limit is {limits.COMMIT_BYTES:,}", where=where)
    if len(data) > NEVER_DEEP and _nests_deeper(data, STORED_DEPTH):
        raise CorruptError(f"stored JSON nests deeper than {STORED_DEPTH} levels", where=where)


def _nests_deeper(data: bytes | str, most: int) -> bool:
    """Does JSON nest deeper than `most` levels? What is not JSON may pass: decoding refuses it."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    # Brackets in strings do not count: without escapes, every second piece between quotes is outside of strings.
    outside = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(_PEELED):  # a pass takes the innermost level away, cheaply: [[][]] becomes [], then nothing
        brackets = brackets.replace(b"[]", b"")
    return any(depth > most - _PEELED for depth in accumulate(map(_STEPS.__getitem__, brackets)))
