"""RESP: what a Redis server sends, in any pieces.

The parser gives the same answers however the bytes are cut, keeps no more than it was fed, fails only in the ways that
a connection expects, and reads what a second, slower parser reads by the letter of the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.mutate import spliced
from tests.fuzz.target import Broken, Target

from perdure.engines.redis.connections.failures import InvalidReply
from perdure.engines.redis.connections.resp import PENDING, Parser

EXPECTED = (InvalidReply, ValueError)
"""What `Connection` turns into a lost connection."""
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
    parser, told, fed = Parser(), [], 0
    for piece in pieces:
        fed += len(piece)
        data = piece
        while True:
            try:
                answer = parser.feed(data)
            except EXPECTED as error:
                return [*told, ("refused", type(error).__name__)]
            if len(parser._received) > max(4 * fed, 2**18):
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
_NUMBER, _SIZE = re.compile(rb"-?\d{1,19}"), re.compile(rb"-1|\d{1,19}")
_ANY = re.compile(rb".*", re.DOTALL)
_DEEPEST, _LARGEST, _EACH = 8, 2**30, 64
"""What an answer may come to; written down again here, as a second parser shares nothing with the first."""


class _End(Exception):
    """How a stream ends, in the middle of an answer."""


def _read_strictly(data: bytes) -> Iterator[Any]:
    """Every answer by the letter of the protocol, flat as `_comparable` has them; then how the stream ends."""
    at = 0
    while True:
        flat: list[Any] = []
        try:
            at = _read_value(data, at, flat, 0)
        except _End as end:
            yield str(end)
            return
        yield flat


def _read_value(data: bytes, at: int, flat: list[Any], depth: int) -> int:
    """Read one value into `flat`; where the next begins."""
    end = data.find(b"\r\n", at)
    kind = data[at : at + 1]
    if end < 0:
        raise _End("waits" if kind in (b"", b"$", b"*", b":", b"+", b"-") else "refused")
    line, after = data[at + 1 : end], end + 2
    fits = {b":": _NUMBER, b"$": _SIZE, b"*": _SIZE, b"+": _ANY}.get(kind)
    if fits is None or fits.fullmatch(line) is None:
        raise _End("error" if kind == b"-" else "refused")
    if kind == b"$" and line != b"-1":
        return _read_text(data, after, flat, int(line))
    if kind == b"*" and line != b"-1":
        return _read_list(data, after, flat, int(line), depth)
    plain = {b"+": ("bytes", line), b":": ("int", int(line) if kind == b":" else 0)}
    flat.append(plain.get(kind, ("NoneType", None)))
    return after


def _read_text(data: bytes, at: int, flat: list[Any], size: int) -> int:
    after = data[at + size : at + size + 2]
    if size > _LARGEST or (len(after) == 2 and after != b"\r\n"):
        raise _End("refused")
    if len(after) < 2:
        raise _End("waits")
    flat.append(("bytes", data[at : at + size]))
    return at + size + 2


def _read_list(data: bytes, at: int, flat: list[Any], size: int, depth: int) -> int:
    if (size and depth == _DEEPEST) or size * _EACH > _LARGEST:
        raise _End("refused")
    flat.append(("list", size))
    for _ in range(size):
        at = _read_value(data, at, flat, depth + 1)
    return at


ANSWERS = Target("resp", "answers of a Redis server in any pieces", _cases, _check, short=250)
