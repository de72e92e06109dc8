"""A refused statement as the kernel's `Conflict`: which operation, why, and what it met.

A refusal by our function names the member and carries what it observed. A violated unique index names only itself and
the values, so the operation that would have written them is searched for here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engines.postgres.errors import code_of
from perdure.engines.postgres.schema.functions import CONDITION, LENGTH
from perdure.engines.postgres.write.transaction import Transaction
from perdure.engines.sql.ddl import index_name
from perdure.errors import CorruptError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Append, Patch, Put, Swap
from perdure.kernel.schema import Schema
from perdure.kernel.semantics import column_meets

UNIQUE_VIOLATION = "23505"
REFUSALS = (CONDITION, LENGTH, UNIQUE_VIOLATION)
RETRIED = ("40P01", "40001")
"""A deadlock and a serialisation failure: nothing happened, and the same again may well succeed."""
LOCKED = "55P03"
"""A row stayed locked for as long as a statement may wait for it."""


def conflict(error: Any, transaction: Transaction, schema: Schema) -> Exception:
    """The `Conflict` behind a refusal."""
    code = code_of(error)
    if code == UNIQUE_VIOLATION:
        return _unique_conflict(error, transaction, schema)
    member = transaction.members[int(error.column_name)]
    observed = msgspec.json.decode(error.detail) if error.detail else None
    op = member.op
    if code == LENGTH:
        return Conflict(member.number, "length", op.expect, observed[0] if observed else 0)
    expected = PRESENT if type(op) is Patch and op.if_ is ANY else op.if_
    actual: Any = None
    if observed is not None:
        actual = dict(zip(op.if_, observed[1:], strict=True)) if isinstance(op.if_, dict) else observed[0]
    return Conflict(member.number, "condition", expected, actual)


def overtaken(refusal: Exception) -> bool:
    """True when what a refusal observed meets the condition: it was committed while the statement, which keeps its
    first snapshot, waited for another lock."""
    if not isinstance(refusal, Conflict) or refusal.kind == "unique":
        return False
    expected, actual = refusal.expected, refusal.actual
    if refusal.kind == "length":
        return bool(expected == actual)
    if expected is ABSENT or actual is None:
        return expected is ABSENT and actual is None
    if isinstance(expected, dict):
        return all(column_meets(actual[name], value) for name, value in expected.items())
    return expected is PRESENT or bool(expected == actual)


def _unique_conflict(error: Any, transaction: Transaction, schema: Schema) -> Exception:
    owner, index = error.table_name, error.constraint_name
    log = schema.log.get(owner)
    for column in log.unique if log else ():
        if index == index_name(owner, column):
            return _entry_conflict(error, transaction, owner, column, schema.log[owner].positions[column])
    table = schema.table.get(owner)
    for group in table.unique if table else ():
        if index == index_name(owner, "unique_" + "_".join(group)):
            return _row_conflict(error, transaction, owner, group, schema.table[owner].key_names)
    return CorruptError(f"{index} was violated: {error}", where=str(owner))


def _entry_conflict(error: Any, transaction: Transaction, log: str, column: str, position: int) -> Conflict:
    """The entry whose value is in the server's message, else the first append to the log."""
    appends = [m for m in transaction.members if type(m.op) is Append and m.op.log == log]
    for member in appends:
        for entry in member.op.entries:
            value = entry[position]
            if value is not None and f", {value}, {member.op.partition})" in str(error.detail):
                return Conflict(member.number, "unique", None, {column: value})
    return Conflict(appends[0].number, "unique", None, None)


def _row_conflict(
    error: Any, transaction: Transaction, table: str, group: tuple[str, ...], key_names: tuple[str, ...]
) -> Conflict:
    """The operation whose values are in the server's message, else the first that writes to the table."""
    candidates = [m for m in transaction.members if type(m.op) in (Put, Patch) and m.op.table == table]
    for member in candidates:
        key = dict(zip(key_names, member.op.key, strict=True))
        for columns in _written_columns(member.op):
            values = {name: key[name] if name in key else _new_value(columns.get(name)) for name in group}
            if f"=({', '.join([transaction.scope, *map(str, values.values())])})" in str(error.detail):
                return Conflict(member.number, "unique", None, values)
    return Conflict(candidates[0].number, "unique", None, None)


def _written_columns(op: Put | Patch) -> list[dict[str, Any]]:
    if isinstance(op, Put):
        return [op.columns]
    return [op.set] if op.default is None else [op.set, op.default.columns]


def _new_value(value: Any) -> Any:
    return value.new if type(value) is Swap else value
