"""Which message each log entry hangs under: the one before it on its branch, or the point where its branch forks.

Most parents are among the entries that were read with it; the others cost one or two more views.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter

from perdure.errors import CorruptError
from perdure.kernel.ops import Get, LogEntry, Read, Segment
from perdure.model.message import MessageRecord
from perdure.stores.context import Context
from perdure.stores.records import MessageEntry, message_records

LOG = "messages"
_SEQ = itemgetter(0)


async def records_with_parents(
    context: Context, thread_id: str, entries: Sequence[LogEntry], *, gapless: bool, around: Sequence[LogEntry] = ()
) -> list[MessageRecord]:
    """Records with their parents. `around` are the entries with their neighbours, where those were read as well."""
    if gapless:
        around = around or entries
        records = records_in_line(thread_id, entries, around)
        if records is not None:
            return records
        parents = await parents_of(context, thread_id, entries, sorted(around, key=_SEQ), {})
    else:
        unknown = [MessageEntry._make(entry) for entry in sorted(entries, key=_SEQ) if entry[0] != 1]
        parents = await _look_up_parents(context, thread_id, unknown) if unknown else {}
        parents[1] = None
    return message_records(thread_id, entries, [parents[entry[0]] for entry in entries])


def records_in_line(
    thread_id: str, entries: Sequence[LogEntry], around: Sequence[LogEntry]
) -> list[MessageRecord] | None:
    """The same of entries without a gap, if `around` shows all parents. None if they have to be looked up."""
    ordered = sorted(around, key=_SEQ)
    refuse_gaps(thread_id, ordered)
    in_line = _parents_in_line(entries, ordered)
    return None if in_line is None else message_records(thread_id, entries, in_line)


async def parents_of(
    context: Context,
    thread_id: str,
    entries: Sequence[LogEntry],
    ordered: Sequence[LogEntry],
    newest: dict[int, str],
) -> dict[int, str | None]:
    """The parents of entries by seq. `ordered` are the same and their neighbours, without a gap.

    `newest` holds the last message of branches before them; it is brought up to date.
    """
    seqs = {entry[0] for entry in entries}
    parents: dict[int, str | None] = {}
    unknown: list[MessageEntry] = []
    for entry in ordered:
        seq, _, message_id, _, branch, _, _, _, _, _ = entry
        if branch in newest:
            parents[seq] = newest[branch]
        elif seq == 1:
            parents[1] = None
        elif seq in seqs:
            unknown.append(MessageEntry._make(entry))
        newest[branch] = message_id
    if unknown:
        parents.update(await _look_up_parents(context, thread_id, unknown))
    return parents


async def _look_up_parents(context: Context, thread_id: str, entries: Sequence[MessageEntry]) -> dict[int, str | None]:
    """Parents that the page itself does not show: the record before on the branch, else the branch's fork point."""
    numbers = sorted({entry.branch for entry in entries})
    rows = (await context.view(Get("branches", [(thread_id, number) for number in numbers])))[0]
    branches = {number: row for number, row in zip(numbers, rows, strict=True) if row is not None}
    parents: dict[int, str | None] = {}
    reads: dict[int, Read] = {}
    for entry in entries:
        row = branches.get(entry.branch)
        fork_seq = 0 if row is None else row["fork_seq"]
        parents[entry.seq] = None if row is None else row["fork"]
        if fork_seq < entry.seq - 1 and not (row is not None and row["length"] == 1):
            stretch = (Segment(entry.branch, fork_seq, entry.seq - 1),)
            reads[entry.seq] = Read(LOG, thread_id, segments=stretch, desc=True, limit=1)
    if reads:
        answers = await context.view(*reads.values())
        earlier = zip(reads, answers, strict=True)
        parents.update({seq: MessageEntry._make(before[0]).id for seq, before in earlier if before})
    return parents


def _parents_in_line(entries: Sequence[LogEntry], ordered: Sequence[LogEntry]) -> list[str | None] | None:
    """The parents of a page without gaps, if `ordered`, its entries with their neighbours, shows them all: it is on one
    branch and begins with the first message, or with one that is not on the page."""
    if len({entry[4] for entry in ordered}) != 1:
        return None
    first = ordered[0][0]
    if first != 1 and (not entries or first in (entries[0][0], entries[-1][0])):
        return None
    ids = [None, *[entry[2] for entry in ordered]]
    return [ids[entry[0] - first] for entry in entries]


def refuse_gaps(thread_id: str, ordered: Sequence[LogEntry]) -> None:
    """Raise `CorruptError` for entries that do not follow each other."""
    seqs = list(map(_SEQ, ordered))
    if not seqs or seqs == list(range(seqs[0], seqs[0] + len(seqs))):
        return
    missing = next(earlier + 1 for earlier, later in pairwise(seqs) if later != earlier + 1)
    raise CorruptError(f"message {missing} is missing", where=f"thread {thread_id!r}")
