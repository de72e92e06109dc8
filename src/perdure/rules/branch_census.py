"""How many messages a branch has up to some seq, from the rows of the thread's branches alone.

A log numbers the messages of all branches in one sequence, so of the first `seq` messages, those that are on no other
branch are on this one. A row says how many messages its branch has and where they end; where they begin is at least
known to be after every fork that is older. Only where two branches were written alternately is that not enough, and the
messages must be counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

import msgspec


class Extent(msgspec.Struct, frozen=True, gc=False):
    """What a branch's row says: where it forks, where it ends, and how many messages are its own."""

    number: int
    fork_seq: int
    head_seq: int
    length: int


class Census:
    """The branches of a thread, deleted ones included, as one snapshot saw them. A question costs two bisections."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        ordered = sorted(extents, key=lambda extent: extent.number)
        # A fork point was written before its branch was made, so before each message of a younger branch.
        after = accumulate((extent.fork_seq for extent in ordered), max)
        self._begins: dict[int, int] = dict(zip((extent.number for extent in ordered), after, strict=True))
        self._extents: dict[int, Extent] = {extent.number: extent for extent in ordered}
        written = sorted((extent for extent in ordered if extent.length), key=lambda extent: extent.head_seq)
        self._starts = sorted(self._begins[extent.number] for extent in written)
        self._ends = [extent.head_seq for extent in written]
        self._totals = [0, *accumulate(extent.length for extent in written)]

    def count(self, branch: int, upto: int) -> int | None:
        """How many messages with `seq <= upto` were written on the branch itself; None if the rows do not tell."""
        own = self._extents[branch]
        if own.head_seq <= upto:
            return own.length
        if self._begins[branch] >= upto or not own.length:
            return 0
        ended = bisect_right(self._ends, upto)
        begun = bisect_left(self._starts, upto)
        # The branch itself has begun and has not ended. Another one like it may have any part of what is left.
        return upto - self._totals[ended] if begun - ended == 1 else None
