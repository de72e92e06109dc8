"""What an operation does to a row, for engines that read the row first and decide in Python.

`decide` checks the condition and computes the new values: all columns for a new row, the changed ones for an existing
row. `Patch({"n": Inc(1)})` on a row with n = 2 becomes `{"n": 3}`; on an absent row it becomes its default, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ANY, PRESENT, Check, Delete, Patch, Put, Row
from perdure.kernel.schema import Log, Table
from perdure.kernel.semantics import evaluate, meets, observed


class Moment(NamedTuple):
    """What expressions read besides the row: the time, and the last seq appended to each log."""

    now: int
    last: Mapping[str, int]


def decide(
    position: int, op: Check | Put | Patch | Delete, table: Table, row: Row | None, moment: Moment
) -> dict[str, Any] | None:
    """The values that an operation sets, `body` included; None if it sets none. Raises `Conflict`."""
    if isinstance(op, Patch) and row is None:
        if op.default is None:
            raise Conflict(position, "condition", PRESENT if op.if_ is ANY else op.if_, None)
        return _new_row(table, op.default.columns, op.default.body, moment)
    if not meets(row, op.if_):
        raise Conflict(position, "condition", op.if_, observed(row, op.if_))
    if isinstance(op, Put):
        return _new_row(table, op.columns, op.body, moment)
    if isinstance(op, Patch):
        values = {name: evaluate(value, old_value(row, name), *moment) for name, value in op.set.items()}
        return values if op.body is None else {**values, "body": op.body}
    return None


def _new_row(table: Table, columns: Mapping[str, Any], body: bytes | None, moment: Moment) -> dict[str, Any]:
    return {**{name: evaluate(columns.get(name), None, *moment) for name in table.column_names}, "body": body}


def old_value(row: Row | None, name: str) -> Any:
    """The value of a column that was read; None for any other."""
    return row[name] if row is not None and name in row.positions else None


def refuse_repeated(
    position: int, log: Log, entries: Sequence[Sequence[Any]], owned: Callable[[str], Container[Any]] = lambda _: ()
) -> None:
    """Raise `Conflict` if a unique column has a value twice: in these entries, or among those that are `owned`."""
    for column in log.unique:
        owners, column_position, values = owned(column), log.positions[column], set[Any]()
        for entry in entries:
            value = entry[column_position]
            if value is not None and (value in values or value in owners):
                raise Conflict(position, "unique", None, {column: value})
            values.add(value)


def updated_row(row: Row, changes: Mapping[str, Any], rev: int, moment: Moment) -> Row:
    """The row after a `take` that sets these expressions."""
    values = {name: evaluate(value, row[name], *moment) for name, value in changes.items()}
    return Row(row.key, tuple({**row.columns, **values}.values()), rev, row.body, row.positions)
