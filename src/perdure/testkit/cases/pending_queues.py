"""Cases: pending queues. Which threads have one, how large it may grow, and concurrent writers."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import InvalidError, VersionConflict
from perdure.model.message import Message
from perdure.testkit.helpers import commit_texts, enqueue, queue_texts, race
from perdure.testkit.kit import Kit, case, equal, raises
from perdure.testkit.probe import dump, untouched


@case("pending", "threads", covers=("pending.threads",))
async def case_threads(kit: Kit) -> None:
    """Threads with pending messages: ascending as bytes, limited, after an id that need not exist."""
    for name in ("b", "a", "é", "Z", "empty", "d"):
        await kit.store.threads.create(name)
        if name != "empty":
            await enqueue(kit.store, name, "x")
    every = ["Z", "a", "b", "d", "é"]
    equal(list(await kit.store.pending.threads()), every, "ascending as bytes")
    equal(list(await kit.store.pending.threads(limit=2)), every[:2], "limit")
    equal(list(await kit.store.pending.threads(after="a", limit=2)), ["b", "d"], "after is exclusive")
    equal(list(await kit.store.pending.threads(after="c")), ["d", "é"], "after need not exist")
    equal(list(await kit.store.pending.threads(after="é")), [], "the end")
    for limit in (0, 201):
        await raises(InvalidError, kit.store.pending.threads(limit=limit))


@case("pending", "threads-drop-emptied", covers=("pending.threads",))
async def case_threads_drop_emptied(kit: Kit) -> None:
    """A thread leaves the list when its queue is frozen, retracted empty or deleted."""
    store = kit.store
    for name in ("frozen", "retracted", "deleted", "kept"):
        await store.threads.create(name)
        await store.pending.append(name, [Message.user("x", id="m")])
    await store.pending.freeze("frozen")
    await store.pending.retract("retracted", "m")
    await store.threads.delete("deleted")
    equal(list(await store.pending.threads()), ["kept"], "only threads that have pending messages")
    await enqueue(store, "frozen", "y")
    equal(list(await store.pending.threads()), ["frozen", "kept"], "and again when they do")


@case("pending", "full-queue", covers=("pending.append",))
async def case_full_queue(kit: Kit) -> None:
    """A queue has a limit; what exceeds it is refused as a whole, and a full queue can be frozen."""
    await kit.store.threads.create("t")
    most = limits.PENDING_PER_THREAD
    await kit.store.pending.append("t", [Message.user("x") for _ in range(most)])
    await untouched(kit.store, InvalidError, kit.store.pending.append("t", [Message.user("one too many")]))
    receipt = await kit.store.pending.freeze("t")
    equal(receipt.version, most, "a full queue can be frozen")
    equal(await queue_texts(kit.store, "t"), [], "and is empty then")


@case("pending", "concurrent-appends", covers=("pending.append",))
async def case_concurrent_appends(kit: Kit) -> None:
    """Appends from two clients at once all land, once each."""
    await kit.store.threads.create("t")
    clients = [kit.store, await kit.second()]
    calls = [clients[i % 2].pending.append("t", [Message.user(f"{i}")]) for i in range(32)]
    won, lost = await race(*calls)
    equal((len(won), [str(error) for error in lost]), (32, []), "appends without a guard never conflict")
    equal(sorted(await queue_texts(kit.store, "t"), key=int), [str(i) for i in range(32)], "all are there once")


@case("pending", "concurrent-edits", covers=("pending.edit",))
async def case_concurrent_edits(kit: Kit) -> None:
    """Of edits under the same revision exactly one wins."""
    await kit.store.threads.create("t")
    (name,) = await enqueue(kit.store, "t", "a")
    clients = [kit.store, await kit.second()]
    calls = [clients[i % 2].pending.edit("t", name, Message.user(f"{i}"), if_revision=1) for i in range(16)]
    won, lost = await race(*calls)
    equal((len(won), len(lost)), (1, 15), "one winner")
    equal({type(error) for error in lost}, {VersionConflict}, "what the others learn")
    equal(await queue_texts(kit.store, "t"), [won[0].message.text], "the winner's text stays")


@case("pending", "append-during-commits", covers=("pending.append",))
async def case_append_during_commits(kit: Kit) -> None:
    """Input that arrives while commits run is queued, and neither side is refused."""
    await kit.store.threads.create("t")
    other = await kit.second()
    calls: list[Any] = [commit_texts(kit.store, "t", f"step {i}") for i in range(32)]
    calls += [other.pending.append("t", [Message.user(f"{i}")]) for i in range(8)]
    _, lost = await race(*calls)
    equal([str(error) for error in lost], [], "neither side conflicts")
    equal(len(await queue_texts(kit.store, "t")), 8, "everything is queued")
    equal((await kit.store.threads.get("t")).version, 32, "everything is committed")


@case("pending", "apart-from-log", covers=("pending.append",))
async def case_apart_from_log(kit: Kit) -> None:
    """Pending messages move neither version nor rev and are in no view of the log."""
    await commit_texts(kit.store, "t", "said")
    thread = await kit.store.threads.get("t")
    (name,) = await enqueue(kit.store, "t", "queued")
    after = await kit.store.threads.get("t")
    equal((after.version, after.rev), (thread.version, thread.rev), "version and rev")
    equal([r.text for r in await kit.store.messages.history("t")], ["said"], "the history")
    equal(await kit.store.messages.find("t", name), None, "a pending message is not in the log")


@case("pending", "gone-with-thread", covers=("pending.append", "threads.delete"))
async def case_gone_with_thread(kit: Kit) -> None:
    """Deleting a thread takes its queue."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a", "b")
    await kit.store.threads.delete("t")
    held = await dump(kit.store, "t")
    equal((held["pending"], held["queues"]), ([], []), "queue rows")
    await kit.store.threads.create("t")
    equal(await queue_texts(kit.store, "t"), [], "a new thread of that id has no queue")


@case("pending", "survives-crash", covers=("pending.list",), needs=("durable",))
async def case_survives_crash(kit: Kit) -> None:
    """The queue is durable: order, edits and revisions."""
    await kit.store.threads.create("t")
    a, b = await enqueue(kit.store, "t", "a", "b")
    await kit.store.pending.reorder("t", [b, a])
    await kit.store.pending.edit("t", a, Message.user("A"))
    before = await kit.store.pending.list("t")
    store = await kit.crash()
    equal(await store.pending.list("t"), before, "the queue after a crash")
    equal(list(await store.pending.threads()), ["t"], "the thread is still listed")
