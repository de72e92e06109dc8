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
_PAGE_BYTES = 4096


class _Mint:
    """One process's clockwork: the millisecond, a counter that rises within it, and random bytes.

    The bytes come from the system by the page: a system call for each id would cost more than the id. None of them is
    used twice.
    """

    def __init__(self) -> None:
        self._begin_anew()
        self._milliseconds = 0
        self._prefix = ""
        self._counter = 0
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        """A child process must not repeat its parent's bytes, nor wait for a thread that it does not have."""
        self._lock = threading.Lock()
        self._page = b""
        self._used = 0

    def id(self) -> str:
        """A fresh 26-character id, larger than every id minted before it by this process."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._milliseconds:
                self._begin_millisecond(now)
            self._counter += 1
            counter, start = self._counter, self._used
            if start + 12 > len(self._page):
                self._page, start = os.urandom(_PAGE_BYTES), 0
            self._used = start + 12
            letters = self._page[start : start + 12].translate(_LETTER_OF_BYTE).decode()
            return self._prefix + _PAIRS[counter >> 10 & 1023] + _PAIRS[counter & 1023] + letters

    def _begin_millisecond(self, now: int) -> None:
        """Ids of a later millisecond are larger; the clock of the system may fall, that of the ids never does."""
        self._milliseconds = now
        self._prefix = "".join([_PAIRS[(now >> shift) & 1023] for shift in range(40, -1, -10)])
        self._counter = int.from_bytes(os.urandom(3), "big") % _COUNTER_START

    def rev(self) -> int:
        """A random 53-bit number, never zero: the mark that one transaction leaves on everything it writes."""
        with self._lock:
            start = self._used
            if start + 7 > len(self._page):
                self._page, start = os.urandom(_PAGE_BYTES), 0
            self._used = start + 7
            return int.from_bytes(self._page[start : start + 7], "big") >> 3 or 1


_mint = _Mint()
new_id = _mint.id
new_rev = _mint.rev
