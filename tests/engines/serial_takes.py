"""Takes and times in the serial-order test: how they are drawn, and how an outcome is judged without knowing the time.

The engines run on their own clocks, which the judge cannot know exactly. So no outcome may depend on the exact time:

- A time in the column `due` is whole hours from the engine's time, plus some steps of 15 seconds, another number for
  each: which of two rows is due first does not depend on when they were written.
- A bound is a multiple of 90 minutes from it, far from every due time.
- Before states are compared, times are rounded to steps, as seen from the beginning of the round. A round that took
  longer than the rounding allows is not judged.

PostgreSQL and MySQL skip rows that others hold, instead of waiting. There, a row that another transaction of the round
names, or that another take got, may be skipped or come out of order; all other rows must be the first that are due.
(On MySQL, a take also holds the first row beyond its bound, so others may skip that one.) On the other engines, a take
must get exactly what it gets in the serial order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from tests.engines.toys import drive

from perdure.kernel.engine import Engine
from perdure.kernel.ops import NOW, Inc, Max, Min, Now, Op, Patch, Row, Scan
from perdure.kernel.semantics import bound_at, scan_at

HOUR, STEP = 3_600_000, 15_000
_HOURS = (-2, -1, 1, 2)
BOUNDS = (NOW, NOW, Now(-HOUR * 3 // 2), Now(HOUR * 3 // 2))
LONGEST_ROUND = 6.0
"""Seconds; with the rounding to steps of 15 seconds, what is written in this time is certain."""
SKIPPING = ("postgres", "mysql")


class Take(msgspec.Struct, frozen=True):
    """One take of the rows of `items` that are due."""

    scan: Scan
    changes: dict[str, Any]

    @property
    def limit(self) -> int:
        """How many rows it gets at most."""
        return self.scan.limit or 0


class Times:
    """Draws due times, each only once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._drawn = 0

    def due(self) -> Now:
        """A due time that no other row gets."""
        self._drawn += 1
        return Now(self._rng.choice(_HOURS) * HOUR + self._drawn % 100 * STEP)

    def change(self) -> Any:
        """What may become of a due time."""
        return self._rng.choice((self.due, lambda: Max(self.due()), lambda: Min(self.due()), lambda: None))()

    def take(self) -> Take:
        """A take of one or two rows, which come back later or never."""
        scan = Scan("items", "due", (), limit=self._rng.randint(1, 2), upto={"due": self._rng.choice(BOUNDS)})
        return Take(scan, {"due": self.change(), "n": Inc(1), "rank": self._rng.choice((Max(NOW), Min(Now(5)), NOW))})


def in_steps(value: Any, base: int) -> Any:
    """A time as the number of steps from `base`; any other value as it is."""
    if type(value) is not int or value < 10**11:
        return value
    return "step", (value - base + STEP // 2) // STEP


async def taken_keys(engine: Engine, scope: str, take: Take) -> list[str]:
    """The keys of the rows that a take gets."""
    return [row.key[0] for row in (await engine.take(scope, take.scan, take.changes)).rows]


class Loose(NamedTuple):
    """Rows that a take may skip, or get out of order: those that are `named`, and those that are due `after` a time."""

    named: frozenset[str] = frozenset()
    after: int | None = None

    def has(self, row: Row) -> bool:
        """Whether a row is one of them."""
        return row.key[0] in self.named or (self.after is not None and row["due"] > self.after)


def loose_rows(kind: str, number: int, moves: Sequence[Take | list[Op]], taken: Sequence[Any], now: int) -> Loose:
    """The rows that other moves of the round may hold while the take with this number looks for its own."""
    if kind not in SKIPPING:
        return Loose()
    named: set[str] = set()
    bounds: list[int] = []
    for other, (move, keys) in enumerate(zip(moves, taken, strict=True)):
        if other == number:
            continue
        if isinstance(move, Take):
            named.update(keys)
            bounds.append(bound_at(move.scan.upto["due"], now))
        else:
            named.update(op.key[0] for op in move if getattr(op, "table", None) == "items")  # type: ignore[union-attr]
    return Loose(frozenset(named), min(bounds) if bounds and kind == "mysql" else None)


def replay(engine: Engine, take: Take, keys: list[str], loose: Loose, now: int) -> bool:
    """Let a take get these rows of the replica; False if it could not get them there."""
    scan = msgspec.structs.replace(scan_at(take.scan, now), limit=None)
    (rows,) = drive(engine.view("s", [scan]))
    due = [row.key[0] for row in rows]
    if len(keys) > take.limit or len(set(keys)) < len(keys) or not set(keys).issubset(due):
        return False
    certain_due = [row.key[0] for row in rows if not loose.has(row)]
    certain = [key for key in keys if key in certain_due]
    if certain != certain_due[: len(certain)] or (len(keys) < take.limit and certain != certain_due):
        return False
    if keys:
        drive(engine.transact("s", [Patch("items", (key,), take.changes) for key in keys]))
    return True
