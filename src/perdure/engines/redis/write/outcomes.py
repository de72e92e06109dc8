"""What a script that writes answers: that it is done, or why it refused and wrote nothing."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from perdure.engines.redis.connections.answers import Misfit, data
from perdure.errors import CorruptError

CONFLICT, OTHER_SCHEMA = 1, 2
_DONE = re.compile(rb"[0-9]{1,16}(?: [0-9]{1,16})*")
_LAST_OF_ASCII = 127
_REFUSAL = msgspec.msgpack.Decoder(tuple[int, Any])
_CLAIM = msgspec.msgpack.Decoder(tuple[int, int, list[tuple[str, bytes | None, list[str | bool]]]])


class Done(NamedTuple):
    """A transaction that was carried out: when, and the last seqs of the partitions it appended to."""

    now: int
    seqs: tuple[int, ...]


class Claim(NamedTuple):
    """Rows that were claimed: when, and as they are now."""

    now: int
    rows: list[Any]


class Refused(NamedTuple):
    """Nothing was written: the report of a `CONFLICT`, or the mark of a scope with an `OTHER_SCHEMA`, False if it has
    none."""

    kind: int
    told: Any


def committed(answer: Any, appended: int) -> Done | Refused:
    """The shape of the answer to a transaction that appends to so many partitions. Digits say that it was done."""
    told = data(answer)
    if told[0] > _LAST_OF_ASCII:
        return _refused(told)
    numbers = told.split(b" ") if _DONE.fullmatch(told) else []
    if len(numbers) != appended + 1:
        raise Misfit("is neither a time with a seq for each log nor a refusal")
    now, *seqs = map(int, numbers)
    return Done(now, tuple(seqs))


def claimed(answer: Any) -> Claim | Refused:
    """The shape of the answer to a claim: {0, now, rows}, or a refusal."""
    told = data(answer)
    if told[0] != 0x93:
        return _refused(told)
    try:
        _, now, rows = _CLAIM.decode(told)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Misfit(f"cannot be read: {error}") from None
    return Claim(now, rows)


def _refused(told: bytes) -> Refused:
    try:
        kind, rest = _REFUSAL.decode(told)
    except UnicodeDecodeError as error:
        raise CorruptError(f"a stored text is not UTF-8: {error.reason}", where="what a commit depends on") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Misfit(f"is no refusal: {error}") from None
    if kind == OTHER_SCHEMA and (rest is False or isinstance(rest, str)):
        return Refused(kind, rest)
    if kind == CONFLICT and isinstance(rest, list) and _is_report(rest):
        return Refused(kind, rest)
    raise Misfit("is no refusal")


def _is_report(told: list[Any]) -> bool:
    """Whether this is {number of the group, place in it, kind, actual} and perhaps where."""
    return len(told) in (4, 5) and [type(part) for part in told[:3]] == [int, int, str]
