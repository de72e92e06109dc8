"""The memory engine: what it adds to checking and planning a commit, and whether that grows with the data.

    python bench/memory.py [--rounds 15]

The floor is the same stores over an engine that accepts every transaction and forgets it, so a commit on it is checked,
planned and answered only. A second floor keeps the operations in a list: the difference is the price of new memory.
Commits are bare: two messages of 2 KB and a step of a run.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from harness import Case, cost, interleave
from perdure_adapter import Prepared, chunks, prepare
from report import duration, render, spread, times
from workload import bare, history

from perdure import Message, Store
from perdure.engines.memory import MemoryEngine
from perdure.ids import new_rev
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import Append, Applied, Op
from perdure.stores.schema import SCHEMA

COMMITS = 200


class Floor(MemoryEngine):
    """Once `accepting`, it says yes to every transaction, and forgets it or `keeps` it in a list."""

    accepting = False

    def __init__(self, *, keeps: bool = False) -> None:
        super().__init__(SCHEMA)
        self.keeps = keeps
        self.transactions: list[Sequence[Op] | Filled] = []

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """As much as a commit needs for its receipt."""
        if not self.accepting:
            return await super().transact(scope, ops, hints)
        if self.keeps:
            self.transactions.append(ops)
        appends = [op for op in ops if type(op) is Append]
        return Applied(new_rev(), {(op.log, op.partition): 10**6 for op in appends}, self.clock())

    async def transact_filled(self, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Applied:
        """The same for a transaction of a known kind."""
        if not self.accepting:
            return await super().transact_filled(scope, filled, hints)
        if self.keeps:
            self.transactions.append(filled)
        append = filled.kind.append
        seqs = {} if append is None else {("messages", filled.values[filled.kind.starts[append]]): 10**6}
        return Applied(new_rev(), seqs, self.clock())


class Committer:
    """Bare commits on a thread of this many messages, in a store of this many threads."""

    def __init__(self, engine: MemoryEngine, messages: int, threads: int) -> None:
        self.engine, self.messages, self.threads = engine, messages, threads
        self.store = Store(engine)
        self.work: list[Prepared] = [prepare(bare(index)) for index in range(COMMITS)]
        self.run: Any = None

    async def fill(self) -> None:
        """The other threads, then the one to commit on."""
        for _ in range(self.threads - 1):
            other = await self.store.runs.start((await self.store.threads.create()).id, "bench")
            await self.store.commit(other.thread_id, messages=[Message.user("Hello")], run=other.step())
        thread = await self.store.threads.create()
        self.run = await self.store.runs.start(thread.id, "bench")
        for messages in chunks(prepare(history(self.messages)).messages):
            await self.store.commit(thread.id, messages=messages)
        if isinstance(self.engine, Floor):
            self.engine.accepting = True

    async def commits(self) -> int:
        """All of them, one after the other."""
        run, commit = self.run, self.store.commit
        for messages, _ in self.work:
            receipt = await commit(run.thread_id, messages=messages, run=run.step(input_tokens=1200, output_tokens=340))
            run = receipt.run
        self.run = run
        return COMMITS


async def measure(rounds: int) -> None:
    """All cases in one interleaved run."""
    shapes = [(10, 10), (1_000, 10), (10_000, 10), (10, 1_000), (10, 10_000)]
    committers = {
        "checked and planned only": Committer(Floor(), 10, 10),
        "checked, planned and kept": Committer(Floor(keeps=True), 10, 10),
    }
    for messages, threads in shapes:
        name = f"thread of {messages:,}, store of {threads:,}"
        committers[name] = Committer(MemoryEngine(SCHEMA), messages, threads)
    for committer in committers.values():
        await committer.fill()
    cases = [Case(name, committer.commits) for name, committer in committers.items()]
    await interleave(cases, rounds)
    rows = []
    for case in cases:
        if case.error:
            raise RuntimeError(f"{case.name}: {case.error}")
        ratio = cost(case, cases[0])
        rows.append([case.name, duration(case.median), times(ratio.median), spread(ratio)])
    print("A bare commit", render(["case", "median", "time × floor", "middle half"], rows), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What the memory engine adds to a commit.")
    parser.add_argument("--rounds", type=int, default=15)
    asyncio.run(measure(parser.parse_args().rounds))
