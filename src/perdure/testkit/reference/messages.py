"""Messages in the reference: lists, single messages, ranges, the three views, their pages, and `load`."""

from __future__ import annotations

from typing import Any

from perdure.testkit.reference.records import Json, Message, Refusal, Thread, World
from perdure.testkit.reference.reruns import next_variants, page_variants
from perdure.testkit.reference.threads import page, refuse_page
from perdure.testkit.reference.views import (
    branch_data,
    cut,
    documents,
    external,
    history,
    page_start,
    path,
    positioned,
    record,
    run_data,
    thread_data,
    unfinished,
)


def messages_listed(
    world: World,
    *,
    thread_id: str,
    after_seq: int | None = None,
    before_seq: int | None = None,
    order: str = "asc",
    visibility: str = "any",
    run_id: str | None = None,
    limit: int = 50,
    cursor: Json | None = None,
) -> Json:
    """`messages.list`: the raw log over all branches."""
    query = ["messages", thread_id, after_seq, before_seq, order, visibility, run_id]
    refuse_page(query, cursor, limit)
    visible = {"any": None, "external": "all", "internal": "internal"}[visibility]
    items = [
        ([m.seq], record(m))
        for m in world.thread(thread_id).log
        if (after_seq is None or m.seq > after_seq)
        and (before_seq is None or m.seq < before_seq)
        and visible in (None, m.visibility)
        and run_id in (None, m.body.get("run_id"))
    ]
    return page(query, items, cursor, limit, desc=order == "desc")


def message_get(world: World, *, thread_id: str, message_id: str) -> Json:
    """`messages.get`."""
    return record(world.thread(thread_id).require_message(message_id))


def message_find(world: World, *, thread_id: str, message_id: str) -> Json | None:
    """`messages.find`."""
    message = world.thread(thread_id).message(message_id)
    return None if message is None else record(message)


def message_range(world: World, *, thread_id: str, from_seq: int, to_seq: int) -> list[Json]:
    """`messages.range`."""
    if not 1 <= from_seq <= to_seq:
        raise Refusal("InvalidError")
    return [record(m) for m in world.thread(thread_id).log if from_seq <= m.seq <= to_seq]


def message_history(world: World, *, thread_id: str, limit: int | None = None, **where: Any) -> list[Json]:
    """`messages.history`; `where` holds `branch` and `upto`."""
    return history(_cut(world, thread_id, limit, **where), limit)


def message_external(world: World, *, thread_id: str, limit: int | None = None, **where: Any) -> list[Json]:
    """`messages.external`."""
    return external(_cut(world, thread_id, limit, **where), limit)


def message_path(world: World, *, thread_id: str, limit: int | None = None, **where: Any) -> list[Json]:
    """`messages.path`."""
    line = _cut(world, thread_id, limit, **where)
    return [record(m) for m in (line if limit is None else line[max(0, len(line) - limit) :])]


def message_page(
    world: World,
    *,
    thread_id: str,
    branch: int | str | None = None,
    view: str = "external",
    before: int | str | None = None,
    limit: int = 50,
    cursor: Json | None = None,
    variants: bool = False,
) -> Json:
    """`messages.page`: the end of a view, up to a position; a cursor keeps to the branch that the first page was of."""
    query = ["page", thread_id, branch if isinstance(branch, str) else None, view, before]
    refuse_page(query, cursor, limit)
    if variants and view == "history":
        raise Refusal("InvalidError")
    if cursor is not None and isinstance(branch, int) and branch != cursor["after"][0]:
        raise Refusal("InvalidError")
    thread = world.thread(thread_id)
    number = thread.branch_number(branch) if cursor is None else _pinned(thread, branch, cursor["after"][0])
    line = path(thread, number)
    items = positioned(line, view)
    end = len(thread.log) + 1 if before is None else _position(line, items, before)
    if end is None:
        raise Refusal("NotFoundError" if cursor is None else "CursorExpired")
    end = end if cursor is None else min(end, cursor["after"][1])
    items = [item for item in items if item[0] < end]
    start = page_start(items, limit, whole_calls=view == "history")
    more = {"query": query, "after": [number, items[start][0]]} if start > 0 else None
    read = line if view == "history" else [m for m in line if m.seq < end]
    previous = items[start - 1][0] if start else 0
    calls = [call for call in unfinished(read) if call["seq"] > previous] if view != "raw" else []
    records = [data for _, data in items[start:]]
    rest = [m for m in line if m.seq > previous] if variants else []
    newest = variants and cursor is None and before is None
    return {
        "items": records,
        "next_cursor": more,
        "branch": number,
        "after_seq": min([read[-1].seq if read else 0, *(call["seq"] - 1 for call in calls)]),
        "open_run_id": thread.open_run_id,
        "variants": page_variants(world, thread, rest, records, external=view == "external"),
        "next_variants": next_variants(world, thread, line, records, external=view == "external") if newest else [],
    }


def _pinned(thread: Thread, branch: int | str | None, pinned: int) -> int:
    """The branch that a cursor continues, if it still is what it was."""
    if isinstance(branch, str) and thread.branch_number(branch) != pinned:
        raise Refusal("CursorExpired")
    if pinned >= len(thread.branches) or thread.branches[pinned].deleted:
        raise Refusal("CursorExpired")
    return pinned


def _position(line: list[Message], items: list[tuple[int, Json]], before: int | str) -> int | None:
    if isinstance(before, int):
        return before
    for message in line:
        if message.id == before:
            return next((at for at, data in items if data["seq"] == message.seq), message.seq)
    return None


def _cut(
    world: World, thread_id: str, limit: int | None, branch: int | str | None = None, upto: int | str | None = None
) -> Any:
    if limit is not None and limit < 1:
        raise Refusal("InvalidError")
    return cut(world.thread(thread_id), branch, upto)


def unfinished_calls(
    world: World, *, thread_id: str, branch: int | str | None = None, run_id: str | None = None
) -> list[Json]:
    """`messages.unfinished_calls`."""
    thread = world.thread(thread_id)
    calls = unfinished(path(thread, thread.branch_number(branch)))
    return [call for call in calls if run_id in (None, call["run_id"])]


def load(world: World, *, thread_id: str, branch: int | str | None = None) -> Json:
    """`store.load`."""
    thread = world.thread(thread_id)
    number = thread.branch_number(branch)
    latest = thread.latest_run_id
    return {
        "thread": thread_data(world, thread),
        "branch": branch_data(thread, thread.branches[number], with_preview=False),
        "messages": history(path(thread, number)),
        "version": len(thread.log),
        "run": None if latest is None else run_data(world.runs[latest]),
        "state": documents(thread, None),
        "run_state": {} if latest is None else documents(thread, latest),
    }
