"""`Follower`: what is there now, then what comes, until somebody closes it. It waits, ends and can be merged.

A *source* knows what to read: the log of a thread or the path of a branch (`following`), runs (`run_following`), the
documents of an owner (`profile_following`). A cancelled wait loses nothing: the next one goes on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.stores.merging import Merged

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


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

    @property
    def behind(self) -> bool:
        """Whether the last read left something that was there already."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether a look before the next wait would find nothing: that wait ends at once if there is something new."""
        ...

    async def read(self, *, fresh: bool) -> list[T]:
        """What is new since the last call; nothing if there is nothing yet. A call that is cancelled loses nothing.

        `fresh`: as the store is now, whatever was heard of it.
        """
        ...


class Member(Generic[T]):
    """What a follower reads and where it waits: its own, or one of several that a merged follower reads."""

    def __init__(self, waiter: Wait, source: Source[T]) -> None:
        self.source: Source[T] = source
        self.records: deque[T] = deque()
        self.reading: threading.Lock = threading.Lock()
        self._waiter = waiter

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._waiter.closed

    @property
    def behind(self) -> bool:
        """Whether the last look left something that was there already."""
        return self.source.behind

    def close(self) -> None:
        """End it; from any thread, any number of times."""
        self._waiter.close()

    def subscribe(self) -> None:
        """Hear of changes from now on."""
        self._waiter.subscribe()

    async def wait(self, seconds: float | None) -> None:
        """Wait until it may be worth to look again, or for the end; at most `seconds`."""
        await self._waiter.wait(seconds)

    async def look(self, *, fresh: bool) -> list[T]:
        """What is new, without waiting for it; at the end of what it follows, it closes."""
        records = [*self.records]
        self.records.clear()
        if not records and not self.source.ended:
            records = await self.source.read(fresh=fresh)
        if self.source.ended:
            self.close()
        return records


class Follower(Generic[T]):
    """An async iterator over records as they come, from `messages.follow`, `runs.follow` or `profiles.follow`.

    `close()`, from any task or thread, ends the loop that reads it, even while it waits; so do `aclose()` and leaving
    an `async with` block. A follower that is dropped closes itself. One task at a time may read it.
    """

    def __init__(self, waiter: Wait, source: Source[T], timeout: float | None) -> None:
        self._member = Member(waiter, source)
        self._timeout = timeout
        self._parts: tuple[Follower[Any], ...] = ()

    @property
    def closed(self) -> bool:
        """Whether it has ended: at the end of what it follows, closed, timed out, or failed."""
        return self._member.closed

    def close(self) -> None:
        """End the iteration and the subscription, from any task or thread; may be called twice."""
        self._member.close()

    async def aclose(self) -> None:
        """The same, as async iterators spell it."""
        self.close()

    def __aiter__(self) -> Follower[T]:
        return self

    async def __anext__(self) -> T:
        """The next record, as soon as there is one; raises `StopAsyncIteration` at the end."""
        if not self._member.reading.acquire(blocking=False):
            raise InvalidError("this follower is being read already", hint="call follow again for a second reader")
        try:
            record = await self._next()
        except asyncio.CancelledError:
            raise  # nothing is lost: the next call goes on
        except BaseException:
            self.close()
            raise
        finally:
            self._member.reading.release()
        if record is None:
            self.close()
            raise StopAsyncIteration
        return record

    async def _next(self) -> T | None:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        member = self._member
        member.subscribe()
        woken = False
        while not self.closed:
            if member.records:
                return member.records.popleft()
            if member.source.ended:
                return None
            remaining = None if deadline is None else deadline - time.monotonic()
            last = remaining is not None and remaining <= 0
            if woken or last or not member.source.at_end:
                member.records.extend(await member.source.read(fresh=last))
                if member.records:
                    continue
                if last:
                    return None
            await member.wait(remaining)
            woken = True
        return None

    @overload
    def merge(self, other: Follower[U], /, *, timeout: float | None = None) -> Follower[T | U]: ...

    @overload
    def merge(
        self, other: Follower[U], third: Follower[V], /, *, timeout: float | None = None
    ) -> Follower[T | U | V]: ...

    @overload
    def merge(self, *others: Follower[Any], timeout: float | None = None) -> Follower[Any]: ...

    def merge(self, *others: Follower[Any], timeout: float | None = None) -> Follower[Any]:
        """One follower that yields what this one and the others yield, as it comes: all that a tab shows, in one loop.

        - `others`: more followers, none of them merged. From now on only the merged one may read them; closing it
          closes all of them.
        - `timeout`: end after so many seconds without a record from any of them; None waits on. The followers
          themselves must have none.

        Each follower keeps its own order, and what one yields comes after all that those before it had at that time:
        in `chat.follow().merge(chat.follow_runs())`, a run that is done comes after its answer. So the most frequent
        one should be the first. The merged one ends when all have ended; an error of one ends all.
        """
        check_timeout(timeout)
        merged = Merged(_claimed((self, *others)))
        follower = Follower(merged, merged, timeout)
        follower._parts = (self, *others)  # a follower that is dropped closes itself
        return follower

    async def __aenter__(self) -> Follower[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # refused before it was complete
            self.close()


def _claimed(followers: Sequence[Follower[Any]]) -> list[Member[Any]]:
    """The members of a merged follower, which nobody else may read; raises `InvalidError` if one cannot be had."""
    members: list[Member[Any]] = []
    for follower in followers:
        if not isinstance(cast(object, follower), Follower):
            raise InvalidError(f"merge takes followers, not {short_repr(follower)}", hint="chat.follow().merge(…)")
        member, timeout = follower._member, follower._timeout  # noqa: SLF001 - of this module's own class
        if isinstance(member.source, Merged):
            raise InvalidError("a merged follower is not merged again", hint="first.merge(second, third)")
        if timeout is not None:
            raise InvalidError("a follower that is merged has no timeout of its own", hint="merge(…, timeout=25)")
        members.append(member)
    for n, member in enumerate(members):
        if not member.reading.acquire(blocking=False):
            for claimed in members[:n]:
                claimed.reading.release()
            raise InvalidError("this follower is being read already", hint="call follow again for a second reader")
    return members


def check_timeout(timeout: float | None) -> None:
    """Raise `InvalidError` for what is not a number of seconds."""
    number = type(timeout) in (int, float)
    if timeout is not None and not (number and 0 <= timeout <= limits.INTEGER_MAX):
        raise InvalidError(
            f"timeout must be a number of seconds, 0 or more, not {short_repr(timeout)}", hint="leave it out to wait on"
        )
