"""What a waker reads, and when: the threads that were hinted, or a look at all of them.

A look reads the hot rows of all threads, some hundred at a time, and the rows of the branches that are followed. It
rests for 100 ms after it, and for ten times as long as it took. Threads that were hinted, or that a look found changed,
are read a few at a time: their hot rows and their new entries, from one snapshot. After that it rests for ten times as
long as that took, but no longer than 100 ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure import limits
from perdure.kernel.engine import EVERYTHING, Hints, Topic
from perdure.kernel.ops import Get, LogEntry, Read, ReadOp, Row
from perdure.stores.feeds import Feed
from perdure.stores.parents import LOG, parents_of, refuse_gaps
from perdure.stores.patience import pause

_POLL = limits.FOLLOW_POLL_MS / 1000
_REST = limits.FOLLOW_REST_MS / 1000
_THREADS_PER_READ = 16
_RESTS = 10
"""How many times as long as it took a waker rests after reading."""


class Rounds:
    """The state of a waker between two reads."""

    def __init__(self, feeds: Mapping[Topic, Feed], lock: threading.RLock) -> None:
        self.concerned: list[Feed] = []
        """The feeds of the read that runs, or that failed."""
        self._feeds = feeds
        self._lock = lock
        self._changed: set[Feed] = set()
        self._held = 0
        self._look_soon = False
        self._rest = _REST
        self._looked_at = time.monotonic() - _REST

    def patience(self) -> float:
        """For how many seconds there is nothing to do unless a hint comes."""
        return 0 if self._changed else max(0.0, self._next_look() - time.monotonic())

    def _next_look(self) -> float:
        return self._looked_at + (self._rest if self._look_soon else max(self._rest, _POLL))

    async def run(self, hints: Hints) -> None:
        """Read what the hints name, what was left over, and everything if it is time."""
        started = time.monotonic()
        if hints is EVERYTHING:
            self._look_soon = True
        elif hints:
            with self._lock:
                self._changed.update([self._feeds[topic] for topic in hints if topic in self._feeds])
        if started >= self._next_look():
            await self._look()
        changed, self._changed = self._changed, set()
        if changed:
            await self._read(list(changed))
            # Under a stream of hints, the longer reads take, the more of them one read answers.
            await pause(min(_REST, _RESTS * (time.monotonic() - started)))

    async def _look(self) -> None:
        started = time.monotonic()
        self._look_soon = False
        with self._lock:
            feeds = self.concerned = list(self._feeds.values())
            for feed in feeds:
                feed.trim()
        try:
            for chunk in _chunks(feeds, limits.BATCH_ROWS):
                heads, branches, _ = await _view(chunk, entries=False)
                with self._lock:
                    self._changed.update(
                        feed for feed, head in zip(chunk, heads, strict=True) if _judge(feed, head, branches)
                    )
        finally:
            self._looked_at = time.monotonic()
            self._rest = max(_REST, _RESTS * (self._looked_at - started))

    async def _read(self, feeds: list[Feed]) -> None:
        self.concerned = feeds
        with self._lock:
            self._held = sum([feed.size for feed in self._feeds.values()])
        for chunk in _chunks(feeds, _THREADS_PER_READ):
            heads, branches, logs = await _view(chunk, entries=True)
            for feed, head, entries in zip(chunk, heads, logs, strict=True):
                with self._lock:
                    changed = _judge(feed, head, branches)
                if changed and entries and head is not None:
                    await self._extend(feed, head, entries)

    async def _extend(self, feed: Feed, head: Row, entries: Sequence[LogEntry]) -> None:
        newest = dict(feed.newest)
        refuse_gaps(feed.thread, entries)
        parents = await parents_of(feed.context, feed.thread, entries, entries, newest)
        with self._lock:
            if feed.born != head["born"] or entries[0][0] != feed.head + 1:
                return  # begun anew meanwhile
            held = self._held - feed.size
            feed.extend(entries, parents, newest)
            if held + feed.size > limits.FOLLOW_TAILS_BYTES:
                feed.begin(head["born"], feed.head, feed.newest)
            self._held = held + feed.size
            if head["version"] > feed.head:
                self._changed.add(feed)
            for seat in list(feed.seats):
                seat.ring()


def _chunks(feeds: Sequence[Feed], most: int) -> Iterator[list[Feed]]:
    """Feeds of one scope each, at most so many."""
    by_scope: dict[str, list[Feed]] = {}
    for feed in feeds:
        if feed.seats:
            by_scope.setdefault(feed.context.scope, []).append(feed)
    for members in by_scope.values():
        for start in range(0, len(members), most):
            yield members[start : start + most]


Branches = Mapping[tuple[str, int], Row | None]


async def _view(feeds: Sequence[Feed], *, entries: bool) -> tuple[list[Row | None], Branches, list[Any]]:
    """The hot rows of threads, the rows of their branches that are followed, and new entries."""
    branches = [(feed.thread, branch) for feed in feeds for branch in list(feed.branches)]
    reads: list[ReadOp] = [Get("thread_heads", [(feed.thread,) for feed in feeds])]
    if branches:
        reads.append(Get("branches", branches))
    if entries:
        reads += [Read(LOG, feed.thread, after=feed.head, limit=feed.room) for feed in feeds]
    heads, *answers = await feeds[0].context.view(*reads)
    rows = answers.pop(0) if branches else []
    return heads, dict(zip(branches, rows, strict=True)), answers


def _judge(feed: Feed, head: Row | None, branches: Branches) -> bool:
    """Whether there are entries to read. Followers whose thread or branch may be gone, or another's, read alone."""
    born = None if head is None else head["born"]
    if born == feed.born and head is not None:
        for seat in list(feed.seats):
            gone = seat.branch is not None and _gone(feed, seat.branch, branches)
            if gone or seat.resource not in (None, head["resource"]):
                seat.doubt()
        return bool(head["version"] > feed.head)
    if born != feed.born:
        # Unless it is the first look, the followers had another thread. In any case they may be behind.
        doubt = feed.born is not None
        feed.lose() if head is None else feed.begin(head["born"], head["version"])
        for seat in list(feed.seats):
            seat.stale = seat.stale or doubt
            seat.ring()
    return False


def _gone(feed: Feed, branch: int, branches: Branches) -> bool:
    key = (feed.thread, branch)
    if key not in branches:
        return False
    row = branches[key]
    return row is None or row["deleted_at"] is not None
