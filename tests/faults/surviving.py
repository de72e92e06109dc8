"""Writers that outlive their server: the crash workload's turns, forks, queues and deletions, and what a client does
when an answer does not come.

A try that ends in `UnavailableError` surely changed nothing, and is made again. One that ends in `OutcomeUnknown` is
made again with its key, or looked up where it has none. Either way it must have exactly one effect, and nothing else
may reach a caller. Beside their own threads all writers share a few hot ones, where the order is the server's.
"""

from __future__ import annotations

import asyncio
import collections
from typing import Any

from tests.crash.ledger import Ledger, check_thread
from tests.crash.workload import LENGTH_MOST, Slot, Try, perform
from tests.faults.shell import UNCERTAIN, FaultFound, bounded, insist

from perdure import Message, Receipt, Store
from perdure.errors import AlreadyExists, NotFoundError, OutcomeUnknown, VersionConflict
from perdure.stores.cleanup import sweep

HOT = ("hot-0", "hot-1")


class Shared:
    """What all writers of a loop share: the ledger, the hot threads' places, the gate, and the figures."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.places: dict[str, dict[int, str]] = {thread: {} for thread in HOT}
        self.figures: collections.Counter[str] = collections.Counter()
        self.gate = asyncio.Event()
        self.stopping = False
        self.flying = 0

    def place(self, thread: str, receipt: Receipt) -> None:
        """Note where the messages of an acknowledged commit stand; a place is given once."""
        for seq, name in zip(receipt.seqs, receipt.message_ids, strict=True):
            if self.places[thread].setdefault(seq, name) != name:
                raise FaultFound(f"{thread}: seq {seq} was acknowledged for {self.places[thread][seq]} and for {name}")


class _Silent:
    """The crash workload reports to a pipe; here everything is noted in place."""

    def tell(self, **line: Any) -> None:
        if "wrong" in line:
            raise FaultFound(line["wrong"])

    def flying(self, slot: int, yes: bool) -> None:
        """Counted by the writer itself."""


class Writer(Slot):
    """One writer; it goes on through any number of server deaths with the store it was given."""

    def __init__(self, store: Store, shared: Shared, number: int) -> None:
        super().__init__(store, _Silent(), number, 0, [])  # type: ignore[arg-type]
        self.shared = shared
        self.acknowledged = 0
        self.idle = False

    async def write(self) -> None:
        """Write until told to stop; between two writes it waits while the gate is closed."""
        while not self.shared.stopping:
            self.idle = True
            await self.shared.gate.wait()
            self.idle = False
            await self._next()

    async def _next(self) -> None:
        thread = self.threads[-1] if self.threads else None
        chance = self.dice.random()
        if chance < 0.35:
            await self._hot()
        elif thread is None or len(thread["ids"]) > LENGTH_MOST:
            await self._begin_thread()
        elif chance < 0.36:
            await self._delete()
        elif chance < 0.85:
            await self._turn(thread)
        elif chance < 0.9:
            await self._refused(thread)
        else:
            await self._aside(thread)

    async def _hot(self) -> None:
        """A keyed commit on a thread that everybody writes to."""
        op, thread = self._op(), self.dice.choice(HOT)
        ids = [f"{op}.{place}" for place in range(self.dice.randint(1, 2))]
        messages = [Message.user(f"hot {name}", id=name) for name in ids]

        async def commit() -> Receipt:
            return await self.store.commit(thread, messages=messages, state={f"writer-{self.number}": op}, key=op)

        doubtful = False
        while True:
            try:
                receipt = await self._sent(commit())
                break
            except OutcomeUnknown:
                doubtful = True
            except UNCERTAIN:
                await asyncio.sleep(0.02)
        self._judge(op, receipt, ids, doubtful)
        self.shared.place(thread, receipt)

    def _judge(self, op: str, receipt: Receipt, ids: list[str], doubtful: bool) -> None:
        if receipt.message_ids != ids or (receipt.replayed and not doubtful):
            raise FaultFound(f"{op}: uncertain: {doubtful}, the last try gave {receipt}")
        self.acknowledged += 1
        self.shared.figures["acknowledged"] += 1
        self.shared.figures["in doubt"] += doubtful
        self.shared.figures["in doubt, landed"] += receipt.replayed

    async def _sent(self, work: Any) -> Any:
        """Run one try, counting what it ends in."""
        self.shared.flying += 1
        try:
            return await bounded(work, "a write")
        except OutcomeUnknown:
            self.shared.figures["outcome unknown"] += 1
            raise
        except UNCERTAIN:
            self.shared.figures["unavailable"] += 1
            raise
        finally:
            self.shared.flying -= 1

    async def _settle_in(self) -> None:
        if self.threads:
            thread = self.threads[-1]["id"]
            self.run = await insist(lambda: self.store.runs.latest(thread), "reading a run")

    async def _make(self, described: Try) -> Receipt | None:
        """Make a write of the crash workload until it is done, exactly once."""
        ledger = self.shared.ledger
        ledger.note({"slot": self.number, "try": described})
        receipt, tries, doubtful = None, 0, False
        while True:
            tries += 1
            try:
                receipt = await self._sent(perform(self.store, described, self.run))
                break
            except OutcomeUnknown:
                doubtful = True
            except UNCERTAIN:
                await asyncio.sleep(0.02)
            except NotFoundError:
                if described["kind"] != "delete" or tries == 1:
                    raise
                break
            if described.get("key") is None and await self._happened(described, doubtful):
                break
        if receipt is not None:
            self._judge(described["op"], receipt, described["ids"], doubtful and described.get("key") is not None)
        else:
            self.acknowledged += 1
            self.shared.figures["acknowledged"] += 1
        version = receipt.version if receipt is not None else None
        ledger.note({"slot": self.number, "ack": described["op"], "version": version})
        if receipt is None and described["kind"] == "turn":
            await self._settle_in()
        return receipt

    async def _happened(self, described: Try, doubtful: bool) -> bool:
        """Did a write without a key take place? One that was only refused must not have."""
        landed = await insist(lambda: _landed(self.store, described), "looking a write up")
        # Other calls read what they wrote, or go on with it, after their commit: there the word is about the rest.
        if landed and not doubtful and described["kind"] == "turn":
            raise FaultFound(f"{described['op']} ended in UnavailableError, and yet it is there")
        # A deletion is made again until everything of it is erased.
        return landed and described["kind"] != "delete"

    async def _refused(self, thread: Try) -> None:
        op, known = self._op(), thread["ids"]
        fresh = Message.user("never", id=f"never-{op}")
        again = [Message.user("again", id=known[0])] if known and self.dice.random() < 0.7 else []
        expect = None if again else 10_000
        try:
            await self._sent(self.store.commit(thread["id"], messages=[fresh, *again], expect=expect))
        except (AlreadyExists, VersionConflict):
            self.shared.figures["refused as they must be"] += 1
            return
        except UNCERTAIN:
            return
        raise FaultFound(f"{op} was accepted on {thread['id']}")


async def _landed(store: Store, described: Try) -> bool:
    """Is a write without a key there?"""
    kind, thread = described["kind"], described["thread"]
    alive = await store.threads.find(thread) is not None
    if kind == "delete":
        return not alive
    if kind == "child" or not alive:
        return alive
    if kind == "turn":
        doc = await store.state.find(thread, "mark")
        return doc is not None and doc.value["op"] == described["op"]
    if kind == "queue":
        items = (await store.pending.list(thread)).items
        return [item.id for item in items][-len(described["ids"]) :] == described["ids"]
    return described["op"] in [branch.name for branch in await store.branches.list(thread)]


async def check_hot(store: Store, shared: Shared) -> None:
    """Every acknowledged message stands at its place, and nothing stands beside them."""
    for thread, places in shared.places.items():
        if not places:
            continue
        stored = {record.seq: record.message_id async for record in store.messages.iter(thread)}
        if stored != places:
            lost = {seq: name for seq, name in places.items() if stored.get(seq) != name}
            extra = {seq: name for seq, name in stored.items() if places.get(seq) != name}
            raise FaultFound(
                f"{thread}: acknowledged and not there: {lost!r:.300}; there and never told: {extra!r:.300}"
            )


async def check_touched(store: Store, shared: Shared) -> list[str]:
    """Hold every thread written to since the last look against the ledger; returns those that live."""
    if shared.ledger.doubts:
        raise FaultFound(f"still in doubt: {shared.ledger.doubts}")
    await sweep(store._context)
    touched, shared.ledger.touched = sorted(shared.ledger.touched), set()
    for thread in touched:
        await check_thread(store, shared.ledger, thread)
    await check_hot(store, shared)
    return [thread for thread in touched if thread in shared.ledger.threads]
