"""The protocol of Redis (RESP2), as bytes: requests out, answers in.

The driver's parser asks a stream for one line after the other, through several coroutines each; a commit has one short
answer. This one takes bytes as they come and goes on where it stopped. It believes no length that the other side names:
an answer has a budget of bytes, charged before anything is kept, and arrays nest only so deep.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from perdure.engines.redis.connections.failures import InvalidReply, cleaned, parse_error

PENDING: Final = object()
"""More bytes are needed."""

LARGEST: Final = 2**30
"""How many bytes an answer with data may have: a page of 200 messages of 4 MiB each."""
SMALL: Final = 2**24
"""The same for an answer about the server, such as its settings or the map of a cluster."""

_BULK, _ARRAY, _INTEGER, _STATUS, _ERROR = _KINDS = b"$*:+-"
_LONGEST_LINE = 2**20
_DEEPEST = 8
_EACH = 64
"""What a value is charged besides its bytes: an empty array takes four of them to send and this many to keep."""
_TRIM = 2**20
_NUMBER = re.compile(rb"-?[0-9]{1,19}")


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
    """Answers out of what came in: bytes, integers, None, lists of them, or the error that the server replied with.

    `room` is the budget of the next answer, in bytes; `secrets` are kept out of the text of refusals. What is not of
    the protocol, or larger than its budget, raises `InvalidReply`.
    """

    def __init__(self, room: int = LARGEST, secrets: Sequence[str] = ()) -> None:
        self.room = room
        self._secrets = secrets
        self._came = bytearray()
        self._at = 0
        self._spent = 0
        self._open: list[tuple[list[Any], int]] = []

    def feed(self, data: bytes | memoryview) -> Any:
        """Take bytes in; the answer if it is whole now, else PENDING."""
        self._came += data
        while True:
            value = self._next()
            if value is PENDING:
                if self._at > _TRIM:
                    self._forget()
                return PENDING
            if type(value) is _Array:
                if value.size > 0:
                    self._begin(value.size)
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
                self._forget()
                self._spent = 0
                return value

    @property
    def unread(self) -> bool:
        """Whether more came than was asked for."""
        return bool(self._came)

    def _forget(self) -> None:
        del self._came[: self._at]
        self._at = 0

    def _begin(self, size: int) -> None:
        if len(self._open) >= _DEEPEST:
            raise InvalidReply(f"arrays are nested more than {_DEEPEST} deep")
        self._refuse_beyond(size * _EACH)
        self._open.append(([], size))

    def _refuse_beyond(self, more: int) -> None:
        if self._spent + more > self.room:
            raise InvalidReply(f"it is longer than the {self.room} bytes that it may have")

    def _next(self) -> Any:
        """One value; of an array only its size."""
        came, at = self._came, self._at
        if at < len(came) and came[at] not in _KINDS:
            raise InvalidReply(f"{bytes(came[at : at + 40])!r} is not of the protocol")
        end = came.find(b"\r\n", at, at + _LONGEST_LINE)
        if end < 0:
            if len(came) - at >= _LONGEST_LINE:
                raise InvalidReply("a line of it does not end")
            return PENDING
        kind, told, begin = came[at], came[at + 1 : end], end + 2
        if kind == _BULK:
            return self._bulk(_length(told), begin)
        self._pass(begin)
        if kind == _STATUS:
            return bytes(told)
        if kind == _ERROR:
            return parse_error(cleaned(told.decode(errors="replace"), self._secrets))
        return _Array(_length(told)) if kind == _ARRAY else _number(told)

    def _bulk(self, size: int, begin: int) -> Any:
        if size < 0:
            self._pass(begin)
            return None
        self._refuse_beyond(size)
        end = begin + size
        if len(self._came) < end + 2:
            return PENDING
        if self._came[end : end + 2] != b"\r\n":
            raise InvalidReply("a text of it does not end where it says")
        value = bytes(self._came[begin:end])
        self._pass(end + 2)
        return value

    def _pass(self, end: int) -> None:
        self._spent += end - self._at + _EACH
        self._refuse_beyond(0)
        self._at = end


def _number(told: bytearray) -> int:
    if len(told) > 20 or _NUMBER.fullmatch(told) is None:
        raise InvalidReply(f"{bytes(told[:40])!r} is not a number")
    return int(told)


def _length(told: bytearray) -> int:
    """How many bytes or values follow; -1 stands for none at all."""
    if told.startswith(b"-") and told != b"-1":
        raise InvalidReply(f"{bytes(told[:40])!r} is no length")
    return _number(told)


class _Array:
    """That so many values follow; -1 for NULL."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size
