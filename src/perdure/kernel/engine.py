"""What a backend implements: the `Engine` protocol, and the records by which it describes itself.

An engine moves bytes; it knows nothing of threads or runs. Its promises are checked by the conformance kit in
`perdure.testkit`, which outsiders can run on their engines. Conflicts leave an engine as `Conflict`; stores
turn them into the public errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, Protocol

import msgspec

from perdure.kernel.ops import Applied, Op, ReadOp, Scan, Taken
from perdure.kernel.schema import Schema
from perdure.model.record import Record

Durability = Literal["none", "process", "power"]
ConflictKind = Literal["condition", "length", "unique"]
Topic = tuple[str, str]
"""A scope and a topic in it."""
FIXED_TOPICS: Final = frozenset(("mailbox", "outbox", "schedules", "config"))
"""The topics that can be watched in all scopes at once."""


class Everything(Enum):
    """Any topic that is watched may have changed; its only member is `EVERYTHING`."""

    EVERYTHING = "everything"


EVERYTHING: Final = Everything.EVERYTHING
Hints = frozenset[Topic] | Literal[Everything.EVERYTHING]
"""What a watcher heard: the topics, `EVERYTHING` where the engine cannot say which, or none, which is false."""


class Conflict(Exception):
    """An operation's condition failed inside the transaction; nothing was written.

    `op` is the index of *a* failing operation; `actual` is as observed. Internal: stores translate it.
    """

    def __init__(self, op: int, kind: ConflictKind, expected: Any, actual: Any) -> None:
        super().__init__(f"operation {op}: {kind} expected {expected!r}, actual {actual!r}")
        self.op = op
        self.kind = kind
        self.expected = expected
        self.actual = actual


class Capabilities(Record, frozen=True):
    """What an engine can do, as data: tests, wrappers and users all ask the same record. `durability` is that of the
    latest commit: a server's settings may change while a store is open, and the engine then has another record."""

    engine: str
    """The engine's name."""
    durability: Durability
    """What the latest commit survives; before the first, what one would survive."""
    processes: Literal["one", "many"]
    """How many processes may share a store."""
    machines: Literal["one", "many"]
    """How many machines may share it."""
    round_trips_per_commit: int
    """Round trips to a server; 0 without one."""
    watch: Literal["push", "poll"]
    """How it learns of commits by other processes."""
    blocking: bool
    """Whether `perdure.sync` calls it directly, without an event loop."""
    notes: tuple[str, ...] = ()
    """Restrictions, as sentences."""


class Health(Record, frozen=True):
    """The engine's real settings, read now. `problems` describes everything that keeps data from surviving
    a power loss; `ok` is True when it is empty."""

    engine: str
    """The engine's name."""
    ok: bool
    """True if there are no problems."""
    durability: Durability
    """What a commit survives now."""
    settings: Mapping[str, Any]
    """The actual settings, by name."""
    problems: tuple[str, ...] = ()
    """What weakens the guarantees, as sentences."""


class Migration(msgspec.Struct, frozen=True):
    """How far a database is from the schema of this build: `current` is None where there is nothing yet, and `steps`
    are the statements (or the walks) that opening it would run; empty when it is up to date."""

    engine: str
    current: int | None
    wanted: int
    steps: tuple[str, ...] = ()


class Watch(Protocol):
    """A subscription to wake-up hints. Hints may be lost, repeated or merged: every consumer also polls.

    It holds a bounded number of hints between two waits; one more makes it `EVERYTHING`.
    """

    async def wait(self, timeout: float) -> Hints:
        """Wait until a hint arrives or `timeout` seconds pass.

        Returns what was heard since the last wait, and forgets it. `EVERYTHING` after anything that may have lost
        hints (listening began, or began again), where other processes do not say what they changed, and once the
        subscription or the engine is closed.
        """
        ...

    def add(self, scope: str, topics: Sequence[str]) -> None:
        """Watch these topics as well, from now on. Called where `watch` was: in its event loop, if there is one."""
        ...

    def remove(self, scope: str, topics: Sequence[str]) -> None:
        """Watch these topics no longer."""
        ...

    def close(self) -> None:
        """End the subscription and wake whoever waits for it; idempotent."""
        ...


class Engine(Protocol):
    """The kernel contract. Every call has exactly one scope; arguments were validated by `kernel.validate`."""

    schema: Schema
    capabilities: Capabilities

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; serialisable, durable when it returns. Raises `Conflict`."""
        ...

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot of durable data."""
        ...

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Atomically select the first rows of an index as `scan` says and apply `changes` to them.

        A row that another transaction is changing may be skipped instead of waited for. The hints leave only if rows
        were taken.
        """
        ...

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints on the given topics of a scope; None: some of `FIXED_TOPICS`, in every scope."""
        ...

    def blocking(self) -> Engine | None:
        """The same engine as seen by blocking callers: its coroutines never suspend. None if it has no such view."""
        ...

    async def scopes(self) -> list[str]:
        """Every scope that holds a row, sorted: for audits and whole-store copies."""
        ...

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions of a log that hold an entry, in byte order, beginning after the one given."""
        ...

    async def check(self) -> list[str]:
        """The engine's own integrity check; findings in words, empty when sound."""
        ...

    async def health(self) -> Health:
        """Read the real settings."""
        ...

    async def close(self) -> None:
        """Finish what was submitted and release everything; idempotent."""
        ...
