"""What a transaction left behind, worked out from what was sent: nothing needs to be read back.

A second trip would cost as much as the write, and its failure would make a write that landed look refused. The
transaction's answer holds all that the database decided: its revision, its clock, and the seqs it gave out.
"""

from __future__ import annotations

from typing import Any

from perdure.kernel.ops import Applied, Patch, Put, Row
from perdure.kernel.semantics import evaluate
from perdure.stores.schema import SCHEMA


def row_made(put: Put, applied: Applied) -> Row:
    """The row that a `Put` wrote."""
    table = SCHEMA.table[put.table]
    nothing = Row(put.key, (None,) * len(table.columns), applied.rev, None, table.place)
    return _after(nothing, put.columns, put.body, applied)


def row_changed(found: Row, patch: Patch, applied: Applied) -> Row:
    """The row that a `Patch` left, as far as `found` is what it found."""
    return _after(found, patch.set, found.body if patch.body is None else patch.body, applied)


def _after(row: Row, columns: dict[str, Any], body: bytes | str | None, applied: Applied) -> Row:
    last: dict[str, int] = {}
    for (log, _), seq in applied.seqs.items():
        last.setdefault(log, seq)  # as engines count: the first append to a log
    values = tuple(
        evaluate(columns[name], old, applied.now, last) if name in columns else old
        for name, old in zip(row.place, row.values, strict=True)
    )
    return Row(row.key, values, applied.rev, body, row.place)
