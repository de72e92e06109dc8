"""The protocol of Redis (RESP2), as bytes: encodes requests, parses replies.

The parser takes bytes as they arrive and resumes where it stopped; it never waits. It trusts no length that the server
names: a reply has a budget of bytes, charged before anything is stored, and arrays nest to a limited depth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from perdure.engines.redis.connections.failures import InvalidReply, cleaned, parse_error

PENDING: Final = object()
"""More bytes are needed."""

LARGEST: Final = 2**30
"""The budget of a reply with data, in bytes: a page of 200 messages of 4 MiB each."""
SMALL: Final = 2**24
"""The same for a reply about the server, such as its settings or the map of a cluster."""

_BULK, _ARRAY, _INTEGER, _STATUS, _ERROR = _KINDS = b"$*:+-"
_LONGEST_LINE = 2**20
_DEEPEST = 8
_EACH = 64
"""The charge for a value besides its bytes: an empty array takes four bytes to send and this many to store."""
_BUFFER_BYTES = 2**18
_LEAST_SPACE = 2**16
_LENGTH_LINE = 1 + 19 + 2
_CR, _LF = b"\r\n"
_NUMBER = re.compile(rb"-?[0-9]{1,19}")


_SIZES = [b"\r\n$%d\r\n" % size for size in range(1024)]
"""The header of an argument, by its size: most are short."""


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


Element = Callable[[memoryview], Any]


class Parser:
    """Parses replies: bytes, integers, None, lists of these, or the error that the server replied with.

    `room` is the budget of the next reply, in bytes; `secrets` are removed from the text of errors. Bytes that are not
    of the protocol, or a reply larger than its budget, raise `InvalidReply`. Bytes are received into the parser's own
    buffer (`space`, then `advance`), because copying a long reply takes as long as receiving it.
    """

    def __init__(self, room: int = LARGEST, secrets: Sequence[str] = ()) -> None:
        self.room = room
        self.element: Element = memoryview.tobytes
        """What makes a value of each text of an array, except the last one, which is always bytes. It must not keep
        what it gets: that is part of the buffer."""
        self._secrets = secrets
        self._received = bytearray(_BUFFER_BYTES)
        self._at = 0
        self._end = 0
        self._spent = 0
        self._open: list[tuple[list[Any], int]] = []

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if len(self._received) - self._end < _LEAST_SPACE:
            self._make_space()
        return memoryview(self._received)[self._end :]

    def _make_space(self) -> None:
        """Move what is not parsed yet to the front; if it fills half the buffer, to the front of a larger one."""
        received, rest = self._received, self._end - self._at
        if rest > len(received) // 2:
            larger = bytearray(2 * len(received))
            larger[:rest] = memoryview(received)[self._at : self._end]
            self._received = larger
        else:
            received[:rest] = received[self._at : self._end]
        self._at, self._end = 0, rest

    def advance(self, count: int) -> Any:
        """Parse `count` more bytes, which are in the space now; returns the reply if it is complete, else PENDING."""
        self._end += count
        while True:
            if self._open:
                self._take_bulks(*self._open[-1])
            value = self._next()
            if value is PENDING:
                return PENDING
            if type(value) is _Array:
                if value.size > 0:
                    self._begin_array(value.size)
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
                self._finish()
                return value

    def feed(self, data: bytes) -> Any:
        """Add bytes that were received elsewhere; returns the reply if it is complete now, else PENDING."""
        while data:
            space = self.space()
            part = data[: len(space)]
            space[: len(part)] = part
            self._end += len(part)
            data = data[len(part) :]
        return self.advance(0)

    def _take_bulks(self, values: list[Any], size: int) -> None:
        """Take the texts that are complete, but for the last value of the array: a long history is thousands of them.

        Whatever is not an ordinary text within the budget is left to `_next`.
        """
        received, at, spent, room = self._received, self._at, self._spent, self.room
        find, add, element, wanting = received.find, values.append, self.element, size - 1 - len(values)
        last = self._end - 2  # where the last text may end
        with memoryview(received) as view:
            while wanting > 0 and at < last and received[at] == _BULK:
                end = find(b"\r\n", at, at + _LENGTH_LINE)
                line = received[at + 1 : end]
                if end < 0 or not line.isdigit():
                    break
                begin = end + 2
                end = begin + int(line)
                more = spent + end + 2 - at + _EACH
                if end > last or more > room or received[end] != _CR or received[end + 1] != _LF:
                    break
                add(element(view[begin:end]))
                at, spent, wanting = end + 2, more, wanting - 1
        self._at, self._spent = at, spent

    @property
    def unread(self) -> bool:
        """Whether bytes are left after the last reply."""
        return self._end > self._at

    def _finish(self) -> None:
        """Be ready for the next reply; give back the memory that a large one needed."""
        self._spent = 0
        if self._end == self._at:
            self._at = self._end = 0
            if len(self._received) > _BUFFER_BYTES:
                self._received = bytearray(_BUFFER_BYTES)

    def _begin_array(self, size: int) -> None:
        if len(self._open) >= _DEEPEST:
            raise InvalidReply(f"arrays are nested more than {_DEEPEST} deep")
        self._refuse_over_budget(size * _EACH)
        self._open.append(([], size))

    def _refuse_over_budget(self, more: int) -> None:
        if self._spent + more > self.room:
            raise InvalidReply(f"it is longer than the {self.room} bytes that it may have")

    def _next(self) -> Any:
        """One value; of an array only its size."""
        received, at, last = self._received, self._at, self._end
        if at < last and received[at] not in _KINDS:
            raise InvalidReply(f"{bytes(received[at : min(at + 40, last)])!r} is not of the protocol")
        end = received.find(b"\r\n", at, min(at + _LONGEST_LINE, last))
        if end < 0:
            if last - at >= _LONGEST_LINE:
                raise InvalidReply("a line of it does not end")
            return PENDING
        kind, line, begin = received[at], received[at + 1 : end], end + 2
        if kind == _BULK:
            return self._bulk(_length(line), begin)
        self._consume(begin)
        if kind == _STATUS:
            return bytes(line)
        if kind == _ERROR:
            return parse_error(cleaned(line.decode(errors="replace"), self._secrets))
        return _Array(_length(line)) if kind == _ARRAY else _number(line)

    def _bulk(self, size: int, begin: int) -> Any:
        if size < 0:
            self._consume(begin)
            return None
        self._refuse_over_budget(size)
        end = begin + size
        if self._end < end + 2:
            return PENDING
        if self._received[end : end + 2] != b"\r\n":
            raise InvalidReply("a text of it does not end where it says")
        value = bytes(self._received[begin:end])
        self._consume(end + 2)
        return value

    def _consume(self, end: int) -> None:
        self._spent += end - self._at + _EACH
        self._refuse_over_budget(0)
        self._at = end


def _number(line: bytearray) -> int:
    if len(line) > 20 or _NUMBER.fullmatch(line) is None:
        raise InvalidReply(f"{bytes(line[:40])!r} is not a number")
    return int(line)


def _length(line: bytearray) -> int:
    """How many bytes or values follow; -1 for NULL."""
    if line.startswith(b"-") and line != b"-1":
        raise InvalidReply(f"{bytes(line[:40])!r} is not a length")
    return _number(line)


class _Array(NamedTuple):
    """The header of an array: how many values follow; -1 for NULL."""

    size: int
