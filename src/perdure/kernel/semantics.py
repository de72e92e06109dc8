"""Evaluates conditions and expressions, for every engine that does so in Python.

An engine that reads a row before it writes asks here whether the row meets a condition, what an expression comes to,
and what a conflict should report; an engine that leaves this to its database must come to the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.kernel.ops import ABSENT, ANY, PRESENT, AtMost, Inc, Max, Min, Now, Row, Seq, Swap


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
        return value.value if old is None else max(old, value.value)
    if kind is Min:
        return value.value if old is None else min(old, value.value)
    return value


def meets(row: Row | None, condition: Any) -> bool:
    """True when the row (None: its absence) is what the condition asks for."""
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
    return all(column_meets(row[name], value) for name, value in condition.items())


def column_meets(actual: Any, expected: Any) -> bool:
    """A condition on one column."""
    if isinstance(expected, AtMost):
        return actual is None or bool(actual <= expected.limit)
    return bool(actual == expected)


def observed(row: Row | None, condition: Any) -> Any:
    """What a conflict reports as actual: None for absence, a rev, or the columns that were asked about."""
    if row is None:
        return None
    if isinstance(condition, dict):
        return {name: row[name] for name in condition}
    return row.rev
