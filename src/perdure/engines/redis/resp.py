"""The protocol of Redis (RESP2), as bytes: requests out, answers in.

The driver's parser asks a stream for one line after the other, through several coroutines each; a commit has one short
answer. This one takes bytes as they come and goes on where it stopped.
"""

from __future__ import annotations

from typing import Any, Final

from redis._parsers.base import BaseParser
from redis.exceptions import AskError, InvalidResponse, MovedError

PENDING: Final = object()
"""More bytes are needed."""

_BULK, _ARRAY, _INTEGER, _STATUS, _ERROR = b"$*:+-"


_SIZES = [b"\r\n$%d\r\n" % size for size in range(1024)]
"""What goes before an argument, by its size: most are short."""


def command(*arguments: bytes) -> bytes:
    """A request in the protocol's form."""
    parts = [b"*%d" % len(arguments)]
    add = parts.append
    for argument in arguments:
        size = len(argument)
        add(_SIZES[size] if size < 1024 else b"\r\n$%d\r\n" % size)
        add(argument)
    add(b"\r\n")
    return b"".join(parts)


class Answers:
    """Answers out of what came in: bytes, integers, None, lists of them, or the driver's error for a refusal."""

    def __init__(self) -> None:
        self._came = bytearray()
        self._at = 0
        self._open: list[tuple[list[Any], int]] = []

    def feed(self, data: bytes | memoryview) -> Any:
        """Take bytes in; the answer if it is whole now, else PENDING."""
        self._came += data
        while True:
            value = self._next()
            if value is PENDING:
                return PENDING
            if type(value) is _Array:
                if value.size > 0:
                    self._open.append(([], value.size))
                    continue
                value = None if value.size < 0 else []
            while self._open:
                values, size = self._open[-1]
                values.append(value)
                if len(values) < size:
                    break
                self._open.pop()
                value = values
            else:
                del self._came[: self._at]
                self._at = 0
                return value

    @property
    def unread(self) -> bool:
        """Whether more came than was asked for."""
        return bool(self._came)

    def _next(self) -> Any:
        """One value; of an array only its size."""
        came, at = self._came, self._at
        end = came.find(b"\r\n", at)
        if end < 0:
            return PENDING
        kind, told, begin = came[at], came[at + 1 : end], end + 2
        if kind == _BULK:
            size = int(told)
            if size < 0:
                self._at = begin
                return None
            if len(came) < begin + size + 2:
                return PENDING
            self._at = begin + size + 2
            return bytes(came[begin : begin + size])
        self._at = begin
        if kind == _ARRAY:
            return _Array(int(told))
        if kind == _INTEGER:
            return int(told)
        if kind == _STATUS:
            return bytes(told)
        if kind == _ERROR:
            return _refusal(told.decode(errors="replace"))
        raise InvalidResponse(f"{bytes(came[at : at + 40])!r} is not of the protocol")


def _refusal(told: str) -> Exception:
    code, _, rest = told.partition(" ")
    # Redis-py 5.2 knows these in its client for clusters only.
    if code == "MOVED":
        return MovedError(rest)
    if code == "ASK":
        return AskError(rest)
    error: Exception = BaseParser.parse_error(told)  # type: ignore[no-untyped-call]
    return error


class _Array:
    """That so many values follow; -1 for NULL."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size
