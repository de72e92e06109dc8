"""What the killer knows: everything that was acknowledged, and the one write of each slot that was in doubt.

After a kill the ledger is held against the store. What was acknowledged must be there, in order, with nothing beside
it. A write in doubt landed whole or not at all; if it had a key, making it again must have exactly one effect in total.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.crash.workload import SLOTS, Try, perform

from perdure import Store
from perdure.kernel.ops import Get, Heads, Scan
from perdure.stores.schema import SCHEMA


class Broken(Exception):
    """The store and the ledger disagree: something acknowledged is lost, or something landed in part."""


@dataclass
class Known:
    """A thread as acknowledged so far."""

    id: str
    slot: int
    parent: str | None = None
    ids: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    mark: dict[str, Any] | None = None
    forks: list[str] = field(default_factory=list)

    def brief(self) -> Try:
        """What a writer has to know to go on with it."""
        return {"id": self.id, "ids": list(self.ids), "pending": list(self.pending), "parent": self.parent}


@dataclass
class Ledger:
    """All threads, all deleted ids, and what is in doubt."""

    threads: dict[str, Known] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    doubts: dict[int, Try] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    acknowledged: int = 0

    def note(self, line: dict[str, Any]) -> None:
        """Take one line from a writer's pipe."""
        if "wrong" in line:
            raise Broken(line["wrong"])
        if "try" in line:
            self.doubts[line["slot"]] = line["try"]
            self.touched.add(line["try"]["thread"])
        elif "ack" in line:
            described = self.doubts.pop(line["slot"])
            if described["op"] != line["ack"]:
                raise Broken(f"{line['ack']} was acknowledged, {described['op']} was tried")
            self.apply(line["slot"], described)
            self.acknowledged += 1
            known = self.threads.get(described["thread"])
            if line["version"] is not None and known is not None and line["version"] != len(known.ids):
                raise Broken(f"{line['ack']} was told version {line['version']}, {len(known.ids)} were acknowledged")

    def apply(self, slot: int, described: Try) -> None:
        """A write landed."""
        kind, thread = described["kind"], described["thread"]
        if kind == "delete":
            self._delete(described)
            return
        known = self.threads.setdefault(thread, Known(thread, slot))
        if kind == "turn":
            known.ids += described["ids"]
            known.mark = described["mark"]
        elif kind == "queue":
            known.pending += described["ids"]
        elif kind == "freeze":
            known.ids += described["ids"]
            known.pending = []
        elif kind == "fork":
            known.forks.append(described["op"])
        elif kind == "child":
            known.parent = described["parent"]

    def _delete(self, described: Try) -> None:
        for thread in described["doomed"]:
            self.threads.pop(thread)
            self.deleted.add(thread)
            self.touched.add(thread)
        for known in self.threads.values():
            if known.parent == described["thread"]:
                known.parent = None
                self.touched.add(known.id)

    def briefs(self, dice: random.Random) -> list[list[Try]]:
        """What each slot's next writer goes on with: its newest threads."""
        every: list[list[Try]] = [[] for _ in range(SLOTS)]
        for known in self.threads.values():
            every[known.slot].append(known.brief())
        for slot, briefs in enumerate(every):
            chosen = briefs[-4:]
            inside = {brief["id"] for brief in chosen}
            # A subtree is deleted whole, so a thread whose children are not in sight is not handed out.
            owners = {known.parent for known in self.threads.values() if known.id not in inside}
            every[slot] = [brief for brief in chosen if brief["id"] not in owners]
        return every


async def settle_doubts(store: Store, ledger: Ledger) -> dict[str, list[int]]:
    """Find out what became of the writes in doubt, make those with a key again, and check every thread touched."""
    verdict: dict[str, list[int]] = {"landed": [], "retried": [], "replayed": []}
    for slot, described in sorted(ledger.doubts.items()):
        landed = await _landed(store, ledger, described)
        if landed:
            verdict["landed"].append(slot)
            ledger.apply(slot, described)
        await _check_around(store, ledger, described)
        if described.get("key") is not None:
            await _retry(store, described, landed)
            verdict["replayed" if landed else "retried"].append(slot)
            if not landed:
                ledger.apply(slot, described)
    ledger.doubts.clear()
    for thread in sorted(ledger.touched):
        await check_thread(store, ledger, thread)
    return verdict


async def _landed(store: Store, ledger: Ledger, described: Try) -> bool:
    kind, thread = described["kind"], described["thread"]
    alive = await store.threads.find(thread) is not None
    if kind == "delete":
        others = [await store.threads.find(doomed) is not None for doomed in described["doomed"]]
        if any(other != alive for other in others):
            raise Broken(f"{described['op']}: a deletion became visible in part: {described['doomed']} {others}")
        return not alive
    if kind == "child" or not alive:
        return alive
    if kind == "turn":
        doc = await store.state.find(thread, "mark")
        return doc is not None and doc.value["op"] == described["op"]
    if kind == "queue":
        items = (await store.pending.list(thread)).items
        return [item.id for item in items][-len(described["ids"]) :] == described["ids"]
    if kind == "freeze":
        return not (await store.pending.list(thread)).items
    return described["op"] in [branch.name for branch in await store.branches.list(thread)]


async def _check_around(store: Store, ledger: Ledger, described: Try) -> None:
    for thread in described.get("doomed", [described["thread"]]):
        await check_thread(store, ledger, thread)


async def _retry(store: Store, described: Try, landed: bool) -> None:
    thread = described["thread"]
    run = await store.runs.latest(thread) if await store.threads.find(thread) is not None else None
    receipt = await perform(store, described, run)
    if receipt is None or receipt.replayed != landed or receipt.message_ids != described["ids"]:
        raise Broken(f"{described['op']}: landed: {landed}, the retry with its key gave {receipt}")


async def check_thread(store: Store, ledger: Ledger, thread: str) -> None:
    """Hold one thread against the ledger."""
    known = ledger.threads.get(thread)
    if known is None:
        if await store.threads.find(thread) is not None or await remains(store, thread):
            raise Broken(f"thread {thread} was deleted (or never made), and is there: {await remains(store, thread)}")
        return
    if await store.threads.find(thread) is None:
        raise Broken(f"thread {thread} was acknowledged and is not there")
    records = [record.message_id async for record in store.messages.iter(thread)]
    _same(records, known.ids, f"the messages of {thread}")
    _same([item.id for item in (await store.pending.list(thread)).items], known.pending, f"the queue of {thread}")
    forks = [branch.name for branch in await store.branches.list(thread) if branch.id != 0]
    _same(forks, known.forks, f"the branches of {thread}")
    found = await store.threads.get(thread)
    _same((found.version, found.parent_thread_id), (len(known.ids), known.parent), f"version and parent of {thread}")
    doc = await store.state.find(thread, "mark")
    _same(None if doc is None else doc.value, known.mark, f"the mark of {thread}")
    if known.mark is not None and known.mark["run"] is not None:
        run = await store.runs.get(known.mark["run"])
        _same((run.status, run.steps), (known.mark["status"], known.mark["steps"]), f"run {run.id}")


def _same(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise Broken(f"{what}: stored {actual!r:.600}, acknowledged {expected!r:.600}")


async def remains(store: Store, thread: str) -> list[str]:
    """Names of tables and logs that still hold something of a thread; its tombstone does not count."""
    tables = [table for table in SCHEMA.tables if table.name not in ("threads", "thread_heads", "profiles")]
    scans = [
        Scan(table.name, eq=(thread,)) if table.key_names[0] == "thread" else Scan(table.name, "thread", (thread,))
        for table in tables
    ]
    hot, lengths, *rows = await store.engine.view(
        store.scope, [Get("thread_heads", [(thread,)]), Heads("messages", [thread]), *scans]
    )
    found = [table.name for table, some in zip(tables, rows, strict=True) if some]
    return found + ["thread_heads"] * bool(hot[0]) + ["messages"] * bool(lengths[0])
