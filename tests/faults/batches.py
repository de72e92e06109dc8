"""Commits that share a statement or a batch: one member's conflict or end never touches its neighbours.

    python -m tests.faults.batches --engine postgres --rounds 200

Each round submits some two dozen commits at once, on threads that differ and on threads that meet. Some must be
refused, each for a reason of its own; some are cancelled on the way. Everybody else gets a receipt, what was refused
left no trace, and what was cancelled landed whole or not at all and is settled by its key. Meanwhile two other
processes commit to the same threads in opposite orders.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from tests.faults.crew import Order, helper, obey
from tests.faults.shell import FaultFound, Figures, audit, bounded, main, opened, parser_of, tell
from tests.support.servers import server

import perdure
from perdure import Message, Receipt, Run, Store
from perdure.errors import AlreadyExists, ConflictError, IllegalTransition, KeyReused, StaleClaim, VersionConflict

MODULE = "tests.faults.batches"
THREADS = 16
MEMBERS = 24
OPPOSITE = 12


class Bench:
    """The threads of a run, what each holds by now, and a run that is over."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.dice = random.Random(seed)
        self.known: dict[str, list[str]] = {}
        self.done: dict[str, Run] = {}
        self.figures: collections.Counter[str] = collections.Counter()
        self.count = 0

    async def prepare(self) -> None:
        """Every thread has a message, a key, a fence and a run that is done."""
        for number in range(THREADS):
            thread = f"t-{number}"
            await self.store.commit(thread, messages=[Message.user("first", id="first")], key="first")
            run = await self.store.runs.start(thread, "agent")
            finished = await self.store.commit(thread, run=run.finish(), fence=None)
            await self.store.commit(thread, state={"fenced": True}, fence=7)
            if finished.run is None:
                raise FaultFound("the receipt of a finished run has no run")
            self.known[thread], self.done[thread] = ["first"], finished.run

    def fresh(self, thread: str) -> Message:
        """A message that nobody has seen."""
        self.count += 1
        return Message.user("x" * self.dice.randint(1, 200), id=f"{thread}-{self.count}")

    async def round(self, *, cancel: bool) -> None:
        """Submit members together, some of them to be refused; with `cancel`, some are cancelled on the way."""
        members = [self.dice.choice(list(self.known)) for _ in range(MEMBERS)]
        if self.dice.random() < 0.5:
            members = list(dict.fromkeys(members))
        await asyncio.gather(*[self._member(thread, cancel) for thread in members])

    async def _member(self, thread: str, cancel: bool) -> None:
        chance = self.dice.random()
        if chance < 0.35:
            await self._refused(thread, *self.dice.choice(REFUSALS))
        elif cancel and chance < 0.65:
            await self._cancelled(thread)
        else:
            message = self.fresh(thread)
            state = {"by": message.id} if self.dice.random() < 0.5 else None
            self._accept(thread, await self.store.commit(thread, messages=[message], state=state, key=message.id))
            self.figures["accepted"] += 1

    async def _refused(self, thread: str, kind: type[ConflictError], make: Refusal) -> None:
        try:
            await make(self, thread)
        except kind:
            self.figures["refused"] += 1
            return
        raise FaultFound(f"{thread}: a commit that must end in {kind.__name__} was accepted")

    async def _cancelled(self, thread: str) -> None:
        message = self.fresh(thread)

        async def commit() -> Receipt:
            return await self.store.commit(thread, messages=[message], key=message.id)

        task = asyncio.create_task(commit())
        for _ in range(self.dice.randint(0, 6)):
            await asyncio.sleep(0 if self.dice.random() < 0.5 else 0.0005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is not None:
            raise FaultFound(f"a cancelled commit ended in {task.exception()!r}")
        receipt = await commit()
        self.figures["cancelled"] += task.cancelled()
        self.figures["cancelled, landed"] += task.cancelled() and receipt.replayed
        self._accept(thread, receipt)

    def _accept(self, thread: str, receipt: Receipt) -> None:
        if len(receipt.seqs) != 1 or receipt.seqs[0] < 2:
            raise FaultFound(f"{thread}: {receipt}")
        self.known[thread] += receipt.message_ids

    async def check(self, others: list[str]) -> None:
        """Each thread holds what was acknowledged to us and to the others, once each, and nothing else."""
        for thread, known in self.known.items():
            stored = [record.message_id async for record in self.store.messages.iter(thread)]
            theirs = [name for name in others if name.startswith(f"{thread}-")]
            if sorted(stored) != sorted(known + theirs):
                odd = sorted(set(stored) ^ set(known + theirs))[:5]
                raise FaultFound(f"{thread}: {len(known + theirs)} acknowledged, {len(stored)} stored; {odd}")


async def _old_id(bench: Bench, thread: str) -> Any:
    return await bench.store.commit(thread, messages=[bench.fresh(thread), Message.user("again", id="first")])


async def _old_version(bench: Bench, thread: str) -> Any:
    return await bench.store.commit(thread, messages=[bench.fresh(thread)], expect=0)


async def _old_head(bench: Bench, thread: str) -> Any:
    return await bench.store.commit(thread, messages=[bench.fresh(thread)], expect_head="nobody")


async def _old_fence(bench: Bench, thread: str) -> Any:
    return await bench.store.commit(thread, messages=[bench.fresh(thread)], fence=3)


async def _old_key(bench: Bench, thread: str) -> Any:
    return await bench.store.commit(thread, messages=[bench.fresh(thread)], key="first")


async def _old_run(bench: Bench, thread: str) -> Any:
    return await bench.store.commit(thread, messages=[bench.fresh(thread)], run=bench.done[thread].step())


async def _old_state(bench: Bench, thread: str) -> Any:
    state, rev = {"fenced": False}, {"fenced": 1}
    return await bench.store.commit(thread, messages=[bench.fresh(thread)], state=state, expect_state=rev)


Refusal = Callable[[Bench, str], Awaitable[Any]]
REFUSALS: tuple[tuple[type[ConflictError], Refusal], ...] = (
    (AlreadyExists, _old_id),
    (VersionConflict, _old_version),
    (VersionConflict, _old_head),
    (StaleClaim, _old_fence),
    (KeyReused, _old_key),
    (IllegalTransition, _old_run),
    (VersionConflict, _old_state),
)


async def opposite(order: Order) -> Order:
    """A process of its own: batches over the same threads, again and again, in the order it was given."""
    told: list[str] = []
    async with perdure.open(order["url"]) as store:
        for number in range(order["rounds"]):
            names = [f"{thread}-{order['name']}{number}" for thread in order["threads"]]
            work = [
                store.commit(thread, messages=[Message.user("o", id=name)], state={"by": order["name"]}, key=name)
                for thread, name in zip(order["threads"], names, strict=True)
            ]
            receipts = await bounded(asyncio.gather(*work), "a batch of commits")
            told += [name for receipt in receipts for name in receipt.message_ids]
    return {"told": told}


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    url = server(asked.engine, durable=True).url
    async with opened(url) as store:
        bench = Bench(store, asked.seed)
        await bench.prepare()
        threads = list(bench.known)[:OPPOSITE]
        orders = [
            {"url": url, "rounds": asked.rounds, "threads": threads, "name": "up"},
            {"url": url, "rounds": asked.rounds, "threads": threads[::-1], "name": "down"},
        ]
        helpers = asyncio.gather(*[helper(MODULE, order, 240 + asked.rounds) for order in orders])
        try:
            for number in range(1, asked.rounds + 1):
                await bounded(bench.round(cancel=number % 2 == 0), "a round of commits")
                tell("progress", number)
            answers = await helpers
        finally:
            helpers.cancel()
            await asyncio.gather(helpers, return_exceptions=True)
        await bench.check([name for answer in answers for name in answer["told"]])
    threads_left = await audit(url)
    opposed = sum(len(answer["told"]) for answer in answers)
    return {"rounds": asked.rounds, **bench.figures, "in opposite orders": opposed, "threads": threads_left}


if __name__ == "__main__":
    if obey(opposite):
        sys.exit(0)
    sys.exit(main(MODULE, run, parser_of(__doc__, "rounds", 20)))
