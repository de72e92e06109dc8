"""Mints ids that sort by creation time, and the revs that mark transactions.

An id has the form of a ULID: milliseconds, a counter that starts at random and rises within the millisecond, and sixty
random bits, in 26 characters of Crockford's alphabet. Any other string within the limits is a valid id too; this
is only what Perdure mints when the caller passes none.
"""

from __future__ import annotations

import os
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_LETTER_OF_BYTE = bytes(ord(_ALPHABET[byte & 31]) for byte in range(256))
_COUNTER_START = 1 << 19


class _Chance:
    """Random bytes, taken from the system by the page: a system call for each id would cost more than the id."""

    def __init__(self) -> None:
        self._page = b""
        self._used = 0

    def take(self, count: int) -> bytes:
        """`count` bytes that are never returned twice. The caller holds a lock."""
        if self._used + count > len(self._page):
            self._page, self._used = os.urandom(4096), 0
        self._used += count
        return self._page[self._used - count : self._used]


class _Mint:
    """One process's clockwork: the millisecond, and a counter that rises within it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chance = _Chance()
        self._milliseconds = 0
        self._prefix = ""
        self._counter = 0
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        """A child process must not repeat its parent's bytes, nor wait for a thread that it does not have."""
        self._lock = threading.Lock()
        self._chance = _Chance()

    def id(self) -> str:
        """The next id; its first 14 characters never fall, even if the clock does."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._milliseconds:
                self._milliseconds = now
                self._prefix = "".join([_PAIRS[(now >> shift) & 1023] for shift in range(40, -1, -10)])
                self._counter = int.from_bytes(self._chance.take(3), "big") % _COUNTER_START
            self._counter += 1
            head = self._prefix + _PAIRS[self._counter >> 10 & 1023] + _PAIRS[self._counter & 1023]
            return head + self._chance.take(12).translate(_LETTER_OF_BYTE).decode()

    def rev(self) -> int:
        """A random number of 53 bits, never zero."""
        with self._lock:
            return int.from_bytes(self._chance.take(7), "big") >> 3 or 1


_mint = _Mint()


def new_id() -> str:
    """A fresh 26-character id, larger than every id minted before it by this process."""
    return _mint.id()


def new_rev() -> int:
    """A random 53-bit number, never zero: the mark that one transaction leaves on everything it writes."""
    return _mint.rev()
