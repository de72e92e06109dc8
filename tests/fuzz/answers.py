"""RESP: what a Redis server sends, in any pieces.

The parser gives the same answers however the bytes are cut, keeps no more than it was fed, fails only in the ways that
a connection expects, and reads what a second, slower parser reads by the letter of the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from redis.exceptions import RedisError
from tests.fuzz.mutate import spliced
from tests.fuzz.target import Broken, Target

from perdure.engines.redis.resp import PENDING, Answers

EXPECTED = (RedisError, ValueError)
"""What `Line` turns into a lost connection."""
_TOKENS = (
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b"$",
        b"*",
        b":",
        b"+",
        b"-",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$0\r\n\r\n",
        b":-0\r\n",
    ),
    *(
        b"$5\r\nhello\r\n",
        b"+OK\r\n",
        b"-MOVED 1 h:1\r\n",
        b"-ERR x\r\n",
        b"*3\r\n",
        b":1_0\r\n",
        b": 7\r\n",
        b"$+3\r\n",
    ),
    *(
        b"*99999999999\r\n",
        b"$99999999999\r\n",
        b"9" * 4_400,
        b"\x00",
        b"\xff",
        b"%1\r\n",
        b"-ASK\r\n",
        b"*1\r\n" * 3_000,
    ),
)


def spelled(answer: Any) -> bytes:
    """An answer as a server spells it."""
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if isinstance(answer, bytes):
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    return b"*%d\r\n" % len(answer) + b"".join(map(spelled, answer))


_leaves = st.none() | st.integers(-(2**63), 2**63) | st.binary(max_size=12)
_answers = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


def _cases(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    good = st.lists(_answers.map(spelled) | st.sampled_from(_TOKENS), max_size=4).map(b"".join)
    kept = [seed["bytes"] for seed in seeds]
    data = good | good.flatmap(lambda text: spliced([text], _TOKENS)) | spliced(kept, _TOKENS) | st.binary(max_size=20)
    return st.fixed_dictionaries({"bytes": data, "cuts": st.lists(st.integers(1, 12), min_size=1, max_size=6)})


def _pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    at = turn = 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


def _told(pieces: Iterator[bytes] | list[bytes]) -> list[Any]:
    """Every answer in these pieces, in a form that compares; the last says how the stream ended."""
    parser, told, fed = Answers(), [], 0
    for piece in pieces:
        fed += len(piece)
        data = piece
        while True:
            try:
                answer = parser.feed(data)
            except EXPECTED as error:
                return [*told, ("refused", type(error).__name__)]
            if len(parser._came) > fed:
                raise Broken("the parser keeps more than it was fed")
            if answer is PENDING:
                break
            told.append(_comparable(answer))
            if not parser.unread:
                break
            data = b""
    return [*told, ("waits", parser.unread)]


def _comparable(answer: Any) -> Any:
    """Exceptions are equal by identity only; lists may be nested deeper than a comparison can go."""
    flat: list[Any] = []
    waiting = [answer]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            flat.append(("list", len(item)))
            waiting += reversed(item)
        else:
            flat.append((type(item).__name__, str(item) if isinstance(item, Exception) else item))
    return flat


def _check(case: Any) -> str:
    data, cuts = case["bytes"], case["cuts"]
    whole = _told([data])
    if _told(_pieces(data, cuts)) != whole:
        raise Broken("the answers depend on how the bytes are cut", f"{data!r:.200} in {cuts}")
    if len(data) < 200 and _told(_pieces(data, [1])) != whole:
        raise Broken("the answers depend on how the bytes are cut", f"{data!r:.200} byte by byte")
    for place, wanted in enumerate(_read_strictly(data)):
        if wanted == "error":  # what the driver makes of a refusal is its own
            break
        if place >= len(whole) or (whole[place][0] if wanted in _ENDS else whole[place]) != wanted:
            raise Broken("the parser leaves the protocol", f"{data!r:.200} is {whole!r:.200}, not {wanted!r:.100}")
    return f"{sum(isinstance(item, list) for item in whole)} answers, {whole[-1]}"


_ENDS = ("refused", "waits")
_NUMBER, _SIZE = re.compile(rb"[+-]?\d{1,4300}"), re.compile(rb"-1|\d{1,4300}")


def _read_strictly(data: bytes) -> Iterator[Any]:
    """Every answer by the letter of the protocol, flat as `_comparable` has them; then how the stream ends."""
    flat: list[Any] = []
    missing, at = 1, 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            yield "waits"
            return
        kind, line, at = data[at : at + 1], data[at + 1 : end], end + 2
        fits = {b":": _NUMBER, b"$": _SIZE, b"*": _SIZE}.get(kind)
        if kind == b"-":
            yield "error"
            return
        if kind != b"+" and (fits is None or fits.fullmatch(line) is None):
            yield "refused"
            return
        missing -= 1
        if kind == b"+":
            flat.append(("bytes", line))
        elif kind == b":":
            flat.append(("int", int(line)))
        elif line == b"-1":
            flat.append(("NoneType", None))
        elif kind == b"*":
            flat.append(("list", int(line)))
            missing += int(line)
        else:
            text, after = data[at : at + int(line)], data[at + int(line) : at + int(line) + 2]
            if len(text) < int(line) or len(after) < 2:
                yield "waits"
                return
            if after != b"\r\n":
                yield "refused"
                return
            flat.append(("bytes", text))
            at += int(line) + 2
        if not missing:
            yield flat
            flat, missing = [], 1


ANSWERS = Target("resp", "answers of a Redis server in any pieces", _cases, _check, short=250)
