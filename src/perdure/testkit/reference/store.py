"""The reference store: what every public method should do, written from its rules in the plainest Python.

It imports nothing of the product. An operation is the name of a public method and its arguments as plain data; the
answer is plain data too, or the class name of an error. Revs count transactions here and are random in the product, so
a comparison must pair them up; `fuzz.store_adapter` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.testkit.reference import branches, commit, messages, pending, profiles, reruns, runs, state, threads
from perdure.testkit.reference.records import Json, Refusal, World


@dataclass(frozen=True)
class Outcome:
    """The result of an operation: a value, or the class name of an error."""

    value: Any = None
    error: str | None = None


def _begin(status: str) -> Callable[..., Json]:
    def begin(world: World, *, agent_id: str, run_id: str, messages: Any = (), **options: Any) -> Json:
        new: Json = {"id": run_id, "agent_id": agent_id, "status": status}
        new.update({name: options.pop(name) for name in ("parent_run_id", "metadata", "trace") if name in options})
        request = commit.Request(run={"new": new}, messages=messages, inputs=True, **options)
        run: Json = commit.apply_request(world, request)["run"]
        return run

    return begin


def _decide(world: World, *, run_id: str, ticket_id: str, value: Any, thread_id: str | None = None) -> Json:
    if value is None:
        raise Refusal("InvalidError")
    record = runs.get(world, run_id=run_id, thread_id=thread_id)
    if runs.was_decided(record, ticket_id, value):
        return record
    change = {"change": record, "move": "decide", "options": {"ticket_id": ticket_id, "value": value}}
    decided: Json = commit.commit(world, thread_id=record["thread_id"], run=change)["run"]
    return decided


def _cancel(world: World, *, run_id: str, detail: str | None = None, thread_id: str | None = None) -> Json:
    record = runs.get(world, run_id=run_id, thread_id=thread_id)
    if record["status"] == "done":
        return record
    change = {"change": record, "move": "cancel", "options": {"detail": detail}}
    cancelled: Json = commit.commit(world, thread_id=record["thread_id"], run=change)["run"]
    return cancelled


OPERATIONS: dict[str, Callable[..., Any]] = {
    "commit": commit.commit,
    "load": messages.load,
    "threads.create": threads.create,
    "threads.ensure": threads.ensure,
    "threads.get": threads.get,
    "threads.find": threads.find,
    "threads.update": threads.update,
    "threads.delete": threads.delete,
    "threads.list": threads.listed,
    "threads.children": threads.children,
    "threads.with_prefix": threads.with_prefix,
    "threads.validate_parent": threads.validate_parent,
    "messages.list": messages.messages_listed,
    "messages.get": messages.message_get,
    "messages.find": messages.message_find,
    "messages.range": messages.message_range,
    "messages.external": messages.message_external,
    "messages.history": messages.message_history,
    "messages.path": messages.message_path,
    "messages.page": messages.message_page,
    "messages.unfinished_calls": messages.unfinished_calls,
    "branches.list": branches.listed,
    "branches.get": branches.get,
    "branches.current": branches.current,
    "branches.fork": branches.fork,
    "branches.checkout": branches.checkout,
    "branches.variants": reruns.variants,
    "branches.switch": branches.switch,
    "branches.rename": branches.rename,
    "branches.label": branches.label,
    "branches.labels": branches.labels,
    "branches.delete": branches.delete,
    "pending.list": pending.listed,
    "pending.count": pending.count,
    "pending.append": pending.append,
    "pending.edit": pending.edit,
    "pending.retract": pending.retract,
    "pending.reorder": pending.reorder,
    "pending.freeze": pending.freeze,
    "pending.threads": pending.threads,
    "runs.create": _begin("created"),
    "runs.start": _begin("running"),
    "runs.rerun": reruns.rerun,
    "runs.of_message": reruns.of_message,
    "runs.cancel": _cancel,
    "runs.decide": _decide,
    "runs.get": runs.get,
    "runs.find": runs.find,
    "runs.latest": runs.latest,
    "runs.list": threads.runs_listed,
    "runs.with_prefix": threads.runs_with_prefix,
    "state.get": state.get,
    "state.find": state.find,
    "state.list": state.listed,
    "state.put": state.put,
    "state.delete": state.delete,
    "profiles.get": profiles.get,
    "profiles.find": profiles.find,
    "profiles.list": profiles.listed,
    "profiles.put": profiles.put,
    "profiles.delete": profiles.delete,
    "profiles.clear": profiles.clear,
}
"""Every public method that the reference knows, by its name."""


class ReferenceStore:
    """A world that answers operations."""

    def __init__(self, now: int) -> None:
        self.world = World(now)

    def apply(self, name: str, arguments: Json) -> Outcome:
        """Carry out an operation, or refuse it."""
        try:
            return Outcome(OPERATIONS[name](self.world, **arguments))
        except Refusal as refusal:
            return Outcome(error=refusal.kind)

    def jump(self, ms: int) -> None:
        """Move the clock, backwards too."""
        self.world.now += ms

    def reopen(self) -> None:
        """What housekeeping does when a client opens the store."""
        self.world.sweep()
