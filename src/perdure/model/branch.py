"""A branch: a named line through a thread's tree. One branch of a thread is current."""

from __future__ import annotations

import msgspec

MAIN = 0
"""The number of the branch every thread is born with."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch as it was when read.

    `parent` and `fork_seq` say where it left another branch (None and 0 for a root); `head` is the id of its newest
    message, its fork point's if it has none of its own; `length` counts the messages written on the branch itself.
    """

    thread_id: str
    id: int
    name: str
    parent: int | None
    fork_seq: int
    head: str | None
    head_seq: int
    length: int
    created_at: int
    current: bool
    preview: str | None = None


class Label(msgspec.Struct, frozen=True):
    """A person's mark on a message."""

    message_id: str
    seq: int
    label: str
    at: int
