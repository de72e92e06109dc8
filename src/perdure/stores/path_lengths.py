"""How many messages a branch inherits: those of its path that were written before its fork, on its ancestors.

That number never changes while a thread lives, so it is computed once per process and kept. A root inherits nothing, in
a thread with one branch a message's seq is its place, and otherwise the rows of the branches tell
(`rules.branch_census`). Only after two branches were written alternately must the messages of an ancestor be counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.errors import CorruptError
from perdure.kernel.ops import Get, Read, Row, Scan, Segment
from perdure.rules.branch_census import Census, Extent
from perdure.stores.context import Context, require
from perdure.stores.retry import Stale

_PAGE = 50
"""Messages read at once where they must be counted; each may have 4 MB."""

_FEW_BRANCHES = 50
"""So many branch rows are read rather than one row first: that could be a trip for nothing."""

Point = tuple[int, int]
"""A message as a fork names it: its branch and its seq."""


def known_length(context: Context, head: Row, point: Point | None) -> int | None:
    """How long the path to a fork point is, if that is known without a look at the branches."""
    if point is None:
        return 0
    thread_id = str(head.key[0])
    if head["branches"] == 1:
        context.remember_path_length(thread_id, head["born"], point, point[1])
        return point[1]
    return context.path_length(thread_id, head["born"], point)


async def inherited_length(context: Context, head: Row, point: Point | None, *also: Read) -> tuple[int, list[Any]]:
    """How long the path to a fork point is, in the incarnation of a thread that `head` is the hot row of, and the
    answers to other reads, from the same view.

    Raises `Stale` if the thread was deleted and made again since.
    """
    length = known_length(context, head, point)
    if length is not None:
        return length, await context.view(*also) if also else []
    thread_id = str(head.key[0])
    if point is not None and head["branches"] > _FEW_BRANCHES:
        length = await _length_at_head(context, head, point)
        if length is not None:
            return length, await context.view(*also) if also else []
    heads, rows, *answers = await context.view(
        Get("thread_heads", [(thread_id,)]), Scan("branches", eq=(thread_id,)), *also
    )
    if require(heads[0], f"thread {thread_id!r}")["born"] != head["born"]:
        raise Stale
    return (await inherited_lengths(context, head, rows, [point]))[point], answers


async def _length_at_head(context: Context, head: Row, point: Point) -> int | None:
    """The length where a branch ends, from its own row: a chain of forks reads one row each, not all branches."""
    branch, seq = point
    (row,) = (await context.view(Get("branches", [(head.key[0], branch)])))[0]
    if row is None or row["head_seq"] > seq:
        return None
    inherited = known_length(context, head, fork_point(row))
    if inherited is None:
        return None
    context.remember_path_length(str(head.key[0]), head["born"], point, inherited + row["length"])
    return int(inherited + row["length"])


async def inherited_lengths(
    context: Context, head: Row, rows: Sequence[Row], points: Iterable[Point | None]
) -> dict[Point | None, int]:
    """The lengths of the paths to some fork points, from the rows of all branches."""
    thread_id, born = str(head.key[0]), head["born"]
    branches = {int(row.key[1]): row for row in rows}
    lengths: dict[Point | None, int] = {None: 0}
    chain = _with_ancestors(context, head, branches, points, lengths)
    if not chain:
        return lengths
    census = Census(Extent(n, row["fork_seq"], row["head_seq"], row["length"]) for n, row in branches.items())
    counts = {point: census.count(*point) for point in chain}
    counts.update(await _counted(context, thread_id, branches, [p for p, count in counts.items() if count is None]))
    # A parent is older than its forks, so the points of its own path come first.
    for point in sorted(chain):
        lengths[point] = lengths[fork_point(branches[point[0]])] + (counts[point] or 0)
        context.remember_path_length(thread_id, born, point, lengths[point])
    return lengths


def fork_point(row: Row) -> Point | None:
    """Where a branch hangs; None for a root."""
    return None if row["parent"] is None else (row["parent"], row["fork_seq"])


def _with_ancestors(
    context: Context,
    head: Row,
    branches: Mapping[int, Row],
    points: Iterable[Point | None],
    lengths: dict[Point | None, int],
) -> set[Point]:
    """The points whose lengths are not known yet, with those that they build on; what is known goes to `lengths`."""
    thread_id = str(head.key[0])
    unknown: set[Point] = set()
    for start in points:
        point = start
        while point is not None and point not in lengths and point not in unknown:
            length = context.path_length(thread_id, head["born"], point)
            if length is not None:
                lengths[point] = length
                break
            unknown.add(point)
            row = branches.get(point[0])
            if row is None or (row["parent"] is not None and row["parent"] >= point[0]):
                raise CorruptError(f"branch {point[0]} hangs nowhere", where=f"thread {thread_id!r}")
            point = fork_point(row)
    return unknown


async def _counted(
    context: Context, thread_id: str, branches: Mapping[int, Row], points: Sequence[Point]
) -> dict[Point, int]:
    """How many own messages of a branch are at or before each point, by reading them: once for all of a branch."""
    counts: dict[Point, int] = {}
    for branch in sorted({branch for branch, _ in points}):
        seqs = sorted(seq for number, seq in points if number == branch)
        seq, count = branches[branch]["fork_seq"], 0
        for upto in seqs:
            while seq < upto:
                page = (
                    await context.view(Read("messages", thread_id, segments=(Segment(branch, seq, upto),), limit=_PAGE))
                )[0]
                count += len(page)
                seq = page[-1][0] if len(page) == _PAGE else upto
            counts[branch, upto] = count
    return counts
