"""Runs: one user intent and its outcome, which may wait and resume under the same id.

A `Run` is a record as read, with its rev; `run.step()`, `run.wait(…)`, `run.finish(…)` and the others return a
`RunChange` to give to `commit`, which applies it in the transaction of the messages it belongs to. A change is built on
the record it was made from: if somebody else moved the run since, the commit is refused.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import msgspec

from perdure.errors import InvalidError
from perdure.model.faithful import NO_EXTRA, Extra, Faithful, Reader
from perdure.model.run_snapshots import RunActivation, RunRequest, SeqRange

CREATED, RUNNING, WAITING, DONE = "created", "running", "waiting", "done"
STATUSES = (CREATED, RUNNING, WAITING, DONE)

NATURAL_END = "natural_end"


class Ticket(Faithful, frozen=True, kw_only=True):
    """One thing a waiting run waits for: usually a tool call that needs a decision."""

    ticket_id: str
    tool_call_id: str | None = None
    tool_name: str | None = None
    arguments: Any = None
    resume_mode: str = "replay_tool_call"
    reason: str | None = None
    updated_at: int | None = None
    extra: Extra = NO_EXTRA


class Waiting(Faithful, frozen=True, kw_only=True):
    """Why a run waits (`tool_permission`, `user_input`, `background_tasks`, `external_event`, `rate_limit`,
    `manual_pause` or another word) and for what."""

    reason: str
    tickets: list[Ticket] = []
    since_dispatch_id: str | None = None
    message: str | None = None
    extra: Extra = NO_EXTRA


class Termination(Faithful, frozen=True):
    """How a run ended: `natural_end`, `behavior_requested`, `stopped`, `cancelled`, `blocked`, `error` or another word;
    `code` and `detail` keep the whole story."""

    type: str
    code: str | None = None
    detail: str | None = None
    extra: Extra = NO_EXTRA


class Outcome(Faithful, frozen=True):
    """The result of a run that is done."""

    termination: Termination
    final_output: str | None = None
    error: Any = None
    extra: Extra = NO_EXTRA


class RunInput(Faithful, frozen=True, kw_only=True):
    """What a run was given: how its messages were chosen. The range is filled in by the store."""

    range: SeqRange | None = None
    trigger_message_ids: list[str] = []
    selected_message_ids: list[str] = []
    context_policy: Any = None
    compacted_snapshot_id: str | None = None
    extra: Extra = NO_EXTRA


class RunOutput(msgspec.Struct, frozen=True, gc=False):
    """What a run produced: how many visible assistant and tool messages, the first and last of their seqs, and the
    range they fill if it has no holes."""

    count: int
    first: int
    last: int

    @property
    def range(self) -> SeqRange | None:
        """The produced seqs as a range, when nothing of another producer lies between."""
        return SeqRange(self.first, self.last) if self.last - self.first + 1 == self.count else None


class RunBody(Faithful, frozen=True, kw_only=True):
    """The stored JSON of a run; counters, times and status are columns."""

    resolution_id: str | None = None
    activation: RunActivation | None = None
    request: RunRequest | None = None
    input: RunInput | None = None
    dispatch_id: str | None = None
    session_id: str | None = None
    transport_request_id: str | None = None
    waiting: Waiting | None = None
    outcome: Outcome | None = None
    metadata: dict[str, Any] | None = None
    extra: Extra = NO_EXTRA


class Counters(TypedDict, total=False):
    """What any move of a run may add: steps taken and tokens used, as increments."""

    steps: int
    input_tokens: int
    output_tokens: int


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run as it was when read. Times are milliseconds, UTC; `branch` is the branch it is pinned to."""

    id: str
    thread_id: str
    agent_id: str
    status: str
    branch: int
    parent_run_id: str | None
    steps: int
    input_tokens: int
    output_tokens: int
    created_at: int
    started_at: int | None
    finished_at: int | None
    updated_at: int
    input: RunInput | None
    output: RunOutput | None
    body: RunBody
    rev: int

    @property
    def waiting(self) -> Waiting | None:
        """What it waits for, while it waits."""
        return self.body.waiting

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once done."""
        return self.body.outcome

    @property
    def activation(self) -> RunActivation | None:
        """The snapshot of how it was activated."""
        return self.body.activation

    @property
    def request(self) -> RunRequest | None:
        """The snapshot of the request behind it."""
        return self.body.request

    def begin(self, **counters: Unpack[Counters]) -> RunChange:
        """Start executing a created run, or go on with a running one. A waiting run is not begun but resumed."""
        return RunChange(run=self, status=RUNNING, only_from=(CREATED, RUNNING), **counters)

    def resume(self, **counters: Unpack[Counters]) -> RunChange:
        """Go on with a run that waited; what it waited for is over."""
        return RunChange(run=self, status=RUNNING, only_from=(WAITING,), **counters)

    def step(self, *, input_tokens: int = 0, output_tokens: int = 0) -> RunChange:
        """One more step, with the tokens it took."""
        return RunChange(run=self, steps=1, input_tokens=input_tokens, output_tokens=output_tokens)

    def wait(
        self,
        tickets: list[Ticket] | None = None,
        *,
        reason: str = "user_input",
        message: str | None = None,
        **counters: Unpack[Counters],
    ) -> RunChange:
        """Pause until the tickets are answered."""
        ordered = sorted(_check_tickets(tickets), key=lambda t: (t.tool_call_id or "", t.ticket_id))
        return RunChange(
            run=self, status=WAITING, waiting=Waiting(reason=reason, tickets=ordered, message=message), **counters
        )

    def finish(
        self, final_output: str | None = None, *, termination: str = NATURAL_END, **counters: Unpack[Counters]
    ) -> RunChange:
        """End well."""
        return self._end(Outcome(Termination(termination), final_output), counters)

    def fail(self, detail: str, *, error: Any = None, **counters: Unpack[Counters]) -> RunChange:
        """End with an error: its text, and the payload if there is one."""
        return self._end(Outcome(Termination("error", detail=detail), error=error), counters)

    def cancel(self, detail: str | None = None, **counters: Unpack[Counters]) -> RunChange:
        """End because somebody asked."""
        return self._end(Outcome(Termination("cancelled", detail=detail)), counters)

    def stop(self, code: str, detail: str | None = None, **counters: Unpack[Counters]) -> RunChange:
        """End because a limit or policy stopped it."""
        return self._end(Outcome(Termination("stopped", code=code, detail=detail)), counters)

    def block(self, detail: str, **counters: Unpack[Counters]) -> RunChange:
        """End because it was not allowed to go on."""
        return self._end(Outcome(Termination("blocked", detail=detail)), counters)

    def _end(self, outcome: Outcome, counters: Counters) -> RunChange:
        return RunChange(run=self, status=DONE, outcome=outcome, **counters)


def _check_tickets(tickets: Any) -> list[Ticket]:
    """The tickets, sound enough to be sorted; the commit checks the rest."""
    checked = [] if tickets is None else tickets
    if type(checked) is not list or any(type(ticket) is not Ticket for ticket in checked):
        raise InvalidError("tickets is a list of Ticket", hint="run.wait([ticket])")
    for ticket in checked:
        call: Any = ticket.tool_call_id
        if type(ticket.ticket_id) is not str or (call is not None and type(call) is not str):
            raise InvalidError("ticket_id is text, and so is tool_call_id where there is one", path="tickets")
    return checked


class RunChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A move of a run, to be given to `commit`. Counters are increments; `status` None means it stays.

    `only_from` narrows the statuses it may start from, where the machine alone would allow more.
    """

    run: Run
    status: str | None = None
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    waiting: Waiting | None = None
    outcome: Outcome | None = None
    dispatch_id: str | None = None
    only_from: tuple[str, ...] | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be created by the commit it is given to."""

    agent_id: str
    id: str | None = None
    status: str = RUNNING
    parent_run_id: str | None = None
    body: RunBody = RunBody()


BODY_READER: Reader[RunBody] = Reader(RunBody)
