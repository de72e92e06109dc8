"""The pending queue in the reference: a list that can be edited until a boundary takes messages from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.testkit.reference.commit import Request, apply_request, live_key, refuse_message, refuse_shape, replay
from perdure.testkit.reference.records import Json, Pending, Refusal, Thread, World
from perdure.testkit.reference.views import pending_data

RISING = ["interrupt", "next_step", "on_natural_end", "new_run"]
MODE: Json = {"boundary": "new_run", "granularity": "batch", "barrier": False, "fallback_to_new_run": True}


def listed(world: World, *, thread_id: str) -> Json:
    """`pending.list`."""
    thread = world.thread(thread_id)
    items = [pending_data(position, entry) for position, entry in enumerate(thread.pending, 1)]
    return {"items": items, "revision": thread.queue_revision}


def count(world: World, *, thread_id: str) -> int:
    """`pending.count`."""
    return len(world.thread(thread_id).pending)


def append(world: World, *, thread_id: str, messages: Sequence[Json], mode: Json | None = None) -> list[Json]:
    """`pending.append`."""
    _refuse_messages(messages)
    if not messages:
        raise Refusal("InvalidError")
    thread = world.thread(thread_id)
    _refuse_known(thread, messages)
    _changed(world, thread)
    before = len(thread.pending)
    thread.pending.extend(_entries(world, messages, mode))
    return [pending_data(i, entry) for i, entry in enumerate(thread.pending, 1) if i > before]


def _entries(world: World, messages: Sequence[Json], mode: Json | None) -> list[Pending]:
    return [Pending({**message}, {**MODE, **(mode or {})}, world.now, world.now) for message in messages]


def _changed(world: World, thread: Thread) -> None:
    world.next_tick()
    thread.queue_revision += 1


def _refuse_messages(messages: Sequence[Json]) -> None:
    ids = [message["id"] for message in messages]
    if len(set(ids)) != len(ids):
        raise Refusal("InvalidError")
    for message in messages:
        refuse_message(message)


def _refuse_known(thread: Thread, messages: Sequence[Json]) -> None:
    for message in messages:
        if any(entry.id == message["id"] for entry in thread.pending):
            raise Refusal("AlreadyExists")
        if thread.message(message["id"]) is not None:
            raise Refusal("InvalidError")


def _entry(thread: Thread, message_id: str) -> Pending:
    for entry in thread.pending:
        if entry.id == message_id:
            return entry
    raise Refusal("NotFoundError" if thread.message(message_id) is None else "InvalidError")


def _refuse_revision(actual: int, expected: int | None) -> None:
    if expected is not None and expected != actual:
        raise Refusal("VersionConflict")


def edit(
    world: World,
    *,
    thread_id: str,
    message_id: str,
    message: Json,
    mode: Json | None = None,
    if_revision: int | None = None,
) -> Json:
    """`pending.edit`."""
    refuse_message(message)
    if message.get("id", message_id) != message_id:
        raise Refusal("InvalidError")
    thread = world.thread(thread_id)
    entry = _entry(thread, message_id)
    _refuse_revision(entry.revision, if_revision)
    _changed(world, thread)
    entry.body = {**message, "id": message_id}
    entry.mode = entry.mode if mode is None else {**MODE, **mode}
    entry.revision, entry.updated_at = entry.revision + 1, world.now
    return pending_data(thread.pending.index(entry) + 1, entry)


def retract(world: World, *, thread_id: str, message_id: str, if_revision: int | None = None) -> None:
    """`pending.retract`."""
    thread = world.thread(thread_id)
    entry = _entry(thread, message_id)
    _refuse_revision(entry.revision, if_revision)
    _changed(world, thread)
    thread.pending.remove(entry)


def reorder(world: World, *, thread_id: str, message_ids: Sequence[str], if_revision: int | None = None) -> Json:
    """`pending.reorder`."""
    if len(set(message_ids)) != len(message_ids):
        raise Refusal("InvalidError")
    thread = world.thread(thread_id)
    pending = [entry.id for entry in thread.pending]
    if any(thread.message(name) is not None and name not in pending for name in message_ids):
        raise Refusal("InvalidError")
    _refuse_revision(thread.queue_revision, if_revision)
    if len(message_ids) != len(thread.pending):
        raise Refusal("VersionConflict")
    order = [_entry(thread, message_id) for message_id in message_ids]
    if order:
        _changed(world, thread)
    for entry in order:
        entry.revision, entry.updated_at = entry.revision + 1, world.now
    thread.pending = order
    return listed(world, thread_id=thread_id)


def freeze(
    world: World,
    *,
    thread_id: str,
    boundary: str = "new_run",
    run: Json | None = None,
    messages: Sequence[Json] = (),
    mode: Json | None = None,
    expect_ids: Sequence[str] | None = None,
    key: str | None = None,
    **guards: Any,
) -> Json:
    """`pending.freeze`: what a boundary takes becomes the messages of a commit, and leaves the queue with it."""
    _refuse_messages(messages)
    request = Request(thread_id=thread_id, run=run, key=key, inputs=True, from_queue=True, **guards)
    refuse_shape(request)
    thread = world.thread(thread_id)
    request.asked = [boundary, {**MODE, **(mode or {})}, list(messages)]
    stored = live_key(world, thread, key)
    if stored is not None:
        return replay(world, stored, request)
    _refuse_known(thread, messages)
    added = _entries(world, messages, mode)
    selected = select([*thread.pending, *added], boundary, request.run_id)
    if expect_ids is not None and list(expect_ids) != [entry.id for entry in selected]:
        raise Refusal("SelectionConflict")
    if run is not None and "new" in run and len(selected) == 0:
        raise Refusal("SelectionConflict")
    request.messages = [entry.body for entry in selected]
    receipt = apply_request(world, request)
    if selected or added:
        thread.queue_revision += 1
    thread.pending = [entry for entry in [*thread.pending, *added] if entry not in selected]
    return receipt


def select(queue: Sequence[Pending], boundary: str, run_id: str | None) -> list[Pending]:
    """What a boundary of a run takes, by the selection table."""
    selected: list[Pending] = []
    skipped = False
    for entry in queue:
        mode = entry.mode
        if not _eligible(mode, boundary, run_id):
            if mode["barrier"] or not _may_be_passed(mode, boundary):
                return selected
            skipped = True
        elif (mode["barrier"] and skipped) or (mode["granularity"] == "one" and selected):
            return selected
        else:
            selected.append(entry)
            if mode["barrier"] or mode["granularity"] == "one":
                return selected
    return selected


def _eligible(mode: Json, boundary: str, run_id: str | None) -> bool:
    target = mode.get("target_run_id")
    if target is not None and boundary == "new_run" and not mode["fallback_to_new_run"]:
        return False
    if target is not None and boundary != "new_run" and target != run_id:
        return False
    if boundary == "resume_input" or mode["boundary"] == "resume_input":
        return bool(mode["boundary"] == boundary)
    return RISING.index(mode["boundary"]) <= RISING.index(boundary)


def _may_be_passed(mode: Json, boundary: str) -> bool:
    if boundary == "new_run":
        return mode["boundary"] != "new_run" and not mode["fallback_to_new_run"]
    return bool(mode["boundary"] == "new_run")


def threads(world: World, *, after: str | None = None, limit: int = 50) -> list[str]:
    """`pending.threads`."""
    if not 1 <= limit <= 200:
        raise Refusal("InvalidError")
    waiting = sorted(thread.id for thread in world.threads.values() if thread.pending)
    return [name for name in waiting if after is None or name > after][:limit]
