"""The path of a branch: which stretches of the thread's log belong to it, from the root to its newest message.

A branch knows its parent branch and its fork point, so a path is a handful of segments: the branch's own records,
before them the parent's up to the fork point, and so on to a root. The walk is over branches, never over messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from perdure import limits
from perdure.errors import CorruptError

Stretch = tuple[int, int, int | None]
"""(branch, after, upto): the records of `branch` with after < seq <= upto, None meaning open."""

Origin = tuple[int | None, int]
"""(parent branch or None, fork seq)."""


def stretches(branch: int, origins: Mapping[int, Origin], *, where: str) -> tuple[Stretch, ...]:
    """The path of a branch, from its root on; a missing parent or a cycle is damage and is reported as such."""
    path: list[Stretch] = []
    upto: int | None = None
    current: int | None = branch
    visited: set[int] = set()
    while current is not None:
        if current in visited:
            raise CorruptError(f"branch {current} is its own ancestor", where=where)
        if current not in origins:
            raise CorruptError(f"branch {current} is missing", where=where)
        visited.add(current)
        parent, fork_seq = origins[current]
        if upto is not None and upto < fork_seq:
            raise CorruptError(f"branch {current} is forked before it begins", where=where)
        path.append((current, fork_seq, upto))
        current, upto = parent, fork_seq
    return tuple(reversed(path))


def bounded(path: tuple[Stretch, ...], upto: int) -> tuple[Stretch, ...]:
    """The same path cut after seq `upto`."""
    return tuple(
        (branch, after, upto if end is None else min(end, upto)) for branch, after, end in path if after < upto
    )


def beyond(path: tuple[Stretch, ...], after: int) -> tuple[Stretch, ...]:
    """The same path from the first record after seq `after` on."""
    return tuple(
        (branch, max(after, start), end) for branch, start, end in path if end is None or end > max(after, start)
    )


class Reach(NamedTuple):
    """How far along a branch some others lead: to the seq `upto`, by way of the branch `via`."""

    upto: int
    via: int


def reach(origins: Mapping[int, Origin], chosen: Collection[int], *, where: str) -> dict[int, Reach]:
    """How far along each branch the chosen ones lead. A parent is older than its forks, so one pass will do."""
    reached = {number: Reach(limits.INTEGER_MAX, number) for number in chosen}
    for number in sorted(origins, reverse=True):
        parent, fork_seq = origins[number]
        if number not in reached or parent is None:
            continue
        if parent not in origins or parent >= number:
            raise CorruptError(f"branch {number} hangs under branch {parent}", where=where)
        if parent not in reached or reached[parent].upto < fork_seq:
            reached[parent] = Reach(fork_seq, reached[number].via)
    return reached
