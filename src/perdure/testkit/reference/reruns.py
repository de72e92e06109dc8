"""Reruns in the reference: where the turn of a run begins, the run that replaces it, and the variants of turns."""

from __future__ import annotations

from typing import Any

from perdure.testkit.reference import commit as commits
from perdure.testkit.reference.branches import described, free_name, refuse_duplicate
from perdure.testkit.reference.records import Branch, Json, Message, Refusal, Run, Thread, World
from perdure.testkit.reference.runs import moved
from perdure.testkit.reference.views import run_data


def rerun(
    world: World,
    *,
    new_run_id: str,
    run_id: str | None = None,
    message_id: str | None = None,
    messages: list[Json] | None = None,
    agent_id: str | None = None,
    metadata: Json | None = None,
    name: str | None = None,
    replace: bool = True,
    thread_id: str | None = None,
    fence: int | None = None,
    key: str | None = None,
) -> Json:
    """`runs.rerun`: a branch where the turn begins, or the input if there are messages, and a new run on it."""
    if messages == [] or new_run_id == run_id:
        raise Refusal("InvalidError")
    old = world.runs.get(run_id) if run_id is not None else run_of(world, thread_id or "", message_id or "")
    if old is None or thread_id not in (None, old.thread_id):
        raise Refusal("NotFoundError")
    if new_run_id == old.id:
        raise Refusal("InvalidError")
    new: Json = {"id": new_run_id, "agent_id": agent_id or old.agent_id, "parent_run_id": old.parent_run_id}
    new["metadata"] = metadata
    if messages is None:
        new |= {"input": old.input, "triggers": old.triggers}
    request = commits.Request(thread_id=old.thread_id, messages=messages or (), run={"new": new}, fence=fence, key=key)
    request.inputs, request.fork = True, ["rerun", old.id, name]
    commits.refuse_shape(request)
    thread = world.thread(old.thread_id)
    stored = commits.live_key(world, thread, key)
    if stored is not None:
        again: Json = commits.replay(world, stored, request)["run"]
        return again
    commits.refuse_summaries(thread, request)
    commits.refuse_content(world, thread, request)
    number = len(thread.branches)
    name = name or free_name(thread, number, world.tick)
    refuse_duplicate(thread, name, number)
    origin = thread.log[old.input[0] - 1].parent if messages and old.input else turn(thread, old)[1]
    world.next_tick()
    for run in world.runs_of(thread.id) if replace else []:
        if run.status in ("running", "waiting") or (run is old and run.status != "done"):
            ended = {"type": "cancelled", "detail": f"replaced by run {new_run_id}"}
            counters = {"steps": 0, "input_tokens": 0, "output_tokens": 0}
            moved(world, run, {**counters, "status": "done", "outcome": {"termination": ended}})
    thread.branches.append(Branch(number, name, origin, world.now))
    request.branch = number
    started: Json = commits.write(world, thread, request)["run"]
    thread.branch = number
    return started


def of_message(world: World, *, thread_id: str, message_id: str) -> Json | None:
    """`runs.of_message`."""
    run = run_of(world, thread_id, message_id)
    return None if run is None else run_data(run)


def run_of(world: World, thread_id: str, message_id: str) -> Run | None:
    """The run that produced a message, else the first that was given it."""
    message = world.thread(thread_id).require_message(message_id)
    producer = world.runs.get(message.body.get("run_id") or "")
    if producer is not None and producer.thread_id == thread_id:
        return producer
    candidates = [run for run in world.runs_of(thread_id) if run.input and run.input[0] <= message.seq <= run.input[1]]
    exact = [run for run in candidates if run.input and run.input[0] == message.seq]
    return min(exact or candidates, key=lambda run: (run.created_at, run.id), default=None)


def turn(thread: Thread, run: Run) -> tuple[Message | None, Message | None]:
    """The first message that a run produced on its branch, and what that hangs under, or would."""
    after = run.input[1] if run.input else 0
    if run.output:
        after = min(after, run.output[1] - 1)
    written = [m for m in thread.written_on(run.branch) if m.seq > after and m.body.get("run_id") == run.id]
    if written:
        return written[0], written[0].parent
    if not run.input:
        return None, thread.head(run.branch)
    fork = thread.branches[run.branch].fork
    return None, fork if fork is not None and fork.seq > run.input[1] else thread.log[run.input[1] - 1]


def variants(
    world: World, *, thread_id: str, message_id: str | None = None, run_id: str | None = None, view: str = "raw"
) -> list[Json]:
    """`branches.variants`, of a message or of a run's turn."""
    thread = world.thread(thread_id)
    if message_id is not None:
        asked: Message | None = thread.require_message(message_id)
        parent = asked.parent if asked is not None else None
    else:
        run = world.runs.get(run_id or "")
        if run is None or run.thread_id != thread_id:
            raise Refusal("NotFoundError")
        asked, parent = turn(thread, run)
    siblings: list[Any] = [m for m in thread.log if m.parent is parent]
    if run_id is not None:
        siblings = [m for m in siblings if m.body.get("run_id") is not None]
    if view == "external" and run_id is not None:
        siblings = [_first_visible(world, thread, m) for m in siblings]
        asked = asked and (_first_visible(world, thread, asked) or asked)
    if view == "external":
        siblings = [m for m in siblings if m is not None and m.visibility == "all"]
    if asked is not None and asked not in siblings:
        siblings.append(asked)
    return described(thread, sorted(siblings, key=lambda m: m.seq), asked)


def page_variants(world: World, thread: Thread, line: list[Message], records: list[Json], *, external: bool) -> Json:
    """What `messages.page` shows of variants: for each message of a line, at its item or a later one of its run."""
    groups: Json = {}
    for own in line:
        items = [thread.log[data["seq"] - 1] for data in records]
        asked = next((m for m in items if m.seq >= own.seq), None)
        others: list[Any] = [m for m in thread.log if m.parent is own.parent and m is not own]
        if asked is None or not others or not _stands_for(asked, own):
            continue
        if external:
            others = [visible for m in others if (visible := _first_visible(world, thread, m)) is not None]
        group = described(thread, sorted([*others, asked], key=lambda m: m.seq), asked)
        if len(group) > 1:
            groups[asked.id] = group
    return groups


def next_variants(
    world: World, thread: Thread, line: list[Message], records: list[Json], *, external: bool
) -> list[Json]:
    """What other branches have after the last item of the newest page, or after what is hidden behind it."""
    last = records[-1]["seq"] if records else 0
    parents = [*([] if records else [None]), *(m for m in line if m.seq >= last)]
    others: list[Any] = [
        m for m in thread.log if any(m.parent is p for p in parents) and not any(m is own for own in line)
    ]
    if external:
        others = [visible for m in others if (visible := _first_visible(world, thread, m)) is not None]
    return described(thread, sorted(others, key=lambda m: m.seq), None)


def _stands_for(message: Message, own: Message) -> bool:
    run_id = own.body.get("run_id")
    return message is own or (message.body.get("run_id") == run_id and (run_id is not None or own.visibility != "all"))


def _first_visible(world: World, thread: Thread, first: Message) -> Message | None:
    """What an outsider sees of a turn first; None if that is nothing, or only calls that nothing followed."""
    run_id = first.body.get("run_id")
    kinds = {block["type"] for block in first.body["content"]}
    calls = "tool_use" in kinds and kinds <= {"tool_use", "thinking"}
    if first.visibility == "all" and (run_id is None or not calls):
        return first
    if run_id is None:
        behind = [m for m in thread.written_on(first.branch) if m.seq > first.seq and m.visibility == "all"]
        return behind[0] if behind and behind[0].body.get("run_id") is None else None
    run = world.runs.get(run_id)
    last = run.output[2] if run is not None and run.output else 0
    later = [m for m in thread.written_on(first.branch) if first.seq < m.seq <= last and m.body.get("run_id") == run_id]
    message = next((m for m in later if m.visibility == "all"), None)
    return first if message is not None and first.visibility == "all" else message
