"""Cases: whose it is. A thread of another resource, or a run of another thread, is treated as missing."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError, KeyReused, NotFoundError
from perdure.model.message import Message
from perdure.model.run import Run
from perdure.model.run_snapshots import RunActivation, RunTrace
from perdure.model.thread import NewThread
from perdure.model.tickets import Ticket
from perdure.testkit.helpers import REFUSED_IDS
from perdure.testkit.kit import Kit, case, equal, raises
from perdure.testkit.probe import overtaken, together, untouched


@case("threads", "of-resource", covers=("threads.get", "threads.find"))
async def case_of_resource(kit: Kit) -> None:
    """With a resource, only its own thread is found; the error does not tell a foreign thread from a missing one."""
    store, threads = kit.store, kit.store.threads
    ann, nobody = await threads.create("a", resource_id="ann"), await threads.create("n")
    own = (await threads.find("a", resource_id="ann"), await threads.get("a", resource_id="ann"))
    equal(own, (ann, ann), "its own")
    equal(await threads.find("n"), nobody, "without a resource, any thread")
    for name in ("a", "n", "missing"):
        equal(await threads.find(name, resource_id="bob"), None, name)
        error = await raises(NotFoundError, threads.get(name, resource_id="bob"), name)
        equal(str(error), f"thread {name!r} does not exist", "the same text")
    await threads.update("a", resource_id="bob")
    equal((await store.thread("a").get(resource_id="bob")).resource_id, "bob", "its new owner, through a handle")
    equal(await store.thread("a").find(resource_id="ann"), None, "its old one")
    for bad in ("", "  ", " ann ", "ann\u00a0", 5, "x" * 257):
        await raises(InvalidError, threads.find("a", resource_id=bad), f"{bad!r}")  # type: ignore[arg-type]


@case("runs", "of-thread", covers=("runs.get", "runs.find", "runs.cancel", "runs.decide", "runs.rerun"))
async def case_of_thread(kit: Kit) -> None:
    """With a thread, a run of another one is neither read nor changed, and is treated as missing."""
    store, runs = kit.store, kit.store.runs
    run = await runs.start("t", "agent", messages=[Message.user("q")])
    run = (await store.commit("t", run=run.wait([Ticket(ticket_id="k")]))).run
    await runs.start("u", "agent")
    equal((await runs.get(run.id, thread_id="t"), await runs.find(run.id, thread_id="t")), (run, run), "its own")
    for name in (run.id, "missing"):
        for thread in ("u", "nowhere"):
            equal(await runs.find(name, thread_id=thread), None, "find")
            handle = store.thread(thread)
            for attempt in (
                runs.get(name, thread_id=thread),
                runs.cancel(name, "enough", thread_id=thread),
                runs.decide(name, "k", True, thread_id=thread),
                runs.rerun(name, thread_id=thread),
                handle.cancel(name),
                handle.decide(name, "k", True),
                handle.rerun(name),
            ):
                error = await untouched(store, NotFoundError, attempt, f"{name} in {thread}")
                equal(str(error), f"run {name!r} is not in thread {thread!r}", "the same text")
    for bad in REFUSED_IDS:
        await raises(InvalidError, runs.get(run.id, thread_id=bad), f"{bad!r}")
    chat = store.thread("t")
    equal((await chat.decide(run.id, "k", True)).ready, True, "decided in its own thread")
    equal((await runs.decide(run.id, "k", True, thread_id="t")).ready, True, "and again")
    equal((await chat.cancel(run.id, "enough")).status, "done", "cancelled in its own thread")
    equal((await runs.cancel(run.id, thread_id="t")).status, "done", "and again")


@case("runs", "start-owned", covers=("runs.start", "runs.create"))
async def case_start_owned(kit: Kit) -> None:
    """A start for a resource creates the thread for it, and writes to no thread of another."""
    store, runs = kit.store, kit.store.runs
    named = NewThread(title="Trip", resource_id="ann")
    trace = RunActivation(trace=RunTrace(resource_id="trace"))
    births: dict[str, dict[str, Any]] = {"a": {}, "b": {"thread": named}, "c": {"activation": trace}}
    for name, options in births.items():
        run = await runs.start(name, "agent", resource_id="ann", messages=[Message.user("q")], **options)
        equal((run.status, (await store.threads.get(name)).resource_id), ("running", "ann"), f"thread {name} is made")
        await runs.start(name, "agent", resource_id="ann", messages=[Message.user("again")])
        await runs.create(name, "agent", resource_id="ann")
    await store.threads.create("nobody")
    texts = [Message.user("x")]
    ways: list[dict[str, Any]] = [{}, {"if_idle": True}, {"messages": texts}, {"branch": 0}, {"fence": 9}]
    for begin in (runs.start, runs.create):
        for name in ("a", "nobody"):
            for options in ways:
                attempt = begin(name, "agent", resource_id="bob", **options)
                error = await untouched(store, NotFoundError, attempt, f"{name} {options}")
                equal(str(error), f"thread {name!r} does not exist", "as if it were missing")
    for bad in ("", "  ", " ann ", 5):
        await untouched(store, InvalidError, runs.start("a", "agent", resource_id=bad))  # type: ignore[arg-type]
    await untouched(store, InvalidError, runs.start("z", "agent", resource_id="bob", thread=named), "two owners")


@case("runs", "start-owned-key", covers=("runs.start",))
async def case_start_owned_key(kit: Kit) -> None:
    """A repeated start returns its run to the owner alone: the key of another is not an answer."""
    options: dict[str, Any] = {"key": "k", "messages": [Message.user("x")], "run_id": "r"}
    first = await kit.store.runs.start("t", "agent", resource_id="ann", **options)
    equal((await kit.store.runs.start("t", "agent", resource_id="ann", **options)).id, first.id, "its owner")
    equal((await kit.store.runs.start("t", "agent", **options)).id, first.id, "a guard is not content")
    for text in ("x", "else"):
        options["messages"] = [Message.user(text)]
        await untouched(
            kit.store, NotFoundError, kit.store.runs.start("t", "agent", resource_id="bob", **options), text
        )
    await raises(KeyReused, kit.store.runs.start("t", "agent", resource_id="ann", **options), "other content")


@case("runs", "start-owned-overtaken", covers=("runs.start",))
async def case_start_owned_overtaken(kit: Kit) -> None:
    """A thread that changes hands, or is made by another, just before the write is not written to."""
    for options in ({}, {"if_idle": True}):
        await kit.store.threads.ensure("t")
        await kit.store.threads.update("t", resource_id="ann")
        slow, _ = await overtaken(
            kit,
            lambda s, options=options: s.runs.start("t", "agent", resource_id="ann", **options),  # type: ignore[misc]
            lambda s: s.threads.update("t", resource_id="bob"),
        )
        equal((type(slow), (await kit.store.runs.latest("t"))), (NotFoundError, None), f"changed hands, {options}")
    clients = [kit.store, await kit.second()]
    starts = [clients[n % 2].runs.start("new", "agent", resource_id=f"user-{n}") for n in range(6)]
    outcomes = await together(*starts)
    winners = [f"user-{n}" for n, item in enumerate(outcomes) if isinstance(item, Run)]
    equal(winners, [(await kit.store.threads.get("new")).resource_id], "one makes the thread, and owns it")
    equal([type(item) for item in outcomes].count(NotFoundError), 5, "the others do not find it")
