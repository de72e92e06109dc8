"""A case of a fuzzer as one line of JSON, whatever it holds: what a failure prints, and what a corpus file is.

JSON lacks bytes, tuples, keys that are not text, whole numbers of thousands of digits and short words for long text.
Such values are objects with one key that begins with `$`: `{"$bytes": "\\u00ff"}`, `{"$text": ["/", ["9", 5000]]}`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RUN = re.compile(r"(.{1,8}?)\1{49,}", re.DOTALL)
"""Fifty and more of the same few characters: a text that has them is spelled as a list of its pieces."""


@contextmanager
def deep() -> Iterator[None]:
    """For our own walks through a case: it may be nested deeper than the product, which runs outside, may recurse."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def spell(case: Any) -> str:
    """The case as one line of ASCII."""
    with deep():
        return json.dumps(_out(case))


def read(line: str) -> Any:
    """The case behind `spell`."""
    with deep():
        return _in(json.loads(line))


def _out(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": _out(value.decode("latin-1"))}
    if isinstance(value, tuple):
        return {"$tuple": [_out(item) for item in value]}
    if isinstance(value, set):
        return {"$set": [_out(item) for item in sorted(value, key=repr)]}
    if type(value) is int and value.bit_length() > 4_096:
        return {"$int": hex(value)}
    if type(value) is str and _RUN.search(value):
        return {"$text": _pieces(value)}
    if isinstance(value, list):
        return [_out(item) for item in value]
    if isinstance(value, dict):
        plain = all(type(key) is str and not key.startswith("$") for key in value)
        pairs = [(key, _out(item)) for key, item in value.items()]
        return dict(pairs) if plain else {"$dict": [[_out(key), item] for key, item in pairs]}
    return value


def _pieces(text: str) -> list[Any]:
    """Plain text, and `[piece, times]` for every long run."""
    pieces: list[Any] = []
    at = 0
    for run in _RUN.finditer(text):
        pieces += [text[at : run.start()], [run[1], len(run[0])]]
        at = run.end()
    return [piece for piece in (*pieces, text[at:]) if piece]


def _in(value: Any) -> Any:
    if isinstance(value, list):
        return [_in(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, held),) = value.items()
        if name in _READ:
            return _READ[name](held)
    return {key: _in(item) for key, item in value.items()}


_READ = {
    "$bytes": lambda held: _in(held).encode("latin-1"),
    "$tuple": lambda held: tuple(_in(item) for item in held),
    "$set": lambda held: {_in(item) for item in held},
    "$int": lambda held: int(held, 16),
    "$text": lambda held: "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in held),
    "$dict": lambda held: {_in(key): _in(item) for key, item in held},
}
