"""Pending messages: delivered, not yet read by the model, and still editable until a boundary freezes them."""

from __future__ import annotations

import msgspec

from perdure.model.faithful import NO_EXTRA, Extra, Faithful, Reader
from perdure.model.message import Message

BOUNDARIES = ("interrupt", "next_step", "on_natural_end", "new_run", "resume_input")
"""Where a run may take in messages; the first four in rising order, `resume_input` apart."""


class DeliveryMode(Faithful, frozen=True, kw_only=True):
    """How a pending message wants to be taken.

    `boundary` is the earliest boundary it may be read at; `one` messages travel alone; a `barrier` ends a batch;
    `target_run_id` restricts it to one run, with `fallback_to_new_run` allowing a new run when that one is gone.
    """

    boundary: str = "new_run"
    granularity: str = "batch"
    barrier: bool = False
    target_run_id: str | None = None
    fallback_to_new_run: bool = True
    extra: Extra = NO_EXTRA


class PendingBody(Faithful, frozen=True):
    """The stored JSON of a pending message."""

    message: Message
    mode: DeliveryMode = DeliveryMode()
    extra: Extra = NO_EXTRA


class PendingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A pending message and its place in the queue. `revision` counts its versions from 1."""

    thread_id: str
    id: str
    position: int
    revision: int
    message: Message
    mode: DeliveryMode
    created_at: int
    updated_at: int


class PendingQueue(msgspec.Struct, frozen=True):
    """A thread's pending messages in order; `revision` changes with every change to the queue."""

    items: list[PendingMessage]
    revision: int


BODY_READER: Reader[PendingBody] = Reader(PendingBody)
