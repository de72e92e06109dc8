"""Long reads of a log, fetched with LRANGE instead of by the script of the view.

A script copies every entry into Lua and out again, which takes the server several times as long as LRANGE alone. So the
script answers only where the entries are, and LRANGE follows it in the same request. Other commands may run between the
two, so the script also sends the last entry: entries are never changed and are removed only from the end, so if that
one is still where it was, all the entries before it are, too. If not, the view is read again by the script alone. The
entries of a log that is trimmed change their places in the list, so only the script reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.engines.redis.connections.resp import command
from perdure.kernel.ops import Read, ReadOp

_LOCATION = msgspec.msgpack.Decoder(tuple[list[int], msgspec.Raw])
_SHORT = 64
_MOST_SCATTERED = 1_000


class DirectRead(NamedTuple):
    """The read of a view that LRANGE answers: the entries of `key` from the index `low` on."""

    number: int
    read: Read
    low: int
    key: bytes
    command: bytes


class Location:
    """Where the entries of a read are, and the last of them, as the script answers it."""

    def __init__(self, part: msgspec.Raw) -> None:
        self.bounds, last = _LOCATION.decode(part)
        self.last = bytes(last)


class DirectReads:
    """Chooses reads for LRANGE, and remembers lists of which it fetched far more than was asked for."""

    def __init__(self, trimmed: frozenset[str] = frozenset()) -> None:
        self._trimmed = trimmed
        self._scattered: set[bytes] = set()

    def choose(self, base: bytes, reads: Sequence[ReadOp]) -> DirectRead | None:
        """The read of a view to be fetched with LRANGE: one of a whole stretch, in order. None if there is none."""
        for number, read in enumerate(reads):
            if type(read) is Read and read.limit is None and not read.desc and not read.where:
                if read.log in self._trimmed:
                    continue
                segments = read.segments or ()
                low = max([read.after, *[segment.after for segment in segments]])
                ends = [end for end in (read.upto, *[segment.upto for segment in segments]) if end is not None]
                key = b"%bl:%b:%b" % (base, read.log.encode(), read.partition.encode())
                scattered = read.segments is not None and len(segments) != 1
                if scattered or low >= min(ends, default=low + 1) or key in self._scattered:
                    return None
                last = b"%d" % (min(ends, default=0) - 1)
                return DirectRead(number, read, low, key, command(b"LRANGE", key, b"%d" % low, last))
        return None

    def entries(self, direct: DirectRead, location: Location, fetched: list[Any]) -> list[Any] | None:
        """Of the fetched entries, those that the script located; None if they are not all there any more."""
        low, reached = direct.low, direct.low
        located: list[Any] = []
        for first, end in zip(location.bounds[::2], location.bounds[1::2], strict=True):
            if not reached <= first < end <= low + len(fetched):
                return None
            located += fetched[first - low : end - low]
            reached = end
        if len(fetched) > _SHORT + 2 * len(located):
            self._remember(direct.key)
        return located

    def _remember(self, key: bytes) -> None:
        if len(self._scattered) >= _MOST_SCATTERED:
            self._scattered.clear()
        self._scattered.add(key)
