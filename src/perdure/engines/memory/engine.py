"""The memory engine itself: a lock, some dictionaries and a condition variable for hints.

It promises everything but durability. Its coroutines never suspend except in `watch`, so it serves blocking callers
directly.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.clock import Clock, steady_clock, system_clock
from perdure.engines.memory.read import Earlier, answer, select
from perdure.engines.memory.schema import Scope
from perdure.engines.memory.write import Transaction
from perdure.engines.shared.signals import LoopSignal, Signal, ThreadSignal
from perdure.errors import PerdureError, UnavailableError, UnsupportedError
from perdure.ids import new_rev
from perdure.kernel.engine import Capabilities, Engine, Health, Watch
from perdure.kernel.ops import Applied, Ask, Op, Row, Scan, Taken
from perdure.kernel.schema import Schema
from perdure.kernel.semantics import evaluate

_CAPABILITIES = Capabilities(
    engine="memory",
    durability="none",
    processes="one",
    machines="one",
    round_trips_per_commit=0,
    watch="push",
    blocking=True,
    notes=("nothing survives the process",),
)


def _closed() -> UnavailableError:
    return UnavailableError("the store is closed", hint="open it again")


def _copied_by_fork() -> UnsupportedError:
    return UnsupportedError(
        "the memory:// store was opened before the fork: this process has a copy of it that nobody else sees",
        hint="open one in this process, or share a sqlite:// file with processes that are spawned",
    )


class MemoryEngine:
    """Everything in one process's memory."""

    capabilities = _CAPABILITIES

    def __init__(self, schema: Schema, clock: Clock = system_clock) -> None:
        self.schema = schema
        self.clock = steady_clock() if clock is system_clock else clock
        self._scopes: dict[str, Scope] = {}
        self._lock = threading.Lock()
        self._watchers: dict[tuple[str, str], set[Callable[[], None]]] = {}
        self._refusal: Callable[[], PerdureError] | None = None
        _live.add(self)

    def refuse_in_child(self) -> None:
        """After a fork: this is a copy, and whatever thread held its lock is not in this process."""
        self._lock = threading.Lock()
        self._refusal = _copied_by_fork

    def _scope(self, name: str) -> Scope:
        if self._refusal is not None:
            raise self._refusal()
        return self._scopes.setdefault(name, Scope(self.schema))

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none."""
        with self._lock:
            transaction = Transaction(self._scope(scope), new_rev(), self.clock())
            transaction.run(ops)
        self._hint(scope, hints)
        return Applied(transaction.rev, transaction.seqs, transaction.now)

    async def view(self, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """Answer all reads from one snapshot."""
        answers: Earlier = []
        with self._lock:
            data, now = self._scope(scope), self.clock()
            for read in reads:
                answers.append((read, answer(data, read, answers, now)))
        return [result for _, result in answers]

    async def take(
        self,
        scope: str,
        table: str,
        index: str,
        eq: tuple[Any, ...],
        *,
        upto: Mapping[str, int],
        limit: int,
        set: Mapping[str, Any],
    ) -> Taken:
        """Select and update the first rows of an index."""
        with self._lock:
            data = self._scope(scope).tables[table]
            now, rev = self.clock(), new_rev()
            rows = select(data, Scan(table, index, eq, limit=limit, upto=upto), eq)
            taken = []
            for row in rows:
                columns = {**row.columns, **{n: evaluate(v, row[n], now, {}) for n, v in set.items()}}
                updated = Row(row.key, tuple(columns.values()), rev, row.body, row.place)
                data.replace(row.key, updated)
                taken.append(updated)
        return Taken(taken, now)

    def _hint(self, scope: str, topics: Sequence[str]) -> None:
        with self._lock:
            wakes = [wake for topic in topics for wake in self._watchers.get((scope, topic), ())]
        for wake in wakes:
            wake()

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe from a running event loop."""
        return _Subscription(self, scope, topics, LoopSignal())

    def subscribe(self, scope: str, topics: Sequence[str], wake: Callable[[], None]) -> None:
        """Call `wake` at every hint on these topics."""
        with self._lock:
            for topic in topics:
                self._watchers.setdefault((scope, topic), set()).add(wake)

    def unsubscribe(self, scope: str, topics: Sequence[str], wake: Callable[[], None]) -> None:
        """Undo `subscribe`."""
        with self._lock:
            for topic in topics:
                self._watchers.get((scope, topic), set()).discard(wake)

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
            names = sorted(self._scope(scope).logs[log].entries, key=str.encode)
        return [name for name in names if after is None or name.encode() > after.encode()][:limit]

    async def check(self) -> list[str]:
        """Nothing can be damaged here."""
        return []

    async def health(self) -> Health:
        """Honest: this engine keeps nothing, and says so."""
        told = self._refusal().message if self._refusal else "data lives in this process only and is gone when it ends"
        return Health("memory", False, "none", {"scopes": len(self._scopes)}, (told,))

    async def close(self) -> None:
        """Forget everything; nothing at all in a forked child."""
        if self._refusal is _copied_by_fork:
            return
        with self._lock:
            self._refusal = _closed
            self._scopes.clear()


class BlockingMemory:
    """The memory engine as blocking callers see it: every coroutine but `wait` already never suspends."""

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

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe from a plain thread."""
        return _Subscription(self._engine, scope, topics, ThreadSignal())

    def blocking(self) -> Engine:
        """Already blocking."""
        return self


class _Subscription:
    """A watch on the memory engine."""

    def __init__(self, engine: MemoryEngine, scope: str, topics: Sequence[str], signal: Signal) -> None:
        self._where = (engine, scope, tuple(topics))
        self._signal = signal
        engine.subscribe(scope, topics, signal.ring)

    async def wait(self, timeout: float) -> bool:
        """Wait for a hint."""
        return await self._signal.wait(timeout)

    def close(self) -> None:
        """Unsubscribe."""
        engine, scope, topics = self._where
        engine.unsubscribe(scope, topics, self._signal.ring)


_live: weakref.WeakSet[MemoryEngine] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for engine in _live:
        engine.refuse_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)
