"""What `messages.follow` reads: the log of a thread, or the path of a branch.

It remembers the last seq that it read, so it sees each record once, whatever hints are lost. What is there at the
beginning, and what it falls behind, it reads for itself; what comes then, the `waker` reads once for all followers of
the thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from perdure import limits
from perdure.errors import CursorExpired, NotFoundError
from perdure.kernel.ops import Get, LogEntry, Read, Row
from perdure.model.message import ALL, MessageRecord
from perdure.stores.branch_paths import PathQuery, read_path, resolve_branch
from perdure.stores.context import check_resource, require
from perdure.stores.feeds import Seat, Shared
from perdure.stores.parents import LOG, records_with_parents
from perdure.stores.records import MessageEntry, message_records, path_records
from perdure.stores.waker import SharedWait

FollowView = Literal["raw", "external"]


def reborn(thread_id: str) -> NotFoundError:
    """The thread that was followed is gone, and another one has its id."""
    return NotFoundError(f"thread {thread_id!r} was deleted", hint="another one has its id now")


class Reader(Protocol):
    """Reads on for one follower of messages, whose seat it advances."""

    async def read_on(self) -> list[MessageRecord]:
        """The next records, from a read of its own; raises `NotFoundError` when what is followed was deleted."""
        ...

    def records_of(self, entries: Sequence[Shared]) -> list[MessageRecord]:
        """The records among the next entries that were read for all followers."""
        ...


class MessageSource:
    """The records after a seq, those of a view only. What other followers read too is shared, see `waker`."""

    ended = False

    def __init__(self, wait: SharedWait, reader: Reader, view: FollowView) -> None:
        self.at_end: bool = False
        self._wait = wait
        self._reader = reader
        self._external = view == "external"

    @property
    def behind(self) -> bool:
        """Whether its last read was a full page."""
        return self._wait.seat.behind

    async def read(self, *, fresh: bool) -> list[MessageRecord]:
        """The next records that the view shows, read on past those that it does not."""
        while True:
            position = self._wait.seat.position
            entries = None if fresh else self._wait.shared()
            if entries is None:
                records = await self._reader.read_on()
                fresh = fresh and bool(records)
            else:
                records = self._reader.records_of(entries)
            self.at_end = entries is not None and self._wait.at_end
            visible = [record for record in records if not self._external or record.visibility == ALL]
            if visible or self._wait.seat.position == position:
                return visible


class LogReader:
    """Reads on along the log of one thread, all branches together, as long as it is the same thread."""

    def __init__(self, wait: SharedWait) -> None:
        self._wait = wait

    async def read_on(self) -> list[MessageRecord]:
        """The next records of the log."""
        wait, seat, thread_id = self._wait, self._wait.seat, self._wait.thread_id
        lead = 1 if seat.position else 0  # the entry before them is the parent of the first
        heads, entries = await wait.context.view(
            Get("thread_heads", [(thread_id,)]),
            Read(LOG, thread_id, after=seat.position - lead, limit=limits.PAGE_MAX + lead),
        )
        head = require(heads[0], f"thread {thread_id!r}")
        check_thread(wait, head)
        new = entries[lead:]
        full = len(new) >= limits.PAGE_MAX
        wait.note(head["born"], head["version"], {} if full else {entry[4]: entry[2] for entry in entries})
        records = await records_with_parents(wait.context, thread_id, new, gapless=True, around=entries)
        advance(seat, head, new)
        return records

    def records_of(self, entries: Sequence[Shared]) -> list[MessageRecord]:
        """All of them."""
        return shared_records(self._wait, entries, entries)


class BranchReader:
    """Reads on along the path of one branch, which is looked up once: renaming it changes nothing."""

    def __init__(self, wait: SharedWait, branch: int | str) -> None:
        self._wait = wait
        self._branch = branch
        self._last_id: str | None = None

    async def read_on(self) -> list[MessageRecord]:
        """The next records of the path."""
        wait, seat, thread_id = self._wait, self._wait.seat, self._wait.thread_id
        number = await resolve_branch(wait.context, thread_id, self._branch)
        self._branch = self._branch if number is None else number
        query = PathQuery(branch=number, after=seat.position, limit=limits.PAGE_MAX, oldest=True)
        path = await read_path(wait.context, thread_id, query)
        check_thread(wait, path.head)
        records: list[MessageRecord] = []
        if path.entries:
            parent = self._last_id or await self._before(number, MessageEntry._make(path.entries[0]).seq)
            records = path_records(thread_id, path.entries, parent)
            self._last_id = records[-1].message_id
        if number is not None:
            wait.follow_branch(number)
        wait.note(path.head["born"], path.head["version"], {})
        advance(seat, path.head, path.entries)
        return records

    def records_of(self, entries: Sequence[Shared]) -> list[MessageRecord]:
        """Those of the branch itself: what it inherits was there when it was forked."""
        own = [shared for shared in entries if shared[0][4] == self._branch]
        records = shared_records(self._wait, entries, own)
        if records:
            self._last_id = records[-1].message_id
        return records

    async def _before(self, branch: int | None, seq: int) -> str | None:
        if seq == 1:
            return None
        query = PathQuery(branch=branch, upto=seq - 1, limit=1)
        path = await read_path(self._wait.context, self._wait.thread_id, query)
        return MessageEntry._make(path.entries[0]).id if path.entries else None


def check_thread(wait: SharedWait, head: Row) -> None:
    """Raise `NotFoundError` if the thread is another one than before, or belongs to another resource.

    At the first read, only its length can tell: a seq that was handed out is never beyond the end of its thread.
    """
    seat = wait.seat
    check_resource(head, seat.resource)
    if seat.born not in (None, head["born"]):
        raise reborn(wait.thread_id)
    if seat.born is None and seat.position > head["version"]:
        error = f"after_seq is {seat.position}, but thread {wait.thread_id!r} has {head['version']} messages"
        raise CursorExpired(error, hint="the thread that it was of was deleted: read the newest page again")


def advance(seat: Seat, head: Row, entries: Sequence[LogEntry]) -> None:
    """After a read of its own: a full page ends at its last entry, another one at the head of the thread."""
    seat.behind = len(entries) >= limits.PAGE_MAX
    if seat.behind:
        seat.position = entries[-1][0]
    else:
        seat.position = max(seat.position, head["version"])
        seat.caught_up = True


def shared_records(wait: SharedWait, entries: Sequence[Shared], own: Sequence[Shared]) -> list[MessageRecord]:
    """The records of some of these entries; the seat moves past all of them."""
    records = message_records(wait.thread_id, [entry for entry, _ in own], [parent for _, parent in own])
    if entries:
        wait.seat.position = entries[-1][0][0]
    return records
