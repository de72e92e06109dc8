"""A crowd of threads, and one call of every public method of a store on it: for tests of what an engine is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from perdure import Message, Store, Ticket
from perdure.errors import AlreadyExists
from perdure.kernel.ops import NOW, Max, Now, Scan
from perdure.stores.drafts import draft_key, draft_owner, draft_value

HOT = "thread-0"
"""The thread that the calls are about; it has something of everything."""
RESOURCES = 4
_AT_ONCE = 16


async def fill(store: Store, numbers: Iterable[int], messages: int) -> None:
    """Threads of these numbers, 0 first, with messages, documents, keys and runs; some have a parent or wait."""
    rest = iter(numbers)

    async def work() -> None:
        for n in rest:
            await _fill_one(store, n, messages)

    await _fill_one(store, next(rest), messages)
    await asyncio.gather(*[work() for _ in range(_AT_ONCE)])


async def _fill_one(store: Store, n: int, messages: int) -> None:
    thread = f"thread-{n}"
    parent = HOT if n in range(1, 6) else None
    await store.threads.create(thread, resource_id=f"user-{n % RESOURCES}", parent_thread_id=parent)
    run = await store.runs.start(thread, "agent", run_id=f"run-{n}")
    batch = [Message.user(f"text {i}", id=f"{thread}-{i}") for i in range(messages)]
    await store.commit(thread, messages=batch, run=run.finish(), state={"a": 1, "b": 2}, key=f"key-{n}")
    if n % 10 == 0:
        await store.pending.append(thread, [Message.user("later", id=f"{thread}-later")])


async def _every(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        pass


async def _first(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        break
    await items.aclose()  # type: ignore[attr-defined]


async def _follow_drafts(store: Store) -> None:
    for run in (await store.runs.list(thread_id=HOT)).items:
        await store.profiles.put(draft_owner(HOT), draft_key(run.rev), draft_value(run.id, "Day one"), ttl_ms=60_000)
    await _first(store.runs.follow_drafts(HOT, timeout=0))


async def _list_threads(store: Store) -> None:
    for order in ("active", "created"):
        for filters in ({}, {"resource_id": "user-1"}, {"parent_thread_id": HOT}, {"root": True}):
            page = await store.threads.list(order=order, **filters)  # type: ignore[arg-type]
            if page.next_cursor is not None:
                await store.threads.list(order=order, cursor=page.next_cursor, **filters)  # type: ignore[arg-type]


async def _list_messages(store: Store) -> None:
    for options in ({}, {"order": "desc"}, {"after_seq": 1, "before_seq": 4}, {"run_id": "run-0"}, {"limit": 2}):
        page = await store.messages.list(HOT, **options)  # type: ignore[arg-type]
        if page.next_cursor is not None:
            await store.messages.list(HOT, cursor=page.next_cursor, **options)  # type: ignore[arg-type]


async def _list_runs(store: Store) -> None:
    for filters in (
        {},
        {"thread_id": HOT},
        {"status": "done"},
        {"thread_id": HOT, "status": "done"},
        {"agent_id": "a"},
    ):
        page = await store.runs.list(**filters)
        if page.next_cursor is not None:
            await store.runs.list(cursor=page.next_cursor, **filters)


async def _list_profiles(store: Store) -> None:
    await store.profiles.put("user:ann", "city", "Kyoto", if_rev=0)
    page = await store.profiles.list("user:ann", limit=1)
    await store.profiles.list("user:ann", limit=1, cursor=page.next_cursor)


async def _fork(store: Store) -> None:
    fork = await store.branches.fork(HOT, at=f"{HOT}-1", name="aside", switch=True)
    await store.branches.fork(HOT, before=f"{HOT}-2", name="before")
    await store.commit(HOT, messages=[Message.user("on a branch")], branch=fork.id)
    with suppress(AlreadyExists):
        await store.branches.fork(HOT, at=f"{HOT}-1", name="aside")
    for _ in range(2):
        await store.branches.fork(HOT, at=f"{HOT}-1", messages=[Message.user("at once")], key="forked")


async def _buffer(store: Store) -> None:
    async with store.buffered(HOT) as writer:
        await writer.append(Message.user("later"), Message.user("still later"))


async def _history(store: Store) -> None:
    for options in ({}, {"branch": "aside"}, {"limit": 2}, {"upto": f"{HOT}-1"}):
        await store.messages.history(HOT, **options)  # type: ignore[arg-type]


async def _commit(store: Store) -> None:
    for _ in range(2):
        await store.commit(HOT, messages=[Message.user("again")], state={"a": 3}, key="retried")
    with suppress(AlreadyExists):
        await store.commit(HOT, messages=[Message.user("an id that is taken", id=f"{HOT}-1")])


async def _page(store: Store) -> None:
    for view in ("external", "history", "raw"):
        page = await store.messages.page(HOT, view=view, limit=1)  # type: ignore[arg-type]
        await store.messages.page(HOT, view=view, limit=1, cursor=page.next_cursor)  # type: ignore[arg-type]
    await _first(store.messages.follow(HOT, branch="main", after_seq=1))


async def _reorder(store: Store) -> None:
    await store.pending.append(HOT, [Message.user("x", id="p-1"), Message.user("y", id="p-2")])
    waiting = [pending.id for pending in (await store.pending.list(HOT)).items]
    await store.pending.reorder(HOT, waiting[::-1])


async def _decide(store: Store) -> None:
    run = await store.runs.start(HOT, "agent", run_id="run-asking")
    run = (await store.commit(HOT, run=run.wait([Ticket(ticket_id="k")]))).run
    await store.commit(HOT, run=(await store.runs.decide(run.id, "k", True)).resume())


async def _rerun(store: Store) -> None:
    run = await store.runs.start(HOT, "agent", run_id="run-asked", messages=[Message.user("question")])
    await store.commit(HOT, messages=[Message.assistant("answer")], run=run.finish())
    again = await store.runs.rerun(run.id, key="again")
    await store.runs.rerun(run.id, key="again")
    await store.branches.variants(HOT, run_id=run.id, view="external")
    await store.runs.rerun(again.id, messages=[Message.user("edited")], replace=False)
    await store.branches.switch(HOT, 0)


CALLS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "threads.create": lambda store: store.threads.create("new", resource_id="user-0", parent_thread_id=HOT),
    "threads.ensure": lambda store: store.threads.ensure("ensured", resource_id="user-0", parent_thread_id=HOT),
    "threads.find": lambda store: store.threads.find(HOT),
    "threads.get": lambda store: store.threads.get(HOT),
    "threads.update": lambda store: store.threads.update(HOT, title="t", resource_id="user-2"),
    "threads.validate_parent": lambda store: store.threads.validate_parent(HOT, "thread-9"),
    "threads.list": _list_threads,
    "threads.iter": lambda store: _every(store.threads.iter(resource_id="user-3")),
    "threads.children": lambda store: store.threads.children(HOT),
    "threads.with_prefix": lambda store: store.threads.with_prefix("thread-", limit=3),
    "store.commit": _commit,
    "store.load": lambda store: store.load(HOT),
    "branches.fork": _fork,
    "branches.checkout": lambda store: store.branches.checkout(HOT, f"{HOT}-1"),
    "branches.variants": lambda store: store.branches.variants(HOT, f"{HOT}-1"),
    "branches.tree": lambda store: store.branches.tree(HOT),
    "store.buffered": _buffer,
    "branches.list": lambda store: store.branches.list(HOT),
    "branches.iter": lambda store: _every(store.branches.iter(HOT)),
    "branches.get": lambda store: store.branches.get(HOT, "aside"),
    "branches.current": lambda store: store.branches.current(HOT),
    "branches.rename": lambda store: store.branches.rename(HOT, "before", "renamed"),
    "branches.label": lambda store: store.branches.label(HOT, f"{HOT}-1", "good"),
    "branches.labels": lambda store: store.branches.labels(HOT),
    "messages.list": _list_messages,
    "messages.iter": lambda store: _every(store.messages.iter(HOT)),
    "messages.find": lambda store: store.messages.find(HOT, f"{HOT}-1"),
    "messages.get": lambda store: store.messages.get(HOT, f"{HOT}-1"),
    "messages.range": lambda store: store.messages.range(HOT, 1, 3),
    "messages.history": _history,
    "messages.path": lambda store: store.messages.path(HOT, limit=3),
    "messages.page": _page,
    "messages.external": lambda store: store.messages.external(HOT, limit=3),
    "messages.unfinished_calls": lambda store: store.messages.unfinished_calls(HOT),
    "messages.follow": lambda store: _first(store.messages.follow(HOT)),
    "branches.switch": lambda store: store.branches.switch(HOT, 0),
    "branches.delete": lambda store: store.branches.delete(HOT, "renamed"),
    "runs.create": lambda store: store.runs.create(HOT, "agent", run_id="run-created"),
    "runs.start": lambda store: store.runs.start("new", "agent", run_id="run-started"),
    "runs.cancel": lambda store: store.runs.cancel("run-created"),
    "runs.decide": _decide,
    "runs.rerun": _rerun,
    "runs.follow": lambda store: _first(store.runs.follow("run-asking")),
    "runs.follow_drafts": _follow_drafts,
    "runs.find": lambda store: store.runs.find("run-0"),
    "runs.get": lambda store: store.runs.get("run-0"),
    "runs.latest": lambda store: store.runs.latest(HOT),
    "runs.of_message": lambda store: store.runs.of_message(HOT, f"{HOT}-1"),
    "runs.list": _list_runs,
    "runs.iter": lambda store: _every(store.runs.iter(thread_id=HOT)),
    "runs.with_prefix": lambda store: store.runs.with_prefix("run-", limit=3),
    "state.put": lambda store: store.state.put(HOT, "c", 1),
    "state.find": lambda store: store.state.find(HOT, "a"),
    "state.get": lambda store: store.state.get(HOT, "a"),
    "state.list": lambda store: store.state.list(HOT),
    "state.iter": lambda store: _every(store.state.iter(HOT)),
    "state.delete": lambda store: store.state.delete(HOT, "c"),
    "profiles.put": lambda store: store.profiles.put("user:ann", "prefs", {"tone": "short"}, ttl_ms=60_000),
    "profiles.find": lambda store: store.profiles.find("user:ann", "city"),
    "profiles.get": lambda store: store.profiles.get("user:ann", "prefs"),
    "profiles.list": _list_profiles,
    "profiles.iter": lambda store: _every(store.profiles.iter("user:ann", prefix="pre")),
    "profiles.follow": lambda store: _first(store.profiles.follow("user:ann")),
    "profiles.delete": lambda store: store.profiles.delete("user:ann", "prefs"),
    "profiles.clear": lambda store: store.profiles.clear("user:ann"),
    "pending.append": lambda store: store.pending.append(HOT, [Message.user("p", id="p-0")]),
    "pending.list": lambda store: store.pending.list(HOT),
    "pending.iter": lambda store: _every(store.pending.iter(HOT)),
    "pending.count": lambda store: store.pending.count(HOT),
    "pending.edit": lambda store: store.pending.edit(HOT, "p-0", Message.user("q", id="p-0")),
    "pending.reorder": _reorder,
    "pending.retract": lambda store: store.pending.retract(HOT, "p-1"),
    "pending.threads": lambda store: store.pending.threads(limit=20),
    "pending.freeze": lambda store: store.pending.freeze(HOT),
    "threads.delete": lambda store: store.threads.delete("new"),
    "store.sweep": lambda store: store.sweep(),
}
"""In an order in which each finds what it needs."""

WITHOUT_THE_ENGINE = {"store.capabilities", "store.scoped", "store.thread", "store.health", "store.close"}
"""What reads and writes no rows."""


async def call_everything(store: Store) -> None:
    """Every public method, then what engines are asked past the stores: takes, walks of everything."""
    for call in CALLS.values():
        await call(store)
    engine, scope = store.engine, store.scope
    await engine.take(scope, Scan("runs", "status", ("running",), limit=5, upto={}), {"updated_at": NOW})
    await engine.take(scope, Scan("keys", "age", (), limit=5, upto={"at": 1}), {"count": 0})
    await engine.take(scope, Scan("keys", "age", (), limit=5, upto={"at": Now(-(10**12))}), {"at": Max(NOW)})
    await engine.scopes()
    for log in engine.schema.logs:
        await engine.partitions(scope, log.name, limit=20)
        await engine.partitions(scope, log.name, after=HOT, limit=20)
    for table in engine.schema.tables:
        (rows,) = await engine.view(scope, [Scan(table.name, limit=20)])
        for row in rows[-1:]:
            await engine.view(scope, [Scan(table.name, after=row.key, limit=20)])
