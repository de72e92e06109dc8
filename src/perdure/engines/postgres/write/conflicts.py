"""What a refused statement means in the kernel's words: which operation, why, and what it met.

A refusal by our own function names the member and carries what it observed. A violated unique index names only itself
and the values, so the operation that would have written them is looked for here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engines.postgres.errors import code_of
from perdure.engines.postgres.schema.functions import CONDITION, LENGTH, UNIQUE
from perdure.engines.postgres.schema.tables import index_name
from perdure.engines.postgres.write.transaction import Transaction
from perdure.errors import CorruptError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Append, Patch, Put, Swap
from perdure.kernel.schema import Schema
from perdure.kernel.semantics import column_meets

UNIQUE_VIOLATION = "23505"
REFUSALS = (CONDITION, LENGTH, UNIQUE, UNIQUE_VIOLATION)
RETRIED = ("40P01", "40001")
"""A deadlock and a serialisation failure: nothing happened, and the same again may well succeed."""
LOCKED = "55P03"
"""A row stayed locked for as long as a statement may wait for it."""


def conflict(error: Any, transaction: Transaction, schema: Schema) -> Exception:
    """The `Conflict` behind a refusal."""
    code = code_of(error)
    if code == UNIQUE_VIOLATION:
        return _taken(error, transaction, schema)
    member = transaction.members[int(error.column_name)]
    seen = msgspec.json.decode(error.detail) if error.detail else None
    if code == UNIQUE:
        return Conflict(member.number, "unique", None, seen)
    op = member.op
    if code == LENGTH:
        return Conflict(member.number, "length", op.expect, seen[0] if seen else 0)
    expected = PRESENT if type(op) is Patch and op.if_ is ANY else op.if_
    actual: Any = None
    if seen is not None:
        actual = dict(zip(op.if_, seen[1:], strict=True)) if isinstance(op.if_, dict) else seen[0]
    return Conflict(member.number, "condition", expected, actual)


def overtaken(refusal: Exception) -> bool:
    """True when what a refusal observed is what was asked for: it came to be while the statement, which sees its own
    beginning, waited for another lock."""
    if not isinstance(refusal, Conflict) or refusal.kind == "unique":
        return False
    expected, actual = refusal.expected, refusal.actual
    if refusal.kind == "length":
        return bool(expected == actual)
    if expected is ABSENT or actual is None:
        return expected is ABSENT and actual is None
    if isinstance(expected, dict):
        return all(column_meets(actual[name], wanted) for name, wanted in expected.items())
    return expected is PRESENT or bool(expected == actual)


def _taken(error: Any, transaction: Transaction, schema: Schema) -> Exception:
    owner, index = error.table_name, error.constraint_name
    for log in schema.logs:
        if log.name == owner:
            for column in log.unique:
                if index == index_name(log.name, column):
                    return _taken_entry(error, transaction, owner, column, log.position[column])
    for table in schema.tables:
        if table.name == owner:
            for group in table.unique:
                if index == index_name(table.name, "unique_" + "_".join(group)):
                    return _taken_row(error, transaction, owner, group, table.key_names)
    return CorruptError(f"{index} was violated: {error}", where=str(owner))


def _taken_entry(error: Any, transaction: Transaction, log: str, column: str, place: int) -> Conflict:
    """The entry whose value the server's message holds, else the first that the log's append has."""
    appends = [m for m in transaction.members if m.shape[0] is Append and m.shape[1] == log]
    for member in appends:
        for entry in member.op.entries:
            if entry[place] is not None and f", {entry[place]}, {member.op.partition})" in str(error.detail):
                return Conflict(member.number, "unique", None, {column: entry[place]})
    return Conflict(appends[0].number, "unique", None, None)


def _taken_row(
    error: Any, transaction: Transaction, table: str, group: tuple[str, ...], key: tuple[str, ...]
) -> Conflict:
    candidates = [m for m in transaction.members if m.shape[1] == table and m.shape[0] in (Put, Patch)]
    for member in candidates:
        known = dict(zip(key, member.op.key, strict=True))
        for given in _given(member.op):
            values = {name: known[name] if name in known else _written(given.get(name)) for name in group}
            shown = f"=({', '.join([transaction.scope, *map(str, values.values())])})"
            if shown in str(error.detail):
                return Conflict(member.number, "unique", None, values)
    return Conflict(candidates[0].number, "unique", None, None)


def _given(op: Put | Patch) -> list[dict[str, Any]]:
    if isinstance(op, Put):
        return [op.columns]
    return [op.set] if op.default is None else [op.set, op.default.columns]


def _written(value: Any) -> Any:
    return value.new if type(value) is Swap else value
