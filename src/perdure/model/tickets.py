"""What a waiting run waits for: tickets, each answered by a decision.

A decision is recorded on its ticket while the run goes on waiting, and it is final. A worker that resumes the run takes
the decisions with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import InvalidError, VersionConflict, short_repr
from perdure.model.faithful import NO_EXTRA, Extra, Faithful
from perdure.model.message import ToolUse

_sorted = msgspec.json.Encoder(order="sorted")


class Ticket(Faithful, frozen=True, kw_only=True):
    """One thing a waiting run waits for: usually a tool call that needs a decision."""

    ticket_id: str
    """The id that the answer names."""
    tool_call_id: str | None = None
    """The tool call behind it, if there is one."""
    tool_name: str | None = None
    """The tool of that call."""
    arguments: Any = None
    """Its arguments, or what a person needs to decide."""
    resume_mode: str = "replay_tool_call"
    """What to do with the answer, in the caller's words."""
    reason: str | None = None
    """Why it needs an answer."""
    updated_at: int | None = None
    """When the caller last changed it, in milliseconds."""
    decision: Any = None
    """The answer, as any JSON value but null; None while there is none."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""

    @staticmethod
    def for_call(call: ToolUse, *, decision: Any = None, reason: str | None = None) -> Ticket:
        """A ticket for a tool call: it has the call's id, tool and arguments.

        - `decision`: the answer, if it is known already.
        - `reason`: why it needs an answer.
        """
        if type(call) is not ToolUse:
            raise InvalidError(f"call must be a ToolUse, not {short_repr(call)}", hint="pass item.call")
        return Ticket(
            ticket_id=call.id,
            tool_call_id=call.id,
            tool_name=call.name,
            arguments=call.input,
            decision=decision,
            reason=reason,
        )


class Waiting(Faithful, frozen=True, kw_only=True):
    """Why a run waits, and for what."""

    reason: str
    """`tool_permission`, `user_input`, `background_tasks`, `external_event`, `rate_limit`, `manual_pause`,
    or another word."""
    tickets: list[Ticket] = []
    """What must be answered before it resumes."""
    since_dispatch_id: str | None = None
    """Your id of the dispatch during which it began to wait."""
    message: str | None = None
    """A text for the person who is asked."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


def find_ticket(wait: Waiting | None, ticket_id: str) -> Ticket | None:
    """The ticket of a wait with this id."""
    tickets = [] if wait is None else wait.tickets
    return next((ticket for ticket in tickets if ticket.ticket_id == ticket_id), None)


def find_call(wait: Waiting | None, call_id: str) -> Ticket | None:
    """The ticket of a wait for this tool call."""
    tickets = [] if wait is None else wait.tickets
    return next((ticket for ticket in tickets if ticket.tool_call_id == call_id), None)


def with_decision(wait: Waiting, ticket: Ticket, value: Any) -> Waiting:
    """The wait, with a decision on one of its tickets."""
    decided = msgspec.structs.replace(ticket, decision=value)
    return msgspec.structs.replace(wait, tickets=[decided if each is ticket else each for each in wait.tickets])


def check_decision(value: Any) -> None:
    """Refuse null, which means that there is no decision."""
    if value is None:
        raise InvalidError("a decision is any JSON value but null", hint="decide with False, or with a text")


def is_decided(run_id: str, ticket: Ticket, value: Any) -> bool:
    """Does the ticket have this decision already? Raises `VersionConflict` if it has another."""
    if ticket.decision is None:
        return False
    if _is_same(ticket.decision, value):
        return True
    raise VersionConflict(
        f"ticket {ticket.ticket_id!r} of run {run_id!r} already has another decision",
        expected=value,
        actual=ticket.decision,
        hint="a decision is final; to ask again, let the run wait for a new ticket",
    )


def _is_same(one: Any, other: Any) -> bool:
    """Are two decisions the same JSON? To Python, true is 1 and 1 is 1.0."""
    try:
        return _sorted.encode(one) == _sorted.encode(other)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return False  # not JSON, which a commit refuses
