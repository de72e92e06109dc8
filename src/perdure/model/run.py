"""The records of a run: one user intent and its outcome, which may wait and resume under the same id.

A `Run` is a record as read, with its rev; `run.step()`, `run.wait(…)`, `run.finish(…)` and the others return a
`RunChange` to give to `commit`, which applies it in the transaction of the messages it belongs to. A change is built on
the record it was made from: if another writer moved the run since, the commit is refused.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypedDict, Unpack, cast

from perdure.errors import IllegalTransition, InvalidError, NotFoundError, short_repr
from perdure.model.faithful import NO_EXTRA, Extra, Faithful
from perdure.model.message import Usage
from perdure.model.public_json import run_json
from perdure.model.record import Record
from perdure.model.run_snapshots import RunActivation, RunRequest, SeqRange
from perdure.model.stored_json import Reader
from perdure.model.tickets import (
    Ticket,
    Waiting,
    check_decision,
    find_call,
    find_ticket,
    is_decided,
    with_decision,
)  # fmt: skip

CREATED, RUNNING, WAITING, DONE = "created", "running", "waiting", "done"
STATUSES = (CREATED, RUNNING, WAITING, DONE)

NATURAL_END = "natural_end"


class Termination(Faithful, frozen=True):
    """How a run ended."""

    type: str
    """`natural_end`, `behavior_requested`, `stopped`, `cancelled`, `blocked`, `error`, or another word."""
    code: str | None = None
    """A stable word for the cause, such as the limit that was reached."""
    detail: str | None = None
    """The cause in words."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class Outcome(Faithful, frozen=True):
    """The result of a run that is done."""

    termination: Termination
    """How it ended."""
    final_output: str | None = None
    """Its last words, if it has any."""
    error: Any = None
    """The payload of an error, as any JSON value."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunInput(Faithful, frozen=True, kw_only=True):
    """Which messages a run was given, and how they were chosen."""

    range: SeqRange | None = None
    """Their seqs; set by the store."""
    trigger_message_ids: list[str] = []
    """The messages that caused the run; by default those it was started with."""
    selected_message_ids: list[str] = []
    """Further messages that the caller chose as context."""
    context_policy: Any = None
    """How the caller chose them, as any JSON value."""
    compacted_snapshot_id: str | None = None
    """The caller's name for a compacted context."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunOutput(Record, frozen=True, gc=False):
    """The visible assistant and tool messages that a run produced."""

    count: int
    """How many."""
    first: int
    """The seq of the first."""
    last: int
    """The seq of the last."""

    @property
    def range(self) -> SeqRange | None:
        """The produced seqs as a range, when nothing of another producer lies between."""
        return SeqRange(self.first, self.last) if self.last - self.first + 1 == self.count else None


class Takeovers(Faithful, frozen=True, kw_only=True):
    """How often in a row a worker took the run over from one that was lost, with no step in between."""

    count: int = 0
    """How often."""
    steps: int = 0
    """The steps of the run at that time: once it has more, the count begins again."""
    released: bool = False
    """Whether the last worker has left the run to the next one; then it was not lost."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class RunBody(Faithful, frozen=True, kw_only=True):
    """The stored JSON of a run; counters, times and status are columns."""

    ADDED: ClassVar[frozenset[str]] = frozenset(("resumed_from", "takeovers"))

    resolution_id: str | None = None
    """Your id of the choice of agent."""
    activation: RunActivation | None = None
    """Why and how it was started."""
    request: RunRequest | None = None
    """The request behind it."""
    input: RunInput | None = None
    """Which messages it was given: the same as `Run.input`."""
    dispatch_id: str | None = None
    """Your id of the dispatch; `RunChange(run=run, dispatch_id=…)` replaces it."""
    session_id: str | None = None
    """Your id of the session."""
    transport_request_id: str | None = None
    """The transport's id of the request."""
    waiting: Waiting | None = None
    """What it waits for, while it waits."""
    resumed_from: Waiting | None = None
    """The wait that the last resume ended, with its decisions."""
    takeovers: Takeovers | None = None
    """How often workers were lost with it; None: never."""
    outcome: Outcome | None = None
    """How it ended, once done."""
    metadata: dict[str, Any] | None = None
    """Your own data, a JSON object."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class Counters(TypedDict, total=False):
    """What any move of a run may add: steps taken and tokens used, as increments.

    `usage` adds the tokens of a message: `run.step(usage=answer.usage)`.
    """

    steps: int
    input_tokens: int
    output_tokens: int
    usage: Usage | None


class Increments(TypedDict):
    """What a `RunChange` adds."""

    steps: int
    input_tokens: int
    output_tokens: int


def _increments(counters: Counters) -> Increments:
    """What a change adds, with the tokens as numbers."""
    unknown = set(counters) - set(Counters.__annotations__)
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    usage: Any = counters.get("usage")
    tokens = (counters.get("input_tokens", 0), counters.get("output_tokens", 0))
    if usage is not None:
        if type(usage) is not Usage:
            raise InvalidError(f"usage must be a Usage, not {short_repr(usage)}", hint="pass usage=message.usage")
        if tokens != (0, 0):
            raise InvalidError("give usage or numbers of tokens, not both")
        tokens = (usage.input_tokens, usage.output_tokens)
    return {"steps": counters.get("steps", 0), "input_tokens": tokens[0], "output_tokens": tokens[1]}


class Run(Record, frozen=True, kw_only=True, gc=False):
    """A run as it was when read. Times are milliseconds since 1970, UTC."""

    id: str
    """Unique within the scope."""
    thread_id: str
    """The thread it works on."""
    agent_id: str
    """The agent that runs."""
    status: str
    """`created`, `running`, `waiting` or `done`."""
    branch: int
    """The branch it is pinned to: commits with this run go there."""
    parent_run_id: str | None
    """The run that started it, or None."""
    steps: int
    """How many steps it has taken."""
    input_tokens: int
    """Tokens read by the model so far."""
    output_tokens: int
    """Tokens written by the model so far."""
    created_at: int
    """When it was created."""
    started_at: int | None
    """When it first moved to running, or None."""
    finished_at: int | None
    """When it was done, or None."""
    updated_at: int
    """When it last changed."""
    input: RunInput | None
    """Which messages it was given, or None."""
    output: RunOutput | None
    """Which messages it produced, or None."""
    body: RunBody
    """What was recorded of its activation, request, waiting and outcome."""
    rev: int
    """Changes with every move; a change built on an older rev is refused."""

    @property
    def waiting(self) -> Waiting | None:
        """What it waits for, while it waits."""
        return self.body.waiting

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once done."""
        return self.body.outcome

    @property
    def tickets(self) -> list[Ticket]:
        """The tickets it waits for; empty unless it waits for any."""
        return [] if self.body.waiting is None else self.body.waiting.tickets

    @property
    def open_tickets(self) -> list[Ticket]:
        """The tickets it waits for that have no decision yet."""
        return [ticket for ticket in self.tickets if ticket.decision is None]

    @property
    def ready(self) -> bool:
        """Whether it waits, and each of its tickets has a decision: a worker may resume it."""
        return self.status == WAITING and bool(self.tickets) and all(t.decision is not None for t in self.tickets)

    def decision(self, call_or_ticket_id: str) -> Any:
        """The decision on a ticket, by its id or by the id of its tool call; None if there is none.

        It looks at what the run waits for, then at the wait that the last `resume` ended.
        """
        for wait in (self.body.waiting, self.body.resumed_from):
            ticket = find_ticket(wait, call_or_ticket_id) or find_call(wait, call_or_ticket_id)
            if ticket is not None:
                return ticket.decision
        return None

    @property
    def final_output(self) -> str | None:
        """The answer that `finish` was given, once done."""
        return None if self.body.outcome is None else self.body.outcome.final_output

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Your own data, as it was given when the run was created."""
        return self.body.metadata

    @property
    def activation(self) -> RunActivation | None:
        """The snapshot of how it was activated."""
        return self.body.activation

    @property
    def request(self) -> RunRequest | None:
        """The snapshot of the request behind it."""
        return self.body.request

    def public_json(self) -> dict[str, Any]:
        """JSON data for the browser of a user: status, open tickets and outcome, without details and metadata."""
        return run_json(self)

    def begin(self, **counters: Unpack[Counters]) -> RunChange:
        """Start executing a created run, or go on with a running one. A waiting run is not begun but resumed."""
        return RunChange(run=self, status=RUNNING, only_from=(CREATED, RUNNING), **_increments(counters))

    def resume(self, **counters: Unpack[Counters]) -> RunChange:
        """Go on with a run that waited; what it waited for is over."""
        return RunChange(run=self, status=RUNNING, only_from=(WAITING,), **_increments(counters))

    def step(self, *, input_tokens: int = 0, output_tokens: int = 0, usage: Usage | None = None) -> RunChange:
        """One more step, with the tokens it took: as numbers, or `usage` of the model's message."""
        return RunChange(
            run=self,
            **_increments({"steps": 1, "input_tokens": input_tokens, "output_tokens": output_tokens, "usage": usage}),
        )

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
            run=self,
            status=WAITING,
            waiting=Waiting(reason=reason, tickets=ordered, message=message),
            **_increments(counters),
        )

    def decide(self, ticket_id: str, value: Any) -> RunChange:
        """Record the decision on a ticket, any JSON value but null; the run keeps waiting.

        Raises `NotFoundError` unless the run is waiting for this ticket, `VersionConflict` if the ticket has another
        decision, and `IllegalTransition` if the run is done. `runs.decide` reads, decides and commits in one call.
        """
        check_decision(value)
        if self.status == DONE:
            raise IllegalTransition(
                f"run {self.id!r} is done: its tickets can no longer be decided", expected=WAITING, actual=DONE
            )
        wait = self.body.waiting
        ticket = find_ticket(wait, ticket_id)
        if wait is None or ticket is None:
            raise NotFoundError(f"run {self.id!r} does not wait for ticket {short_repr(ticket_id)}")
        is_decided(self.id, ticket, value)
        return RunChange(run=self, status=WAITING, waiting=with_decision(wait, ticket, value), only_from=(WAITING,))

    def finish(
        self, final_output: str | None = None, *, termination: str = NATURAL_END, **counters: Unpack[Counters]
    ) -> RunChange:
        """End well; `final_output` is the answer as text."""
        if final_output is not None and not isinstance(cast(object, final_output), str):
            raise InvalidError(
                f"final_output must be text, not {short_repr(final_output)}", hint="json.dumps turns data into text"
            )
        return self._end(Outcome(Termination(termination), final_output), counters)

    def fail(
        self, detail: str, *, code: str | None = None, error: Any = None, **counters: Unpack[Counters]
    ) -> RunChange:
        """End with an error: its text, a stable word for the cause, and the payload if there is one."""
        return self._end(Outcome(Termination("error", code, detail), error=error), counters)

    def cancel(self, detail: str | None = None, **counters: Unpack[Counters]) -> RunChange:
        """End because a person or program asked."""
        return self._end(Outcome(Termination("cancelled", detail=detail)), counters)

    def stop(self, code: str, detail: str | None = None, **counters: Unpack[Counters]) -> RunChange:
        """End because a limit or policy stopped it."""
        return self._end(Outcome(Termination("stopped", code=code, detail=detail)), counters)

    def block(self, detail: str, **counters: Unpack[Counters]) -> RunChange:
        """End because it was not allowed to go on."""
        return self._end(Outcome(Termination("blocked", detail=detail)), counters)

    def _end(self, outcome: Outcome, counters: Counters) -> RunChange:
        return RunChange(run=self, status=DONE, outcome=outcome, **_increments(counters))


def _check_tickets(tickets: Any) -> list[Ticket]:
    """The tickets, sound enough to be sorted; the commit checks the rest."""
    checked = [] if tickets is None else tickets
    if type(checked) is not list or any(type(ticket) is not Ticket for ticket in checked):
        raise InvalidError("tickets must be a list of Ticket", hint="run.wait([ticket])")
    for ticket in checked:
        call: Any = ticket.tool_call_id
        if type(ticket.ticket_id) is not str or (call is not None and type(call) is not str):
            raise InvalidError("ticket_id must be text, and tool_call_id text or None", path="tickets")
    return checked


class RunChange(Record, frozen=True, kw_only=True, gc=False):
    """A move of a run, to be given to `commit`. Counters are increments; `status` None means it stays.

    `only_from` narrows the statuses it may start from, where the machine alone would allow more.
    """

    run: Run
    """The record that the change is built on; its rev guards it."""
    status: str | None = None
    """The status to move to; None stays."""
    steps: int = 0
    """Steps to add."""
    input_tokens: int = 0
    """Input tokens to add."""
    output_tokens: int = 0
    """Output tokens to add."""
    waiting: Waiting | None = None
    """What it waits for, with the status `waiting`."""
    outcome: Outcome | None = None
    """How it ended, with the status `done`."""
    dispatch_id: str | None = None
    """Replaces the run's dispatch id."""
    takeovers: Takeovers | None = None
    """Replaces what the run says of workers that were lost."""
    only_from: tuple[str, ...] | None = None
    """The statuses it may start from, where the machine alone would allow more."""

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id


class NewRun(Record, frozen=True, kw_only=True):
    """A run to be created by the commit it is given to."""

    agent_id: str
    """The agent that runs."""
    id: str | None = None
    """Its id; minted if None."""
    status: str = RUNNING
    """`running`, or `created` for a run that has not begun."""
    parent_run_id: str | None = None
    """The run that starts it."""
    body: RunBody = RunBody()
    """Its activation, request and metadata."""


BODY_READER: Reader[RunBody] = Reader(RunBody)
