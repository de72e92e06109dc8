"""What an operation does to a row, for engines that read the row first and decide in Python.

`decide` checks the condition and computes the new values: all columns for a new row, the changed ones for an existing
row. `Patch({"n": Inc(1)})` on a row with n = 2 becomes `{"n": 3}`; on an absent row it becomes its default, or raises.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ANY, PRESENT, Check, Default, Delete, Patch, Put, Row
from perdure.kernel.schema import Log, Table
from perdure.kernel.semantics import evaluate, meets, observed

_PLAIN = frozenset((str, int, type(None)))
"""Types of values that are no expressions."""


class Moment(NamedTuple):
    """What expressions read besides the row: the time, and the last seq appended to each log."""

    now: int
    last: Mapping[str, int]


def refuse_unmet(position: int, op: Check | Put | Patch | Delete, row: Row | None, now: int) -> None:
    """Raise `Conflict` unless the row (None: its absence) meets the condition of an operation."""
    if row is None and isinstance(op, Patch):
        if op.default is None:
            raise Conflict(position, "condition", PRESENT if op.if_ is ANY else op.if_, None)
    elif not meets(row, op.if_, now):
        raise Conflict(position, "condition", op.if_, observed(row, op.if_))


def decide(
    position: int, op: Check | Put | Patch | Delete, table: Table, row: Row | None, moment: Moment
) -> dict[str, Any] | None:
    """The values that an operation sets, `body` included; None if it sets none. Raises `Conflict`."""
    refuse_unmet(position, op, row, moment.now)
    if isinstance(op, Patch) and row is not None:
        values = {name: evaluate(value, old_value(row, name), *moment) for name, value in op.set.items()}
        return values if op.body is None else {**values, "body": op.body}
    if isinstance(op, (Check, Delete)):
        return None
    new = new_row(table, op, 0, moment)
    return {**new.columns, "body": new.body}


def new_row(table: Table, op: Put | Patch, rev: int, moment: Moment) -> Row:
    """The row that a `Put` writes, or a `Patch` whose row is absent."""
    new = op if isinstance(op, Put) else op.default or Default({})
    values = tuple([evaluate(new.columns.get(name), None, *moment) for name in table.column_names])
    return Row(op.key, values, rev, new.body, table.positions)


def old_value(row: Row | None, name: str) -> Any:
    """The value of a column that was read; None for any other."""
    return row[name] if row is not None and name in row.positions else None


def refuse_repeated(
    position: int,
    log: Log,
    entries: Sequence[Sequence[Any]],
    owned: Mapping[str, Container[Any]] = MappingProxyType({}),
) -> None:
    """Raise `Conflict` if a unique column has a value twice: in these entries, or also among those that are `owned`."""
    for column in log.unique:
        owners, column_position, values = owned.get(column, ()), log.positions[column], set[Any]()
        for entry in entries:
            value = entry[column_position]
            if value is not None and (value in values or value in owners):
                raise Conflict(position, "unique", None, {column: value})
            values.add(value)


def updated_row(row: Row, changes: Mapping[str, Any], rev: int, moment: Moment, body: bytes | None = None) -> Row:
    """The row after a `Patch` or a `take` that sets these expressions."""
    values, positions = list(row.values), row.positions
    now, last = moment
    for name, value in changes.items():
        position = positions[name]
        values[position] = value if type(value) in _PLAIN else evaluate(value, values[position], now, last)
    return Row(row.key, tuple(values), rev, row.body if body is None else body, positions)
