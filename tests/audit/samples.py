"""A small store that holds at least one of everything, every row of it known by name."""

from __future__ import annotations

from perdure import Message, Store, Ticket, ToolUse
from perdure.kernel.ops import NOW, Delete, Patch
from perdure.model.run import Run


def _run(run: Run | None) -> Run:
    if run is None:
        raise AssertionError("the run was lost")
    return run


async def rich(store: Store) -> None:
    """Threads in a tree, a deleted and a half-deleted one; in `t` branches, runs in every status, and all the rest."""
    await store.threads.create("parent", title="Parent")
    await store.threads.create("t", parent_thread_id="parent", resource_id="u-1", title="T", custom={"a": 1})
    await store.threads.create("leaf", parent_thread_id="t")
    await store.commit("parent", messages=[Message.user("plan it", id="q1")], state={"plan": 1}, key="pk")
    await store.branches.label("parent", "q1", "start")
    await _conversation(store)
    await _branches(store)
    await _runs(store)
    await store.pending.append("t", [Message.user("one", id="p1"), Message.user("two", id="p2")])
    await store.pending.append("parent", [Message.user("taken back", id="p3")])
    await store.pending.retract("parent", "p3")
    await store.threads.create("erased")
    await store.threads.delete("erased")
    await _half_deleted(store)
    await store.profiles.put("t", "prefs", {"tone": "short"}, ttl_ms=86_400_000)
    await store.profiles.put("user:ann", "prefs", ["tea"])
    await store.profiles.put("user:ann", "city", "Kyoto", ttl_ms=3 * 86_400_000)


async def _conversation(store: Store) -> None:
    run = await store.runs.start("t", "agent", run_id="running", messages=[Message.user("hi", id="m1")], fence=3)
    call = Message.assistant([ToolUse("c1", "look"), ToolUse("c2", "book")], id="m2")
    seen = [Message.tool("c1", "seen", id="m3"), Message.tool("c2", "no", id="m4")]
    receipt = await store.commit(
        "t", messages=[call, *seen], run=run.step(), state={"plan": {"a": [1]}}, run_state={"memo": 1}, key="k1"
    )
    await store.commit("t", run=_run(receipt.run).step(input_tokens=3, output_tokens=4), key="k2")
    await store.commit("t", messages=[Message.retraction("c2", id="m5")])
    await store.commit("t", messages=[Message.summary("in short", 1, 2, id="m6")])


async def _branches(store: Store) -> None:
    await store.branches.fork("t", at="m1", name="side", switch=True)
    await store.commit("t", messages=[Message.user("another way", id="m7")], key="k3")
    await store.branches.fork("t", at="m7", name="twig")
    await store.branches.fork("t", at=None, name="gone")
    await store.branches.delete("t", "gone")
    await store.branches.label("t", "m2", "here")
    await store.branches.label("t", "m7", "there")


async def _runs(store: Store) -> None:
    waiting = await store.runs.start("t", "agent", run_id="waiting", messages=[Message.user("book it", id="m8")])
    await store.commit("t", run=waiting.wait([Ticket(ticket_id="t-1", tool_call_id="c1")]))
    done = await store.runs.start("t", "agent", run_id="done", parent_run_id="waiting")
    await store.commit("t", messages=[Message.assistant("bye", id="m9")], run=done.finish("bye"))
    never = await store.runs.create("t", "agent", run_id="cancelled")
    await store.commit("t", run=never.cancel("not wanted"))
    await store.runs.create("t", "agent", run_id="created")


async def _half_deleted(store: Store) -> None:
    """As a crash leaves it between the tombstone and the erasure."""
    await store.threads.create("dying")
    await store.commit("dying", messages=[Message.user("x", id="d1")], key="dk")
    gone = {"parent": None, "resource": None, "title": None, "deleted_at": NOW}
    ops = [Delete("thread_heads", ("dying",)), Patch("threads", ("dying",), gone, body=b"{}")]
    await store.engine.transact(store.scope, ops)
