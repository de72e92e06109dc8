"""Every public call of a store, as the budget measures it: with content where it takes some, on content where it reads.

Thread `t` is read and never grows; writing goes to `w` and `q`. What a call needs first is its `setup`, which is not
measured. `parts` names the content that a call handles, and so what its memory is compared with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.budget.contents import CUSTOM, MESSAGE, Material

from perdure import Message, Store, Ticket
from perdure.stores.transfer.export import export_lines

Action = Callable[[Store, Material, int], Awaitable[Any]]
SIZES = {"message": MESSAGE, "value": MESSAGE, "run": MESSAGE, "pending": MESSAGE, "custom": CUSTOM}


@dataclass(frozen=True)
class Call:
    """One call; `n` is different every time, for ids that must be new."""

    run: Action
    parts: tuple[str, ...] = ()
    setup: Action | None = None
    takes: bool = False
    """Does it take content from the caller, which may be refused?"""

    @property
    def weight(self) -> int:
        """Bytes of content that it handles."""
        return sum(SIZES[part] for part in self.parts)


async def fill(store: Store, material: Material) -> None:
    """Everything that the calls read, written through the API."""
    await store.threads.create("t", custom=material.custom, resource_id="hurt")
    await store.commit("t", messages=[Message.user("hello", id="first"), material.message(id="m")])
    run = await store.runs.start("t", "agent", run_id="r", metadata=material.value)
    await store.commit("t", run=run, state={"s": material.value}, run_state={"rs": 1})
    await store.pending.append("t", [material.message(id="p")])
    await store.profiles.put("u", "p", material.value)
    await store.branches.fork("t", at="m", name="side")
    await store.branches.label("t", "m", "here")
    await store.commit("child", messages=[material.message()])
    await store.threads.update("child", parent_thread_id="t")
    await store.commit("w", messages=[Message.user("hello", id="w0")])
    await store.commit("q", messages=[Message.user("hello")])


async def _every(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def _first(items: AsyncIterator[Any]) -> Any:
    async for item in items:
        await items.aclose()  # type: ignore[attr-defined]
        return item
    return None


async def _queue_one(store: Store, m: Material, n: int) -> None:
    await store.pending.append("q", [m.message(id=f"q{n}")])


async def _queue_two(store: Store, m: Material, n: int) -> None:
    for item in (await store.pending.list("q")).items:
        await store.pending.retract("q", item.id)
    await store.pending.append("q", [m.message(id=f"q{n}"), Message.user("second", id=f"s{n}")])


async def _empty_queue(store: Store, m: Material, n: int) -> None:
    for item in (await store.pending.list("q")).items:
        await store.pending.retract("q", item.id)


async def _pending_one(store: Store, m: Material, n: int) -> None:
    await _empty_queue(store, m, n)
    await _queue_one(store, m, n)


async def _fork(store: Store, m: Material, n: int) -> None:
    await store.branches.fork("w", at="w0", name=f"b{n}")


async def _move_run(store: Store, m: Material, n: int) -> Any:
    """Three commits, each of which writes the run's body."""
    run = await store.runs.start("w", "agent", metadata=m.value)
    ticket = Ticket(ticket_id="x", arguments=m.value)
    waiting = (await store.commit("w", run=run.wait([ticket], message="?"))).run
    return await store.commit("w", run=waiting.fail("x", error=m.custom), key=f"k{n}")


async def _commit(store: Store, m: Material, n: int) -> Any:
    return await store.commit("w", messages=[m.given], state={"s": m.value}, key=f"c{n}")


async def _buffer(store: Store, m: Material, n: int) -> Any:
    async with store.buffered("w") as writer:
        return await writer.append(m.given)


async def _export(store: Store, m: Material, n: int) -> Any:
    return await _every(export_lines(store, ["t"]))


async def _json(store: Store, m: Material, n: int) -> Any:
    return m.given.to_json()


async def _from_json(store: Store, m: Material, n: int) -> Any:
    return Message.from_json(m.decoded)


async def _now(value: Any) -> Any:
    return value


ALL = ("message", "value", "run", "custom", "pending")


async def _cancel(store: Store, m: Material, n: int) -> None:
    run = await store.runs.start("w", "agent", run_id=f"cancelled-{n}", metadata=m.value)
    await store.runs.cancel(run.id)


async def _decide(store: Store, m: Material, n: int) -> None:
    run = await store.runs.start("w", "agent", run_id=f"decided-{n}")
    run = (await store.commit("w", run=run.wait([Ticket(ticket_id="k")]))).run
    await store.runs.decide(run.id, "k", m.value)


async def _rerun(store: Store, m: Material, n: int) -> None:
    run = await store.runs.start("w", "agent", run_id=f"first-{n}", metadata=m.value)
    await store.runs.rerun(run.id, messages=[m.given], metadata=m.value, key=f"rerun-{n}")


CALLS: dict[str, Call] = {
    "store.load": Call(lambda s, m, n: s.load("t"), ("message", "value", "run", "custom")),
    "store.health": Call(lambda s, m, n: s.health()),
    "store.sweep": Call(lambda s, m, n: s.sweep()),
    "store.capabilities": Call(lambda s, m, n: _now(s.capabilities())),
    "store.scoped": Call(lambda s, m, n: _now(s.scoped("other"))),
    "store.thread": Call(lambda s, m, n: s.thread("t").history(limit=5), ("message",)),
    "store.commit": Call(_commit, ("message", "value"), takes=True),
    "store.buffered": Call(_buffer, ("message", "message"), takes=True),
    "store.commit of a run's moves": Call(_move_run, ("run", "run", "run", "value", "custom"), takes=True),
    "threads.find": Call(lambda s, m, n: s.threads.find("t"), ("custom",)),
    "threads.get": Call(lambda s, m, n: s.threads.get("t"), ("custom",)),
    "threads.list": Call(lambda s, m, n: s.threads.list(resource_id="hurt"), ("custom",)),
    "threads.iter": Call(lambda s, m, n: _every(s.threads.iter(resource_id="hurt")), ("custom",)),
    "threads.children": Call(lambda s, m, n: s.threads.children("t"), ("custom",)),
    "threads.with_prefix": Call(lambda s, m, n: s.threads.with_prefix("t"), ("custom",)),
    "threads.validate_parent": Call(lambda s, m, n: s.threads.validate_parent("w", "t")),
    "threads.create": Call(
        lambda s, m, n: s.threads.create(f"n{n}", custom=m.custom),
        ("custom",),
        takes=True,
    ),
    "threads.ensure": Call(lambda s, m, n: s.threads.ensure(f"e{n}", custom=m.custom), ("custom",), takes=True),
    "threads.update": Call(lambda s, m, n: s.threads.update("w", custom=m.custom), ("custom",), takes=True),
    "threads.delete": Call(
        lambda s, m, n: s.threads.delete(f"d{n}"),
        ("message",),
        setup=lambda s, m, n: s.commit(f"d{n}", messages=[m.message()]),
    ),
    "messages.list": Call(lambda s, m, n: s.messages.list("t"), ("message",)),
    "messages.iter": Call(lambda s, m, n: _every(s.messages.iter("t")), ("message",)),
    "messages.find": Call(lambda s, m, n: s.messages.find("t", "m"), ("message",)),
    "messages.get": Call(lambda s, m, n: s.messages.get("t", "m"), ("message",)),
    "messages.range": Call(lambda s, m, n: s.messages.range("t", 1, 2), ("message",)),
    "messages.history": Call(lambda s, m, n: s.messages.history("t"), ("message",)),
    "messages.path": Call(lambda s, m, n: s.messages.path("t"), ("message",)),
    "messages.page": Call(lambda s, m, n: s.messages.page("t", before=9, limit=5), ("message",)),
    "messages.external": Call(lambda s, m, n: s.messages.external("t", limit=5), ("message",)),
    "messages.unfinished_calls": Call(lambda s, m, n: s.messages.unfinished_calls("t"), ("message",)),
    "messages.follow": Call(lambda s, m, n: _first(s.messages.follow("t", after_seq=1)), ("message",)),
    "branches.list": Call(lambda s, m, n: s.branches.list("t"), ("message",)),
    "branches.iter": Call(lambda s, m, n: _every(s.branches.iter("t")), ("message",)),
    "branches.get": Call(lambda s, m, n: s.branches.get("t", "side"), ("message",)),
    "branches.current": Call(lambda s, m, n: s.branches.current("t"), ("message",)),
    "branches.fork": Call(lambda s, m, n: s.branches.fork("t", at="m"), ("message",)),
    "branches.fork with messages": Call(
        lambda s, m, n: s.branches.fork("w", at="w0", messages=[m.given], key=f"f{n}"), ("message",), takes=True
    ),
    "branches.checkout": Call(lambda s, m, n: s.branches.checkout("t", "m"), ("message",)),
    "branches.variants": Call(lambda s, m, n: s.branches.variants("t", "m"), ("message",)),
    "branches.tree": Call(lambda s, m, n: s.branches.tree("t"), ("message", "message")),
    "branches.switch": Call(lambda s, m, n: s.branches.switch("t", n % 2), ("message",)),
    "branches.rename": Call(lambda s, m, n: s.branches.rename("child", 0, f"main {n}"), ("message",)),
    "branches.delete": Call(lambda s, m, n: s.branches.delete("w", f"b{n}"), setup=_fork),
    "branches.label": Call(lambda s, m, n: s.branches.label("t", "m", f"l{n}"), ("message",)),
    "branches.labels": Call(lambda s, m, n: s.branches.labels("t")),
    "runs.create": Call(lambda s, m, n: s.runs.create("w", "agent", metadata=m.value), ("run",), takes=True),
    "runs.start": Call(
        lambda s, m, n: s.runs.start("w", "agent", messages=[m.given], metadata=m.value),
        ("run", "message"),
        takes=True,
    ),
    "runs.find": Call(lambda s, m, n: s.runs.find("r"), ("run",)),
    "runs.cancel": Call(_cancel, ("run", "run", "run"), takes=True),
    "runs.decide": Call(_decide, ("value",) * 4, takes=True),
    "runs.rerun": Call(_rerun, ("run",) * 5 + ("message",) * 2, takes=True),
    "runs.follow": Call(lambda s, m, n: _every(s.runs.follow("r", timeout=0)), ("run",)),
    "runs.follow_drafts": Call(lambda s, m, n: _every(s.runs.follow_drafts("t", timeout=0)), ("run",)),
    "runs.get": Call(lambda s, m, n: s.runs.get("r"), ("run",)),
    "runs.latest": Call(lambda s, m, n: s.runs.latest("t"), ("run",)),
    "runs.of_message": Call(lambda s, m, n: s.runs.of_message("t", "m"), ("message",)),
    "runs.list": Call(lambda s, m, n: s.runs.list(thread_id="t"), ("run",)),
    "runs.iter": Call(lambda s, m, n: _every(s.runs.iter(thread_id="t")), ("run",)),
    "runs.with_prefix": Call(lambda s, m, n: s.runs.with_prefix("r"), ("run",)),
    "state.put": Call(lambda s, m, n: s.state.put("w", "s", m.value), ("value",), takes=True),
    "state.find": Call(lambda s, m, n: s.state.find("t", "s"), ("value",)),
    "state.get": Call(lambda s, m, n: s.state.get("t", "s"), ("value",)),
    "state.list": Call(lambda s, m, n: s.state.list("t"), ("value",)),
    "state.iter": Call(lambda s, m, n: _every(s.state.iter("t")), ("value",)),
    "state.delete": Call(
        lambda s, m, n: s.state.delete("w", "x"), ("value",), setup=lambda s, m, n: s.state.put("w", "x", m.value)
    ),
    "profiles.put": Call(lambda s, m, n: s.profiles.put("app", "p", m.value), ("value",), takes=True),
    "profiles.find": Call(lambda s, m, n: s.profiles.find("u", "p"), ("value",)),
    "profiles.get": Call(lambda s, m, n: s.profiles.get("u", "p"), ("value",)),
    "profiles.list": Call(lambda s, m, n: s.profiles.list("u"), ("value",)),
    "profiles.iter": Call(lambda s, m, n: _every(s.profiles.iter("u", prefix="p")), ("value",)),
    "profiles.follow": Call(lambda s, m, n: _first(s.profiles.follow("u")), ("value",)),
    "profiles.delete": Call(
        lambda s, m, n: s.profiles.delete("w", "x"), ("value",), setup=lambda s, m, n: s.profiles.put("w", "x", m.value)
    ),
    "profiles.clear": Call(
        lambda s, m, n: s.profiles.clear("w"), ("value",), setup=lambda s, m, n: s.profiles.put("w", "x", m.value)
    ),
    "pending.append": Call(
        lambda s, m, n: s.pending.append("q", [m.given]), ("message",), setup=_empty_queue, takes=True
    ),
    "pending.list": Call(lambda s, m, n: s.pending.list("t"), ("pending",)),
    "pending.iter": Call(lambda s, m, n: _every(s.pending.iter("t")), ("pending",)),
    "pending.count": Call(lambda s, m, n: s.pending.count("t")),
    "pending.edit": Call(lambda s, m, n: s.pending.edit("t", "p", m.given), ("pending", "message"), takes=True),
    "pending.retract": Call(lambda s, m, n: s.pending.retract("q", f"q{n}"), ("pending",), setup=_pending_one),
    "pending.reorder": Call(lambda s, m, n: s.pending.reorder("q", [f"s{n}", f"q{n}"]), ("pending",), setup=_queue_two),
    "pending.freeze": Call(lambda s, m, n: s.pending.freeze("q", key=f"f{n}"), ("pending",), setup=_pending_one),
    "pending.threads": Call(lambda s, m, n: s.pending.threads()),
    "Message.to_json": Call(_json, ("message",)),
    "Message.from_json": Call(_from_json, ("message",)),
    "export": Call(_export, ALL),
}

NOT_MEASURED = {"store.close"}
"""Ends the store."""


def public_methods(store: Store) -> Iterator[str]:
    """`threads.create` and so on, for everything public of a store and of the stores it holds."""
    for noun, thing in {"store": store, **vars(store)}.items():
        if noun.startswith("_"):
            continue
        for verb in dir(type(thing)):
            if not verb.startswith("_") and callable(getattr(type(thing), verb)):
                yield f"{noun}.{verb}"
