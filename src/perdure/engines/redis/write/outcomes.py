"""Replies of the scripts that write: done, or the reason why nothing was written."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

import msgspec

from perdure.engines.redis.connections.reply_shapes import Misfit, data
from perdure.errors import CorruptError

_CONFLICT, _OTHER_SCHEMA = 1, 2
_NUMBERS = re.compile(rb"[0-9]{1,16}(?: [0-9]{1,16})*")
_LAST_OF_ASCII = 127
_CLAIM = msgspec.msgpack.Decoder(tuple[int, int, list[tuple[str, bytes | None, list[str | bool]]]])


class Committed(NamedTuple):
    """A transaction was applied: its time, and the last seqs of the partitions that it appended to."""

    now: int
    seqs: tuple[int, ...]


class Claim(NamedTuple):
    """Rows were claimed: the time, and the rows after the change."""

    now: int
    rows: list[Any]


class OtherSchema(NamedTuple):
    """The scope has the mark of another schema, or none; nothing was written."""

    mark: str | None


class ConflictReport(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A condition failed and nothing was written: the number of the operation's group and its position there, both from
    1, and why."""

    group: int
    position: int
    kind: str
    actual: Any
    unique_name: Any = None


_REFUSAL = msgspec.msgpack.Decoder(tuple[int, ConflictReport | str | bool])


def commit_reply(reply: Any, appended: int) -> Committed | OtherSchema | ConflictReport:
    """The shape of the reply to a transaction that appends to `appended` partitions. Digits mean that it committed."""
    text = data(reply)
    if text[0] > _LAST_OF_ASCII:
        return _refusal(text)
    numbers = text.split(b" ") if _NUMBERS.fullmatch(text) else []
    if len(numbers) != appended + 1:
        raise Misfit("is neither a time with a seq for each log nor a refusal")
    now, *seqs = map(int, numbers)
    return Committed(now, tuple(seqs))


no_append, one_append = partial(commit_reply, appended=0), partial(commit_reply, appended=1)
"""The shapes of replies to transactions of known kinds, which append to one partition or to none."""


def claim_reply(reply: Any) -> Claim | OtherSchema | ConflictReport:
    """The shape of the reply to a claim: {0, now, rows}, or a refusal."""
    packed = data(reply)
    if packed[0] != 0x93:
        return _refusal(packed)
    try:
        _, now, rows = _CLAIM.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Misfit(f"cannot be read: {error}") from None
    return Claim(now, rows)


def _refusal(packed: bytes) -> OtherSchema | ConflictReport:
    try:
        kind, details = _REFUSAL.decode(packed)
    except UnicodeDecodeError as error:
        raise CorruptError(f"a stored text is not UTF-8: {error.reason}", where="what a commit depends on") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Misfit(f"is not a refusal: {error}") from None
    if kind == _OTHER_SCHEMA and (details is False or isinstance(details, str)):
        return OtherSchema(None if details is False else details)
    if kind == _CONFLICT and isinstance(details, ConflictReport):
        return details
    raise Misfit("is not a refusal")
