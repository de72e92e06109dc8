"""Branches and labels in the reference: a fork hangs under a message, and a path follows the parents of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.testkit.reference.commit import (
    Request,
    live_key,
    refuse_content,
    refuse_shape,
    refuse_summaries,
    replay,
    write,
)
from perdure.testkit.reference.records import Branch, Json, Message, Refusal, Thread, World
from perdure.testkit.reference.views import branch_data, preview


def listed(world: World, *, thread_id: str) -> list[Json]:
    """`branches.list`."""
    thread = world.thread(thread_id)
    return [branch_data(thread, branch) for branch in thread.branches if not branch.deleted]


def get(world: World, *, thread_id: str, branch: int | str) -> Json:
    """`branches.get`."""
    thread = world.thread(thread_id)
    return branch_data(thread, thread.branches[thread.branch_number(branch)])


def current(world: World, *, thread_id: str) -> Json:
    """`branches.current`."""
    thread = world.thread(thread_id)
    return branch_data(thread, thread.branches[thread.branch])


def fork(
    world: World,
    *,
    thread_id: str,
    name: str | None = None,
    switch: bool = False,
    messages: Sequence[Json] = (),
    fence: int | None = None,
    key: str | None = None,
    **where: Any,
) -> Json:
    """`branches.fork`; `where` holds `at` or `before`. The messages are a commit to the branch that it makes."""
    if len(where) != 1 or where.get("before", "") is None or (key is not None and not messages):
        raise Refusal("InvalidError")
    request = Request(thread_id=thread_id, messages=messages, fence=fence, key=key)
    request.fork = [where.get("at"), where.get("before"), name, switch]
    refuse_shape(request)
    thread = world.thread(thread_id)
    stored = live_key(world, thread, key)
    if stored is not None:
        first = thread.require_message(replay(world, stored, request)["message_ids"][0])
        return get(world, thread_id=thread_id, branch=first.branch)
    origin = _origin(thread, **where)
    refuse_summaries(thread, request)
    refuse_content(world, thread, request)
    number = len(thread.branches)
    name = name or free_name(thread, number, world.tick)
    refuse_duplicate(thread, name, number)
    world.next_tick()
    thread.branches.append(Branch(number, name, origin, world.now))
    request.branch = number
    write(world, thread, request)
    if switch:
        thread.branch = number
    return branch_data(thread, thread.branches[number])


def _origin(thread: Thread, at: str | None = None, before: str | None = None) -> Message | None:
    if before is not None:
        return thread.require_message(before).parent
    return None if at is None else thread.require_message(at)


def free_name(thread: Thread, number: int, tick: int) -> str:
    """The name that an unnamed fork gets; if that is in use, one that the product invents."""
    suggested = f"branch-{number}"
    names = [other.name for other in thread.branches if not other.deleted]
    return suggested if suggested not in names else f"{suggested}~{tick}"


def refuse_duplicate(thread: Thread, name: str, number: int) -> None:
    """A name belongs to one living branch."""
    if any(other.name == name and not other.deleted and other.number != number for other in thread.branches):
        raise Refusal("AlreadyExists")


def checkout(world: World, *, thread_id: str, message_id: str, name: str | None = None) -> Json:
    """`branches.checkout`: the current branch if it ends there, else the first one that does, else a fork."""
    thread = world.thread(thread_id)
    message = thread.require_message(message_id)
    ending = [b.number for b in thread.branches if not b.deleted and thread.head(b.number) is message]
    if not ending:
        return fork(world, thread_id=thread_id, at=message_id, name=name, switch=True)
    return switch(world, thread_id=thread_id, branch=thread.branch if thread.branch in ending else ending[0])


def described(thread: Thread, siblings: list[Message], asked: Message | None) -> list[Json]:
    """Variants as plain data: those that a living branch leads to, and the one that was asked for."""
    paths = {b.number: _path(thread.head(b.number)) for b in thread.branches if not b.deleted}
    return [
        {
            "message_id": m.id,
            "seq": m.seq,
            "role": m.body["role"],
            "preview": preview(m),
            "at": m.at,
            "run_id": m.body.get("run_id"),
            "leads": any(m in path for path in paths.values()),
            "asked": m is asked,
            "current": m in paths[thread.branch],
            "visibility": m.visibility,
        }
        for m in siblings
        if m is asked or any(m in path for path in paths.values())
    ]


def _path(message: Message | None) -> list[Message]:
    path = []
    while message is not None:
        path.append(message)
        message = message.parent
    return path


def switch(world: World, *, thread_id: str, branch: int | str) -> Json:
    """`branches.switch`."""
    thread = world.thread(thread_id)
    number = thread.branch_number(branch)
    if number != thread.branch:
        world.next_tick()
        thread.branch, thread.updated_at = number, world.now
    return branch_data(thread, thread.branches[number])


def rename(world: World, *, thread_id: str, branch: int | str, name: str) -> Json:
    """`branches.rename`."""
    thread = world.thread(thread_id)
    number = thread.branch_number(branch)
    refuse_duplicate(thread, name, number)
    world.next_tick()
    thread.branches[number].name = name
    return branch_data(thread, thread.branches[number])


def delete(world: World, *, thread_id: str, branch: int | str) -> None:
    """`branches.delete`: the pointer goes, the records stay."""
    thread = world.thread(thread_id)
    number = thread.branch_number(branch)
    pinned = [run for run in world.runs_of(thread_id) if run.branch == number and run.status != "done"]
    if number == thread.branch or pinned:
        raise Refusal("ConflictError")
    world.next_tick()
    thread.branches[number].deleted = True


def label(world: World, *, thread_id: str, message_id: str, label: str | None) -> None:
    """`branches.label`."""
    thread = world.thread(thread_id)
    thread.require_message(message_id)
    world.next_tick()
    if label is None:
        thread.labels.pop(message_id, None)
    else:
        thread.labels[message_id] = (label, world.now)


def labels(world: World, *, thread_id: str) -> list[Json]:
    """`branches.labels`, in the order of the messages."""
    thread = world.thread(thread_id)
    return [
        {"message_id": m.id, "seq": m.seq, "label": thread.labels[m.id][0], "at": thread.labels[m.id][1]}
        for m in thread.log
        if m.id in thread.labels
    ]
