"""Identity: ids that sort by creation time, and the revs that mark transactions.

An id is a ULID: 48 bits of milliseconds and 80 random bits in 26 characters of Crockford's alphabet, rising within one
process even inside one millisecond. Any other string within the limits is welcome as an id too; this is only what
Perdure mints when the caller brings none.
"""

from __future__ import annotations

import os
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_RANDOM_BITS = 80
_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A fresh 26-character id, larger than every id minted before it by this process."""
    global _last  # noqa: PLW0603 - one clockwork per process
    value = (time.time_ns() // 1_000_000 << _RANDOM_BITS) | int.from_bytes(os.urandom(10), "big")
    with _lock:
        if value <= _last:
            value = _last + 1 + (value & 0xFFFFFFFF)
        _last = value
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def new_rev() -> int:
    """A random 53-bit number, never zero: the mark that one transaction leaves on everything it writes."""
    return int.from_bytes(os.urandom(7), "big") >> 3 or 1
