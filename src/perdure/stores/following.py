"""Followers: what is there now, then what comes, until somebody closes the follower.

`Follower` knows how to wait, to end and to be closed; a *source* knows what to read. `messages.follow` reads the log of
a thread or the path of a branch; it remembers the last seq that it read, so it sees each record once, whatever hints
are lost. What is there at the beginning, and what it falls behind, it reads for itself; what comes then, the `waker`
reads once for all followers of the thread. `runs.follow` reads one run (`run_following`). A cancelled wait loses
nothing: the next one goes on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Literal, Protocol, TypeVar

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, short_repr
from perdure.kernel.ops import Get, LogEntry, Read, Row
from perdure.model.message import ALL, MessageRecord
from perdure.stores.branch_paths import PathQuery, read_path, resolve_branch
from perdure.stores.context import require
from perdure.stores.feeds import Seat, Shared
from perdure.stores.parents import LOG, records_with_parents
from perdure.stores.records import MessageEntry, message_records, path_records
from perdure.stores.waker import SharedWait

T = TypeVar("T")
FollowView = Literal["raw", "external"]


class Wait(Protocol):
    """Where a follower waits."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        ...

    def subscribe(self) -> None:
        """Hear of changes from now on; called before every look."""
        ...

    async def wait(self, seconds: float | None) -> None:
        """Wait until it may be worth to look again, or for the end; at most `seconds`."""
        ...

    def close(self) -> None:
        """End the wait; from any thread, any number of times."""
        ...


class Source(Protocol[T]):
    """Where a follower reads."""

    @property
    def ended(self) -> bool:
        """Whether nothing can come after what was read."""
        ...

    async def read(self, *, fresh: bool) -> list[T]:
        """What is new since the last call; nothing if there is nothing yet. A call that is cancelled loses nothing.

        `fresh`: as the store is now, whatever was heard of it.
        """
        ...


class Follower(Generic[T]):
    """An async iterator over records as they come, from `messages.follow`, `runs.follow` or `profiles.follow`.

    `close()`, from any task or thread, ends the loop that reads it, even while it waits; so do `aclose()` and leaving
    an `async with` block. A follower that is dropped closes itself. One task at a time may read it.
    """

    def __init__(self, waiter: Wait, source: Source[T], timeout: float | None) -> None:
        self._waiter = waiter
        self._source = source
        self._timeout = timeout
        self._records: deque[T] = deque()
        self._reading = threading.Lock()

    @property
    def closed(self) -> bool:
        """Whether it has ended: at the end of what it follows, closed, timed out, or failed."""
        return self._waiter.closed

    def close(self) -> None:
        """End the iteration and the subscription, from any task or thread; may be called twice."""
        self._waiter.close()

    async def aclose(self) -> None:
        """The same, as async iterators spell it."""
        self.close()

    def __aiter__(self) -> Follower[T]:
        return self

    async def __anext__(self) -> T:
        """The next record, as soon as there is one; raises `StopAsyncIteration` at the end."""
        if not self._reading.acquire(blocking=False):
            raise InvalidError("this follower is being read already", hint="call follow again for a second reader")
        try:
            record = await self._next()
        except asyncio.CancelledError:
            raise  # nothing is lost: the next call goes on
        except BaseException:
            self.close()
            raise
        finally:
            self._reading.release()
        if record is None:
            self.close()
            raise StopAsyncIteration
        return record

    async def _next(self) -> T | None:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        self._waiter.subscribe()
        while not self.closed:
            if self._records:
                return self._records.popleft()
            if self._source.ended:
                return None
            remaining = None if deadline is None else deadline - time.monotonic()
            last = remaining is not None and remaining <= 0
            self._records.extend(await self._source.read(fresh=last))
            if self._records:
                continue
            if last:
                return None
            await self._waiter.wait(remaining)
        return None

    async def __aenter__(self) -> Follower[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # refused before it was complete
            self.close()


def check_timeout(timeout: float | None) -> None:
    """Raise `InvalidError` for what is not a number of seconds."""
    number = type(timeout) in (int, float)
    if timeout is not None and not (number and 0 <= timeout <= limits.INTEGER_MAX):
        raise InvalidError(
            f"timeout must be a number of seconds, 0 or more, not {short_repr(timeout)}", hint="leave it out to wait on"
        )


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
        self._wait = wait
        self._reader = reader
        self._external = view == "external"

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
    """Raise `NotFoundError` if the thread is another one than before, or belongs to another resource."""
    check_resource(head, wait.seat.resource)
    if wait.seat.born not in (None, head["born"]):
        raise reborn(wait.thread_id)


def check_resource(head: Row, resource: str | None) -> None:
    """Raise `NotFoundError` if a thread belongs to another resource than this one; None is any."""
    if resource not in (None, head["resource"]):
        raise NotFoundError(f"thread {head.key[0]!r} does not exist")


def advance(seat: Seat, head: Row, entries: Sequence[LogEntry]) -> None:
    """After a read of its own: a full page ends at its last entry, another one at the head of the thread."""
    if len(entries) >= limits.PAGE_MAX:
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
