"""A stored thread as the rules see it: plain rows, what its log says, and the problems they may show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec


class StoredRow(Protocol):
    """A row of a table: its key, its columns by name, its body."""

    @property
    def key(self) -> tuple[str | int, ...]:
        """The values of the key columns."""
        ...

    @property
    def body(self) -> bytes | str | None:
        """The stored JSON."""
        ...

    def __getitem__(self, name: str) -> Any:
        """The value of a column outside the key."""
        ...


class Problem(NamedTuple):
    """Something that contradicts itself: the check that shows it, the record, and what is wrong with it."""

    check: str
    record: str
    text: str


Problems = Iterator[Problem]


def row_name(table: str, key: tuple[str | int, ...]) -> str:
    """A row in words: `run 'r1'`, `state 'plan' of thread 't'`."""
    match table, key:
        case (("threads" | "thread_heads"), (thread,)):
            return f"thread {thread!r}"
        case "branches", (thread, number):
            return f"branch {number} of thread {thread!r}"
        case "labels", (thread, message):
            return f"the label on message {message!r} of thread {thread!r}"
        case "runs", (run,):
            return f"run {run!r}"
        case "state", (thread, "", name):
            return f"state {name!r} of thread {thread!r}"
        case "state", (thread, run, name):
            return f"state {name!r} of run {run!r} of thread {thread!r}"
        case "keys", (thread, name):
            return f"key {name!r} of thread {thread!r}"
        case "pending", (thread, message):
            return f"pending message {message!r} of thread {thread!r}"
        case "queues", (thread,):
            return f"the queue of thread {thread!r}"
        case _:
            return f"{table} {key}"


class ThreadRows(msgspec.Struct, frozen=True, kw_only=True):
    """Every row of one living thread, from one moment, and the length of its log."""

    thread: str
    head: StoredRow
    cold: StoredRow | None
    length: int
    branches: Sequence[StoredRow] = ()
    runs: Sequence[StoredRow] = ()
    labels: Sequence[StoredRow] = ()
    state: Sequence[StoredRow] = ()
    keys: Sequence[StoredRow] = ()
    pending: Sequence[StoredRow] = ()
    queue: StoredRow | None = None


class Place(msgspec.Struct, frozen=True):
    """What one message's columns say, without its body."""

    id: str
    branch: int
    run: str | None
    visible: bool
    at: int


class Line(msgspec.Struct):
    """What the log says of one branch."""

    count: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_id: str | None = None


class Produced(msgspec.Struct):
    """How many visible assistant and tool messages name a run as their producer, and where the first and last stand."""

    count: int = 0
    first: int = 0
    last: int = 0


class LogFacts(msgspec.Struct):
    """What one pass over a log found out. `places` holds the messages in `wanted`, or all of them if that is None."""

    wanted: set[int] | None = None
    places: dict[int, Place] = {}
    lines: dict[int, Line] = {}
    produced: dict[str, Produced] = {}

    def add(self, seq: int, columns: Sequence[Any]) -> None:
        """Take in the next message: its seq and the log's columns in declared order."""
        message_id, role, branch, visibility, run, _step, at = columns
        visible = visibility == "all" and role in ("assistant", "tool")
        line = self.lines.setdefault(branch, Line(first_seq=seq))
        line.count, line.last_seq, line.last_id = line.count + 1, seq, message_id
        if self.wanted is None or seq in self.wanted:
            self.places[seq] = Place(message_id, branch, run, visible, at)
        if run is not None and visible:
            made = self.produced.setdefault(run, Produced(first=seq))
            made.count, made.last = made.count + 1, seq
