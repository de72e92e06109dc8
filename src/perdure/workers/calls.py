"""Which call of a run a ticket is about. Some model servers repeat the ids of calls, so an id alone does not tell.

The calls of a run that share an id are numbered, by their order on the run's branch. A ticket about the first of them
is as `Ticket.for_call` makes it; a ticket about a later one carries its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from perdure import limits
from perdure.model.faithful import Extra
from perdure.model.message import Message, MessageRecord, ToolUse
from perdure.model.tickets import Ticket, Waiting
from perdure.rules.views import unfinished

NUMBER = "occurrence"
"""The field of a ticket that numbers its call among those of the run with the same id; without it, the first."""


class OpenCall(NamedTuple):
    """A call without a result, and its number among the calls of the run with this id."""

    call: ToolUse
    number: int


class Calls:
    """The tool calls of a run: how often each id was used, and which calls have no result."""

    def __init__(self, path: Sequence[MessageRecord] = (), run_id: str | None = None) -> None:
        self._uses: Counter[str] = Counter()
        numbers: dict[tuple[str, str], int] = {}
        for record in path:
            for call in record.message.tool_calls if record.run_id == run_id else ():
                self._uses[call.id] += 1
                numbers[record.message_id, call.id] = self._uses[call.id]
        self.open: list[OpenCall] = [
            OpenCall(item.call, numbers[item.message_id, item.call.id])
            for item in unfinished(path)
            if item.run_id == run_id
        ]

    def add(self, messages: Sequence[Message]) -> None:
        """Take note of messages that were committed. A call that shares its id with a new one is no longer open."""
        for message in messages:
            ended = {call.id for call in message.tool_calls} | {message.tool_call_id}
            self.open = [each for each in self.open if each.call.id not in ended]
            for call in message.tool_calls:
                self._uses[call.id] += 1
                self.open.append(OpenCall(call, self._uses[call.id]))

    def decision(self, wait: Waiting | None, call: ToolUse) -> Any:
        """The decision on a call that has no result yet, or that the run has not made yet."""
        numbers = [each.number for each in self.open if _is_same(each.call, call)]
        number = numbers[-1] if numbers else None if self._uses[call.id] else 1
        tickets = [] if wait is None else wait.tickets
        about = (ticket for ticket in tickets if ticket.tool_call_id == call.id and _number(ticket) == number)
        return next((ticket.decision for ticket in about), None)

    def decision_by_id(self, wait: Waiting | None, name: str) -> Any:
        """The same for the id of a ticket or a call. A ticket that is about no call is valid until the next wait."""
        tickets = [] if wait is None else [ticket for ticket in wait.tickets if self._is_current(ticket)]
        by_ticket = [ticket for ticket in tickets if ticket.ticket_id == name]
        by_call = [ticket for ticket in tickets if ticket.tool_call_id == name]
        return next((ticket.decision for ticket in by_ticket + by_call), None)

    def decided(self, wait: Waiting | None, but: Sequence[Ticket]) -> list[Ticket]:
        """The tickets with a decision on calls that have no result yet; without those on the calls of some others."""
        asked = {ticket.tool_call_id for ticket in but}
        tickets = [] if wait is None else wait.tickets
        return [
            ticket
            for ticket in tickets
            if ticket.decision is not None and ticket.tool_call_id not in {None, *asked} and self._is_current(ticket)
        ]

    def _is_current(self, ticket: Ticket) -> bool:
        call_id = ticket.tool_call_id
        if call_id is None or not self._uses[call_id]:
            return call_id is None or _number(ticket) == 1
        return any(each.call.id == call_id and each.number == _number(ticket) for each in self.open)

    def numbered(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """The tickets, each with the number of the open call it is about; a repeated id gets a ticket id of its own."""
        left = list(self.open)
        numbered: list[Ticket] = []
        for ticket in tickets:
            about = [each for each in left if each.call.id == ticket.tool_call_id]
            exact = [e for e in about if (e.call.name, e.call.input) == (ticket.tool_name, ticket.arguments)]
            if about:
                chosen = (exact or about)[-1]
                left.remove(chosen)
                ticket = _with_number(ticket, chosen)
            numbered.append(ticket)
        return numbered


def _with_number(ticket: Ticket, about: OpenCall) -> Ticket:
    if about.number == 1:
        return ticket
    name, suffix = ticket.ticket_id, f"~{about.number}"
    if name == about.call.id:
        name = name.encode()[: limits.ID_BYTES - len(suffix)].decode(errors="ignore") + suffix
    return replace(ticket, ticket_id=name, extra=Extra({**ticket.extra, NUMBER: about.number}))


def _number(ticket: Ticket) -> int:
    number = ticket.extra.get(NUMBER)
    if type(number) is int:
        return number
    # A run that is almost too large keeps nothing but the ids and the decision of a ticket.
    suffix = ticket.ticket_id.removeprefix(f"{ticket.tool_call_id}~")
    return int(suffix) if suffix != ticket.ticket_id and suffix.isdecimal() and len(suffix) < 10 else 1


def _is_same(one: ToolUse, other: ToolUse) -> bool:
    return (one.id, one.name, one.input) == (other.id, other.name, other.input)
