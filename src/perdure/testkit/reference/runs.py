"""Runs in the reference: legal transitions, counters, what a run produced, and the thread's pointers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from perdure.testkit.reference.records import Json, Message, Refusal, Run, Thread, World
from perdure.testkit.reference.views import run_data

if TYPE_CHECKING:
    from perdure.testkit.reference.commit import Request

LEGAL = {
    ("created", "created"), ("created", "running"), ("created", "done"),
    ("running", "running"), ("running", "waiting"), ("running", "done"),
    ("waiting", "waiting"), ("waiting", "running"), ("waiting", "done"),
}  # fmt: skip
_ENDS = {"finish": "natural_end", "fail": "error", "cancel": "cancelled", "stop": "stopped", "block": "blocked"}
_COUNTERS = ("input_tokens", "output_tokens", "steps")


def change_of(run: Json) -> Json | None:
    """What a move asks for: a status (None: stay), counters, and what the run then waits for or ends with."""
    if "move" not in run:
        return None
    move, options = run["move"], dict(run.get("options", {}))
    asked: Json = {name: options.pop(name, 0) for name in _COUNTERS}
    if move == "step":
        return {**asked, "status": None, "steps": 1}
    if move in ("begin", "resume"):
        return {**asked, "status": "running", "only_from": ["waiting"] if move == "resume" else ["created", "running"]}
    if move == "wait":
        return {**asked, "status": "waiting", "waiting": _waiting(**options)}
    if move == "decide":
        return {**asked, "status": "waiting", "only_from": ["waiting"], "waiting": _decided(run["change"], **options)}
    return {**asked, "status": "done", "outcome": _outcome(move, **options)}


def _waiting(tickets: list[Json] | None = None, reason: str = "user_input", message: str | None = None) -> Json:
    waiting: Json = {"reason": reason}
    if tickets:
        waiting["tickets"] = sorted(tickets, key=lambda t: (t.get("tool_call_id") or "", t["ticket_id"]))
    return waiting if message is None else {**waiting, "message": message}


def _decided(run: Json, ticket_id: str, value: Any) -> Json:
    """What a run waits for once one of its tickets has a decision, unless that ticket has another one already."""
    if run["status"] == "done":
        raise Refusal("IllegalTransition")
    ticket = _ticket(run["waiting"], ticket_id)
    if ticket is None:
        raise Refusal("NotFoundError")
    if "decision" in ticket and not _alike(ticket["decision"], value):
        raise Refusal("VersionConflict")
    tickets = [{**each, "decision": value} if each is ticket else each for each in run["waiting"]["tickets"]]
    return {**run["waiting"], "tickets": tickets}


def was_decided(run: Json, ticket_id: str, value: Any) -> bool:
    """Does the run have this decision already, in its wait or in the one that ended last?"""
    ticket = _ticket(run["waiting"], ticket_id) or _ticket(run["resumed_from"], ticket_id)
    if ticket is None or "decision" not in ticket:
        return False
    if not _alike(ticket["decision"], value):
        raise Refusal("VersionConflict")
    return True


def _ticket(waiting: Json | None, ticket_id: str) -> Json | None:
    tickets = (waiting or {}).get("tickets", [])
    return next((ticket for ticket in tickets if ticket["ticket_id"] == ticket_id), None)


def _alike(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _outcome(move: str, final_output: str | None = None, error: Any = None, **details: Any) -> Json:
    ended = {"type": _ENDS[move], **{name: value for name, value in details.items() if value is not None}}
    outcome: Json = {"termination": ended}
    if final_output is not None:
        outcome["final_output"] = final_output
    if error is not None:
        outcome["error"] = error
    return outcome


def refuse_run(world: World, request: Request) -> None:
    """A new run's id must be free; a change must be legal, and made from the run as it is."""
    if request.fresh_run is not None and request.fresh_run["id"] in world.runs:
        raise Refusal("AlreadyExists")
    if request.record is None:
        return
    stored = world.runs.get(request.record["id"])
    if stored is None:
        raise Refusal("NotFoundError")
    change = change_of(request.run or {})
    if change is not None and (stored.status, change["status"] or stored.status) not in LEGAL:
        raise Refusal("IllegalTransition")
    if change is not None and stored.status not in change.get("only_from", [stored.status]):
        raise Refusal("IllegalTransition")
    if stored.rev != request.record["rev"]:
        raise Refusal("VersionConflict")


def new_run(world: World, new: Json, thread_id: str, branch: int) -> Run:
    """A run that has just been created or started."""
    status = new.get("status", "running")
    run = Run(new["id"], thread_id, new["agent_id"], status, branch, world.now, world.now, world.tick)
    run.parent_run_id, run.metadata, run.trace = (new.get(n) for n in ("parent_run_id", "metadata", "trace"))
    run.input, run.triggers = new.get("input"), list(new.get("triggers", ()))
    run.started_at = world.now if status == "running" else None
    world.runs[run.id] = run
    return run


def moved(world: World, run: Run, change: Json | None) -> None:
    """Apply a change to a run."""
    if change is None:
        return
    for name in _COUNTERS:
        setattr(run, name, getattr(run, name) + change[name])
    if change["status"] == "running" and run.waiting is not None:
        run.resumed_from = run.waiting
    if change["status"] is not None:
        run.status, run.waiting = change["status"], change.get("waiting")
        run.outcome = change.get("outcome")
    if run.status == "running" and run.started_at is None:
        run.started_at = world.now
    if run.status == "done":
        run.finished_at = world.now
    run.updated_at, run.rev = world.now, world.tick


def produced(run: Run, written: list[Message]) -> None:
    """Count the visible assistant and tool messages that carry the run's id."""
    for message in written:
        body = message.body
        if body.get("run_id") == run.id and body["role"] in ("assistant", "tool") and message.visibility == "all":
            count, first, _ = run.output or [0, message.seq, 0]
            run.output = [count + 1, first, message.seq]


def settle_pointers(thread: Thread, run: Run, *, created: bool) -> None:
    """What a run's move does to its thread's pointers; nothing clears another run's."""
    if created or run.status == "running":
        thread.latest_run_id = run.id
    if run.status == "running":
        thread.active_run_id = thread.open_run_id = run.id
    elif thread.active_run_id == run.id:
        thread.active_run_id = None
    if run.status == "done":
        thread.open_run_id = None if thread.open_run_id == run.id else thread.open_run_id
    else:
        thread.open_run_id = thread.open_run_id or run.id


def get(world: World, *, run_id: str, thread_id: str | None = None) -> Json:
    """`runs.get`."""
    run = find(world, run_id=run_id, thread_id=thread_id)
    if run is None:
        raise Refusal("NotFoundError")
    return run


def find(world: World, *, run_id: str, thread_id: str | None = None) -> Json | None:
    """`runs.find`."""
    run = world.runs.get(run_id)
    return None if run is None or thread_id not in (None, run.thread_id) else run_data(run)


def latest(world: World, *, thread_id: str) -> Json | None:
    """`runs.latest`."""
    newest = world.thread(thread_id).latest_run_id
    return None if newest is None else run_data(world.runs[newest])
