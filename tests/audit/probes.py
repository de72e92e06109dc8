"""Everything that a program may do to a thread, to be tried on damaged data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure import Message, Store
from perdure.stores.transfer.export import export_lines

Probe = Callable[[Store], Awaitable[object]]


async def _export(store: Store) -> None:
    async for _ in export_lines(store):
        pass


async def _step(store: Store) -> None:
    await store.commit("t", messages=[Message.assistant("more")], run=(await store.runs.get("running")).step(), key="s")


async def _finish(store: Store) -> None:
    await store.commit("t", run=(await store.runs.get("waiting")).resume())


READS: dict[str, Probe] = {
    "threads.list": lambda store: store.threads.list(),
    "threads.list by page": lambda store: store.threads.list(limit=1),
    "threads.list created": lambda store: store.threads.list(order="created"),
    "threads.list of a resource": lambda store: store.threads.list(resource_id="u-1"),
    "threads.list of roots": lambda store: store.threads.list(root=True),
    "threads.children": lambda store: store.threads.children("parent"),
    "threads.get": lambda store: store.threads.get("t"),
    "threads.get parent": lambda store: store.threads.get("parent"),
    "messages.list": lambda store: store.messages.list("t"),
    "messages.list backwards": lambda store: store.messages.list("t", order="desc", limit=2),
    "messages.list from the middle": lambda store: store.messages.list("t", after_seq=3, limit=2),
    "messages.list parent": lambda store: store.messages.list("parent"),
    "messages.list of a run": lambda store: store.messages.list("t", run_id="running"),
    "messages.range": lambda store: store.messages.range("t", 2, 8),
    "messages.get": lambda store: store.messages.get("t", "m7"),
    "messages.history": lambda store: store.messages.history("t"),
    "messages.history main": lambda store: store.messages.history("t", branch=0),
    "messages.history twig": lambda store: store.messages.history("t", branch="twig", limit=2),
    "messages.history up to": lambda store: store.messages.history("t", upto="m3"),
    "messages.external": lambda store: store.messages.external("t", branch=0),
    "messages.unfinished_calls": lambda store: store.messages.unfinished_calls("t", branch=0),
    "runs.list": lambda store: store.runs.list(),
    "runs.list by page": lambda store: store.runs.list(limit=1),
    "runs.list of a thread": lambda store: store.runs.list(thread_id="t", status="done"),
    "runs.get": lambda store: store.runs.get("running"),
    "runs.latest": lambda store: store.runs.latest("t"),
    "pending.list": lambda store: store.pending.list("t"),
    "pending.threads": lambda store: store.pending.threads(),
    "branches.list": lambda store: store.branches.list("t"),
    "branches.get": lambda store: store.branches.get("t", "side"),
    "branches.current": lambda store: store.branches.current("t"),
    "branches.labels": lambda store: store.branches.labels("t"),
    "state.list": lambda store: store.state.list("t"),
    "state.get": lambda store: store.state.get("t", "memo", run_id="running"),
    "profiles.get": lambda store: store.profiles.get("t", "prefs"),
    "profiles.list": lambda store: store.profiles.list("t"),
    "profiles.list of a prefix": lambda store: store.profiles.list("user:ann", prefix="pre"),
    "load": lambda store: store.load("t"),
    "load main": lambda store: store.load("t", branch=0),
    "load parent": lambda store: store.load("parent"),
    "export": _export,
}
WRITES: dict[str, Probe] = {
    "commit": lambda store: store.commit("t", messages=[Message.user("new")]),
    "commit parent": lambda store: store.commit("parent", messages=[Message.user("new")], expect=1),
    "commit expecting": lambda store: store.commit("t", messages=[Message.user("new")], expect_head="m9"),
    "commit with a fence": lambda store: store.commit("t", messages=[Message.user("new")], fence=4),
    "commit under an old key": lambda store: store.commit(
        "t", messages=[Message.user("another way", id="m7")], key="k3"
    ),
    "commit under a used key": lambda store: store.commit("t", messages=[Message.user("new")], key="k2"),
    "commit a summary": lambda store: store.commit("t", messages=[Message.summary("short", 1, 1)], key="k1"),
    "step": _step,
    "resume": _finish,
    "runs.start": lambda store: store.runs.start("t", "agent", messages=[Message.user("go")]),
    "pending.append": lambda store: store.pending.append("t", [Message.user("three")]),
    "pending.append parent": lambda store: store.pending.append("parent", [Message.user("one")]),
    "pending.edit": lambda store: store.pending.edit("t", "p1", Message.user("ONE")),
    "pending.reorder": lambda store: store.pending.reorder("t", ["p2", "p1"]),
    "pending.retract": lambda store: store.pending.retract("t", "p2"),
    "pending.freeze": lambda store: store.pending.freeze("t"),
    "branches.fork": lambda store: store.branches.fork("t", before="m3"),
    "branches.switch": lambda store: store.branches.switch("t", 0),
    "branches.delete": lambda store: store.branches.delete("t", "twig"),
    "branches.label": lambda store: store.branches.label("t", "m1", "x"),
    "state.put": lambda store: store.state.put("t", "plan", 2),
    "profiles.put": lambda store: store.profiles.put("t", "prefs", 2),
    "profiles.clear": lambda store: store.profiles.clear("user:ann"),
    "profiles.delete": lambda store: store.profiles.delete("t", "prefs"),
    "threads.update": lambda store: store.threads.update("t", title="New", parent_thread_id="leaf"),
    "threads.move": lambda store: store.threads.update("leaf", parent_thread_id="parent"),
    "threads.create": lambda store: store.threads.create("erased"),
    "threads.delete": lambda store: store.threads.delete("parent", strategy="cascade"),
}
