"""The records of the reference: plain objects that hold all threads, messages, runs and documents.

Nothing is indexed, counted or cached that can be computed: the number of children, the length of a branch and the
version of a thread are counted each time. This is slow and obviously right, which is the point: the product is compared
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
WEEK_MS = 7 * 24 * 3600 * 1000
"""How long idempotency keys and the names of deleted threads are remembered."""


class Refusal(Exception):
    """The reference refuses; `kind` is the class name of the error that the product must raise."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(eq=False)
class Message:
    """A record of the log, hanging under its parent."""

    seq: int
    branch: int
    parent: Message | None
    at: int
    body: Json

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.body["id"])

    @property
    def visibility(self) -> str:
        """Who may see it."""
        return str(self.body.get("visibility", "all"))


@dataclass
class Branch:
    """A line through the tree: `fork` is the message it continues, None for a root."""

    number: int
    name: str
    fork: Message | None
    created_at: int
    deleted: bool = False


@dataclass
class Document:
    """A state document; `rev` is the tick of the transaction that wrote it."""

    value: Any
    schema: int
    at: int
    rev: int


@dataclass
class ProfileDocument:
    """A document of an owner; `rev` is the tick of the transaction that wrote it."""

    value: Any
    schema: int
    rev: int
    created_at: int
    updated_at: int
    expires_at: int | None

    def is_over(self, now: int) -> bool:
        """Has its time to live passed?"""
        return self.expires_at is not None and now >= self.expires_at


@dataclass
class Pending:
    """A message that waits to be read; its position is its index in the list."""

    body: Json
    mode: Json
    created_at: int
    updated_at: int
    revision: int = 1

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.body["id"])


@dataclass
class Key:
    """What a keyed commit asked for, and what its receipt said."""

    content: Any
    receipt: Json
    run_id: str | None
    at: int
    rev: int


@dataclass
class Run:
    """A run; its fields carry the names of the public record."""

    id: str
    thread_id: str
    agent_id: str
    status: str
    branch: int
    created_at: int
    updated_at: int
    rev: int
    parent_run_id: str | None = None
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    input: list[int] | None = None
    triggers: list[str] = field(default_factory=list)
    output: list[int] | None = None
    waiting: Json | None = None
    resumed_from: Json | None = None
    outcome: Json | None = None
    metadata: Json | None = None
    trace: Json | None = None


@dataclass
class Thread:
    """A conversation and everything that belongs to it."""

    id: str
    created_at: int
    updated_at: int
    rev: int
    title: str | None = None
    resource_id: str | None = None
    parent_thread_id: str | None = None
    custom: Json = field(default_factory=dict)
    branch: int = 0
    fence: int | None = None
    active_run_id: str | None = None
    open_run_id: str | None = None
    latest_run_id: str | None = None
    log: list[Message] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    labels: dict[str, tuple[str, int]] = field(default_factory=dict)
    state: dict[tuple[str | None, str], Document] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    queue_revision: int = 0

    def message(self, message_id: str) -> Message | None:
        """The record with this id."""
        return next((m for m in self.log if m.id == message_id), None)

    def require_message(self, message_id: str) -> Message:
        """The record with this id, or a refusal."""
        message = self.message(message_id)
        if message is None:
            raise Refusal("NotFoundError")
        return message

    def written_on(self, number: int) -> list[Message]:
        """The records written on a branch itself."""
        return [m for m in self.log if m.branch == number]

    def head(self, number: int) -> Message | None:
        """The newest record of a branch's path."""
        own = self.written_on(number)
        return own[-1] if own else self.branches[number].fork

    def branch_number(self, branch: int | str | None) -> int:
        """The number of a living branch, from its number or name; None means the current one."""
        name = self.branch if branch is None else branch
        for candidate in self.branches:
            if not candidate.deleted and name in (candidate.number, candidate.name):
                return candidate.number
        raise Refusal("NotFoundError")


@dataclass
class Tombstone:
    """What remains of a deleted thread for a while."""

    deleted_at: int
    erased_at: int | None


class World:
    """Everything there is. `tick` counts transactions and takes the role of their revs."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.tick = 0
        self.threads: dict[str, Thread] = {}
        self.runs: dict[str, Run] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.profiles: dict[tuple[str, str], ProfileDocument] = {}

    def next_tick(self) -> int:
        """The mark of a new transaction."""
        self.tick += 1
        return self.tick

    def thread(self, thread_id: str) -> Thread:
        """A living thread, or a refusal."""
        if thread_id not in self.threads:
            raise Refusal("NotFoundError")
        return self.threads[thread_id]

    def children(self, thread_id: str) -> list[Thread]:
        """The direct children of a thread."""
        return [t for t in self.threads.values() if t.parent_thread_id == thread_id]

    def runs_of(self, thread_id: str) -> list[Run]:
        """The runs of a thread."""
        return [run for run in self.runs.values() if run.thread_id == thread_id]

    def buried(self, thread_id: str) -> bool:
        """Was a thread of this id deleted, less than a week ago or not wholly?"""
        stone = self.tombstones.get(thread_id)
        return stone is not None and (stone.erased_at is None or stone.erased_at + WEEK_MS >= self.now)

    def sweep(self) -> None:
        """What housekeeping does: finish erasing, and forget keys, tombstones and profiles past their time."""
        for stone in self.tombstones.values():
            if stone.erased_at is None:
                stone.erased_at = self.now
        for thread in self.threads.values():
            thread.keys = {name: key for name, key in thread.keys.items() if key.at + WEEK_MS >= self.now}
        self.tombstones = {name: stone for name, stone in self.tombstones.items() if self.buried(name)}
        self.profiles = {name: each for name, each in self.profiles.items() if not each.is_over(self.now)}


def only(source: Mapping[str, Any], names: Iterable[str]) -> Json:
    """Some entries of a mapping."""
    return {name: source[name] for name in names}
