"""Cases: the buffered writer. Ids at once, commits later, in order, none lost silently and none written twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from perdure import limits
from perdure.errors import (
    AlreadyExists,
    InvalidError,
    NotFoundError,
    OutcomeUnknown,
    PerdureError,
    StaleClaim,
    UnavailableError,
    VersionConflict,
)
from perdure.kernel.ops import Applied, Op
from perdure.model.message import Message
from perdure.stores.store import Store
from perdure.testkit.helpers import ids, texts
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import GatedEngine, together

BUFFERED = ("store.buffered",)
NEVER = 3_600_000
"""Milliseconds: no timer of a case ends by itself."""


class Shaky(GatedEngine):
    """An engine on which the next transactions fail: with the error as it is, or after having been applied."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine, passes=1_000_000)
        self.failures: list[tuple[PerdureError, bool]] = []
        self.writes = 0

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply, or fail before or after."""
        self.writes += 1
        error, applies = self.failures.pop(0) if self.failures else (None, True)
        applied = await super().transact(scope, ops, hints) if applies else None
        if error is not None or applied is None:
            raise error or UnavailableError("nothing was applied")
        return applied


async def shaky(kit: Kit) -> tuple[Store, Shaky]:
    """A store over an engine that can be made to fail."""
    engine = Shaky(kit.store.engine)
    return Store(engine, kit.store.scope, owner=False), engine


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks work until something is so; the deadline of the case ends a wait in vain."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


async def stored(kit: Kit) -> list[str]:
    """The texts of the thread, in order."""
    return texts((await kit.store.messages.list("t", limit=limits.PAGE_MAX)).items)


@case("commit", "buffered", covers=BUFFERED)
async def case_buffered(kit: Kit) -> None:
    """Ids come at once, nothing is stored before a flush, and a receipt names what became durable."""
    async with kit.store.buffered("t", most=10, every_ms=NEVER) as writer:
        first = await writer.append(Message.user("a"), Message.user("b", id="mine"))
        equal(first[1], "mine", "an id of the caller's")
        equal((len(set(first)), ids_of(writer.waiting)), (2, first), "ids")
        equal(await kit.store.threads.find("t"), None, "nothing is stored yet")
        receipt = await writer.flush()
        expect(receipt is not None, "a receipt")
        if receipt is not None:
            equal((receipt.message_ids, receipt.seqs, receipt.version), (first, [1, 2], 2), "the receipt")
            equal(receipt.durable, kit.store.capabilities().durability, "what it survives")
        equal((writer.waiting, await writer.flush()), ([], None), "nothing waits")
        await writer.append(Message.user("c"))
    equal(await stored(kit), ["a", "b", "c"], "leaving the block flushes")
    equal(ids((await kit.store.messages.list("t")).items)[:2], first, "stored under the ids that were returned")


def ids_of(messages: Sequence[Message]) -> list[str | None]:
    """The ids of messages."""
    return [message.id for message in messages]


@case("commit", "buffered-flushes", covers=BUFFERED)
async def case_buffered_flushes(kit: Kit) -> None:
    """A flush begins when enough wait, or some time after the first; order is kept over all of them."""
    async with kit.store.buffered("t", most=3, every_ms=NEVER) as writer:
        for n in range(2):
            await writer.append(Message.user(str(n)))
        equal(await kit.store.threads.find("t"), None, "two wait")
        await writer.append(Message.user("2"))
        await until(lambda: not writer.waiting)
        equal(await stored(kit), ["0", "1", "2"], "three are stored")
    async with kit.store.buffered("t", most=100, every_ms=1) as writer:
        await writer.append(Message.user("3"))
        await until(lambda: not writer.waiting)
        equal(await stored(kit), ["0", "1", "2", "3"], "after a while")
        await writer.append(Message.user("4"))
        await until(lambda: not writer.waiting)
    async with kit.store.buffered("t", most=2, every_ms=1) as writer:
        for n in range(5, 60):
            await writer.append(Message.user(str(n)))
            expect(len(writer.waiting) <= 4, "no more wait than two flushes take")
    equal(await stored(kit), [str(n) for n in range(60)], "all of them in order")


@case("commit", "buffered-copies", covers=BUFFERED)
async def case_buffered_copies(kit: Kit) -> None:
    """What is changed after the append changes nothing that is written."""
    message = Message.assistant("as appended", metadata={"n": 1})
    async with kit.store.buffered("t", every_ms=NEVER) as writer:
        await writer.append(message)
        message.content.clear()
        if message.metadata is not None:
            message.metadata["n"] = 2
    (record,) = (await kit.store.messages.list("t")).items
    equal((record.text, record.message.metadata), ("as appended", {"n": 1}), "the record")


@case("commit", "buffered-options", covers=BUFFERED)
async def case_buffered_options(kit: Kit) -> None:
    """Run, branch and fence go with every flush."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("q", id="q")])
    await kit.store.branches.fork("t", at="q", name="x")
    async with kit.store.buffered("t", run=run, branch="x", fence=4, every_ms=NEVER) as writer:
        await writer.append(Message.assistant("a"))
        await writer.flush()
        await writer.append(Message.assistant("b"))
    records = await kit.store.messages.history("t", branch="x")
    equal([(r.text, r.run_id) for r in records], [("q", None), ("a", run.id), ("b", run.id)], "records")
    equal((await kit.store.threads.get("t")).fence, 4, "the fence")
    equal((await kit.store.runs.get(run.id)).rev, run.rev, "the run only produced them")


@case("commit", "buffered-refused", covers=BUFFERED)
async def case_buffered_refused(kit: Kit) -> None:
    """Options and messages are checked at once; a refused append takes nothing."""
    run = await kit.store.runs.start("t", "agent")
    for options in (
        {"most": 0},
        {"most": limits.COMMIT_MESSAGES + 1},
        {"most": True},
        {"every_ms": 0},
        {"every_ms": limits.BUFFER_MS + 1},
        {"every_ms": 1.5},
        {"run": run.step()},
        {"run": "r"},
        {"fence": -1},
        {"branch": 1.5},
    ):
        await raises(InvalidError, build(kit.store, "t", options), f"{options}")
    await raises(InvalidError, build(kit.store, "", {}), "a thread without an id")
    await raises(InvalidError, build(kit.store, "u", {"run": run}), "a run of another thread")
    async with kit.store.buffered("t", every_ms=NEVER) as writer:
        await writer.append(Message.user("a", id="a"))
        for bad in ("text", Message(role="tool", content=[]), Message.user("x", id="a"), Message.user("x", id="")):
            await raises(InvalidError, writer.append(Message.user("fine"), bad), f"{bad!r}")  # type: ignore[arg-type]
        await raises(InvalidError, writer.append(Message.user("x" * (limits.MESSAGE_BYTES + 1))), "too long")
        equal(ids_of(writer.waiting), ["a"], "what waits")
    await raises(InvalidError, writer.append(Message.user("late")), "after the block")


async def build(store: Store, thread_id: str, options: dict[str, Any]) -> None:
    """Ask for a writer."""
    store.buffered(thread_id, **options)


@case("commit", "buffered-failure", covers=BUFFERED)
async def case_buffered_failure(kit: Kit) -> None:
    """A flush in the background that failed is heard of at the next append, which takes nothing; none is lost."""
    store, engine = await shaky(kit)
    async with store.buffered("t", most=2, every_ms=NEVER) as writer:
        engine.failures = [(UnavailableError("down"), False)]
        await writer.append(Message.user("a"), Message.user("b"))
        await until(lambda: engine.writes == 1)
        await raises(UnavailableError, writer.append(Message.user("not taken")))
        equal(texts_of(writer.waiting), ["a", "b"], "what waits")
        await writer.append(Message.user("c"))
        await until(lambda: not writer.waiting)
        engine.failures = [(UnavailableError("down"), False)]
        await writer.append(Message.user("d"))
        await raises(UnavailableError, writer.flush())
        await writer.flush()
    equal(await stored(kit), ["a", "b", "c", "d"], "all of them, once, in order")


def texts_of(messages: Sequence[Message]) -> list[str]:
    """The texts of messages."""
    return [message.text for message in messages]


@case("commit", "buffered-failed-exit", covers=BUFFERED)
async def case_buffered_failed_exit(kit: Kit) -> None:
    """Leaving a block raises what the last flush met, and the messages can still be read and flushed."""
    store, engine = await shaky(kit)
    writer = store.buffered("t", every_ms=NEVER)

    async def block(failure: Exception | None) -> None:
        async with writer:
            if not writer.waiting:
                await writer.append(Message.user("a"))
            engine.failures = [(UnavailableError("down"), False)]
            if failure is not None:
                raise failure

    await raises(UnavailableError, block(None))
    error = await raises(KeyError, block(KeyError("of the block")))
    expect(any("1 buffered message" in note for note in getattr(error, "__notes__", ())), "a note says what is left")
    equal(texts_of(writer.waiting), ["a"], "what is left")
    await writer.flush()
    equal(await stored(kit), ["a"], "stored after all")


@case("commit", "buffered-raising-block", covers=BUFFERED)
async def case_buffered_raising_block(kit: Kit) -> None:
    """What was appended before a block raised is committed."""

    async def block() -> None:
        async with kit.store.buffered("t", every_ms=NEVER) as writer:
            await writer.append(Message.user("a"))
            raise KeyError("x")

    await raises(KeyError, block())
    equal(await stored(kit), ["a"], "what was appended")


@case("commit", "buffered-lost-answer", covers=BUFFERED)
async def case_buffered_lost_answer(kit: Kit) -> None:
    """An answer that was lost is asked for again under the same key: nothing is doubled, whatever had landed."""
    store, engine = await shaky(kit)
    lost = OutcomeUnknown("lost", rev=1)
    async with store.buffered("t", every_ms=NEVER) as writer:
        for n, landed in enumerate((True, False, True)):
            engine.failures = [(lost, landed)]
            (name,) = await writer.append(Message.user(str(n)))
            receipt = await writer.flush()
            equal(None if receipt is None else receipt.message_ids, [name], "the receipt")
        engine.failures = [(lost, True), (lost, False), (lost, False)]
        await writer.append(Message.user("3"))
        await raises(OutcomeUnknown, writer.flush(), "it gives up after some time")
        await writer.append(Message.user("4"))
        receipt = await writer.flush()
        equal(None if receipt is None else receipt.seqs, [4, 5], "the open batch first, then the next")
    equal(await stored(kit), ["0", "1", "2", "3", "4"], "each once, in order")


@case("commit", "buffered-cancelled", covers=BUFFERED)
async def case_buffered_cancelled(kit: Kit) -> None:
    """A flush that is cancelled on its way may have landed; the next one is the same commit."""
    gate = GatedEngine(kit.store.engine)
    store = Store(gate, kit.store.scope, owner=False)
    async with store.buffered("t", every_ms=NEVER) as writer:
        await writer.append(Message.user("a"))
        flush = asyncio.ensure_future(writer.flush())
        await gate.arrived.wait()
        flush.cancel()
        await asyncio.wait([flush])
        gate.released.set()
        equal(texts_of(writer.waiting), ["a"], "it still waits")
        await writer.append(Message.user("b"))
    equal(await stored(kit), ["a", "b"], "each once")


@case("commit", "buffered-refusals", covers=BUFFERED)
async def case_buffered_refusals(kit: Kit) -> None:
    """What a commit refuses, a flush refuses: the messages stay with the writer."""
    await kit.store.commit("t", messages=[Message.user("a", id="a")])
    await kit.store.commit("t", fence=5)
    run = await kit.store.runs.start("t", "agent")
    await kit.store.commit("t", run=run.step())
    refusals: list[tuple[type[PerdureError], dict[str, Any]]] = [
        (StaleClaim, {"fence": 4}),
        (VersionConflict, {"run": run}),
        (NotFoundError, {"branch": "missing"}),
        (AlreadyExists, {}),
    ]
    for kind, options in refusals:
        writer = kit.store.buffered("t", every_ms=NEVER, **options)
        await writer.append(Message.user("again", id="a"))
        await raises(kind, writer.flush(), f"{options}")
        equal(ids_of(writer.waiting), ["a"], "it still waits")


@case("commit", "buffered-many", covers=BUFFERED)
async def case_buffered_many(kit: Kit) -> None:
    """More than one commit may carry is split; several tasks may append, and each keeps its own order."""
    async with kit.store.buffered("t", most=limits.COMMIT_MESSAGES, every_ms=NEVER) as writer:
        await writer.append(*[Message.user("x") for _ in range(limits.COMMIT_MESSAGES - 1)])
        last = await writer.append(*[Message.user("y") for _ in range(20)])
        await until(lambda: not writer.waiting)
        equal((await kit.store.threads.get("t")).version, limits.COMMIT_MESSAGES + 19, "all of them")
        equal((await kit.store.branches.current("t")).head, last[-1], "the last one")
    big = "x" * (3 * 1024 * 1024)
    async with kit.store.buffered("u", every_ms=NEVER) as writer:
        for _ in range(4):
            await writer.append(Message.user(big))
    equal((await kit.store.threads.get("u")).version, 4, "more bytes than one commit may carry")

    async def speak(name: str) -> None:
        for n in range(10):
            await shared.append(Message.user(f"{name}{n}"))

    async with kit.store.buffered("v", most=3, every_ms=1) as shared:
        await together(*[speak(name) for name in "ab"])
    said_by_a = [text for text in texts((await kit.store.messages.list("v")).items) if text.startswith("a")]
    equal(said_by_a, [f"a{n}" for n in range(10)], "one task's order")
