"""What a run's JSON keeps of its past: the wait that its last resume ended, and how often workers were lost with it.

Nothing of it is kept at the price of a move. A run whose JSON would be too large forgets the lost workers. Of the last
wait it then keeps the ids and the decisions of the tickets alone, or nothing.
"""

from __future__ import annotations

import msgspec

from perdure import limits
from perdure.model.faithful import NO_EXTRA, Extra
from perdure.model.run import RunBody, Takeovers
from perdure.model.stored_json import write
from perdure.model.tickets import Ticket, Waiting


def resumed(body: RunBody, wait: Waiting) -> RunBody:
    """The JSON of a run that was resumed from this wait."""
    return msgspec.structs.replace(body, resumed_from=wait, extra=_without(body.extra, "resumed_from"))


def taken_over(body: RunBody, takeovers: Takeovers) -> RunBody:
    """The JSON of a run with what it now says of lost workers."""
    return msgspec.structs.replace(body, takeovers=takeovers, extra=_without(body.extra, "takeovers"))


def _without(extra: Extra, field: str) -> Extra:
    """The unknown fields without one that an older build's caller stored: it would hide the field of this name."""
    if field not in extra:
        return extra
    return Extra({name: value for name, value in extra.items() if name != field}) or NO_EXTRA


def within_limit(body: RunBody) -> RunBody:
    """The JSON with as much of the past as it has room for."""
    wait = body.resumed_from
    if (wait is None and body.takeovers is None) or _fits(body):
        return body
    body = msgspec.structs.replace(body, takeovers=None)
    if wait is None or _fits(body):
        return body
    tickets = [Ticket(ticket_id=t.ticket_id, tool_call_id=t.tool_call_id, decision=t.decision) for t in wait.tickets]
    brief = msgspec.structs.replace(body, resumed_from=Waiting(reason=wait.reason, tickets=tickets))
    return brief if _fits(brief) else msgspec.structs.replace(body, resumed_from=None)


def most_bytes(body: RunBody) -> int:
    """How long the JSON may be. The end of a run has a reserve: a run that is full can be ended, too."""
    return limits.RUN_BYTES if body.outcome is None else limits.RUN_BYTES + limits.RUN_END_BYTES


def _fits(body: RunBody) -> bool:
    return len(write(body)) <= most_bytes(body)
