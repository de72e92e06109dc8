"""The records of a branch and of a label. A branch is a named line through a thread's tree; one of them is current."""

from __future__ import annotations

from typing import Any

from perdure.model.public_json import variant_json
from perdure.model.record import Record

MAIN = 0
"""The number of the branch that every thread starts with."""


class Branch(Record, frozen=True, kw_only=True):
    """A branch as it was when read."""

    thread_id: str
    """The thread it belongs to."""
    id: int
    """Its number, from 0 (main) in order of creation; never reused."""
    name: str
    """Unique within the thread."""
    parent: int | None
    """The branch it was forked from; None for a root."""
    fork_seq: int
    """The seq of the message it continues; 0 for a root."""
    head: str | None
    """The id of its newest message: its fork point while it has none itself, None if there is neither."""
    head_seq: int
    """The seq of that message; 0 if there is none."""
    length: int
    """How many messages were written on the branch itself, its ancestors' not included."""
    path_length: int
    """How many messages its whole path has, from the root on: what it inherits and its own."""
    created_at: int
    """When it was created, in milliseconds."""
    current: bool
    """Whether commits that name no branch go to it."""
    preview: str | None = None
    """The first 80 characters of its newest message; None if it has none."""


class Variant(Record, frozen=True, kw_only=True):
    """One of the messages that were written in the same place, each on a branch of its own."""

    message_id: str
    """Its id."""
    seq: int
    """Its seq."""
    role: str
    """Who wrote it."""
    preview: str
    """Its first 80 characters."""
    at: int
    """When it was committed, in milliseconds."""
    run_id: str | None
    """The run that produced it, or None."""
    branch: int | None
    """A branch to switch to in order to continue it: the current one if it leads there, else the one it was written on,
    else one that was forked from that. None if all of these were deleted."""
    asked: bool
    """Whether it is the message that was asked about, or the turn of the run that was."""
    current: bool
    """Whether it is on the path of the current branch."""
    visibility: str
    """Who may see it."""

    def public_json(self) -> dict[str, Any]:
        """JSON data for the browser of a user: without the preview of what is internal, or of a tool's result."""
        return variant_json(self)


class Label(Record, frozen=True):
    """A mark that a person put on a message. It is not part of the history."""

    message_id: str
    """The message it marks."""
    seq: int
    """The seq of that message."""
    label: str
    """The text."""
    at: int
    """When it was set, in milliseconds."""
