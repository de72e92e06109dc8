"""What the followers of one thread share: what is known of the thread, and its newest log entries.

A `Feed` is read by the waker, once for all followers of the thread. Its tail holds entries without a gap up to `head`,
the last seq that was read; it forgets those that every follower has, and the oldest when there are too many. A follower
that needs older ones reads for itself. Nothing here waits or locks: see `stores.waker`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice

from perdure import limits
from perdure.errors import UnavailableError
from perdure.kernel.ops import LogEntry
from perdure.kernel.signals import Signal
from perdure.stores.context import Context

Shared = tuple[LogEntry, str | None]
"""An entry and the message that it hangs under."""
_BATCH, _BATCH_BYTES = 32, 64 * 1024
_ENTRY_BYTES = 256
"""About what an entry occupies besides its body."""
_MOST_BRANCHES = 64


class Seat:
    """One follower of a thread: how far it is, and how it is woken.

    - `position`: the seq up to which it needs no entries any more.
    - `born`, `branch`: which thread it follows, and the only branch, once it knows them.
    - `behind`: whether its last read of its own was a full page.
    - `caught_up`: whether it was at the head once. From then on, only entries of its own branch concern it.
    - `resource`: whose thread it must be, or None.
    - `stale`: it must read for itself: the shared read failed, or its thread or branch may be gone, or another's.
    - `error`: what it raises next.
    """

    __slots__ = ("behind", "born", "branch", "caught_up", "error", "position", "resource", "signal", "stale", "waiting")

    def __init__(self, position: int, resource: str | None = None) -> None:
        self.position: int = position
        self.resource: str | None = resource
        self.signal: Signal | None = None
        self.born: int | None = None
        self.branch: int | None = None
        self.behind: bool = False
        self.caught_up: bool = False
        self.stale: bool = False
        self.waiting: bool = False
        self.error: UnavailableError | None = None

    def ring(self) -> None:
        """Wake it, now or at its next wait."""
        if self.signal is not None:
            self.signal.ring()

    def doubt(self) -> None:
        """Let it read for itself."""
        self.stale = True
        self.ring()


class Feed:
    """One thread that is followed."""

    __slots__ = ("_entry_bytes", "born", "branches", "context", "entries", "head", "newest", "seats", "size", "thread")

    def __init__(self, context: Context, thread: str) -> None:
        self.context: Context = context
        self.thread: str = thread
        self.seats: set[Seat] = set()
        self.branches: Counter[int] = Counter()
        """How many followers each branch has."""
        self.born: int | None = None
        """Which thread of this id it is; None while that is not known."""
        self.head: int = 0
        self.entries: deque[Shared] = deque()
        self.size: int = 0
        """About how many bytes the tail holds."""
        self.newest: dict[int, str] = {}
        """The last message of branches at `head`, as far as it is known."""
        self._entry_bytes = 16 * 1024

    def begin(self, born: int, head: int, newest: Mapping[int, str] | None = None) -> None:
        """Take a thread as it is now, without its entries."""
        self.born, self.head = born, head
        self.newest = dict(newest or {})
        self.entries.clear()
        self.size = 0

    def follow_branch(self, branch: int, followers: int) -> None:
        """Count so many more followers of a branch."""
        self.branches[branch] += followers
        if not self.branches[branch]:
            del self.branches[branch]

    def lose(self) -> None:
        """The thread is not there."""
        self.begin(0, 0)
        self.born = None

    @property
    def room(self) -> int:
        """How many entries to read at once, judged by the size of the last."""
        return max(1, min(limits.FOLLOW_TAIL, limits.FOLLOW_TAIL_BYTES // self._entry_bytes))

    def extend(self, entries: Sequence[LogEntry], parents: Mapping[int, str | None], newest: dict[int, str]) -> None:
        """Add what was read after `head`."""
        self.trim()
        size = 0
        for entry in entries:
            size += len(entry[-1]) + _ENTRY_BYTES
            self.entries.append((entry, parents[entry[0]]))
        self.size += size
        self.head = entries[-1][0]
        self.newest = newest if len(newest) <= _MOST_BRANCHES else {}
        self._entry_bytes = max(1, size // len(entries))
        while len(self.entries) > limits.FOLLOW_TAIL or self.size > limits.FOLLOW_TAIL_BYTES:
            self._drop_oldest()

    def trim(self) -> None:
        """Forget what every follower has."""
        if self.entries:
            lowest = min([seat.position for seat in self.seats], default=self.head)
            while self.entries and self.entries[0][0][0] <= lowest:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        entry, _ = self.entries.popleft()
        self.size -= len(entry[-1]) + _ENTRY_BYTES

    def after(self, position: int) -> list[Shared] | None:
        """The next few entries after a seq; None if the tail begins later."""
        if position >= self.head:
            return []
        first = self.entries[0][0][0] if self.entries else self.head + 1
        if position + 1 < first:
            return None
        batch: list[Shared] = []
        size = 0
        for shared in islice(self.entries, position + 1 - first, position + 1 - first + _BATCH):
            size += len(shared[0][-1])
            if batch and size > _BATCH_BYTES:
                break
            batch.append(shared)
        return batch
