"""The records of pending messages: message, delivery mode, position in the queue."""

from __future__ import annotations

from perdure.model.faithful import NO_EXTRA, Extra, Faithful
from perdure.model.message import Message
from perdure.model.record import Record
from perdure.model.stored_json import Reader

BOUNDARIES = ("interrupt", "next_step", "on_natural_end", "new_run", "resume_input")
"""Where a run may take in messages; the first four in rising order, `resume_input` apart."""


class DeliveryMode(Faithful, frozen=True, kw_only=True):
    """When a pending message may be read, and with which others."""

    boundary: str = "new_run"
    """The earliest boundary at which it may be read, one of `BOUNDARIES`."""
    granularity: str = "batch"
    """`batch` is read together with its neighbours, `one` alone."""
    barrier: bool = False
    """Nothing behind it is read before it, or together with it."""
    target_run_id: str | None = None
    """The run it is meant for: no other existing run may read it. None for any run."""
    fallback_to_new_run: bool = True
    """Whether a new run may read it although it targets another run."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class PendingBody(Faithful, frozen=True):
    """The stored JSON of a pending message."""

    message: Message
    mode: DeliveryMode = DeliveryMode()
    extra: Extra = NO_EXTRA


class PendingMessage(Record, frozen=True, kw_only=True):
    """A pending message and its position in the queue."""

    thread_id: str
    """The thread whose queue it is in."""
    id: str
    """The id that its message will have in the log."""
    position: int
    """From 1, without gaps."""
    revision: int
    """Counts its versions from 1; `edit` and `retract` guard on it with `if_revision`."""
    message: Message
    """The message as it would be committed now."""
    mode: DeliveryMode
    """When it may be read."""
    created_at: int
    """When it was appended to the queue, in milliseconds."""
    updated_at: int
    """When it was last edited or reordered."""


class PendingQueue(Record, frozen=True):
    """A thread's pending messages."""

    items: list[PendingMessage]
    """In order of position."""
    revision: int
    """Rises with every change to the queue; `reorder` guards on it with `if_revision`."""


BODY_READER: Reader[PendingBody] = Reader(PendingBody)
