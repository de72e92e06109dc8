"""Several followers as one: a source that reads, and waits for, whichever of them has something new.

A look reads one member at a time and ends with the first that has something, so that what was read is never lost when
a look is cancelled. While all wait, one task per member waits for it; the first that is done names what to read next.

Before something is yielded, the members before its own are read once more, from the nearest to the first, and what they
have is yielded before it. So a tab that follows drafts, messages and runs learns that a run is done only after it was
sent the answer, which was committed with that, and is sent the answer only after the draft was taken back.

Hints may be lost, and nobody hints that something expired: whoever waits alone looks again every second. Here, a busy
member would cut that wait short again and again, so a wait also ends for those that nobody has looked at for so long.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from perdure import limits

_LOOK_AGAIN = limits.FOLLOW_POLL_MS / 1000


class Member(Protocol):
    """One of several followers, as `Follower` lets another one read it."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def behind(self) -> bool:
        """Whether the last look left something that was there already."""
        ...

    def close(self) -> None:
        """End it."""
        ...

    def subscribe(self) -> None:
        """Hear of changes from now on."""
        ...

    async def look(self, *, fresh: bool) -> list[Any]:
        """What is new, without waiting for it."""
        ...

    async def wait(self, seconds: float | None) -> None:
        """Wait until it may be worth to look again."""
        ...


class Merged:
    """What a merged follower reads and where it waits: both are those of its members, in turns.

    It has ended when all of its members have.
    """

    behind = at_end = False  # it is no member itself: merged followers are not merged again

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._due: deque[Member] = deque(members)
        self._held: list[tuple[list[Any], int]] = []
        """What was read, the first to yield last; each with the number of members to read once more before it."""
        self._looked: dict[Member, float] = {}
        """When each member was looked at last."""
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether somebody has closed it."""
        return self._closed

    @property
    def ended(self) -> bool:
        """Whether every member has ended."""
        return not self._held and all(member.closed for member in self._members)

    def close(self) -> None:
        """Close every member; from any thread, any number of times."""
        self._closed = True
        for member in self._members:
            member.close()

    def subscribe(self) -> None:
        """Hear of what changes for any member."""
        for member in self._open():
            member.subscribe()

    async def read(self, *, fresh: bool) -> list[Any]:
        """What the first member that has something new has; those after it are read by the next call."""
        if fresh:
            self._due.extend(member for member in self._open() if member not in self._due)
        while self._due and not self._held:
            member = self._due[0]
            records = await self._look(member, fresh=fresh)
            self._due.rotate(-1)  # who had something comes last: a busy member does not starve the others
            if records:
                self._held.append((records, self._members.index(member)))
            else:
                self._due.pop()
        while self._held:
            records, before = self._held[-1]
            if not before:
                return self._held.pop()[0]
            member = self._members[before - 1]
            earlier = await self._look(member, fresh=True)
            if not (earlier and member.behind):  # one look may bring one page of many
                self._held[-1] = (records, before - 1)
            if earlier:
                self._held.append((earlier, before - 1))
        return []

    async def _look(self, member: Member, *, fresh: bool) -> list[Any]:
        """What a member has, unless it has ended."""
        if member.closed:
            return []
        records = await member.look(fresh=fresh)
        self._looked[member] = time.monotonic()
        return records

    async def wait(self, seconds: float | None) -> None:
        """Wait until a member may have something new, or for the end; at most `seconds`."""
        waits = {asyncio.ensure_future(member.wait(seconds)): member for member in self._open()}
        if not waits:
            return
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            try:
                await asyncio.gather(*waits, return_exceptions=True)
            finally:  # wherever this is cancelled, it must not lose what a member has heard
                overdue = time.monotonic() - _LOOK_AGAIN
                self._due.extend(
                    member
                    for task, member in waits.items()
                    if not task.cancelled() or self._looked.get(member, overdue) <= overdue
                )
        for task in waits:
            if not task.cancelled():
                task.result()

    def _open(self) -> list[Member]:
        return [member for member in self._members if not member.closed]
