"""Threads in the reference: hierarchy, metadata, deletion, and the paging that every list uses."""

from __future__ import annotations

from typing import Any

from perdure.testkit.reference.records import Branch, Json, Refusal, Run, Thread, Tombstone, World
from perdure.testkit.reference.views import run_data, thread_data

PAGE_MOST = 200


def lineage(value: str | None) -> str | None:
    """A lineage id: trimmed, None when blank."""
    return (value or "").strip() or None


def check_parent(world: World, thread_id: str, parent: str | None) -> None:
    """Refuse a parent that is missing, the thread itself, or one of its descendants."""
    ancestors = {thread_id}
    while parent is not None:
        if parent in ancestors:
            raise Refusal("InvalidError")
        ancestors.add(parent)
        parent = world.thread(parent).parent_thread_id


def born(world: World, thread_id: str, tick: int) -> Thread:
    """A new, empty thread with its main branch."""
    thread = Thread(thread_id, world.now, world.now, tick)
    thread.branches.append(Branch(0, "main", None, world.now))
    world.threads[thread_id] = thread
    world.tombstones.pop(thread_id, None)
    return thread


def create(
    world: World,
    *,
    thread_id: str,
    title: str | None = None,
    resource_id: str | None = None,
    parent_thread_id: str | None = None,
    custom: Json | None = None,
) -> Json:
    """`threads.create`."""
    parent = lineage(parent_thread_id)
    check_parent(world, thread_id, parent)
    stone = world.tombstones.get(thread_id)
    if thread_id in world.threads or (stone is not None and stone.erased_at is None):
        raise Refusal("AlreadyExists")
    world.tombstones.pop(thread_id, None)
    thread = born(world, thread_id, world.next_tick())
    thread.title, thread.custom = title, custom or {}
    thread.resource_id, thread.parent_thread_id = lineage(resource_id), parent
    return thread_data(world, thread)


def ensure(world: World, *, thread_id: str, **options: Any) -> Json:
    """`threads.ensure`."""
    if thread_id in world.threads:
        return thread_data(world, world.threads[thread_id])
    return create(world, thread_id=thread_id, **options)


def get(world: World, *, thread_id: str, resource_id: str | None = None) -> Json:
    """`threads.get`."""
    thread = find(world, thread_id=thread_id, resource_id=resource_id)
    if thread is None:
        raise Refusal("NotFoundError")
    return thread


def find(world: World, *, thread_id: str, resource_id: str | None = None) -> Json | None:
    """`threads.find`."""
    thread = world.threads.get(thread_id)
    if thread is None or lineage(resource_id) not in (None, thread.resource_id):
        return None
    return thread_data(world, thread)


def update(world: World, *, thread_id: str, if_rev: int | None = None, **changes: Any) -> Json:
    """`threads.update`."""
    thread = world.thread(thread_id)
    if if_rev is not None and if_rev != thread.rev:
        raise Refusal("VersionConflict")
    if "parent_thread_id" in changes:
        parent = changes["parent_thread_id"] = lineage(changes["parent_thread_id"])
        if parent != thread.parent_thread_id:
            check_parent(world, thread_id, parent)
    if "resource_id" in changes:
        changes["resource_id"] = lineage(changes["resource_id"])
    if "custom" in changes:
        changes["custom"] = changes["custom"] or {}
    for name, value in changes.items():
        setattr(thread, name, value)
    thread.rev, thread.updated_at = world.next_tick(), world.now
    return thread_data(world, thread)


def delete(world: World, *, thread_id: str, strategy: str = "detach", crashed: bool = False) -> None:
    """`threads.delete`; when it `crashed`, erasing is left to the next open."""
    doomed = [world.thread(thread_id)]
    if strategy == "reject" and world.children(thread_id):
        raise Refusal("HasChildren")
    tick = world.next_tick()
    if strategy == "cascade":
        for thread in doomed:
            doomed.extend(world.children(thread.id))
    else:
        for child in world.children(thread_id):
            child.parent_thread_id, child.updated_at, child.rev = None, world.now, tick
    for thread in doomed:
        del world.threads[thread.id]
        world.tombstones[thread.id] = Tombstone(world.now, None if crashed else world.now)
        for run in world.runs_of(thread.id):
            del world.runs[run.id]


def validate_parent(world: World, *, thread_id: str, parent_thread_id: str | None) -> None:
    """`threads.validate_parent`."""
    check_parent(world, thread_id, lineage(parent_thread_id))


def refuse_page(query: list[Any], cursor: Json | None, limit: int) -> None:
    """A page has a size, and a cursor continues its own query only."""
    if not 1 <= limit <= PAGE_MOST:
        raise Refusal("InvalidError")
    if cursor is not None and cursor.get("query") != query:
        raise Refusal("InvalidError")


def page(query: list[Any], items: list[tuple[list[Any], Json]], cursor: Json | None, limit: int, *, desc: bool) -> Json:
    """One page of `items`, which are (sort key, data): those after the cursor's key, in order."""
    refuse_page(query, cursor, limit)
    ordered = sorted(items, key=lambda item: item[0], reverse=desc)
    if cursor is not None:
        after = cursor["after"]
        ordered = [item for item in ordered if (item[0] < after if desc else item[0] > after)]
    first = ordered[:limit]
    more = {"query": query, "after": first[-1][0]} if len(ordered) > limit else None
    return {"items": [data for _, data in first], "next_cursor": more}


def listed(
    world: World,
    *,
    resource_id: str | None = None,
    parent_thread_id: str | None = None,
    root: bool = False,
    order: str = "active",
    limit: int = 50,
    cursor: Json | None = None,
) -> Json:
    """`threads.list`."""
    resource, parent = lineage(resource_id), lineage(parent_thread_id)
    if root and parent is not None:
        raise Refusal("InvalidError")
    chosen = [
        thread
        for thread in world.threads.values()
        if resource in (None, thread.resource_id)
        and parent in (None, thread.parent_thread_id)
        and (not root or thread.parent_thread_id is None)
    ]
    items = [
        ([thread.updated_at if order == "active" else thread.created_at, thread.id], thread_data(world, thread))
        for thread in chosen
    ]
    return page(["threads", resource, parent, root, order], items, cursor, limit, desc=True)


def children(world: World, *, thread_id: str, limit: int = 50, cursor: Json | None = None) -> Json:
    """`threads.children`."""
    answer = listed(world, parent_thread_id=thread_id, limit=limit, cursor=cursor)  # a bad argument is refused first
    world.thread(thread_id)
    return answer


def with_prefix(world: World, *, prefix: str, limit: int = 50) -> list[Json]:
    """`threads.with_prefix`."""
    ids = sorted(name for name in world.threads if name.startswith(prefix))
    return [thread_data(world, world.threads[name]) for name in ids[:limit]]


def runs_with_prefix(world: World, *, prefix: str, limit: int = 50) -> list[Json]:
    """`runs.with_prefix`."""
    ids = sorted(name for name in world.runs if name.startswith(prefix))
    return [run_data(world.runs[name]) for name in ids[:limit]]


def runs_listed(
    world: World,
    *,
    thread_id: str | None = None,
    status: str | None = None,
    agent_id: str | None = None,
    resource_id: str | None = None,
    ready: bool = False,
    order: str = "desc",
    limit: int = 50,
    cursor: Json | None = None,
) -> Json:
    """`runs.list`."""
    if ready and status not in (None, "waiting"):
        raise Refusal("InvalidError")
    status = "waiting" if ready else status
    resource = lineage(resource_id)
    items = [
        ([run.created_at, run.id], run_data(run))
        for run in world.runs.values()
        if thread_id in (None, run.thread_id)
        and status in (None, run.status)
        and agent_id in (None, run.agent_id)
        and resource in (None, world.threads[run.thread_id].resource_id)
        and (not ready or _is_ready(run))
    ]
    query = ["runs", thread_id, status, agent_id, resource, order, ready]
    return page(query, items, cursor, limit, desc=order == "desc")


def _is_ready(run: Run) -> bool:
    tickets = (run.waiting or {}).get("tickets", [])
    return bool(tickets) and all("decision" in ticket for ticket in tickets)
