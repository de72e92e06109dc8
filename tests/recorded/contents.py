"""Everything a reader sees of a store: every list and view of every thread, and the export, scope by scope."""

from __future__ import annotations

from typing import Any

from tests.recorded.plain import Normaliser, plain
from tests.recorded.support import export_lines

import perdure

Line = dict[str, Any]
SCOPES = ("default", "acme", "copy")


async def all_contents(store: perdure.Store) -> list[Line]:
    """The contents as normalised lines: what the same data must give on every engine and in every build."""
    lines: list[Line] = []
    for scope in SCOPES:
        seen = store.scoped(scope)
        lines += [{"scope": scope, **line} for line in await _threads(seen)]
        lines += [{"scope": scope, "export": line.decode()} async for line in export_lines(seen)]
    normalise = Normaliser({})
    return [normalise(line) for line in lines]


async def _threads(store: perdure.Store) -> list[Line]:
    lines: list[Line] = []
    for order in ("active", "created"):
        listed = [thread async for thread in store.threads.iter(order=order)]
        lines.append({"view": f"threads by {order}", "shows": [thread.id for thread in listed]})
    for status in (None, "created", "running", "waiting", "done"):
        runs = [run async for run in store.runs.iter(status=status, order="asc")]
        lines.append({"view": f"runs {status}", "shows": plain(runs) if status is None else [run.id for run in runs]})
    lines.append({"view": "pending.threads", "shows": await store.pending.threads(limit=200)})
    for thread in sorted([thread async for thread in store.threads.iter()], key=lambda thread: thread.id):
        for view, shows in await _thread(store, thread.id):
            lines.append({"thread": thread.id, "view": view, "shows": plain(shows)})
    return lines


async def _thread(store: perdure.Store, thread: str) -> list[tuple[str, Any]]:
    """Every view of a thread, by name."""
    branches = await store.branches.list(thread)
    views: list[tuple[str, Any]] = [
        ("threads.get", await store.threads.get(thread)),
        ("branches.list", branches),
        ("messages.iter", [record async for record in store.messages.iter(thread)]),
        ("labels", await store.branches.labels(thread)),
        ("pending.list", await store.pending.list(thread)),
        ("state.list", await store.state.list(thread)),
        ("runs.list", [run.id async for run in store.runs.iter(thread_id=thread, order="asc")]),
        ("unfinished", await store.messages.unfinished_calls(thread)),
    ]
    for branch in branches:
        history = await store.messages.history(thread, branch=branch.id)
        external = await store.messages.external(thread, branch=branch.id)
        views.append((f"branch {branch.id} history", [record.seq for record in history]))
        views.append((f"branch {branch.id} external", [record.seq for record in external]))
    snapshot = await store.load(thread)
    seqs = [record.seq for record in snapshot.messages]
    owned = {**snapshot.state, **snapshot.run_state}
    views.append(("load", {"seqs": seqs, "version": snapshot.version, "run": snapshot.run, "state": owned}))
    return views
