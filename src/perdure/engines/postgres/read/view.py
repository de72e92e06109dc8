"""Views: any number of reads as one statement, so that one round trip answers them all from one snapshot.

A single read is a plain statement. Several become the arms of one `UNION ALL`: each arm writes its columns into *slots*
of the right type and leaves the others NULL, and the last column tells the arms apart. The slots begin with the columns
of the log entries, if any are read, so that a long history is cut out of the answer with one slice per entry. A `Ref`
is a join with the arm it points at, which then stands in a CTE.

Every arm ends in a LIMIT, a huge one if none was asked for: PostgreSQL runs such arms one after the other and never in
parallel, so answers come arm by arm and each in its order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.read.index_scans import ALL
from perdure.engines.postgres.read.read_sql import Arm, Arms, Parameters
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.sql.terms import Kept
from perdure.kernel.ops import Ask, Get, Ref, Scan

Cut = Callable[[list[Any]], list[Any]]
_LAST = itemgetter(-1)


class Plan:
    """A view's statement, and how each read's part is cut out of the answer.

    A read that cannot have an answer (no keys, no segments, a `Ref` to such a one) is not part of the statement.
    """

    __slots__ = ("answerable", "cuts", "sql", "tuned")

    def __init__(self, sql: str, built: Sequence[Arm | None], cuts: list[Cut | None]) -> None:
        self.sql = sql
        self.tuned = any(arm is not None and arm.tuned for arm in built)
        self.answerable = [arm is not None for arm in built]
        self.cuts = cuts


class Queries:
    """The reading statements of a whole schema."""

    def __init__(self, layout: Layout, clock: Callable[[], int | None]) -> None:
        self._arms = Arms(layout, clock)
        self._plans: Kept[Plan] = Kept()

    async def view(self, pool: Pool, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """The answers to all reads, from one snapshot."""
        arms = self._arms
        reads = [arms.simpler(read) for read in reads]
        shape = tuple(map(arms.shape, reads))
        plan = self._plans.get(shape) or self._plans.keep(shape, self._plan(reads))
        found: list[Any] = []
        if plan.sql:
            arguments: list[Any] = [scope]
            for read, answerable in zip(reads, plan.answerable, strict=True):
                if answerable:
                    arguments += arms.arguments(read)
            found = await pool.ask(plan.sql, arguments, tuned=plan.tuned)
        if len(reads) == 1:
            return [arms.answer(reads[0], list(map(tuple, found)))]
        return self._split(reads, plan, found)

    def _split(self, reads: Sequence[Ask], plan: Plan, found: list[Any]) -> list[Any]:
        count = len(reads)
        bounds = [bisect_left(found, n, key=_LAST) for n in range(count)] + [len(found)]
        return [
            self._arms.answer(read, cut(found[low:high]) if cut is not None and high > low else [])
            for read, cut, (low, high) in zip(reads, plan.cuts, pairwise(bounds), strict=True)
        ]

    def _plan(self, reads: Sequence[Ask]) -> Plan:
        parameters = Parameters()
        built: list[Arm | None] = []
        for read in reads:
            pointless = any(built[ref.read] is None for ref in _refs(read))
            arm = None if pointless else self._arms.build(read, reads, parameters)
            built.append(arm)
        if len(built) == 1:
            return Plan("" if built[0] is None else built[0].sql, built, [])
        return _together(reads, built)


def _together(reads: Sequence[Ask], built: Sequence[Arm | None]) -> Plan:
    slots = _Slots(built)
    pointed = {ref.read for read in reads for ref in _refs(read)}
    ctes, parts, cuts = [], [], list[Cut | None]()
    for n, arm in enumerate(built):
        if arm is None:
            cuts.append(None)
            continue
        columns = ", ".join(f"c{i}" for i in range(len(arm.types)))
        source = f"({arm.sql}{'' if arm.bounded else ALL}) x({columns})"
        if n in pointed:
            ctes.append(f"r{n}({columns}) AS MATERIALIZED ({arm.sql})")
            source = f"r{n} x"
        places = slots.places[n]
        parts.append(f"SELECT {slots.chosen(places)}, {n} FROM {source}")
        cuts.append(_cut(places))
    head = f"WITH {', '.join(ctes)} " if ctes else ""
    return Plan(head + " UNION ALL ".join(f"({part})" for part in parts) if parts else "", built, cuts)


def _refs(read: Ask) -> list[Ref]:
    if isinstance(read, Get):
        return [read.keys] if isinstance(read.keys, Ref) else []
    return [value for value in read.eq if isinstance(value, Ref)] if isinstance(read, Scan) else []


class _Slots:
    """Which column of the common answer holds which column of an arm."""

    def __init__(self, built: Sequence[Arm | None]) -> None:
        self.types: list[str] = []
        self.places: dict[int, list[int]] = {}
        # Log entries first: they are many, and take the slots in their own order.
        order = sorted((n for n, arm in enumerate(built) if arm is not None), key=lambda n: not _arm(built[n]).entries)
        for n in order:
            self.places[n] = self._assign(_arm(built[n]).types)

    def _assign(self, types: Sequence[str]) -> list[int]:
        free = list(range(len(self.types)))
        places = []
        for kind in types:
            place = next((slot for slot in free if self.types[slot] == kind), None)
            if place is None:
                place = len(self.types)
                self.types.append(kind)
            else:
                free.remove(place)
            places.append(place)
        return places

    def chosen(self, places: list[int]) -> str:
        """The select list of an arm."""
        source = {slot: f"x.c{i}" for i, slot in enumerate(places)}
        return ", ".join(source.get(slot) or f"NULL::{kind}" for slot, kind in enumerate(self.types))


def _arm(arm: Arm | None) -> Arm:
    if arm is None:
        raise TypeError("an arm without a statement has no slots")
    return arm


def _cut(places: list[int]) -> Cut:
    width = len(places)
    if places == list(range(width)):
        return lambda found: [row[:width] for row in found]
    pick = itemgetter(*places)
    return lambda found: list(map(pick, found))
