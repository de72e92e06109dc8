"""What a writer does until it is killed: agents' turns, runs, forks, queues and deletions, reported as they happen.

Every write is first described (`try`), then made, then acknowledged (`ack`), on a pipe to the process that will kill
this one. A description holds everything that is needed to make the same write again, so that a commit with a key can be
retried after the crash. Every turn also writes the state document `mark`, which says what the turn left behind: log,
document and run must agree afterwards, whatever happened.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import signal
import time
from typing import Any

import perdure
from perdure import Message, NewRun, Receipt, Run, Store, ToolUse, failpoints
from perdure.errors import AlreadyExists, VersionConflict

SLOTS = 3
"""Writers that work side by side, each on threads of its own: so commits share batches."""

LENGTH_MOST = 60
"""A longer thread is left as it is and a new one begun, so that each cycle's audit stays small."""

PHASE = SLOTS
PHASES = {
    "sqlite.before_begin": 1,
    "sqlite.after_member": 2,
    "sqlite.before_commit": 3,
    "sqlite.after_commit": 4,
}
PHASE_NAMES = {0: "idle", 1: "beginning", 2: "writing rows", 3: "syncing", 4: "telling"}

Try = dict[str, Any]


class Reporter:
    """The pipe to the killer, and a page of shared memory that says what is going on at this very moment."""

    def __init__(self, pipe: int, shared: mmap.mmap) -> None:
        self.pipe = pipe
        self.shared = shared

    def tell(self, **line: Any) -> None:
        os.write(self.pipe, json.dumps(line).encode() + b"\n")

    def flying(self, slot: int, yes: bool) -> None:
        self.shared[slot] = int(yes)

    def watch_phases(self, armed: str | None) -> None:
        """Note how far the writing thread is, at every point that is not armed with something worse."""

        def note(name: str) -> None:
            self.shared[PHASE] = PHASES[name]
            failpoints.arm(name, note)

        for name in PHASES:
            if name != armed:
                failpoints.arm(name, note)


def messages_of(ids: list[str]) -> list[Message]:
    """Three kinds of message, told apart by their place: a person's, a call, the call's result."""
    made: list[Message] = []
    for place, name in enumerate(ids):
        if place == 1 and len(ids) > 2:
            made.append(Message.assistant([ToolUse(f"call-{name}", "look", {"at": name})], id=name))
        elif place == 2:
            made.append(Message.tool(f"call-{ids[1]}", f"seen {name}", id=name))
        else:
            made.append(Message.user(f"message {name} " + "x" * (len(name) * 37 % 700), id=name))
    return made


async def perform(store: Store, described: Try, run: Run | None) -> Receipt | None:
    """Make a described write. `run` is the thread's latest run, as last seen."""
    thread, kind = described["thread"], described["kind"]
    if kind == "turn":
        return await store.commit(
            thread,
            messages=messages_of(described["ids"]),
            run=_move(described, run),
            state={"mark": described["mark"]},
            run_state={"memo": described["op"]} if described["move"] in ("step", "wait") else None,
            key=described["key"],
        )
    if kind == "queue":
        await store.pending.append(thread, messages_of(described["ids"]))
        return None
    if kind == "freeze":
        return await store.pending.freeze(thread, key=described["key"])
    if kind == "fork":
        await store.branches.fork(thread, at=described["at"], name=described["op"], switch=described["switch"])
        return None
    if kind == "child":
        await store.threads.create(thread, parent_thread_id=described["parent"], resource_id="r")
        return None
    await store.threads.delete(thread, strategy=described["strategy"])
    return None


def _move(described: Try, run: Run | None) -> Any:
    move = described["move"]
    if move == "new":
        return NewRun(agent_id="agent", id=described["mark"]["run"])
    if move is None or run is None:
        return None
    moves = {"step": run.step, "wait": run.wait, "resume": run.resume, "finish": run.finish}
    return moves[move]()


def next_turn(dice: random.Random, thread: str, op: str, run: Run | None) -> Try:
    """A turn that fits where the thread's run stands."""
    status = None if run is None else run.status
    move = {"running": dice.choice(["step", "step", "step", "wait", "finish"]), "waiting": "resume"}.get(
        status or "", dice.choice(["new", None])
    )
    steps = (0 if move == "new" or run is None else run.steps) + (move == "step")
    after = {"new": "running", "step": "running", "wait": "waiting", "resume": "running", "finish": "done"}
    mark = {
        "op": op,
        "run": f"run-{op}" if move == "new" else (run.id if run is not None else None),
        "steps": steps,
        "status": after.get(move or "", status),
    }
    ids = [f"{op}.{i}" for i in range(dice.choice([0, 1, 1, 2, 3, 3]))]
    key = f"key-{op}" if dice.random() < 0.5 else None
    return {"thread": thread, "op": op, "kind": "turn", "ids": ids, "move": move, "mark": mark, "key": key}


class Slot:
    """One of the writers: its threads, its dice, its place in the shared page."""

    def __init__(self, store: Store, reporter: Reporter, number: int, cycle: int, threads: list[Try]) -> None:
        self.store = store
        self.reporter = reporter
        self.number = number
        self.cycle = cycle
        self.count = 0
        self.threads = threads
        self.dice = random.Random(f"{os.environ.get('PERDURE_SEED')}-{cycle}-{number}")
        self.run: Run | None = None

    def _op(self) -> str:
        self.count += 1
        return f"{self.cycle}-{self.number}-{self.count}"

    async def work(self, deletions: float) -> None:
        """Write until the end comes, or until there was enough of it."""
        await self._settle_in()
        for _ in range(400):
            thread = self.threads[-1] if self.threads else None
            if thread is None or len(thread["ids"]) > LENGTH_MOST:
                await self._begin_thread()
                continue
            chance = self.dice.random()
            if chance < deletions:
                await self._delete()
            elif chance < 0.85:
                await self._turn(thread)
            elif chance < 0.90:
                await self._refused(thread)
            else:
                await self._aside(thread)

    async def _settle_in(self) -> None:
        if self.threads:
            self.run = await self.store.runs.latest(self.threads[-1]["id"])

    async def _make(self, described: Try) -> Receipt | None:
        self.reporter.tell(slot=self.number, **{"try": described})
        self.reporter.flying(self.number, True)
        receipt = await perform(self.store, described, self.run)
        self.reporter.flying(self.number, False)
        self.reporter.tell(slot=self.number, ack=described["op"], version=receipt.version if receipt else None)
        return receipt

    async def _begin_thread(self) -> None:
        op = self._op()
        self.run = None
        if self.threads and self.dice.random() < 0.3:
            parent = self.threads[-1]["id"]
            await self._make({"thread": f"t-{op}", "op": op, "kind": "child", "parent": parent})
            self.threads.append({"id": f"t-{op}", "ids": [], "pending": [], "parent": parent})
            return
        # Born by its first commit, which must bring a message.
        self.threads.append({"id": f"t-{op}", "ids": [], "pending": []})
        described = next_turn(self.dice, f"t-{op}", op, None)
        described["ids"] = described["ids"] or [f"{op}.0"]
        await self._take(await self._make(described), described)

    async def _turn(self, thread: Try) -> None:
        described = next_turn(self.dice, thread["id"], self._op(), self.run)
        await self._take(await self._make(described), described)

    async def _take(self, receipt: Receipt | None, described: Try) -> None:
        self.threads[-1]["ids"] += described["ids"]
        if receipt is not None and receipt.run is not None:
            self.run = receipt.run

    async def _refused(self, thread: Try) -> None:
        """Commits that must leave no trace, also inside a batch whose other members go through."""
        op, known = self._op(), thread["ids"]
        fresh = Message.user("never", id=f"never-{op}")
        self.reporter.flying(self.number, True)
        try:
            if known and self.dice.random() < 0.7:
                await self.store.commit(thread["id"], messages=[fresh, Message.user("again", id=known[0])])
            else:
                await self.store.commit(thread["id"], messages=[fresh], expect=10_000)
        except (AlreadyExists, VersionConflict):
            self.reporter.flying(self.number, False)
            return
        self.reporter.tell(slot=self.number, wrong=f"{op} was accepted on {thread['id']}")

    async def _aside(self, thread: Try) -> None:
        op, name = self._op(), thread["id"]
        if thread["pending"]:
            described: Try = {"thread": name, "op": op, "kind": "freeze", "ids": thread["pending"], "key": f"key-{op}"}
            thread["pending"] = []
        elif thread["ids"] and self.dice.random() < 0.5:
            at, switch = self.dice.choice(thread["ids"]), self.dice.random() < 0.5
            described = {"thread": name, "op": op, "kind": "fork", "at": at, "switch": switch}
        else:
            described = {"thread": name, "op": op, "kind": "queue", "ids": [f"{op}.{i}" for i in range(2)]}
            thread["pending"] = described["ids"]
        await self._make(described)
        if described["kind"] == "freeze":
            thread["ids"] += described["ids"]

    async def _delete(self) -> None:
        thread = self.dice.choice(self.threads)
        if self.dice.random() < 0.85:
            # Mostly a thread made for the purpose, so that the data grows from cycle to cycle.
            await self._begin_thread()
            thread = self.threads[-1]
        strategy = self.dice.choice(["detach", "cascade"])
        doomed = [thread["id"]]
        if strategy == "cascade":
            for known in doomed:
                doomed += [t["id"] for t in self.threads if t.get("parent") == known]
        described = {"thread": thread["id"], "op": self._op(), "kind": "delete", "strategy": strategy, "doomed": doomed}
        await self._make(described)
        self.threads = [t for t in self.threads if t["id"] not in doomed]
        for other in self.threads:
            if other.get("parent") == thread["id"]:
                other["parent"] = None
        self.run = None
        await self._settle_in()


def _die_a_moment_later(_name: str) -> None:
    """Whoever was told too early has time to say so."""
    time.sleep(0.003)
    os.kill(os.getpid(), signal.SIGKILL)


async def write_until_killed(url: str, reporter: Reporter, cycle: int, threads: list[list[Try]], **how: Any) -> None:
    """Open the store and write from every slot at once."""
    store = await perdure.open(url, durability="power")
    reporter.watch_phases(how["point"])
    if how["point"] is not None:
        failpoints.arm(how["point"], _die_a_moment_later if how["linger"] else "crash", after=how["after"])
    reporter.tell(ready=cycle)
    slots = [Slot(store, reporter, number, cycle, threads[number]) for number in range(SLOTS)]
    await asyncio.gather(*[slot.work(how["deletions"]) for slot in slots])
    reporter.tell(finished=cycle)
    await asyncio.Event().wait()
