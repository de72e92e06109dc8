"""Data that the CLI tests look at: every kind of thing a store can hold, hostile text included."""

from __future__ import annotations

from perdure import (
    Document,
    Image,
    Message,
    RunTrace,
    Store,
    Text,
    Thinking,
    Ticket,
    ToolUse,
    UrlSource,
)
from perdure.model.pending import DeliveryMode
from perdure.model.run_snapshots import RunActivation

HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]not markup[/red] \x9b31m \u202eevil\u202c :smile: \r\nsecond line\x00\x7f"
"""Clears a screen, renames a window, pretends to be markup, runs backwards."""


async def conversation(store: Store, thread: str = "kyoto") -> None:
    """A thread with tools, a run of each status, two branches and a second root, labels, state and a queue."""
    await store.threads.create(thread, title="Plan a trip", resource_id="u-7", custom={"tags": ["travel"], "n": 1.5})
    run = await store.runs.start(thread, "planner", messages=[Message.user("Two days in Kyoto?", id=f"{thread}-ask")])
    call = ToolUse("call-1", "weather", {"city": "Kyoto", "days": 2})
    said = Message.assistant([Thinking("hm"), Text("Let me look."), call], id=f"{thread}-call")
    receipt = await store.commit(
        thread, messages=[said], run=run.step(input_tokens=12), state={"plan": {"days": 2}}, key="step-1"
    )
    result = Message.tool("call-1", "Rain on both days.", id=f"{thread}-result")
    receipt = await store.commit(thread, messages=[result], run=receipt.run.step(), run_state={"scratch": [1, None]})
    answer = Message.assistant("Museums, then.", id=f"{thread}-answer")
    await store.commit(thread, messages=[answer], run=receipt.run.finish("Museums, then."))
    await store.branches.label(thread, f"{thread}-answer", "good")

    await store.branches.fork(thread, at=f"{thread}-ask", name="sunny", switch=True)
    await _unfinished(store, thread)
    await store.branches.fork(thread, at=None, name="fresh", switch=True)
    await store.commit(thread, messages=[Message.user("Something else entirely.")])
    await store.branches.fork(thread, at=f"{thread}-result", name="doomed")
    await store.branches.delete(thread, "doomed")
    await store.branches.switch(thread, "sunny")
    await store.pending.append(thread, [Message.user("And the food?")], mode=DeliveryMode(boundary="next_step"))


async def _unfinished(store: Store, thread: str) -> None:
    waiting = await store.runs.start(thread, "planner", messages=[Message.user("Assume sun.")])
    book = ToolUse("call-2", "book", {"hotel": "Ryokan"})
    picture = Image(UrlSource("https://example.org/garden.jpg"))
    paper = Document(UrlSource("https://example.org/terms.pdf"), title="Terms")
    odd = Message.from_json({"role": "user", "content": [{"type": "hologram", "depth": 3}], "mood": "curious"})
    said = Message.assistant([Text("Gardens, and a ryokan."), book])
    moved = waiting.wait([Ticket(ticket_id="t-1", tool_call_id="call-2")], reason="tool_permission")
    await store.commit(thread, messages=[Message.user([picture, paper]), odd, said], run=moved)
    await store.commit(thread, messages=[Message.summary("The user likes gardens.", 1, 1)])


async def everything(store: Store) -> None:
    """The conversation, its children, a hostile thread and an empty one."""
    await conversation(store)
    await store.threads.create("child", parent_thread_id="kyoto", title="Sub-task")
    await store.runs.create("child", "helper")
    await store.threads.create("grandchild", parent_thread_id="child")
    trace = RunTrace(parent_thread_id="kyoto", resource_id="u-7")
    await store.runs.start("born-of-a-run", "helper", activation=RunActivation(trace=trace))
    await store.threads.create("late-parent", title="made after its child")
    await store.threads.update("grandchild", parent_thread_id="late-parent")
    await hostile(store)
    await store.profiles.put("user:ann", "note", HOSTILE)
    await store.profiles.put("user:ann", "prefs", {"tone": "short"}, ttl_ms=86_400_000)
    await store.threads.create("empty")
    await store.threads.create("gone")
    await store.threads.delete("gone")


async def hostile(store: Store) -> None:
    """A thread whose every text tries something."""
    await store.threads.create("hostile [bold]", title=HOSTILE.replace("\x00", ""), custom={"k": "\x1b[31m"})
    call = ToolUse("c", "rm[/]", {"path": HOSTILE, "n": [1, {"deep": "\x1b[0m"}]})
    await store.commit("hostile [bold]", messages=[Message.user(HOSTILE), Message.assistant([Text(HOSTILE), call])])
    await store.commit("hostile [bold]", messages=[Message.tool("c", HOSTILE, is_error=True)])
