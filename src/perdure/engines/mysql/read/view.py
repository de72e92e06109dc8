"""Answers all reads of a view from one snapshot, in as few packets as their references allow.

A single statement is its own snapshot. Several run inside a read-only transaction at REPEATABLE READ whose snapshot is
taken when it begins. Reads that refer to others wait until those are answered; all others share the first packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.engines.mysql.connections.connection import Rows, Wire
from perdure.engines.mysql.connections.pool import Pool, ask
from perdure.engines.mysql.read.queries import Answering, Queries
from perdure.engines.shared.references import Earlier
from perdure.kernel.ops import Ask, Get, Ref, Scan

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"


class View:
    """The reads of one view on their way to answers."""

    def __init__(self, queries: Queries, scope: str, reads: Sequence[Ask]) -> None:
        self._queries = queries
        self._scope = scope
        self._reads = reads
        self.answers: list[Any] = [None] * len(reads)
        self._earlier = Earlier(queries.schema, reads, self.answers)
        self._waiting = list(range(len(reads)))
        self._answered: set[int] = set()
        self._asking: dict[int, tuple[Answering, list[str]]] = {}
        self._staged = any(queries.in_stages(read) for read in reads)

    def begin(self) -> list[str]:
        """The statements of everything that can be asked now; empty when all is answered."""
        while startable := [at for at in self._waiting if _refers_to(self._reads[at]) <= self._answered]:
            for at in startable:
                self._waiting.remove(at)
                self._advance(at, self._queries.answering(self._scope, self._reads[at], self._earlier), None)
        return [statement for _, statements in self._asking.values() for statement in statements]

    def _advance(self, at: int, answering: Answering, rows: list[Rows] | None) -> None:
        try:
            statements = next(answering) if rows is None else answering.send(rows)
            self._asking[at] = (answering, statements)
        except StopIteration as done:
            self._asking.pop(at, None)
            self.answers[at] = done.value
            self._answered.add(at)

    def feed(self, found: Sequence[Rows]) -> None:
        """Hand the rows of the statements of `begin` to the reads that asked for them."""
        rows = iter(found)
        for at, (answering, statements) in list(self._asking.items()):
            self._advance(at, answering, [next(rows) for _ in statements])

    @property
    def last(self) -> bool:
        """True when what `begin` returned is surely all that will be asked."""
        return not self._waiting and not self._staged


async def view(pool: Pool, queries: Queries, scope: str, reads: Sequence[Ask]) -> list[Any]:
    """The answers, in the order of the reads."""
    return await ask(pool, lambda wire: _answer(wire, View(queries, scope, reads)))


async def _answer(wire: Wire, asked: View) -> list[Any]:
    statements = asked.begin()
    if not statements:
        return asked.answers
    if len(statements) == 1 and asked.last:
        asked.feed(await wire.run(statements[0]))
        return asked.answers
    opening, closed = _SNAPSHOT, False
    try:
        while statements:
            closed = asked.last
            asked.feed(await wire.run(f"{opening}{';'.join(statements)}{';COMMIT' if closed else ''}"))
            opening, statements = "", asked.begin()
        if not closed:
            await wire.run("COMMIT")
    except BaseException:
        await wire.undo()
        raise
    return asked.answers


def _refers_to(read: Ask) -> set[int]:
    """The earlier reads whose answers this one needs."""
    if isinstance(read, Get):
        return {read.keys.read} if isinstance(read.keys, Ref) else set()
    if isinstance(read, Scan):
        return {value.read for value in read.eq if isinstance(value, Ref)}
    return set()
