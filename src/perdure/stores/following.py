"""Followers: what is there now, then what comes, until somebody closes the follower.

`Follower` knows how to wait, to end and to be closed; a *source* knows what to read. `messages.follow` reads the log of
a thread or the path of a branch; it remembers the last seq that it read, so it sees each record once, whatever hints
are lost. `runs.follow` reads one run (`run_following`). A cancelled wait loses nothing: the next one goes on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Literal, Protocol, TypeVar

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, short_repr
from perdure.model.message import ALL, MessageRecord
from perdure.stores.branch_paths import PathQuery, read_path, resolve_branch
from perdure.stores.context import Context
from perdure.stores.records import MessageEntry, path_records
from perdure.stores.waiting import Waiter

T = TypeVar("T")
FollowView = Literal["raw", "external"]
Newer = Callable[[int], Awaitable[list[MessageRecord]]]
"""Reads the next records after a seq; none if there are none yet."""


class Source(Protocol[T]):
    """Where a follower reads."""

    @property
    def ended(self) -> bool:
        """Whether nothing can come after what was read."""
        ...

    async def read(self) -> list[T]:
        """What is new since the last call; nothing if there is nothing yet. A call that is cancelled loses nothing."""
        ...


class Follower(Generic[T]):
    """An async iterator over records as they come; made by `messages.follow` and `runs.follow`.

    `close()`, from any task or thread, ends the loop that reads it, also while it waits; so do `aclose()` and leaving
    an `async with` block. A follower that is dropped closes itself. One task at a time may read it.
    """

    def __init__(self, waiter: Waiter, source: Source[T], timeout: float | None) -> None:
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
            self._records.extend(await self._source.read())
            if self._records:
                continue
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
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


class MessageSource:
    """The records after a seq, those of a view only."""

    ended = False

    def __init__(self, newer: Newer, after_seq: int, view: FollowView) -> None:
        self._newer = newer
        self._after = after_seq
        self._external = view == "external"

    async def read(self) -> list[MessageRecord]:
        """The next records that the view shows, read on past those that it does not."""
        while records := await self._newer(self._after):
            self._after = records[-1].seq
            visible = [record for record in records if not self._external or record.visibility == ALL]
            if visible:
                return visible
        return []


class LogReader:
    """Reads on along the log of one thread, all branches together, as long as it is the same thread.

    `read` takes the thread's id, a seq and the `born` that is known so far, and returns its `born` and the records.
    """

    def __init__(
        self,
        thread_id: str,
        read: Callable[[str, int, int | None], Awaitable[tuple[int, list[MessageRecord]]]],
    ) -> None:
        self._thread_id = thread_id
        self._read = read
        self._born: int | None = None

    async def newer(self, after_seq: int) -> list[MessageRecord]:
        """The next records after a seq; raises `NotFoundError` when the thread is deleted."""
        self._born, records = await self._read(self._thread_id, after_seq, self._born)
        return records


class BranchReader:
    """Reads on along the path of one branch, which is looked up once: renaming it changes nothing."""

    def __init__(self, context: Context, thread_id: str, branch: int | str) -> None:
        self._context = context
        self._thread_id = thread_id
        self._branch = branch
        self._born: int | None = None
        self._last_id: str | None = None

    async def newer(self, after_seq: int) -> list[MessageRecord]:
        """The next records after a seq; raises `NotFoundError` when the thread or the branch is deleted."""
        number = await resolve_branch(self._context, self._thread_id, self._branch)
        self._branch = self._branch if number is None else number
        query = PathQuery(branch=number, after=after_seq, limit=limits.PAGE_MAX, oldest=True)
        path = await read_path(self._context, self._thread_id, query)
        if self._born not in (None, path.head["born"]):
            raise reborn(self._thread_id)
        self._born = path.head["born"]
        if not path.entries:
            return []
        parent = self._last_id or await self._before(number, MessageEntry._make(path.entries[0]).seq)
        records = path_records(self._thread_id, path.entries, parent)
        self._last_id = records[-1].message_id
        return records

    async def _before(self, branch: int | None, seq: int) -> str | None:
        if seq == 1:
            return None
        path = await read_path(self._context, self._thread_id, PathQuery(branch=branch, upto=seq - 1, limit=1))
        return MessageEntry._make(path.entries[0]).id if path.entries else None
