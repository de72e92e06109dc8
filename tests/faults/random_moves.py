"""The moves of a random writer: each draws its own victim and says what it was, or what it was refused with.

Hot threads are never deleted, so every message on them is accounted for by a receipt; cold ones come and go.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from perdure import Message, Receipt, Run, Store
from perdure.errors import ConflictError, InvalidError, NotFoundError

HOT = ("hot-0", "hot-1", "hot-2", "hot-3")
COLD = 150
STATE_NAMES = ("plan", "notes")

Move = Callable[["Hand"], Awaitable[None]]
Places = dict[str, dict[int, str]]


class Hand:
    """One writer: its store, its dice, and the runs and messages it remembers."""

    def __init__(self, store: Store, name: str, dice: random.Random, places: Places) -> None:
        self.store = store
        self.name = name
        self.dice = dice
        self.places = places
        self.count = 0
        self.runs: dict[str, Run] = {}

    async def move(self) -> str:
        """Make one move; its name, or the name of what it was refused with."""
        name = self.dice.choices(list(MOVES), weights=[weight for weight, _, _ in MOVES.values()])[0]
        _, work, may_be_invalid = MOVES[name]
        try:
            await work(self)
        except (ConflictError, NotFoundError) as refused:
            return f"refused: {type(refused).__name__}"
        except InvalidError:
            if not may_be_invalid:
                raise
            return "refused: InvalidError"
        return name

    def fresh(self) -> list[Message]:
        """One to three new messages."""
        self.count += 1
        ids = [f"{self.name}-{self.count}-{place}" for place in range(self.dice.randint(1, 3))]
        return [Message.user("x" * self.dice.randint(1, 300), id=name) for name in ids]

    def cold(self) -> str:
        """A thread of many, some drawn more often than others."""
        return f"cold-{min(self.dice.randrange(COLD), self.dice.randrange(COLD))}"

    def any_thread(self) -> str:
        """Hot or cold."""
        return self.dice.choice(HOT) if self.dice.random() < 0.4 else self.cold()

    def note(self, thread: str, receipt: Receipt) -> None:
        """Remember where messages on a hot thread stand; a place is told once."""
        for seq, name in zip(receipt.seqs, receipt.message_ids, strict=True) if thread in self.places else ():
            if self.places[thread].setdefault(seq, name) != name:
                raise RuntimeError(f"{thread}: seq {seq} was told for {self.places[thread][seq]} and for {name}")


async def _commit_hot(hand: Hand) -> None:
    thread = hand.dice.choice(HOT)
    messages = hand.fresh()
    key = messages[0].id if hand.dice.random() < 0.5 else None
    state = {hand.dice.choice(STATE_NAMES): {"by": hand.name}} if hand.dice.random() < 0.3 else None
    expect = None
    if hand.dice.random() < 0.2:
        known = await hand.store.threads.find(thread)
        expect = known.version if known is not None else 0
    receipt = await hand.store.commit(thread, messages=messages, state=state, expect=expect, key=key)
    hand.note(thread, receipt)
    if key is not None and hand.dice.random() < 0.2:
        again = await hand.store.commit(thread, messages=messages, state=state, expect=expect, key=key)
        if not again.replayed or (again.seqs, again.message_ids) != (receipt.seqs, receipt.message_ids):
            raise RuntimeError(f"{thread}: key {key} gave {receipt}, then {again}")


async def _commit_cold(hand: Hand) -> None:
    await hand.store.commit(hand.cold(), messages=hand.fresh(), state={"plan": {"by": hand.name}})


async def _fork(hand: Hand) -> None:
    thread = hand.cold() if hand.dice.random() < 0.9 else HOT[3]
    page = await hand.store.messages.list(thread, limit=20)
    at = hand.dice.choice(page.items).message_id if page.items else None
    await hand.store.branches.fork(thread, at=at, switch=hand.dice.random() < 0.5)


async def _switch(hand: Hand) -> None:
    thread = hand.cold() if hand.dice.random() < 0.8 else HOT[3]
    branches = await hand.store.branches.list(thread)
    await hand.store.branches.switch(thread, hand.dice.choice(branches).id)


async def _label(hand: Hand) -> None:
    thread = hand.any_thread()
    page = await hand.store.messages.list(thread, limit=20)
    if not page.items:
        raise NotFoundError(f"{thread} is empty")
    label = hand.dice.choice(("a", "b", None))
    await hand.store.branches.label(thread, hand.dice.choice(page.items).message_id, label)


async def _queue(hand: Hand) -> None:
    await hand.store.pending.append(hand.any_thread(), hand.fresh())


async def _rearrange(hand: Hand) -> None:
    thread = hand.any_thread()
    queue = await hand.store.pending.list(thread)
    ids = [item.id for item in queue.items]
    if not ids:
        raise NotFoundError(f"the queue of {thread} is empty")
    if hand.dice.random() < 0.5:
        await hand.store.pending.retract(thread, hand.dice.choice(ids))
        return
    hand.dice.shuffle(ids)
    await hand.store.pending.reorder(thread, ids)


async def _freeze(hand: Hand) -> None:
    thread = hand.any_thread()
    hand.note(thread, await hand.store.pending.freeze(thread))


async def _start(hand: Hand) -> None:
    thread = hand.cold()
    hand.runs[thread] = await hand.store.runs.start(thread, "agent", messages=hand.fresh())
    while len(hand.runs) > 5:
        hand.runs.pop(next(iter(hand.runs)))


async def _go_on(hand: Hand) -> None:
    if not hand.runs:
        raise NotFoundError("no run was begun")
    thread = hand.dice.choice(list(hand.runs))
    run = hand.runs.pop(thread)
    change = hand.dice.choice([run.step, run.step, run.wait, run.finish])()
    if run.status == "waiting":
        change = run.resume()
    run_state = {"memo": {"by": hand.name}} if hand.dice.random() < 0.5 else None
    receipt = await hand.store.commit(thread, messages=hand.fresh(), run=change, run_state=run_state)
    if receipt.run is not None and receipt.run.status != "done":
        hand.runs[thread] = receipt.run


async def _state(hand: Hand) -> None:
    thread, name = hand.any_thread(), hand.dice.choice(STATE_NAMES)
    doc = await hand.store.state.find(thread, name)
    guard = (0 if doc is None else doc.rev) if hand.dice.random() < 0.5 else None
    if doc is not None and hand.dice.random() < 0.3:
        await hand.store.state.delete(thread, name, if_rev=guard)
    else:
        await hand.store.state.put(thread, name, {"by": hand.name}, if_rev=guard)


async def _update(hand: Hand) -> None:
    if hand.dice.random() < 0.5:
        await hand.store.threads.update(hand.any_thread(), title=f"title of {hand.name}")
    else:
        await hand.store.threads.update(hand.cold(), parent_thread_id=hand.dice.choice((hand.cold(), None)))


async def _child(hand: Hand) -> None:
    hand.count += 1
    parent = hand.cold()
    await hand.store.threads.create(f"child-{hand.name}-{hand.count}", parent_thread_id=parent, resource_id="r")


async def _delete(hand: Hand) -> None:
    strategy: Any = hand.dice.choice(("reject", "detach", "cascade"))
    await hand.store.threads.delete(hand.cold(), strategy=strategy)


async def _look(hand: Hand) -> None:
    """A snapshot must fit together, whatever goes on around it."""
    snapshot = await hand.store.load(hand.any_thread())
    if snapshot.thread.version != snapshot.version or any(one.seq > snapshot.version for one in snapshot.messages):
        raise RuntimeError(f"a snapshot shows more than its version: {snapshot!r:.400}")
    await hand.store.threads.list(limit=20)


MOVES: dict[str, tuple[int, Move, bool]] = {
    "commits on hot threads": (30, _commit_hot, False),
    "commits on cold threads": (18, _commit_cold, False),
    "forks": (5, _fork, False),
    "switches": (3, _switch, False),
    "labels": (3, _label, False),
    "queued": (6, _queue, True),
    "queues rearranged": (3, _rearrange, True),
    "queues frozen": (4, _freeze, False),
    "runs started": (5, _start, False),
    "run moves": (8, _go_on, False),
    "state writes": (5, _state, False),
    "updates": (4, _update, True),
    "children": (3, _child, True),
    "deletions": (3, _delete, False),
    "loads": (4, _look, False),
}
"""Each move with its weight, and whether `InvalidError` is among the documented answers."""
