"""The run machine: created → running ⇄ waiting → done, and what each move does to the thread's pointers.

A move to the same status is allowed (a step); done is final. Nothing clears another run's pointer.
"""

from __future__ import annotations

from typing import NamedTuple

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model.run import (
    CREATED,
    DONE,
    RUNNING,
    STATUSES,
    WAITING,
    NewRun,
    Run,
    RunBody,
    RunChange,
    RunOutput,
    Takeovers,
)
from perdure.model.run_snapshots import SeqRange
from perdure.model.tickets import Waiting
from perdure.rules.checks import check_count, check_id, check_rev, check_word

_MOVES = {
    CREATED: (CREATED, RUNNING, DONE),
    RUNNING: (RUNNING, WAITING, DONE),
    WAITING: (WAITING, RUNNING, DONE),
    DONE: (),
}


_INTEGERS = {int}
_SURELY_ADDABLE = limits.INTEGER_MAX // 2
"""The sum of two such numbers is within the limits."""


def allows(status: str, change: RunChange) -> bool:
    """May this change be made to a run in `status`?"""
    moves = (change.status or status) in _MOVES.get(status, ())
    return moves and (change.only_from is None or status in change.only_from)


def check_change(change: RunChange) -> None:
    """Refuse a change that is malformed in itself."""
    run = change.run
    numbers = (run.steps, run.input_tokens, run.output_tokens, change.steps, change.input_tokens, change.output_tokens)
    if set(map(type, numbers)) != _INTEGERS or min(numbers) < 0 or max(numbers) > _SURELY_ADDABLE:
        for name in ("steps", "input_tokens", "output_tokens"):
            _check_counter(name, getattr(run, name), getattr(change, name))
    if change.status is not None and (type(change.status) is not str or change.status not in STATUSES):
        raise InvalidError(f"{short_repr(change.status)} is not a run status")
    if (change.waiting is not None) != (change.status == WAITING):
        raise InvalidError("a run has something to wait for exactly while it waits")
    if (change.outcome is not None) != (change.status == DONE):
        raise InvalidError("a run has an outcome exactly when it is done")
    if change.dispatch_id is not None:
        check_id(change.dispatch_id, "dispatch_id")
    if change.takeovers is not None:
        _check_takeovers(change.takeovers)
    if change.waiting is not None:
        _check_waiting(change.waiting)


def check_read(run: Run, thread_id: str) -> None:
    """Refuse a record that no store gave out: its id, branch and body go into the transaction as they are. Refuse that
    of another thread too."""
    if type(run.rev) is not int or not 0 <= run.rev < 2**53:
        check_rev(run.rev, "run.rev")
    check_id(run.id, "run.id")
    if type(run.thread_id) is not str or run.thread_id != thread_id:
        check_id(run.thread_id, "run.thread_id")
        raise InvalidError(f"run {run.id!r} belongs to thread {run.thread_id!r}, not to {thread_id!r}")
    if type(run.branch) is not int or not 0 <= run.branch <= limits.INTEGER_MAX:
        check_count(run.branch, "run.branch")
    if type(run.body) is not RunBody or (run.output is not None and type(run.output) is not RunOutput):
        raise InvalidError("run is not a record that a store returned", hint="read it again with runs.get")


def _check_counter(name: str, held: int, added: int) -> None:
    """The sum is checked here because it is known here: a change applies to the run exactly as it was read."""
    if check_count(held, f"run.{name}") + check_count(added, name) > limits.INTEGER_MAX:
        raise InvalidError(f"{name} would be {held + added}, past 2^52", hint="end this run and start another")


def _check_waiting(waiting: Waiting) -> None:
    check_word(waiting.reason, "waiting.reason")
    ids = [check_id(ticket.ticket_id, "ticket_id") for ticket in waiting.tickets]
    if len(set(ids)) != len(ids):
        raise InvalidError("a ticket id appears twice")


def _check_takeovers(takeovers: Takeovers) -> None:
    check_count(takeovers.count, "takeovers.count")
    check_count(takeovers.steps, "takeovers.steps")


def check_new(run: NewRun, thread_id: str) -> None:
    """Refuse a new run that is malformed in itself."""
    check_id(run.agent_id, "agent_id")
    if run.id is not None:
        check_id(run.id, "run id")
    if run.parent_run_id is not None:
        check_id(run.parent_run_id, "parent_run_id")
    if type(run.status) is not str or run.status not in (CREATED, RUNNING):
        raise InvalidError(f"a run begins as created or running, not as {short_repr(run.status)}")
    if run.body.waiting is not None or run.body.outcome is not None or run.body.resumed_from is not None:
        raise InvalidError("a new run neither waits nor has waited, and has no outcome")
    if run.body.takeovers is not None:
        raise InvalidError("no worker was lost with a new run")
    _check_body(run.body, thread_id)


def check_stored(run: Run) -> None:
    """Refuse a stored run whose body no commit would have written."""
    _check_body(run.body, run.thread_id)
    for waiting in (run.waiting, run.body.resumed_from):
        if waiting is not None:
            _check_waiting(waiting)
    if run.body.takeovers is not None:
        _check_takeovers(run.body.takeovers)


def _check_body(body: RunBody, thread_id: str) -> None:
    for name in ("resolution_id", "dispatch_id", "session_id", "transport_request_id"):
        value = getattr(body, name)
        if value is not None:
            check_id(value, name)
    if body.activation is not None:
        intent = body.activation.intent
        if intent.thread_id is not None and intent.thread_id != thread_id:
            raise InvalidError(
                f"the activation names thread {short_repr(intent.thread_id)}, the run belongs to {thread_id!r}"
            )
        for decision in body.activation.decisions:
            check_id(decision.call_id, "decision call_id")
    if body.request is not None:
        for decision in body.request.decisions:
            check_id(decision.call_id, "decision call_id")
    if body.input is not None and body.input.range is not None:
        check_range(body.input.range)


def check_range(span: SeqRange) -> None:
    """A range of seqs is 1-based and not empty."""
    if type(span.from_seq) is not int or type(span.to_seq) is not int or not 1 <= span.from_seq <= span.to_seq:
        raise InvalidError(
            f"the range {short_repr(span.from_seq)}..{short_repr(span.to_seq)} must be 1-based and not empty"
        )


class Pointers(NamedTuple):
    """What a run's move does to its thread's pointers: `take` them, `fill` those that are empty, `clear` its own."""

    take: tuple[str, ...] = ()
    fill: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()


_BORN = Pointers(take=("latest_run",), fill=("open_run",))
_POINTERS = {
    CREATED: Pointers(fill=("open_run",)),
    RUNNING: Pointers(take=("active_run", "open_run", "latest_run")),
    WAITING: Pointers(fill=("open_run",), clear=("active_run",)),
    DONE: Pointers(clear=("active_run", "open_run")),
}


def pointers(status: str, *, created: bool) -> Pointers:
    """The pointer moves of a run that is now in `status`, or was just created in it."""
    return _BORN if created and status == CREATED else _POINTERS[status]
