"""Commits in the reference: refusals in their order, then one change of the world.

Shape first; then owner, key, fence, expect, run, state and ids. Nothing is touched before the last refusal.
A run is given as plain data: `{"new": {...}}`, `{"same": run}` or `{"change": run, "move": name, "options": {...}}`,
where `run` is a run as the reference described it earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.testkit.reference.records import WEEK_MS, Document, Json, Key, Message, Refusal, Run, Thread, World
from perdure.testkit.reference.runs import change_of, moved, new_run, produced, refuse_run, settle_pointers
from perdure.testkit.reference.threads import born, check_parent, lineage
from perdure.testkit.reference.views import run_data


@dataclass(kw_only=True)
class Request:
    """A requested commit. `inputs` marks messages that the run receives rather than produces."""

    thread_id: str
    messages: Sequence[Json] = ()
    run: Json | None = None
    branch: int | str | None = None
    expect: int | None = None
    expect_head: str | None = None
    fence: int | None = None
    state: Json | None = None
    run_state: Json | None = None
    expect_state: dict[str, int | None] | None = None
    key: str | None = None
    thread: Json | None = None
    resource_id: str | None = None
    if_idle: bool = False
    inputs: bool = False
    from_queue: bool = False
    asked: Any = None
    fork: Any = None

    @property
    def record(self) -> Json | None:
        """The existing run that the commit names."""
        run = self.run or {}
        return run.get("same") or run.get("change")

    @property
    def fresh_run(self) -> Json | None:
        """The run that the commit creates."""
        return (self.run or {}).get("new")

    @property
    def run_id(self) -> str | None:
        """The run of the commit."""
        named = self.record or self.fresh_run
        return None if named is None else named["id"]

    @property
    def content(self) -> Any:
        """What a repetition under the same key must ask for again; not its guards."""
        run = self.run and {**self.run}
        if run and "new" not in run:
            run = {"id": self.run_id, "move": change_of(run)}
        messages = list(self.messages) if self.asked is None else self.asked
        target = self.fork or self.branch
        return [messages, run, self.state or {}, self.run_state or {}, target, self.thread]


def commit(world: World, **request: Any) -> Json:
    """`store.commit`."""
    return apply_request(world, Request(**request))


def apply_request(world: World, request: Request) -> Json:
    """Refuse or do everything that was asked; the receipt as plain data."""
    refuse_shape(request)
    thread = world.threads.get(request.thread_id)
    if thread is not None and request.resource_id not in (None, thread.resource_id):
        raise Refusal("NotFoundError")
    stored = live_key(world, thread, request.key)
    if stored is not None:
        return replay(world, stored, request)
    refuse_summaries(thread, request)
    if thread is None:
        parent, resource = _refuse_birth(world, request)
        thread = born(world, request.thread_id, world.next_tick())
        thread.parent_thread_id, thread.resource_id = parent, resource
        named = request.thread or {}
        thread.title, thread.custom = named.get("title"), named.get("custom") or {}
    else:
        refuse_content(world, thread, request)
        world.next_tick()
    return write(world, thread, request)


def refuse_content(world: World, thread: Thread, request: Request) -> None:
    """Refuse what this thread, as it is, does not allow."""
    _refuse_guards(thread, request)
    refuse_run(world, request)
    if request.if_idle and any(run.status in ("running", "waiting") for run in world.runs_of(thread.id)):
        raise Refusal("ThreadBusy")
    _refuse_documents(thread, request)
    if any(thread.message(m["id"]) is not None for m in request.messages):
        raise Refusal("AlreadyExists")
    if not request.from_queue and {m["id"] for m in request.messages} & {entry.id for entry in thread.pending}:
        raise Refusal("AlreadyExists")


def live_key(world: World, thread: Thread | None, key: str | None) -> Key | None:
    """The stored key, unless there is none or its week is over."""
    stored = None if thread is None or key is None else thread.keys.get(key)
    return stored if stored is not None and stored.at + WEEK_MS >= world.now else None


def replay(world: World, stored: Key, request: Request) -> Json:
    """The stored receipt; other content under the same key is refused.

    The run is shown as it is now, but with the rev that the first commit gave it, so that a caller
    who continues with a run that has moved since is refused. A run that was only named is returned unchanged.
    """
    if stored.content != request.content:
        raise Refusal("KeyReused")
    run = (request.run or {}).get("same")
    if run is None and stored.run_id is not None:
        run = {**run_data(world.runs[stored.run_id]), "rev": stored.rev}
    return {**stored.receipt, "run": run, "replayed": True}


def refuse_shape(request: Request) -> None:
    """Refuse what no world could accept."""
    ids = [message["id"] for message in request.messages]
    state, guards = request.state or {}, request.expect_state or {}
    unwritten = [name for name, rev in guards.items() if rev is None and state.get(name) is None]
    foreign = request.record is not None and request.record["thread_id"] != request.thread_id
    orphaned = request.run_state and request.run_id is None
    if len(set(ids)) != len(ids) or foreign or orphaned or unwritten:
        raise Refusal("InvalidError")
    for message in request.messages:
        refuse_message(message)


def refuse_message(message: Json) -> None:
    """Tool calls belong to assistants, one result to a tool message, and an interval is not empty."""
    kinds = [block["type"] for block in message["content"]]
    calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    mark = message.get("compaction", {"from_seq": 1, "to_seq": 1})
    if (
        (message["role"] == "tool") != (kinds == ["tool_result"])
        or ("tool_result" in kinds and kinds != ["tool_result"])
        or (calls and message["role"] != "assistant")
        or len(set(calls)) != len(calls)
        or not 1 <= mark["from_seq"] <= mark["to_seq"]
    ):
        raise Refusal("InvalidError")


def refuse_summaries(thread: Thread | None, request: Request) -> None:
    """A summary comes after everything it covers."""
    version = 0 if thread is None else len(thread.log)
    for seq, message in enumerate(request.messages, version + 1):
        if "compaction" in message and message["compaction"]["to_seq"] >= seq:
            raise Refusal("InvalidError")


def _refuse_birth(world: World, request: Request) -> tuple[str | None, str | None]:
    """May this commit make its missing thread? Its parent and resource, if so."""
    if world.buried(request.thread_id):
        raise Refusal("NotFoundError")
    if request.record is not None or request.fence is not None:
        raise Refusal("NotFoundError")
    if request.expect:
        raise Refusal("VersionConflict")
    guarded = any(rev is not None for rev in (request.expect_state or {}).values())
    if guarded or request.expect_head is not None or request.branch not in (None, 0):
        raise Refusal("NotFoundError")
    refuse_run(world, request)
    trace, named = (request.fresh_run or {}).get("trace") or {}, request.thread or {}
    parent, resource = (
        lineage(named.get(name)) or lineage(trace.get(name)) for name in ("parent_thread_id", "resource_id")
    )
    check_parent(world, request.thread_id, parent)
    return parent, request.resource_id or resource


def _refuse_guards(thread: Thread, request: Request) -> None:
    if request.fence is not None and thread.fence is not None and thread.fence > request.fence:
        raise Refusal("StaleClaim")
    if request.expect is not None and request.expect != len(thread.log):
        raise Refusal("VersionConflict")
    if request.messages or request.expect_head is not None or request.branch is not None:
        head = thread.head(target(thread, request))
        if request.expect_head is not None and (head is None or head.id != request.expect_head):
            raise Refusal("VersionConflict")


def target(thread: Thread, request: Request) -> int:
    """The branch a commit goes to: the one it names, else its run's, else the current one."""
    if request.branch is None and request.record is not None:
        return thread.branch_number(request.record["branch"])
    return thread.branch_number(request.branch)


def _refuse_documents(thread: Thread, request: Request) -> None:
    for name, rev in (request.expect_state or {}).items():
        document = thread.state.get((None, name))
        if rev != (None if document is None else document.rev):
            raise Refusal("VersionConflict")


def write(world: World, thread: Thread, request: Request) -> Json:
    """Do everything that was asked; the receipt as plain data."""
    thread.updated_at = world.now
    if request.fence is not None:
        thread.fence = max(thread.fence or 0, request.fence)
    written = _append(world, thread, request)
    run = _move_run(world, thread, request, written)
    for owner, documents in ((None, request.state), (request.run_id, request.run_state)):
        for name, document in (documents or {}).items():
            thread.state.pop((owner, name), None)
            if document is not None:
                thread.state[owner, name] = Document(document[0], document[1], world.now, world.tick)
    receipt: Json = {
        "thread_id": thread.id,
        "version": len(thread.log) if written else None,
        "message_ids": [m.id for m in written],
        "seqs": [m.seq for m in written],
        "run": None if run is None else run_data(run),
        "replayed": False,
        "at": world.now,
    }
    if request.key is not None:
        thread.keys[request.key] = Key(request.content, receipt, request.run_id, world.now, world.tick)
    return receipt


def _append(world: World, thread: Thread, request: Request) -> list[Message]:
    number = target(thread, request) if request.messages else 0
    written = []
    for data in request.messages:
        body = {**data}
        if request.run_id is not None and not request.inputs and "run_id" not in body:
            body["run_id"] = request.run_id
            if request.record is not None:
                body.setdefault("step", request.record["steps"])
        message = Message(len(thread.log) + 1, number, thread.head(number), world.now, body)
        thread.log.append(message)
        written.append(message)
    return written


def _move_run(world: World, thread: Thread, request: Request, written: list[Message]) -> Run | None:
    if request.run is None or request.run_id is None:
        return None
    if request.fresh_run is not None:
        run = new_run(world, request.fresh_run, thread.id, target(thread, request))
        if request.inputs and written:
            run.input = [written[0].seq, written[-1].seq]
            run.triggers = [message.id for message in written]
    else:
        run = world.runs[request.run_id]
        if "same" in request.run:
            return run
        moved(world, run, change_of(request.run))
    if not request.inputs:
        produced(run, written)
    settle_pointers(thread, run, created=request.fresh_run is not None)
    return run
