"""Who would own which unique value: the part of a transaction that SQL constraints alone cannot decide.

A constraint sees one statement at a time, so whether a value may move between two rows of one transaction would depend
on the order of operations, which has no meaning. Where a transaction writes several rows of a table with unique groups,
the rows it intends are computed here and compared with the owners before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.engines.sql.embedded.statements import Moment
from perdure.kernel.ops import Patch, Put, Row
from perdure.kernel.schema import Table
from perdure.kernel.semantics import evaluate

Group = tuple[str, ...]


def intended(table: Table, op: Put | Patch, row: Row | None, moment: Moment) -> dict[str, Any]:
    """Key and columns of the row as the operation would leave it; `row` is what is there now."""
    values: dict[str, Any] = dict(zip(table.key_names, op.key, strict=True))
    if isinstance(op, Patch) and row is not None:
        changed = {name: evaluate(value, row.columns[name], moment.now, moment.last) for name, value in op.set.items()}
        return values | row.columns | changed
    fresh: Mapping[str, Any] = {}
    if isinstance(op, Put):
        fresh = op.columns
    elif op.default is not None:
        fresh = op.default.columns
    return values | {name: moment.resolve(fresh.get(name)) for name in table.column_names}


def claims(groups: tuple[Group, ...], values: dict[str, Any]) -> Iterator[tuple[Group, dict[str, Any]]]:
    """The unique groups that a row with these values occupies."""
    for group in groups:
        claimed = {name: values[name] for name in group}
        if None not in claimed.values():
            yield group, claimed
