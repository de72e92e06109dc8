"""A stored thread as the rules see it: plain rows, facts from its log, and the problems that rules report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

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
    if table == "state" and len(key) == 3:
        thread, run, name = key
        return f"state {name!r} of run {run!r} of thread {thread!r}" if run else f"state {name!r} of thread {thread!r}"
    template = _ROW_NAMES.get(table)
    return f"{table} {key}" if template is None else template.format(*key)


_ROW_NAMES = {
    "threads": "thread {!r}",
    "thread_heads": "thread {!r}",
    "branches": "branch {1} of thread {0!r}",
    "labels": "the label on message {1!r} of thread {0!r}",
    "runs": "run {!r}",
    "queues": "the queue of thread {!r}",
    "keys": "key {1!r} of thread {0!r}",
    "pending": "pending message {1!r} of thread {0!r}",
    "profiles": "profile {1!r} of {0!r}",
}
"""How a row is called, by its key."""


Known_contra = TypeVar("Known_contra", contravariant=True)
Fact_co = TypeVar("Fact_co", covariant=True)


class Lookup(Protocol[Known_contra, Fact_co]):
    """Facts by what they are known by: a dict, or notes of a file that is too long for one."""

    def get(self, known: Known_contra, /) -> Fact_co | None:
        """The fact, or None."""
        ...


class ThreadRows(msgspec.Struct, frozen=True, kw_only=True):
    """Every row of one living thread, from one moment, and the length of its log.

    What no limit bounds may be long: rules walk it and never collect it. `statuses` knows the thread's runs by id.
    """

    thread: str
    head: StoredRow
    cold: StoredRow | None
    length: int
    statuses: Lookup[str, str]
    branches: Sequence[StoredRow] = ()
    runs: Iterable[StoredRow] = ()
    labels: Iterable[StoredRow] = ()
    state: Iterable[StoredRow] = ()
    keys: Iterable[StoredRow] = ()
    pending: Sequence[StoredRow] = ()
    queue: StoredRow | None = None


class MessageFacts(msgspec.Struct, frozen=True):
    """The columns of a message that the rules compare, without its body."""

    id: str
    branch: int
    run: str | None
    visible: bool
    at: int


class Line(msgspec.Struct):
    """The messages of one branch, as the log counts them."""

    count: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_id: str | None = None


class Produced(msgspec.Struct):
    """The visible assistant and tool messages that a run produced: how many, and the first and last seq."""

    count: int = 0
    first: int = 0
    last: int = 0


class Facts(Protocol):
    """What rules ask about a log: its messages by seq, its branches, and what its runs produced."""

    @property
    def messages(self) -> Lookup[int, MessageFacts]:
        """A message by its seq."""
        ...

    @property
    def lines(self) -> dict[int, Line]:
        """The log's count of each branch."""
        ...

    @property
    def produced(self) -> Lookup[str, Produced]:
        """The log's count of each run's output."""
        ...


class LogFacts(msgspec.Struct):
    """The facts that one pass over a log collects. `messages` holds the messages with these `seqs`."""

    seqs: set[int]
    messages: dict[int, MessageFacts] = {}
    lines: dict[int, Line] = {}
    produced: dict[str, Produced] = {}

    def add(self, seq: int, columns: Sequence[Any]) -> None:
        """Take in the next message: its seq and the log's columns in declared order."""
        message = message_facts(columns)
        add_to_line(self.lines, seq, message)
        if seq in self.seqs:
            self.messages[seq] = message
        if message.run is not None and message.visible:
            made = self.produced.setdefault(message.run, Produced(first=seq))
            made.count, made.last = made.count + 1, seq


def message_facts(columns: Sequence[Any]) -> MessageFacts:
    """A message's place, from the log's columns in declared order."""
    message_id, role, branch, visibility, run, _step, at = columns
    return MessageFacts(message_id, branch, run, visibility == "all" and role in ("assistant", "tool"), at)


def add_to_line(lines: dict[int, Line], seq: int, message: MessageFacts) -> None:
    """Count the next message of a log in with its branch."""
    line = lines.get(message.branch)
    if line is None:
        line = lines[message.branch] = Line(first_seq=seq)
    line.count, line.last_seq, line.last_id = line.count + 1, seq, message.id
