"""The records a run keeps of its origin: how it was activated, and the request behind it.

They are written once, when the run is created, and read back as they were. Every one of them carries unknown fields.
"""

from __future__ import annotations

from typing import Any

from perdure.model.faithful import NO_EXTRA, Extra, Faithful


class SeqRange(Faithful, frozen=True, gc=False):
    """An inclusive range of seqs, from 1."""

    from_seq: int
    """The first seq."""
    to_seq: int
    """The last seq."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""

    def __len__(self) -> int:
        return self.to_seq - self.from_seq + 1


class RunIntent(Faithful, frozen=True, kw_only=True):
    """What is wanted: `new_intent`, `hitl_resume` or `continuation_from_run` (of `run_id`)."""

    kind: str = "new_intent"
    """`new_intent`, `hitl_resume`, `continuation_from_run`, or another word."""
    run_id: str | None = None
    """The run that is continued or resumed."""
    agent_id: str | None = None
    """The agent that was asked for."""
    thread_id: str | None = None
    """The thread that was asked for; if set, it must be the run's thread."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunTrace(Faithful, frozen=True, kw_only=True):
    """Where a run comes from; `parent_thread_id` gives a thread that the run creates its parent."""

    parent_run_id: str | None = None
    """The run that caused this one."""
    parent_thread_id: str | None = None
    """The thread that caused it, and the parent of a thread that the run creates."""
    resource_id: str | None = None
    """The user, account or object it is for, and the owner of a thread that the run creates."""
    origin: str = "user"
    """Who asked, in your words."""
    adapter: str = "internal"
    """The adapter that the request came through."""
    run_mode: str = "foreground"
    """How it runs, in your words: `foreground`, `background`."""
    dispatch_id: str | None = None
    """Your id of the dispatch."""
    session_id: str | None = None
    """Your id of the session."""
    transport_request_id: str | None = None
    """The transport's id of the request."""
    correlation_id: str | None = None
    """An id that links it to your logs."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunOptions(Faithful, frozen=True, kw_only=True):
    """Overrides and tools the caller brought."""

    overrides: dict[str, Any] | None = None
    """Settings of the agent that the caller changed, a JSON object."""
    frontend_tools: list[Any] = []
    """Tools that the caller executes itself, as JSON values."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class Decision(Faithful, frozen=True, kw_only=True):
    """A person's answer to a ticket: `resume` with a result, or `cancel`."""

    call_id: str
    """The tool call, or the ticket, that it answers."""
    action: str = "resume"
    """`resume`, `cancel`, or another word."""
    result: Any = None
    """What the person answered, as any JSON value."""
    reason: str | None = None
    """Why."""
    decision_id: str | None = None
    """Your id of the decision."""
    updated_at: int | None = None
    """When it was made, in milliseconds."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunActivation(Faithful, frozen=True, kw_only=True):
    """How a run was activated."""

    intent: RunIntent = RunIntent()
    """What is wanted."""
    options: RunOptions = RunOptions()
    """What the caller changed."""
    trace: RunTrace = RunTrace()
    """Where it comes from."""
    decisions: list[Decision] = []
    """Answers to the tickets of the run that it resumes."""
    resolution_id: str | None = None
    """Your id of the choice of agent."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunRequest(Faithful, frozen=True, kw_only=True):
    """The request that led to a run, as the transport saw it."""

    origin: str = "user"
    """Who asked, in your words."""
    sender_id: str | None = None
    """Your id of the sender."""
    input_message_ids: list[str] = []
    """The messages that the request brought."""
    input_message_count: int = 0
    """How many those were."""
    request_extras: Any = None
    """Whatever else the request held, as any JSON value."""
    decisions: list[Decision] = []
    """Answers to tickets that it brought."""
    frontend_tools: list[Any] = []
    """Tools that the caller executes itself, as JSON values."""
    parent_thread_id: str | None = None
    """The thread that the request names as the parent."""
    transport_request_id: str | None = None
    """The transport's id of the request."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""
