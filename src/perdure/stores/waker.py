"""Wakes the followers of messages: one subscription, one reader and one shared tail per thread, for all followers.

Each open engine has one `Wakers`, shared by all scopes, with one `Waker` for each event loop in which something is
followed, and one for plain threads: that is, one waker, unless a program runs several loops. In a loop the waker is a
task; for blocking callers of an embedded engine it is a thread, whose calls never suspend. It exists as long as it has
followers, and starts again if its task is cancelled.

It waits for hints. Hinted threads are read at once: the hot row and the entries after what is known, into the thread's
`Feed`. When anything may have changed, and once a second, it looks at the hot rows of all threads and then reads those
that have changed. Followers of a thread are woken after its feed has changed; so reads depend on the threads and the
writes, not on the number of followers. A lock guards feeds and seats; under it nothing is awaited, and no other lock is
taken.
"""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from perdure import limits
from perdure.errors import UnavailableError
from perdure.kernel.engine import Engine, Topic, Watch
from perdure.kernel.ops import ReadOp
from perdure.kernel.signals import LoopSignal, ThreadSignal, running_loop
from perdure.kernel.validate import Kernel
from perdure.stores.context import Context, thread_topic
from perdure.stores.feeds import Feed, Seat, Shared
from perdure.stores.waker_rounds import Rounds


class Wakers:
    """The wakers of one engine, by event loop; None stands for plain threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._process = os.getpid()
        self._wakers: dict[asyncio.AbstractEventLoop | None, Waker] = {}

    def here(self) -> Waker:
        """The waker for followers that are read here."""
        loop = running_loop()
        waker = self._wakers.get(loop)
        if waker is None:
            waker = self._wakers.setdefault(loop, Waker(self._engine, loop))
            # A loop that ended keeps no waker.
            for other in [other for other in list(self._wakers) if other is not None and other.is_closed()]:
                self._wakers.pop(other, None)
        return waker

    def close(self) -> None:
        """The engine is closed: let every follower find out."""
        if os.getpid() == self._process:
            for waker in list(self._wakers.values()):
                waker.call(waker.stop)


class GatedKernel(Kernel):
    """A kernel that lets some views run at once; the others wait for their turn."""

    def __init__(self, engine: Engine, *, tasks: bool) -> None:
        super().__init__(engine)
        self._through = None  # so that every view comes through here
        self._tasks = asyncio.Semaphore(limits.FOLLOW_READS) if tasks else None
        self._threads = threading.Semaphore(limits.FOLLOW_READS)

    async def view(self, scope: str, *reads: ReadOp) -> list[Any]:
        """Validate, then answer every read from one snapshot."""
        if self._tasks is None:
            with self._threads:
                return await super().view(scope, *reads)
        async with self._tasks:
            return await super().view(scope, *reads)


class Waker:
    """Reads for the followers of one engine in one loop, or in plain threads, and wakes them."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop | None) -> None:
        # Reentrant: a follower that is collected leaves, and the collector may run in here.
        self.lock: threading.RLock = threading.RLock()
        self.feeds: dict[Topic, Feed] = {}
        self.kernel: GatedKernel = GatedKernel(engine, tasks=loop is not None)
        """For followers that read for themselves."""
        self._loop = loop
        self._watch: Watch | None = None
        self._topics: set[Topic] = set()
        self._moved: deque[Topic] = deque()
        """Topics that may have to be watched, or no longer."""
        self._settling = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def call(self, function: Any, *arguments: Any) -> None:
        """Call a function where the waker runs: its subscription belongs to its loop."""
        loop = self._loop
        with suppress(RuntimeError):  # the loop was closed, and with it whatever waited
            if loop is None or loop is running_loop() or not loop.is_running():
                function(*arguments)
            else:
                loop.call_soon_threadsafe(function, *arguments)

    def join(self, seat: Seat, context: Context, thread_id: str) -> Feed:
        """Let a follower hear of a thread from now on."""
        topic = (context.scope, thread_topic(thread_id))
        with self.lock:
            feed = self.feeds.get(topic)
            if feed is None:
                feed = self.feeds[topic] = Feed(context, thread_id)
                self._moved.append(topic)
            feed.seats.add(seat)
        try:
            self.ensure_running()
        except BaseException:
            self.leave(seat, feed)
            raise
        return feed

    def leave(self, seat: Seat, feed: Feed) -> None:
        """Forget a follower; with the last one, the subscription ends."""
        topic = (feed.context.scope, thread_topic(feed.thread))
        with self.lock:
            if seat in feed.seats:
                feed.seats.discard(seat)
                if seat.branch is not None:
                    feed.follow_branch(seat.branch, -1)
                if not feed.seats:
                    self.feeds.pop(topic, None)
                    self._moved.append(topic)
        self._settle()

    def ensure_running(self) -> None:
        """Start, or start again, unless it runs."""
        if self._watch is None:
            with self.lock:
                self._moved.extend(list(self.feeds)[:1])
        self._settle()

    def _settle(self) -> None:
        """Bring the subscription in line with the feeds.

        Without a lock that anybody waits for: the collector may call this anywhere, with any lock of an engine held.
        Whoever comes while another settles leaves that to the other.
        """
        while self._moved and self._settling.acquire(blocking=False):
            try:
                self._adjust()
            finally:
                self._settling.release()

    def _adjust(self) -> None:
        if not self.feeds:
            self._moved.clear()
            if not self.feeds:
                self.stop()
            return
        if self._watch is None:
            self._moved.clear()
            self._start(list(self.feeds))
            return
        while self._moved:
            scope, topic = moved = self._moved.popleft()
            if moved in self.feeds and moved not in self._topics:
                self._topics.add(moved)
                self._watch.add(scope, [topic])
            elif moved not in self.feeds and moved in self._topics:
                self._topics.discard(moved)
                self._watch.remove(scope, [topic])

    def _start(self, topics: list[Topic]) -> None:
        by_scope: dict[str, list[str]] = {}
        for scope, topic in topics:
            by_scope.setdefault(scope, []).append(topic)
        (scope, names), *others = by_scope.items()
        watch = self.kernel.watch(scope, names)
        for scope, names in others:
            watch.add(scope, names)
        self._watch, self._topics = watch, set(topics)
        run = self._run(watch)
        if self._loop is not None:
            self._task = self._loop.create_task(run)
            # Not in the coroutine: a task that is cancelled before its first step never enters it.
            self._task.add_done_callback(lambda _: self._end(watch))
        else:
            ended = partial(self._end, watch)
            threading.Thread(target=_drive, args=(run, ended), name="perdure-waker", daemon=True).start()

    def stop(self) -> None:
        """End the subscription; followers that remain look for themselves, and find why or start it again."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
            self._doubt(list(self.feeds.values()))

    async def _run(self, watch: Watch) -> None:
        rounds = Rounds(self.feeds, self.lock)
        while self._watch is watch:
            hints = await watch.wait(rounds.patience())
            if self._watch is watch:
                await self._round(rounds, hints)

    def _end(self, watch: Watch) -> None:
        """The task or thread has ended: by itself, or because it was cancelled."""
        if self._watch is watch:
            self.stop()

    async def _round(self, rounds: Rounds, hints: Any) -> None:
        try:
            await rounds.run(hints)
        except UnavailableError as error:
            self._fail(rounds.concerned, error)
        except Exception:  # noqa: BLE001 - whatever it is, a follower that it concerns raises it
            self._doubt(rounds.concerned)

    def _fail(self, feeds: Collection[Feed], error: UnavailableError) -> None:
        """Who waits now gets the error, as if it had read; the others will see for themselves."""
        with self.lock:
            for seat in [seat for feed in list(feeds) for seat in list(feed.seats)]:
                if seat.waiting:
                    seat.error = copy.copy(error)
                seat.doubt()

    def _doubt(self, feeds: Collection[Feed]) -> None:
        with self.lock:
            for seat in [seat for feed in list(feeds) for seat in list(feed.seats)]:
                seat.doubt()


def _drive(run: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
    """Run a coroutine that never suspends."""
    try:
        run.send(None)
    except StopIteration:
        return
    finally:
        ended()


class SharedWait:
    """Where a follower of messages waits; `close` ends the wait from any task or thread.

    It joins the waker at the first look, in the loop or thread that reads it.
    """

    def __init__(
        self, wakers: Wakers, context: Context, thread_id: str, after_seq: int, resource: str | None = None
    ) -> None:
        self.closed: bool = False
        self.context: Context = context
        self.thread_id: str = thread_id
        self.seat: Seat = Seat(after_seq, resource)
        self._wakers = wakers
        self._waker: Waker | None = None
        self._feed: Feed | None = None
        self._process = os.getpid()

    def subscribe(self) -> None:
        """Join the waker; call it before the first look, so that nothing is missed in between."""
        if self._waker is not None or self.closed:
            return
        waker = self._wakers.here()
        self.seat.signal = ThreadSignal() if running_loop() is None else LoopSignal()
        self._feed = waker.join(self.seat, self.context, self.thread_id)
        self._waker = waker
        # Followers that read for themselves take turns.
        self.context = copy.copy(self.context)
        self.context.kernel = waker.kernel
        if self.closed:  # by another thread, which found nothing to release yet
            self._release()

    async def wait(self, seconds: float | None) -> None:
        """Wait until there may be something new, or for the end; at most `seconds`."""
        if self._waker is None:
            return
        self._waker.ensure_running()
        self.seat.waiting = True
        try:
            if self.seat.signal is not None and not self.closed:
                await self.seat.signal.wait(seconds)
        except BaseException:
            self.seat.error = None  # it was not waiting after all
            raise
        finally:
            self.seat.waiting = False

    def shared(self) -> list[Shared] | None:
        """The next entries that were read for all followers; None if this one has to read for itself."""
        seat, waker, feed = self.seat, self._waker, self._feed
        if waker is None or feed is None or os.getpid() != self._process:
            return None
        with waker.lock:
            error, seat.error = seat.error, None
            if error is not None:
                raise error
            if seat.stale or not seat.caught_up or feed.born != seat.born:
                seat.stale = False
                return None
            return feed.after(seat.position)

    @property
    def at_end(self) -> bool:
        """Whether the follower has all that was read for it: whatever comes now rings, even before the next wait."""
        return self._feed is not None and self._feed.head == self.seat.position and os.getpid() == self._process

    def note(self, born: int, version: int, newest: dict[int, str]) -> None:
        """After a read of its own: what the thread is now, and the newest messages of branches, as far as known."""
        seat, waker, feed = self.seat, self._waker, self._feed
        if waker is None or feed is None:
            return
        with waker.lock:
            seat.born = born
            if feed.born is None:
                feed.begin(born, version, newest)
            elif (feed.born, feed.head) == (born, version):
                feed.newest.update(newest)

    def follow_branch(self, branch: int) -> None:
        """The follower follows one branch, and this is its number."""
        waker, feed = self._waker, self._feed
        if self.seat.branch is None and waker is not None and feed is not None:
            with waker.lock:
                self.seat.branch = branch
                if self.seat in feed.seats:
                    feed.follow_branch(branch, 1)

    def close(self) -> None:
        """End the wait; from any thread, any number of times."""
        self.closed = True
        self._release()

    def _release(self) -> None:
        waker, feed = self._waker, self._feed
        if waker is None or feed is None or os.getpid() != self._process:  # a forked child has no part in it
            return
        waker.call(waker.leave, self.seat, feed)
        self.seat.ring()
