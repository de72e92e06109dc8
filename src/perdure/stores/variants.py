"""The siblings of a message: what was written in its place on other branches ("2 of 3").

Siblings hang under the same message. They are the record after it on its own branch, and the first record of each
branch that forks there; without a parent, the first records of the roots. The rows of the branches say where to look,
so the cost follows the branches and the siblings, never the history. What the rows say is worked out once, in `Lines`,
for however many messages it is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.errors import NotFoundError
from perdure.kernel.ops import Get, Read, ReadOp, Row, Scan, Segment
from perdure.model.branch import Variant
from perdure.model.message import ALL
from perdure.rules.branch_path import Origin, Reach, reach
from perdure.stores.commit.run_change import LOG
from perdure.stores.context import Context, require
from perdure.stores.fork_points import before_on_branch, find_turn
from perdure.stores.path_lengths import Point, fork_point
from perdure.stores.previews import only_calls, preview
from perdure.stores.records import MessageEntry, run_from
from perdure.stores.retry import Stale, retry
from perdure.stores.tree_reading import origins


class Sibling(NamedTuple):
    """What a variant shows of a message, without its body."""

    id: str
    seq: int
    branch: int
    role: str
    at: int
    preview: str
    visibility: str
    run_id: str | None
    only_calls: bool


class Lines(NamedTuple):
    """The branches of a thread, by number: what is forked where, and how far the living ones, and the current, lead."""

    branches: Mapping[int, Row]
    origins: Mapping[int, Origin]
    forks: Mapping[Point | None, list[int]]
    leads: Mapping[int, Reach]
    current: Mapping[int, Reach]


_READS = 50
"""Siblings read at once; each may have 4 MB."""


def lines_of(head: Row, rows: Iterable[Row]) -> Lines:
    """What the rows of a thread's branches say."""
    where = f"thread {head.key[0]!r}"
    branches = {int(row.key[1]): row for row in rows}
    forks: dict[Point | None, list[int]] = {}
    for number, row in branches.items():
        forks.setdefault(fork_point(row), []).append(number)
    hang = origins(branches)
    alive = [number for number, row in branches.items() if row["deleted_at"] is None]
    leads, current = (reach(hang, chosen, where=where) for chosen in (alive, [head["branch"]]))
    return Lines(branches, hang, forks, leads, current)


async def read_variants(context: Context, thread_id: str, message_id: str, *, external: bool) -> list[Variant]:
    """The message and its siblings, in the order in which they were committed; `external`: only those for all."""

    async def attempt() -> list[Variant]:
        heads, entries, rows = await context.view(
            Get("thread_heads", [(thread_id,)]),
            Read(LOG, thread_id, where={"id": message_id}),
            Scan("branches", eq=(thread_id,)),
        )
        head = require(heads[0], f"thread {thread_id!r}")
        if not entries:
            raise NotFoundError(f"message {message_id!r} is not in thread {thread_id!r}")
        entry = MessageEntry._make(entries[0])
        lines = lines_of(head, rows)
        point = await _parent(context, head, entry, lines.branches)
        (siblings,) = await read_siblings(context, head, lines, [point])
        if external:
            siblings = [sibling for sibling in siblings if sibling.visibility == ALL]
        return describe([sibling_from(thread_id, entry)], siblings, lines)

    return await retry("thread", thread_id, attempt, on=(Stale,))


async def read_turns(context: Context, thread_id: str, run_id: str, *, external: bool) -> list[Variant]:
    """The first messages of the run's turn and of the turns in its place; `external`: the first of each for all."""

    async def attempt() -> list[Variant]:
        heads, runs = await context.view(Get("thread_heads", [(thread_id,)]), Get("runs", [(run_id,)]))
        head = require(heads[0], f"thread {thread_id!r}")
        if runs[0] is None or runs[0]["thread"] != thread_id:
            raise NotFoundError(f"run {run_id!r} is not in thread {thread_id!r}")
        turn = await find_turn(context, run_from(runs[0]))
        # After the turn: the branches that it was read from are among them.
        rows = (await context.view(Scan("branches", eq=(thread_id,))))[0]
        lines = lines_of(head, rows)
        (siblings,) = await read_siblings(context, head, lines, [turn.origin.point])
        siblings = [sibling for sibling in siblings if sibling.run_id is not None]
        asked = [] if turn.first is None else [sibling_from(thread_id, turn.first)]
        if external:
            visible = await first_visible(context, head, {*siblings, *asked})
            siblings = [visible[sibling] for sibling in siblings if sibling in visible]
            asked = [visible.get(sibling, sibling) for sibling in asked]
        return describe(asked, siblings, lines)

    return await retry("thread", thread_id, attempt, on=(Stale,))


async def first_visible(context: Context, head: Row, siblings: Collection[Sibling]) -> dict[Sibling, Sibling]:
    """The first message of each turn that people see, by the message that the turn begins with.

    A turn of which they see nothing is left out: all of it is hidden, or it was stopped before a call had a result. An
    input may begin with what they do not see, too.
    """
    thread_id = str(head.key[0])
    alone = [item for item in siblings if item.visibility == ALL and (item.run_id is None or not item.only_calls)]
    visible = dict(zip(alone, alone, strict=True))
    inputs = [sibling for sibling in siblings if begins_input(sibling)]
    for start in range(0, len(inputs), _READS):
        some = inputs[start : start + _READS]
        reads = [_next_for_all(thread_id, sibling) for sibling in some]
        for sibling, entries in zip(some, await view_of(context, head, *reads), strict=True):
            # What a run wrote is no input: all of the input is hidden.
            firsts = [entry for entry in map(MessageEntry._make, entries) if entry.run is None]
            visible.update((sibling, sibling_from(thread_id, entry)) for entry in firsts)
    others = [sibling for sibling in siblings if sibling not in visible and sibling.run_id is not None]
    for start in range(0, len(others), _READS):
        some = others[start : start + _READS]
        rows = (await context.view(Get("runs", [(sibling.run_id or "",) for sibling in some])))[0]
        lasts = {sibling: row["output_last"] for sibling, row in zip(some, rows, strict=True) if row is not None}
        turns = [sibling for sibling, last in lasts.items() if last is not None and last > sibling.seq]
        reads = [_next_visible(thread_id, sibling, lasts[sibling]) for sibling in turns]
        for sibling, entries in zip(turns, await view_of(context, head, *reads), strict=True):
            for entry in map(MessageEntry._make, entries):
                # What begins with a call for all was continued by its result, or by an answer.
                visible[sibling] = sibling if sibling.visibility == ALL else sibling_from(thread_id, entry)
    return visible


def begins_input(sibling: Sibling) -> bool:
    """Is this an internal message that no run wrote? The next one for all may be of the same input."""
    return sibling.run_id is None and sibling.visibility != ALL


def _next_for_all(thread_id: str, sibling: Sibling) -> Read:
    """The next message for all on the branch of a message."""
    segment = Segment(sibling.branch, sibling.seq)
    return Read(LOG, thread_id, segments=(segment,), where={"visibility": ALL}, limit=1)


def _next_visible(thread_id: str, sibling: Sibling, last: int) -> Read:
    """The next message for all of the run that wrote a message, up to the run's last one."""
    where = {"run": sibling.run_id, "visibility": ALL, "branch": sibling.branch}
    return Read(LOG, thread_id, sibling.seq, last, where=where, limit=1)


async def _parent(context: Context, head: Row, entry: MessageEntry, branches: Mapping[int, Row]) -> Point | None:
    """The message that another one hangs under, by branch and seq."""
    thread_id = str(head.key[0])
    owner = require(branches.get(entry.branch), f"branch {entry.branch} of thread {thread_id!r}")
    earlier = (await view_of(context, head, before_on_branch(thread_id, entry)))[0]
    return (entry.branch, earlier[0][0]) if earlier else fork_point(owner)


async def read_siblings(
    context: Context, head: Row, lines: Lines, points: Sequence[Point | None]
) -> list[list[Sibling]]:
    """Everything that hangs under each of some messages; None stands for the roots."""
    thread_id = str(head.key[0])
    segments = [(index, segment) for index, point in enumerate(points) for segment in _places(lines, point)]
    groups: list[list[Sibling]] = [[] for _ in points]
    for start in range(0, len(segments), _READS):
        some = segments[start : start + _READS]
        reads = [Read(LOG, thread_id, segments=(segment,), limit=1) for _, segment in some]
        for (index, _), entries in zip(some, await view_of(context, head, *reads), strict=True):
            groups[index].extend(sibling_from(thread_id, MessageEntry._make(entry)) for entry in entries)
    return groups


def sibling_from(thread_id: str, entry: MessageEntry) -> Sibling:
    """What a variant shows of an entry."""
    text, calls = preview(thread_id, entry), only_calls(entry)
    return Sibling(entry.id, entry.seq, entry.branch, entry.role, entry.at, text, entry.visibility, entry.run, calls)


def _places(lines: Lines, point: Point | None) -> Iterator[Segment]:
    """Where the children of a message are: after it on its branch, and at the beginning of the forks at it."""
    branches = lines.branches
    if point is not None and branches[point[0]]["head_seq"] > point[1]:
        yield Segment(*point)
    for number in lines.forks.get(point, ()):
        if branches[number]["length"]:
            yield Segment(number, branches[number]["fork_seq"])


async def view_of(context: Context, head: Row, *reads: ReadOp) -> list[Any]:
    """Answers about the thread that `head` is the hot row of; raises `Stale` if it is another one by now."""
    heads, *answers = await context.view(Get("thread_heads", [head.key]), *reads)
    if require(heads[0], f"thread {head.key[0]!r}")["born"] != head["born"]:
        raise Stale
    return answers


def describe(asked: list[Sibling], siblings: list[Sibling], lines: Lines) -> list[Variant]:
    """The variants that a living branch leads to, and those that were asked about, in the order of their commits."""
    variants: list[Variant] = []
    for sibling in sorted({*asked, *siblings}, key=lambda sibling: sibling.seq):
        here, via = way_to(lines.current, sibling), way_to(lines.leads, sibling)
        if via is None and sibling not in asked:
            continue
        variants.append(
            Variant(
                message_id=sibling.id,
                seq=sibling.seq,
                role=sibling.role,
                preview=sibling.preview,
                at=sibling.at,
                run_id=sibling.run_id,
                branch=via if here is None else here,
                asked=sibling in asked,
                current=here is not None,
                visibility=sibling.visibility,
            )
        )
    return variants


def way_to(leads: Mapping[int, Reach], sibling: Sibling) -> int | None:
    """The branch by which a message is reached."""
    end = leads.get(sibling.branch)
    return end.via if end is not None and sibling.seq <= end.upto else None
