"""The variants of a page: for every place on it where lines part, what was written there on other branches.

The rows of the branches say where lines part, so a thread that never branched costs nothing, and a page costs one read
per branch that forks on it. What hangs under the same message is one group. The page shows a group at the variant on
its path or, if it hides that one, at the next record, if that is of the same run: a turn may begin with what people do
not see. What hangs under the newest record of a branch, on other branches only, is what comes next there: an answer
that was regenerated and then stopped before its first word has no record of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perdure.kernel.ops import Read, Row, Scan
from perdure.model.branch import Variant
from perdure.model.message import MessageRecord
from perdure.rules.branch_path import Reach, reach
from perdure.stores.commit.run_change import LOG
from perdure.stores.context import Context
from perdure.stores.path_lengths import Point
from perdure.stores.records import MessageEntry
from perdure.stores.variants import (
    Lines,
    Sibling,
    begins_input,
    describe,
    first_visible,
    lines_of,
    read_siblings,
    sibling_from,
    view_of,
    way_to,
)


class PageWindow(NamedTuple):
    """The records of a page, oldest first, the branch whose path they are of, and the seq after which the page begins.

    `newest`: it is the newest page of the branch. `head` is the thread's hot row, as the page was read with it.
    """

    records: Sequence[MessageRecord]
    branch: int
    after: int
    newest: bool
    head: Row


class PageVariants(NamedTuple):
    """The variants by the id of the record that shows them, and those that come after the newest record elsewhere."""

    of_records: dict[str, list[Variant]]
    after_newest: list[Variant]


class _Group(NamedTuple):
    """The variants in one place: the one on the path, the others, and the record that shows them."""

    own: Sibling
    others: list[Sibling]
    record: MessageRecord


async def read_page_variants(context: Context, window: PageWindow, *, external: bool) -> PageVariants:
    """The variants of a page; records without another variant are left out.

    Raises `Stale` if another thread has the id by now.
    """
    head = window.head
    if head["branches"] == 1 or not (window.records or window.newest):
        return PageVariants({}, [])
    thread_id = str(head.key[0])
    lines = lines_of(head, (await view_of(context, head, Scan("branches", eq=(thread_id,))))[0])
    path = reach(lines.origins, [window.branch], where=f"thread {thread_id!r}")
    points = _points(lines, path, window)
    siblings = await read_siblings(context, head, lines, list(points.values()))
    last = window.records[-1].seq if window.records else 0
    on_page = [together for seq, together in zip(points, siblings, strict=True) if seq < last]
    elsewhere = [sibling for together in siblings[len(on_page) :] for sibling in together]
    elsewhere = [sibling for sibling in elsewhere if way_to(path, sibling) is None]
    groups = _groups(on_page, path, window)
    if external:
        elsewhere = list((await first_visible(context, head, elsewhere)).values())
        groups = await _visible(context, head, groups)
    asked_siblings = await _asked(context, head, groups)
    page: dict[str, list[Variant]] = {}
    for group, asked in zip(groups, asked_siblings, strict=True):
        variants = describe([asked], group.others, lines)
        if len(variants) > 1:  # of two groups at one record, the later one counts
            page[group.record.message_id] = variants
    return PageVariants(page, describe([], elsewhere, lines))


def _points(lines: Lines, path: Mapping[int, Reach], window: PageWindow) -> dict[int, Point | None]:
    """The messages on the page's path under which lines part, by seq: from the one before the page to the last before
    its end or, of the newest page, to the end of the path."""
    on_path: dict[int, Point | None] = {}
    for point in lines.forks:
        if point is None:
            on_path[0] = None
        elif point[0] in path and point[1] <= path[point[0]].upto:
            on_path[point[1]] = point
    # Of those before the page, only the last one can have its next record on the page.
    before = max((seq for seq in on_path if seq <= window.after), default=0)
    last = window.records[-1].seq if window.records else 0
    return {seq: point for seq, point in sorted(on_path.items()) if before <= seq and (window.newest or seq < last)}


def _groups(siblings: Sequence[list[Sibling]], path: Mapping[int, Reach], window: PageWindow) -> list[_Group]:
    """The groups that the page can show, in the order of their places."""
    groups: list[_Group] = []
    for together in siblings:
        own = next((sibling for sibling in together if way_to(path, sibling) is not None), None)
        if own is None or own.seq <= window.after or len(together) == 1:
            continue
        record = next((record for record in window.records if record.seq >= own.seq), None)
        if record is not None and _shows(record, own):
            groups.append(_Group(own, [sibling for sibling in together if sibling != own], record))
    return groups


def _shows(record: MessageRecord, own: Sibling) -> bool:
    """Whether a record stands for a variant: it is this one, or a later one of the same run, or of the same input."""
    if record.seq == own.seq:
        return True
    return record.run_id == own.run_id and (own.run_id is not None or begins_input(own))


async def _visible(context: Context, head: Row, groups: Sequence[_Group]) -> list[_Group]:
    """The same groups, each turn by its first message for all."""
    firsts = await first_visible(context, head, {sibling for group in groups for sibling in group.others})
    return [
        group._replace(others=[firsts[sibling] for sibling in group.others if sibling in firsts]) for group in groups
    ]


async def _asked(context: Context, head: Row, groups: Sequence[_Group]) -> list[Sibling]:
    """What the page shows of each group: the variant on its path, or the record that stands for it."""
    thread_id = str(head.key[0])
    elsewhere = [group.record.seq for group in groups if group.record.seq != group.own.seq]
    reads = [Read(LOG, thread_id, seq - 1, seq) for seq in elsewhere]
    entries = [MessageEntry._make(answer[0]) for answer in await view_of(context, head, *reads)] if reads else []
    read = {entry.seq: sibling_from(thread_id, entry) for entry in entries}
    return [read.get(group.record.seq, group.own) for group in groups]
