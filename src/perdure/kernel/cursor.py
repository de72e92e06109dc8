"""Page cursors: opaque text that continues exactly the query that made it.

A cursor holds a version, a hash of the query it belongs to, the keyset of the last row seen, and a checksum; never the
scope and never the limit. A cursor that is damaged or used with another query is refused with `InvalidError`, not
guessed at; `CursorExpired` is for one that was valid once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from perdure.errors import CursorExpired, InvalidError
from perdure.limits import INTEGER_MAX

_VERSION = 1
RESTART = "start again from the first page, with the same filters and order throughout"


def query_hash(query: tuple[Any, ...]) -> str:
    """A short, stable name of a query: everything that decides which rows it yields and in which order."""
    return hashlib.sha256(msgspec.json.encode(query)).hexdigest()[:12]


def encode_cursor(query: tuple[Any, ...], keyset: tuple[Any, ...]) -> str:
    """The cursor that continues `query` after the row with this keyset."""
    payload = msgspec.json.encode([_VERSION, query_hash(query), keyset])
    framed = payload + binascii.crc32(payload).to_bytes(4, "big")
    return _spell(framed)


def decode_cursor(text: str, query: tuple[Any, ...], keyset_types: tuple[type, ...]) -> tuple[Any, ...]:
    """The keyset inside a cursor of this very query; one of the wrong shape was forged."""
    try:
        if type(text) is not str:
            raise ValueError
        framed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        payload, checksum = framed[:-4], framed[-4:]
        if binascii.crc32(payload).to_bytes(4, "big") != checksum or _spell(framed) != text:
            raise ValueError
        version, name, keyset = msgspec.json.decode(payload, type=tuple[int, str, tuple[str | int | None, ...]])
    except (ValueError, msgspec.MsgspecError, binascii.Error, TypeError, AttributeError):
        raise _not_ours() from None
    if version != _VERSION:
        raise CursorExpired(f"the cursor has format {version}, this build reads {_VERSION}", hint=RESTART)
    if name != query_hash(query):
        raise InvalidError("the cursor belongs to another query", hint=RESTART)
    if tuple(map(type, keyset)) != keyset_types or any(type(v) is int and abs(v) > INTEGER_MAX for v in keyset):
        raise _not_ours()
    return keyset


def _not_ours() -> InvalidError:
    return InvalidError("the cursor is not one that this store made", hint=RESTART)


def _spell(framed: bytes) -> str:
    """The one spelling of these bytes: base64 has spare bits, and a cursor with flipped ones is damaged."""
    return base64.urlsafe_b64encode(framed).rstrip(b"=").decode()
