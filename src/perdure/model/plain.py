"""Plain JSON values: what is not JSON is refused, with its path.

No silent coercion: NaN, bytes, sets, tuples, datetimes, keys that are not text and lone surrogates all raise. A walk
costs time and memory in proportion to the value, whatever its keys: a path is spelled only when something is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, named_type, short_repr
from perdure.limits import JSON_DEPTH, JSON_INTEGER_BITS

_HINTS: dict[Any, str] = {
    bytes: "encode it yourself, for example as base64 text",
    set: "use a list",
    tuple: "use a list",
}
_KEY_SHOWN = 80
_PATH_SHOWN = 400

Step = str | int
"""One step of a path: the key of an object, or the index of a list."""


class Refusal(Exception):
    """Something is wrong with a value; `steps` lead to it, the last one first, added while the walk unwinds."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.steps: list[Step] = []

    def at(self, path: str) -> InvalidError:
        """The error for the caller, its path spelled below `path`."""
        return InvalidError(self.message, path=spell_path(path, self.steps[::-1]), hint=self.hint)


def spell_path(path: str, steps: Sequence[Step]) -> str:
    """`value.key[3]`, with long keys cut, and the middle left out where even that is long."""
    parts = [path]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            name = step if len(step) <= _KEY_SHOWN else step[: _KEY_SHOWN - 1] + "…"
            parts.append(f".{name}" if parts[-1] else name)
    spelled = "".join(parts)
    half = _PATH_SHOWN // 2
    return spelled if len(spelled) <= _PATH_SHOWN else f"{spelled[:half]}…{spelled[-half:]}"


def below(error: InvalidError, path: str) -> InvalidError:
    """An error about a part, as an error about the whole: its path is continued upwards by `path`.

    An error without a path begins its message with the name of the field; an empty path means the part itself.
    """
    if error.path == "":
        return InvalidError(error.message, path=path, hint=error.hint)
    moved = InvalidError(f"{path}.{error.message}", hint=error.hint)
    moved.path = None if error.path is None else f"{path}.{error.path}"
    return moved


def check_json(value: Any, path: str, most: int = limits.MESSAGE_BYTES, *, wrapped: int = 0) -> int:
    """Refuse anything that JSON cannot carry exactly, naming its path below `path`.

    Returns a lower bound of the value's size as JSON. A value that must take more than `most` bytes is refused without
    being encoded: a list that holds one list ten times, and so on for 20 levels, is small in memory and huge as JSON.
    `wrapped` is how many levels of our own may surround the value that the depth limit is meant for.
    """
    try:
        size = _size(value if type(value) is list or type(value) is dict else (value,), 1 - wrapped, most)
    except (_Odd, Refusal, UnicodeEncodeError):
        return _check_slowly(value, path, most, wrapped)
    return size if type(value) is list or type(value) is dict else size - 2


class _Odd(Exception):
    """Something is wrong with a value; the slow walk says what and where."""


def _size(holder: Any, depth: int, most: int) -> int:
    """How long the JSON of a list or an object is at least, if it is at most `most`, and all of it is JSON.

    It counts and refuses like `_Walk`, which is slower because it knows at every step where it is.
    """
    if depth > JSON_DEPTH:
        raise _Odd
    size = 2 * len(holder)
    items = holder
    if type(holder) is dict:
        size += _check_keys(holder)
        items = holder.values()
    for item in items:
        kind = type(item)
        if kind is str:
            size += len(item)
            if not item.isascii():
                item.encode()
        elif kind is int:
            bits = item.bit_length()
            if bits > JSON_INTEGER_BITS:
                raise _Odd
            size += bits >> 2
        elif kind is dict or kind is list:
            if size > most:
                raise _Odd
            size += _size(item, depth + 1, most - size)
        elif not (kind is bool or item is None or (kind is float and isfinite(item))):
            raise _Odd
    if size > most:
        raise _Odd
    return size


def _check_slowly(value: Any, path: str, most: int, wrapped: int) -> int:
    walk = _Walk(most)
    try:
        walk.check([value], -wrapped)
    except Refusal as refusal:
        refusal.steps.pop()  # the index in the list made here
        if walk.room < 0:
            refusal.steps.clear()  # it is the whole that is too large
        raise refusal.at(path) from None
    return most - walk.room


class _Walk:
    """One walk over a value, and how many bytes of JSON it may still come to."""

    __slots__ = ("_most", "room")

    def __init__(self, most: int) -> None:
        self._most = most
        self.room = most + 2

    def check(self, holder: Any, depth: int) -> None:
        """Check what a list or an object holds."""
        if depth > limits.JSON_DEPTH:
            raise Refusal(f"nested deeper than {limits.JSON_DEPTH} levels")
        size = 2 * len(holder)
        items: Any = holder
        if type(holder) is dict:
            size += _check_keys(holder)
            items = holder.values()
        item: Any = None
        try:
            for item in items:
                kind = type(item)
                if kind is str:
                    size += len(item)
                    if not item.isascii():
                        _check_text(item)
                elif kind is bool or item is None:
                    continue
                elif kind is dict or kind is list:
                    self._spend(size)
                    size = 0
                    self.check(item, depth + 1)
                else:
                    size += _check_number(item, kind)
            self._spend(size)
        except Refusal as refusal:
            refusal.steps.append(_step_to(item, holder))
            raise

    def _spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise Refusal(f"more than {self._most:,} bytes of JSON, which is the limit")


def _step_to(item: Any, holder: Any) -> Step:
    """Where an item was met: the first place that holds this very object, as it would have been refused there."""
    steps = holder.items() if type(holder) is dict else enumerate(holder)
    return next((step for step, other in steps if other is item), 0)


def _check_keys(holder: dict[Any, Any]) -> int:
    """How long the keys are together, all of them being text."""
    size = 0
    for key in holder:
        if type(key) is not str:
            raise Refusal(f"the key {short_repr(key)} is not a string", "JSON objects have string keys")
        size += len(key)
        if not key.isascii():
            _check_text(key)
    return size


def _check_number(item: Any, kind: type) -> int:
    """A number, or no JSON at all; digits beyond the first count, as an integer may have a thousand of them."""
    if kind is int:
        bits = item.bit_length()
        if bits > limits.JSON_INTEGER_BITS:
            raise Refusal(f"an integer of more than {limits.JSON_INTEGER_BITS} bits")
        return int(bits) >> 2  # a digit holds less than four bits
    if kind is not float:
        raise Refusal(f"{named_type(kind)} is not JSON", _HINTS.get(kind, "convert it first"))
    if not isfinite(item):
        raise Refusal(f"{item} is not JSON", "use null or a string")
    return 0


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refusal("the text holds a lone surrogate, which UTF-8 cannot carry") from None
