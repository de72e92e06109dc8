"""The records a run keeps of its origin: how it was activated, and the request behind it.

They are written once, when the run is created, and read back as they were. Every one of them carries unknown fields.
"""

from __future__ import annotations

from typing import Any

from perdure.model.faithful import NO_EXTRA, Extra, Faithful


class SeqRange(Faithful, frozen=True, gc=False):
    """An inclusive range of seqs, from 1."""

    from_seq: int
    to_seq: int
    extra: Extra = NO_EXTRA

    def __len__(self) -> int:
        return self.to_seq - self.from_seq + 1


class RunIntent(Faithful, frozen=True, kw_only=True):
    """What is wanted: `new_intent`, `hitl_resume` or `continuation_from_run` (of `run_id`)."""

    kind: str = "new_intent"
    run_id: str | None = None
    agent_id: str | None = None
    thread_id: str | None = None
    extra: Extra = NO_EXTRA


class RunTrace(Faithful, frozen=True, kw_only=True):
    """Where a run comes from; `parent_thread_id` gives a thread that the run creates its parent."""

    parent_run_id: str | None = None
    parent_thread_id: str | None = None
    resource_id: str | None = None
    origin: str = "user"
    adapter: str = "internal"
    run_mode: str = "foreground"
    dispatch_id: str | None = None
    session_id: str | None = None
    transport_request_id: str | None = None
    correlation_id: str | None = None
    extra: Extra = NO_EXTRA


class RunOptions(Faithful, frozen=True, kw_only=True):
    """Overrides and tools the caller brought."""

    overrides: dict[str, Any] | None = None
    frontend_tools: list[Any] = []
    extra: Extra = NO_EXTRA


class Decision(Faithful, frozen=True, kw_only=True):
    """A person's answer to a ticket: `resume` with a result, or `cancel`."""

    call_id: str
    action: str = "resume"
    result: Any = None
    reason: str | None = None
    decision_id: str | None = None
    updated_at: int | None = None
    extra: Extra = NO_EXTRA


class RunActivation(Faithful, frozen=True, kw_only=True):
    """How a run was activated."""

    intent: RunIntent = RunIntent()
    options: RunOptions = RunOptions()
    trace: RunTrace = RunTrace()
    decisions: list[Decision] = []
    resolution_id: str | None = None
    extra: Extra = NO_EXTRA


class RunRequest(Faithful, frozen=True, kw_only=True):
    """The request that led to a run, as the transport saw it."""

    origin: str = "user"
    sender_id: str | None = None
    input_message_ids: list[str] = []
    input_message_count: int = 0
    request_extras: Any = None
    decisions: list[Decision] = []
    frontend_tools: list[Any] = []
    parent_thread_id: str | None = None
    transport_request_id: str | None = None
    extra: Extra = NO_EXTRA
