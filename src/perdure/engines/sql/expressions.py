"""What the kernel's expressions and conditions are in SQL, for any spelling of parameters.

`assignment` and `condition_terms` write the text and take a parameter for each value; `assigned_values` (of
`kernel.shapes`) and `condition_values` list the values in the same order. `Inc(2)` on `"n"` becomes
`coalesce("n", 0) + ?1` with `[2]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.kernel.ops import ABSENT, AtMost, Condition, Inc, Max, Min, Now, Presence, Swap
from perdure.kernel.semantics import bound_at
from perdure.kernel.shapes import Clocked

Parameter = Callable[[], str]
"""Writes the next parameter."""


class Operators(NamedTuple):
    """What databases spell differently; `{0}` is the column and `{1}` the parameter."""

    greatest: str = "greatest({0}, {1})"
    least: str = "least({0}, {1})"
    same: str = "{0} IS NOT DISTINCT FROM {1}"


def assignment(kind: Any, column: str, parameter: Parameter, clock: str, operators: Operators) -> str:
    """The new value of a column that an expression of this kind assigns; `clock` is the SQL of the time now."""
    if kind is Now:
        return f"{clock} + {parameter()}"
    first = parameter()
    if isinstance(kind, Clocked):
        kind, first = kind.bound, f"({clock} + {first})"
    if kind is Inc:
        return f"coalesce({column}, 0) + {first}"
    if kind is Max:
        return operators.greatest.format(column, first)
    if kind is Min:
        return operators.least.format(column, first)
    if kind is Swap:
        return f"CASE WHEN {operators.same.format(column, first)} THEN {parameter()} ELSE {column} END"
    return first


def condition_terms(
    condition: Condition, column: Callable[[str], str], parameter: Parameter, operators: Operators, never: str
) -> list[str]:
    """The terms that hold for a row that meets the condition; `column` writes a column, `never` is a false term."""
    if isinstance(condition, Presence):
        return [never] if condition is ABSENT else []
    if not isinstance(condition, dict):
        return [f"{column('rev')} = {parameter()}"]
    return [
        f"({column(name)} IS NULL OR {column(name)} <= {parameter()})"
        if type(value) is AtMost
        else operators.same.format(column(name), parameter())
        for name, value in condition.items()
    ]


def condition_values(condition: Condition, now: int) -> list[Any]:
    """The arguments of `condition_terms`, in the order of its parameters; `now` is the time of the transaction."""
    if isinstance(condition, dict):
        return [bound_at(value.limit, now) if type(value) is AtMost else value for value in condition.values()]
    return [] if isinstance(condition, Presence) else [condition]
