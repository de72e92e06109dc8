"""A view: all its reads are answered from one snapshot, in as few packets as their references allow.

A single statement is its own snapshot. Several run inside a read-only transaction at REPEATABLE READ whose snapshot is
taken when it begins. Reads that refer to others wait until those are answered; all others share the first packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.read.queries import Answering, Queries
from perdure.engines.shared.references import Earlier
from perdure.kernel.ops import Get, ReadOp, Ref, Scan

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"


class _InFlight(NamedTuple):
    """A read whose statements were sent."""

    answering: Answering
    statements: list[str]


class View:
    """The state of one view: which reads wait, which have statements in flight, and the answers so far."""

    def __init__(self, queries: Queries, scope: str, reads: Sequence[ReadOp]) -> None:
        self._reads = reads
        self.answers: list[Any] = [None] * len(reads)
        earlier = Earlier(queries.schema, reads, self.answers)
        self._waiting = {number: queries.answering(scope, read, earlier) for number, read in enumerate(reads)}
        self._in_flight: dict[int, _InFlight] = {}
        self._staged = any(queries.in_stages(read) for read in reads)

    def begin(self) -> list[str]:
        """The statements of every read that can run now; empty when all are answered."""
        for number in list(self._waiting):
            if not any(ref in self._waiting or ref in self._in_flight for ref in _refers_to(self._reads[number])):
                self._advance(number, self._waiting.pop(number), None)
        return [statement for read in self._in_flight.values() for statement in read.statements]

    def _advance(self, number: int, answering: Answering, results: list[Rows] | None) -> None:
        try:
            statements = next(answering) if results is None else answering.send(results)
            self._in_flight[number] = _InFlight(answering, statements)
        except StopIteration as done:
            self._in_flight.pop(number, None)
            self.answers[number] = done.value

    def feed(self, results: Sequence[Rows]) -> None:
        """Hand the results of the statements of `begin` to the reads that they belong to."""
        rest = iter(results)
        for number, read in list(self._in_flight.items()):
            self._advance(number, read.answering, [next(rest) for _ in read.statements])

    @property
    def last(self) -> bool:
        """True when no further statements can follow those that `begin` returned."""
        return not self._waiting and not self._staged


async def answer(connection: Connection, queries: Queries, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
    """The answers, in the order of the reads."""
    view = View(queries, scope, reads)
    statements = view.begin()
    if not statements:
        return view.answers
    if len(statements) == 1 and view.last:
        view.feed(await connection.run(statements[0]))
        return view.answers
    opening, closed = _SNAPSHOT, False
    try:
        while statements:
            closed = view.last
            view.feed(await connection.run(f"{opening}{';'.join(statements)}{';COMMIT' if closed else ''}"))
            opening, statements = "", view.begin()
        if not closed:
            await connection.run("COMMIT")
    except BaseException:
        await connection.roll_back()
        raise
    return view.answers


def _refers_to(read: ReadOp) -> set[int]:
    """The numbers of the earlier reads whose answers this one needs."""
    if isinstance(read, Get):
        return {read.keys.read} if isinstance(read.keys, Ref) else set()
    if isinstance(read, Scan):
        return {value.read for value in read.eq if isinstance(value, Ref)}
    return set()
