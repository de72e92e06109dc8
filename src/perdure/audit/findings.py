"""The checks of the auditor, by name, and the findings it reports.

`CHECKS` is the whole list: the name of a check, the invariant it belongs to, and the sentence that must hold. A finding
names the record, the check and the problem. Every check has a test that damages data and expects the finding.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec

from perdure.errors import PerdureError, UnavailableError, shortened
from perdure.kernel.ops import ReadOp, Row, Scan
from perdure.kernel.validate import Kernel
from perdure.rules.soundness.stored import Problem
from perdure.stores.store import Store

CHUNK = 200
"""Rows or log entries read at a time."""

UNREADABLE = "engine.check"
"""The check that reports data that cannot be read."""

CHECKS: dict[str, tuple[str, str]] = {
    "engine.check": ("I1", "the engine's own integrity check finds nothing"),
    "column": ("I1", "every column is there if it always is, has its type, and is within its range"),
    "index": ("I1", "an index shows exactly the rows that belong in it, in order"),
    "orphan": ("I2", "every row and every log belongs to a thread that exists, or that is being erased"),
    "thread.rows": ("I2", "a living thread has its cold and its hot row"),
    "thread.copies": ("I2", "what listing needs is the same on both rows of a thread"),
    "thread.tombstone": ("I2", "a deleted thread keeps nothing, and nothing at all once it is erased"),
    "thread.body": ("I2", "a thread's metadata can be read"),
    "thread.children": ("I2", "a thread counts its children"),
    "thread.parent": ("I10", "a parent thread exists, and no thread is its own ancestor"),
    "log.gap": ("I3", "message seqs run from 1 without a gap"),
    "log.version": ("I3", "a thread's version is the number of its messages"),
    "log.id": ("I3", "a message is found by its id, and no id is there twice"),
    "log.body": ("I3", "every message can be read and has the shape that commits demand"),
    "log.branch": ("I10", "a message is on a branch that exists, after the branch's fork point"),
    "branch.number": ("I10", "branches are numbered without a gap, and the thread counts them"),
    "branch.parent": ("I10", "a branch hangs under an older branch, or under nothing"),
    "branch.fork": ("I10", "a fork point is a message of the parent branch, with the id that is written down"),
    "branch.head": ("I10", "a branch's head is its newest message"),
    "branch.length": ("I10", "a branch counts its own messages"),
    "branch.current": ("I10", "the current branch exists and is not deleted"),
    "branch.name": ("I10", "a living branch has its own name, a deleted one has none"),
    "label": ("I10", "a label is on a message of its thread"),
    "pointer": ("I9", "active names a running run of the thread, open one that is not done, latest any"),
    "run.body": ("I9", "a run can be read; it waits for something iff waiting, has an outcome iff done"),
    "run.times": ("I9", "a run has started once it ran or waited, and has finished iff done"),
    "run.branch": ("I9", "a run is pinned to a branch that exists, and that lives until the run is done"),
    "run.input": ("I9", "a run's input lies inside the log and was written with the run"),
    "run.output": ("I9", "a run's output is made of visible messages that it produced"),
    "key": ("I8", "an idempotency key names the messages and the run of exactly one commit"),
    "state.owner": ("I2", "a state document belongs to its thread or to one of its runs"),
    "state.body": ("I2", "a state document can be read"),
    "queue": ("I2", "a queue counts its pending messages and waits iff there are any"),
    "pending.place": ("I2", "pending messages are at 1, 2, 3, …"),
    "pending.body": ("I2", "a pending message can be read and is not in the log yet"),
    "profile": ("I2", "a profile can be read, and expires after it was written or never"),
    "history": ("I13", "a history never shows a tool result without its call"),
}

Progress = Callable[[str, int, int], None]
"""Called with what is being checked, how much of it is done, and the total."""


class Finding(msgspec.Struct, frozen=True):
    """One problem: its scope and record, the check and the invariant that failed, and a description."""

    scope: str
    record: str
    check: str
    invariant: str
    problem: str

    def __str__(self) -> str:
        return f"{self.scope}: {self.record}: {self.problem} ({self.check}, {self.invariant})"


class Audit:
    """One audit of one scope: reads through the kernel and collects findings."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scope = store.scope
        self.kernel = Kernel(store.engine)
        self.findings: list[Finding] = []

    async def view(self, *reads: ReadOp) -> list[Any]:
        """Read in this scope, from one snapshot."""
        return await self.kernel.view(self.scope, *reads)

    def report(self, check: str, record: str, problem: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(self.scope, shortened(record), check, CHECKS[check][0], shortened(problem)))

    def expect(self, holds: bool, check: str, record: str, problem: str) -> bool:
        """Add a finding unless the condition holds; returns whether it does."""
        if not holds:
            self.report(check, record, problem)
        return holds

    def collect(self, problems: Iterable[Problem]) -> bool:
        """Add a finding for every problem; returns whether there was one."""
        before = len(self.findings)
        for problem in problems:
            self.report(*problem)
        return len(self.findings) > before

    async def rows(self, table: str) -> AsyncIterator[Row]:
        """Every row of a table by key, some at a time.

        A row that cannot be read (text that is not UTF-8, a torn page) is reported and skipped: the walk goes
        upwards to it, then downwards. Only rows between two such rows are not read.
        """
        before = len(self.findings)
        async for row in self._walk(table, desc=False):
            yield row
        if any(finding.check == UNREADABLE for finding in self.findings[before:]):
            async for row in self._walk(table, desc=True):
                yield row

    async def _walk(self, table: str, *, desc: bool) -> AsyncIterator[Row]:
        after: tuple[Any, ...] | None = None
        size = CHUNK
        while True:
            try:
                rows: list[Row] = (await self.view(Scan(table, after=after, limit=size, desc=desc)))[0]
            except UnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever reading it raises is what there is to report
                if size == 1:
                    edge = (
                        ("last" if desc else "first")
                        if after is None
                        else f"next {'below' if desc else 'above'} {after}"
                    )
                    self.report(UNREADABLE, f"{table}, the row {edge}", problem_of(error))
                    return
                size = max(1, size // 8)
                continue
            for row in rows:
                yield row
            if len(rows) < size:
                return
            after = rows[-1].key


def problem_of(error: Exception) -> str:
    """An error as the problem of a finding; an error that is not ours means that a check met something unforeseen."""
    if isinstance(error, PerdureError):
        return error.message
    return f"it cannot be examined: {type(error).__name__}: {error}"
