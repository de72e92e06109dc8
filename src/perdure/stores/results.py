"""The rows that a transaction left, computed from what was sent: nothing is read back.

A second trip would cost as much as the write, and its failure would make a successful write look refused. The
transaction's answer holds all that the database decided: its rev, its clock, and the seqs it assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.kernel.ops import Applied, Patch, Put, Row
from perdure.kernel.semantics import evaluate
from perdure.stores.schema import SCHEMA


def row_after_put(put: Put, applied: Applied) -> Row:
    """The row that a `Put` wrote."""
    table = SCHEMA.table[put.table]
    columns = columns_after(dict.fromkeys(table.column_names), put.columns, applied)
    return Row(put.key, tuple(columns.values()), applied.rev, put.body, table.positions)


def row_after_patch(row: Row, patch: Patch, applied: Applied) -> Row:
    """The row that a `Patch` left, if `row` is what it changed."""
    columns = columns_after(row.columns, patch.set, applied)
    body = row.body if patch.body is None else patch.body
    return Row(row.key, tuple(columns.values()), applied.rev, body, row.positions)


def columns_after(before: Mapping[str, Any], changes: Mapping[str, Any], applied: Applied) -> dict[str, Any]:
    """All columns of a row, with the changes that an operation made."""
    last: dict[str, int] = {}
    for (log, _), seq in applied.seqs.items():
        last.setdefault(log, seq)  # as engines count: the first append to a log
    columns = dict(before)
    for name, value in changes.items():
        columns[name] = evaluate(value, before[name], applied.now, last)
    return columns
