"""A refused statement as the kernel's `Conflict`: which operation, why, and what it met.

A refusal by our function names the member and carries what it observed. A violated unique index names only itself and
the values, so the operation that would have written them is searched for here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.engines.postgres.errors import code_of
from perdure.engines.postgres.schema.functions import CONDITION, LENGTH
from perdure.engines.postgres.write.transaction import Transaction
from perdure.engines.sql.ddl import index_name, unique_name
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
        return Conflict(member.number, "length", op.before, observed[0] if observed else 0)
    expected = PRESENT if type(op) is Patch and op.if_ is ANY else op.if_
    actual: Any = None
    if observed is not None:
        rev, *columns = observed
        # The time may follow the columns.
        actual = dict(zip(op.if_, columns[: len(op.if_)], strict=True)) if isinstance(op.if_, dict) else rev
    return Conflict(member.number, "condition", expected, actual)


def observed_time(error: Any) -> int:
    """The server's time: the last that a refusal observes, if its condition is on the clock; otherwise any number."""
    observed = msgspec.json.decode(error.detail) if code_of(error) == CONDITION and error.detail else [0]
    return observed[-1] if type(observed[-1]) is int else 0


def overtaken(refusal: Exception, now: int) -> bool:
    """True when what a refusal observed meets the condition at this time: it was committed while the statement, which
    keeps its first snapshot, waited for another lock."""
    if not isinstance(refusal, Conflict) or refusal.kind == "unique":
        return False
    expected, actual = refusal.expected, refusal.actual
    if refusal.kind == "length":
        return bool(expected == actual)
    if expected is ABSENT or actual is None:
        return expected is ABSENT and actual is None
    if isinstance(expected, dict):
        return all(column_meets(actual[name], value, now) for name, value in expected.items())
    return expected is PRESENT or bool(expected == actual)


def _unique_conflict(error: Any, transaction: Transaction, schema: Schema) -> Exception:
    """Of the operation whose values are in the server's message, else of the first that writes to the table or log."""
    owner, index = error.table_name, error.constraint_name
    groups: dict[str, tuple[str, ...]] = {}
    if owner in schema.log:
        groups = {index_name(owner, column): (column,) for column in schema.log[owner].unique}
    elif owner in schema.table:
        groups = {unique_name(owner, group): group for group in schema.table[owner].unique}
    if index not in groups:
        return CorruptError(f"{index} was violated: {error}", where=str(owner))
    writers = [m for m in transaction.members if m.shape.owner == owner and m.shape.op in (Append, Put, Patch)]
    for member in writers:
        for values, message in _written(member.op, groups[index], transaction.scope, schema):
            if message in str(error.detail):
                return Conflict(member.number, "unique", None, values)
    return Conflict(writers[0].number, "unique", None, None)


def _written(
    op: Append | Put | Patch, group: tuple[str, ...], scope: str, schema: Schema
) -> Iterator[tuple[dict[str, Any], str]]:
    """What an operation writes to the columns of a unique group: the values, and how the server's message has them."""
    if isinstance(op, Append):
        (column,) = group
        for value in [entry[schema.log[op.log].positions[column]] for entry in op.entries]:
            if value is not None:
                yield {column: value}, f", {value}, {op.partition})"
        return
    key = dict(zip(schema.table[op.table].key_names, op.key, strict=True))
    rows = [op.columns] if isinstance(op, Put) else [op.set] if op.default is None else [op.set, op.default.columns]
    for columns in rows:
        values = {name: key[name] if name in key else _new_value(columns.get(name)) for name in group}
        yield values, f"=({', '.join([scope, *map(str, values.values())])})"


def _new_value(value: Any) -> Any:
    return value.new if type(value) is Swap else value
