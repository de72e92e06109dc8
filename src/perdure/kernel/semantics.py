"""Evaluates conditions and expressions, for every engine that does so in Python.

An engine that reads a row before it writes asks here whether the row meets a condition, what an expression comes to,
and what a conflict should report; an engine that leaves this to its database must come to the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.kernel.ops import ABSENT, ANY, PRESENT, AtMost, Inc, Max, Min, Now, Row, Scan, Seq, Swap


def evaluate(value: Any, old: Any, now: int, last: Mapping[str, int]) -> Any:
    """The plain value of an expression, given what the column held; `last` is the last seq appended to each log."""
    kind = type(value)
    if kind is Inc:
        return (old or 0) + value.by
    if kind is Now:
        return now + value.plus
    if kind is Swap:
        return value.new if old == value.old else old
    if kind is Seq:
        return last[value.log] - value.back
    if kind is Max:
        bound = bound_at(value.value, now)
        return bound if old is None else max(old, bound)
    if kind is Min:
        bound = bound_at(value.value, now)
        return bound if old is None else min(old, bound)
    return value


def bound_at(bound: int | Now, now: int) -> int:
    """A bound as a number: `Now` is the time of the transaction plus its offset."""
    return now + bound.plus if type(bound) is Now else bound  # type: ignore[return-value]


def scan_at(scan: Scan, now: int) -> Scan:
    """The same scan, with numbers for bounds."""
    if Now not in map(type, scan.upto.values()):
        return scan
    return msgspec.structs.replace(scan, upto={name: bound_at(bound, now) for name, bound in scan.upto.items()})


def meets(row: Row | None, condition: Any, now: int) -> bool:
    """True when the row (None: its absence) is what the condition asks for at this time."""
    if condition is ANY:
        return True
    if condition is ABSENT:
        return row is None
    if row is None:
        return False
    if condition is PRESENT:
        return True
    if isinstance(condition, int):
        return row.rev == condition
    return all(column_meets(row[name], value, now) for name, value in condition.items())


def column_meets(actual: Any, expected: Any, now: int) -> bool:
    """A condition on one column."""
    if isinstance(expected, AtMost):
        return actual is None or bool(actual <= bound_at(expected.limit, now))
    return bool(actual == expected)


def observed(row: Row | None, condition: Any) -> Any:
    """What a conflict reports as actual: None for absence, a rev, or the columns that were asked about."""
    if row is None:
        return None
    if isinstance(condition, dict):
        return {name: row[name] for name in condition}
    return row.rev
