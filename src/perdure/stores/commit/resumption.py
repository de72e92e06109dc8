"""What a run's JSON keeps of the wait that its last resume ended: its tickets with their decisions.

Only the last wait is kept, and never at the price of a move: a run whose JSON would be too large keeps the ids and the
decisions alone, or nothing of it.
"""

from __future__ import annotations

import msgspec

from perdure import limits
from perdure.model.faithful import NO_EXTRA, Extra
from perdure.model.run import RunBody
from perdure.model.stored_json import write
from perdure.model.tickets import Ticket, Waiting


def resumed(body: RunBody, wait: Waiting) -> RunBody:
    """The JSON of a run that was resumed from this wait."""
    extra = body.extra
    if "resumed_from" in extra:  # of an older build's caller: it would hide the wait
        extra = Extra({name: value for name, value in extra.items() if name != "resumed_from"}) or NO_EXTRA
    return msgspec.structs.replace(body, resumed_from=wait, extra=extra)


def within_limit(body: RunBody) -> RunBody:
    """The JSON with as much of the ended wait as it has room for."""
    wait = body.resumed_from
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
