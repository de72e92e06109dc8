"""Views: any number of reads as one statement, so that one round trip answers them all from one snapshot.

A single read is a plain statement. Several become the branches of one `UNION ALL`: each branch writes its columns into
*slots* of the right type and leaves the others NULL, and the last column is the number of the read. The slots begin
with the columns of the log entries, if any are read, so that a long history is cut out of the result with one slice per
entry. A `Ref` is a join with the read it points at, which is then a CTE. A row by key and its log, for example:

    (SELECT NULL, x.c1, NULL, x.c2, x.c0, 0 FROM (SELECT … FROM threads … LIMIT …) x(c0, c1, c2))
    UNION ALL (SELECT x.c0, x.c1, x.c2, x.c3, NULL, 1 FROM (SELECT … FROM messages … LIMIT …) x(c0, c1, c2, c3))

Every branch ends in a LIMIT, a huge one if the read has none: PostgreSQL runs such branches one after the other and
never in parallel, so answers come read by read and each in its order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.read.index_scans import ALL, DIALECT
from perdure.engines.postgres.read.read_sql import Parameters, ReadSql, ReadStatement
from perdure.engines.sql.terms import ShapeCache
from perdure.kernel.ops import Get, ReadOp, Ref, Scan

Cut = Callable[[list[Any]], list[Any]]
_READ_NUMBER = itemgetter(-1)


class ViewStatement:
    """A view's statement, and how each read's part is cut out of the result.

    A read that cannot have an answer (no keys, no segments, a `Ref` to such a read) is not part of the statement.
    """

    __slots__ = ("answerable", "cuts", "sql", "tuned")

    def __init__(self, sql: str, statements: Sequence[ReadStatement | None], cuts: list[Cut | None]) -> None:
        self.sql = sql
        self.tuned = any(statement is not None and statement.tuned for statement in statements)
        self.answerable = [statement is not None for statement in statements]
        self.cuts = cuts


class ViewReader:
    """Answers views on one schema."""

    def __init__(self, read_sql: ReadSql) -> None:
        self._sql = read_sql
        self._views: ShapeCache[ViewStatement] = ShapeCache()

    async def view(self, pool: Pool, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """The answers to all reads, from one snapshot."""
        sql = self._sql
        reads = [sql.simplify(read) for read in reads]
        shape = tuple(map(sql.shape, reads))
        view = self._views.get(shape) or self._views.keep(shape, self._build(reads))
        result: list[Any] = []
        if view.sql:
            arguments: list[Any] = [scope]
            for read, answerable in zip(reads, view.answerable, strict=True):
                if answerable:
                    arguments += sql.arguments(read)
            result = await pool.query(view.sql, arguments, tuned=view.tuned)
        if len(reads) == 1:
            return [sql.answer(reads[0], list(map(tuple, result)))]
        return self._split(reads, view, result)

    def _split(self, reads: Sequence[ReadOp], view: ViewStatement, result: list[Any]) -> list[Any]:
        bounds = [bisect_left(result, number, key=_READ_NUMBER) for number in range(len(reads))] + [len(result)]
        return [
            self._sql.answer(read, cut(result[low:high]) if cut is not None and high > low else [])
            for read, cut, (low, high) in zip(reads, view.cuts, pairwise(bounds), strict=True)
        ]

    def _build(self, reads: Sequence[ReadOp]) -> ViewStatement:
        parameters = Parameters(DIALECT, used=1)
        statements: list[ReadStatement | None] = []
        for read in reads:
            pointless = any(statements[ref.read] is None for ref in _refs(read))
            statements.append(None if pointless else self._sql.build(read, reads, parameters))
        if len(statements) == 1:
            return ViewStatement("" if statements[0] is None else statements[0].sql, statements, [])
        return _union(reads, statements)


def _union(reads: Sequence[ReadOp], statements: Sequence[ReadStatement | None]) -> ViewStatement:
    slots = _Slots(statements)
    targets = {ref.read for read in reads for ref in _refs(read)}
    ctes, branches, cuts = [], [], list[Cut | None]()
    for number, statement in enumerate(statements):
        if statement is None:
            cuts.append(None)
            continue
        columns = ", ".join(f"c{i}" for i in range(len(statement.types)))
        source = f"({statement.sql}{'' if statement.bounded else ALL}) x({columns})"
        if number in targets:
            ctes.append(f"r{number}({columns}) AS MATERIALIZED ({statement.sql})")
            source = f"r{number} x"
        read_slots = slots.by_read[number]
        branches.append(f"(SELECT {slots.select_list(read_slots)}, {number} FROM {source})")
        cuts.append(_cut(read_slots))
    head = f"WITH {', '.join(ctes)} " if ctes else ""
    return ViewStatement(head + " UNION ALL ".join(branches) if branches else "", statements, cuts)


def _refs(read: ReadOp) -> list[Ref]:
    if isinstance(read, Get):
        return [read.keys] if isinstance(read.keys, Ref) else []
    return [value for value in read.eq if isinstance(value, Ref)] if isinstance(read, Scan) else []


class _Slots:
    """Which column of the common result holds which column of a read."""

    def __init__(self, statements: Sequence[ReadStatement | None]) -> None:
        self.types: list[str] = []
        self.by_read: dict[int, list[int]] = {}
        present = [(number, statement) for number, statement in enumerate(statements) if statement is not None]
        # Log entries first: they are many, and their columns keep their order.
        for number, statement in sorted(present, key=lambda pair: not pair[1].entries):
            self.by_read[number] = self._assign(statement.types)

    def _assign(self, types: Sequence[str]) -> list[int]:
        free = list(range(len(self.types)))
        slots = []
        for sql_type in types:
            slot = next((slot for slot in free if self.types[slot] == sql_type), None)
            if slot is None:
                slot = len(self.types)
                self.types.append(sql_type)
            else:
                free.remove(slot)
            slots.append(slot)
        return slots

    def select_list(self, slots: list[int]) -> str:
        """The columns of a read in its slots, NULL in the others."""
        source = {slot: f"x.c{i}" for i, slot in enumerate(slots)}
        return ", ".join(source.get(slot) or f"NULL::{sql_type}" for slot, sql_type in enumerate(self.types))


def _cut(slots: list[int]) -> Cut:
    width = len(slots)
    if slots == list(range(width)):
        return lambda rows: [row[:width] for row in rows]
    pick = itemgetter(*slots)
    return lambda rows: list(map(pick, rows))
