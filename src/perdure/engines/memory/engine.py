"""The memory engine as stores see it: a lock, the data of each scope, and hints.

It keeps every promise but durability. Its coroutines never suspend except in `watch`, so it serves blocking callers
directly.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Any

from perdure.clock import Clock, steady_clock, system_clock
from perdure.engines.memory.read import answer, select
from perdure.engines.memory.schema import Scope
from perdure.engines.memory.write.filled import Plans, apply_filled
from perdure.engines.memory.write.transaction import Transaction
from perdure.engines.shared.capabilities import capabilities
from perdure.engines.shared.decisions import Moment, updated_row
from perdure.engines.shared.hints import HintHub, Subscription, hints_of, topics_of
from perdure.engines.shared.lifecycle import Lifecycle
from perdure.engines.shared.references import Earlier
from perdure.errors import UnsupportedError
from perdure.ids import new_rev
from perdure.kernel.engine import Engine, Health, Watch
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import Applied, Op, ReadOp, Scan, Taken
from perdure.kernel.schema import Schema
from perdure.kernel.semantics import scan_at
from perdure.kernel.signals import LoopSignal, Signal, ThreadSignal

_NOTES = {"nothing survives the process": True}


def _copied_by_fork() -> UnsupportedError:
    return UnsupportedError(
        "the memory:// store was opened before the fork: this process has a private copy of it",
        hint="open one in this process, or share a sqlite:// file between spawned processes",
    )


class MemoryEngine:
    """Everything in one process's memory."""

    capabilities = capabilities("memory", "none", _NOTES, round_trips=0, watch="push", embedded=True, processes="one")

    def __init__(self, schema: Schema, clock: Clock = system_clock) -> None:
        self.schema = schema
        self.clock = steady_clock() if clock is system_clock else clock
        self._scopes: dict[str, Scope] = {}
        self._plans = Plans(schema)
        self._lock = threading.Lock()
        self._hub = HintHub()
        self._lifecycle = Lifecycle(self, in_child=_copied_by_fork, reset_in_child=self._reset_locks)

    def _reset_locks(self) -> None:
        """After a fork, in the child: the thread that held a lock may not exist there."""
        self._lock = threading.Lock()
        self._hub.reset_in_child()

    def _scope(self, name: str) -> Scope:
        self._lifecycle.check_usable()
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._scopes[name] = Scope(self.schema)
        return scope

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none."""
        with self._lock:
            transaction = Transaction(self._scope(scope), new_rev(), self.clock())
            transaction.run(ops)
        if self._hub.is_watched:
            self._hub.ring(hints_of(scope, hints))
        return Applied(transaction.rev, transaction.seqs, transaction.now)

    async def transact_filled(self, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Applied:
        """The same for a transaction of a known kind."""
        plan = self._plans.get(filled.kind)
        with self._lock:
            data, rev, now = self._scope(scope), new_rev(), self.clock()
            seqs = None if plan is None else apply_filled(plan, data, rev, now, filled)
            if seqs is None:
                transaction = Transaction(data, rev, now)
                transaction.run(filled.operations())
                seqs = transaction.seqs
        if self._hub.is_watched:
            self._hub.ring(hints_of(scope, hints))
        return Applied(rev, seqs, now)

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot."""
        answers: list[Any] = [None] * len(reads)
        earlier = Earlier(self.schema, reads, answers)
        with self._lock:
            data, now = self._scope(scope), self.clock()
            for number, read in enumerate(reads):
                answers[number] = answer(data, read, earlier, now)
        return answers

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Select and update the first rows of an index."""
        with self._lock:
            data = self._scope(scope).tables[scan.table]
            now, rev = self.clock(), new_rev()
            rows = select(data, scan_at(scan, now), scan.eq)
            rows = [updated_row(row, changes, rev, Moment(now, {})) for row in rows]
            for row in rows:
                data.replace(row.key, row)
        if rows and self._hub.is_watched:
            self._hub.ring(hints_of(scope, hints))
        return Taken(rows, now)

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe from a running event loop."""
        return self.subscribe(scope, topics, LoopSignal())

    def subscribe(self, scope: str | None, topics: Sequence[str], signal: Signal) -> Watch:
        """Ring `signal` at every hint on these topics."""
        return Subscription(self._hub, topics_of(scope, topics), signal)

    def blocking(self) -> Engine:
        """The same data for callers without an event loop."""
        return BlockingMemory(self)

    async def scopes(self) -> list[str]:
        """Scopes that hold something."""
        with self._lock:
            return sorted(name for name, scope in self._scopes.items() if not scope.empty())

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        with self._lock:
            names = self._scope(scope).logs[log].partitions
            # Python compares text by code points, which is the order of its bytes in UTF-8.
            return nsmallest(limit, (name for name in names if after is None or name > after))

    async def check(self) -> list[str]:
        """Nothing can be damaged here."""
        return []

    async def health(self) -> Health:
        """Never ok: nothing outlives the process."""
        self._lifecycle.check_usable()
        problem = "data lives in this process only and is gone when it ends"
        return Health("memory", False, "none", {"scopes": len(self._scopes)}, (problem,))

    async def close(self) -> None:
        """Drop all data; does nothing in a forked child."""
        with self._lock:
            if self._lifecycle.begin_close():
                self._lifecycle.finish_close()
                self._scopes.clear()
        self._hub.release_all()


class BlockingMemory:
    """The memory engine for blocking callers: its coroutines never suspend, so only `watch` differs."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self.schema = engine.schema
        self.capabilities = engine.capabilities
        self.transact = engine.transact
        self.view = engine.view
        self.take = engine.take
        self.scopes = engine.scopes
        self.partitions = engine.partitions
        self.check = engine.check
        self.health = engine.health
        self.close = engine.close

    async def transact_filled(self, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Applied:
        """`transact` for a transaction of a known kind."""
        return await self._engine.transact_filled(scope, filled, hints)

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe from a plain thread."""
        return self._engine.subscribe(scope, topics, ThreadSignal())

    def blocking(self) -> Engine:
        """Already blocking."""
        return self
