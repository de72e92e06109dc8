"""Refuses a transaction that could hand a unique value from one row to another.

Operations of a transaction have no order, but a database that checks a constraint statement by statement sees one: with
row `a` holding the name `x`, "free `a`, name `b` x" succeeds and "name `b` x, free `a`" fails. No store needs the
exchange in one transaction, so validation refuses it by shape, before any I/O, and engines need no code for it.

Example, with a table whose `name` is unique: `Delete(a)` may release a name and `Put(b, {"name": "x"})` takes one, so
the pair is refused. These are fine: two `Put(…, if_=ABSENT)` (they release nothing), two deletes (they take nothing),
`Patch(a, {"name": "x"})` with `Patch(b, {"n": 1})` (which leaves the name alone).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.errors import InvalidError
from perdure.kernel.ops import ABSENT, Delete, Patch, Put
from perdure.kernel.schema import Table

RowOp = Put | Patch | Delete


def refuse_handover(table: Table, ops: Iterable[RowOp]) -> None:
    """Raise `InvalidError` if one operation may release a value of a unique group and another may take one."""
    for group in table.unique:
        columns = [name for name in group if name in table.value_types]
        releasing: dict[tuple[Any, ...], RowOp] = {}
        taking: dict[tuple[Any, ...], RowOp] = {}
        for op in ops:
            # Rows that differ in a key column of the group cannot hold the same value of it.
            part = tuple(op.key[table.key_names.index(name)] for name in group if name in table.key_names)
            releases, takes = may_release(op, columns), may_take(op, columns)
            other = (releases and taking.get(part)) or (takes and releasing.get(part))
            if other:
                raise InvalidError(
                    f"{table.name} {op.key!r} and {other.key!r} could exchange a value of the unique"
                    f" ({', '.join(group)}) in one transaction",
                    hint="release the value in one transaction and take it in the next",
                )
            if releases:
                releasing[part] = op
            if takes:
                taking[part] = op


def may_release(op: RowOp, columns: list[str]) -> bool:
    """Could the row lose the value it has in these columns? Not if it must be absent."""
    if op.if_ is ABSENT:
        return False
    return not isinstance(op, Patch) or any(name in op.set for name in columns)


def may_take(op: RowOp, columns: list[str]) -> bool:
    """Could the row get a value in these columns? Not if one of them becomes NULL."""
    if isinstance(op, Put):
        return all(op.columns.get(name) is not None for name in columns)
    if isinstance(op, Delete):
        return False
    changes = [op.set[name] for name in columns if name in op.set]
    if changes and all(value is not None for value in changes):
        return True
    return op.default is not None and all(op.default.columns.get(name) is not None for name in columns)
