"""The door between stores and engines: requests are validated here, once, before any I/O.

`Kernel` has the four verbs of an engine and adds nothing but refusals: unknown names, wrong types, a row named twice,
an empty transaction. So every engine may trust its arguments, and all refuse the same things in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, shown
from perdure.kernel.engine import Engine, Watch
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    Append,
    Applied,
    Ask,
    AtMost,
    Check,
    Delete,
    Drop,
    Get,
    Heads,
    Inc,
    Max,
    Min,
    Now,
    Op,
    Patch,
    Put,
    Read,
    Ref,
    Rule,
    Scan,
    Seq,
    Swap,
    Taken,
)  # fmt: skip
from perdure.kernel.schema import ColumnType, Log, Schema, Table

_NULL = type(None)
_FITS: dict[ColumnType, frozenset[type]] = {"text": frozenset((str, _NULL)), "int": frozenset((int, _NULL))}
_CHANGES: dict[ColumnType, frozenset[type]] = {
    "text": frozenset((Swap,)),
    "int": frozenset((Inc, Max, Min, Now, Seq, Swap)),
}
_STAMPS: dict[ColumnType, frozenset[type]] = {"text": frozenset(), "int": frozenset((Now, Seq))}
_TIMES: dict[ColumnType, frozenset[type]] = {"text": frozenset(), "int": frozenset((Now,))}
"""Which plain values fit a column; which expressions may stand for one in a patch, in a new row, in a log entry."""


class Kernel:
    """An engine behind validation. Stores hold one of these."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.schema: Schema = engine.schema

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Validate, then apply all or nothing."""
        check_ops(self.schema, ops)
        return await self.engine.transact(scope, ops, hints)

    async def apply(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """`transact` for operations built from values that were already checked one by one: the hot path of a commit.

        A test runs the conformance cases with this door closed, so that what comes through it is known to be sound.
        """
        return await self.engine.transact(scope, ops, hints)

    async def view(self, scope: str, *reads: Ask) -> list[Any]:
        """Validate, then answer every read from one snapshot."""
        for position, read in enumerate(reads):
            check_read(self.schema, read, position)
        return await self.engine.view(scope, reads)

    async def take(
        self,
        scope: str,
        table: str,
        index: str,
        eq: tuple[Any, ...],
        *,
        upto: Mapping[str, int],
        limit: int,
        set: Mapping[str, Any],
    ) -> Taken:
        """Validate, then claim the first rows of an index within `upto`."""
        declared = _table(self.schema, table).index_by_name.get(index)
        if declared is None or len(eq) != len(declared.by):
            raise InvalidError(f"take needs an index of {table} and a value for each of its `by` columns")
        if declared.order[0] not in upto:
            raise InvalidError(f"take must bound {declared.order[0]}, the first ordering column")
        if limit < 1:
            raise InvalidError("take needs a limit of at least 1")
        _check_columns(_table(self.schema, table), set)
        return await self.engine.take(scope, table, index, eq, upto=upto, limit=limit, set=set)

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints."""
        return self.engine.watch(scope, topics)


def check_ops(schema: Schema, ops: Sequence[Op]) -> None:
    """Refuse a transaction that is malformed in itself."""
    if not ops:
        raise InvalidError("an empty transaction")
    named: set[tuple[Any, ...]] = set()
    appended = {op.log for op in ops if type(op) is Append}
    tables = schema.table
    for op in ops:
        kind = type(op)
        if kind is Append or kind is Drop:
            name: tuple[Any, ...] = (op.log, op.partition)  # type: ignore[union-attr]
            _check_log_op(_log(schema, op.log), op)  # type: ignore[union-attr,arg-type]
        else:
            name = (op.table, op.key)  # type: ignore[union-attr]
            table = tables.get(op.table) or _table(schema, op.table)  # type: ignore[union-attr]
            _check_table_op(table, op, appended)  # type: ignore[arg-type]
        if name in named:
            raise InvalidError(f"{name[0]} {name[1]!r} is named twice in one transaction")
        named.add(name)


def _check_log_op(log: Log, op: Append | Drop) -> None:
    if type(op.partition) is not str:
        raise InvalidError(f"the partition of {log.name} must be text")
    if isinstance(op, Drop):
        if type(op.keep) is not int or op.keep < 0:
            raise InvalidError(f"a drop keeps a number of entries, not {op.keep!r:.80}")
        return
    if not op.entries:
        raise InvalidError(f"an empty append to {log.name}")
    kinds = log.kinds
    plain = [log.position[name] for name in (*log.unique, log.segment) if name is not None]
    for entry in op.entries:
        if len(entry) != len(kinds) + 1 or type(entry[-1]) is not bytes:
            raise InvalidError(f"an entry of {log.name} is {len(kinds)} column values and a body")
        for kind, value in zip(kinds, entry, strict=False):
            given = type(value)
            if given is str and kind == "text":
                continue
            if value is not None and given not in _TIMES[kind]:
                _check_value(f"a column of {log.name}", kind, value)
        if Now in [type(entry[place]) for place in plain]:
            raise InvalidError(f"unique columns and the segment of {log.name} take plain values, not the clock")


def _check_table_op(table: Table, op: Check | Put | Patch | Delete, appended: set[str]) -> None:
    _check_key(table, op.key)
    condition = op.if_
    if type(condition) is dict:
        _check_condition(table, condition)
    elif type(condition) is not int and type(condition) is not Rule:
        raise InvalidError(f"{condition!r} is not a condition")
    if type(op) is Patch:
        _check_columns(table, op.set, appended)
        if op.default is not None:
            _check_columns(table, op.default.columns, appended, _STAMPS)
    elif type(op) is Put:
        if type(condition) is dict:
            raise InvalidError("Put takes no column conditions; use Patch or Check")
        _check_columns(table, op.columns, appended, _STAMPS)
    elif type(op) is Check and (condition is ANY or condition is ABSENT):
        raise InvalidError("Check takes PRESENT, a rev or columns; use Put(if_=ABSENT) to require absence")


def _check_key(table: Table, key: Any) -> None:
    if type(key) is not tuple or len(key) != len(table.key):
        raise InvalidError(f"the key of {table.name} is ({', '.join(table.key_names)}), not {key!r}")
    for column, value in zip(table.key, key, strict=True):
        if type(value) is str and column.type == "text":
            continue
        if value is None:
            raise InvalidError(f"{table.name}.{column.name} is part of the key and cannot be NULL")
        _check_value(column.name, column.type, value)


def _check_condition(table: Table, condition: dict[str, Any]) -> None:
    if not condition:
        raise InvalidError("an empty condition", hint="use ANY")
    for name, value in condition.items():
        kind = table.value_types.get(name)
        if kind is None:
            raise InvalidError(f"{table.name} has no column {name}")
        if value is not None:
            _check_value(name, kind, value.limit if type(value) is AtMost else value)


def _check_columns(
    table: Table,
    columns: Mapping[str, Any],
    appended: set[str] | None = None,
    expressions: Mapping[ColumnType, frozenset[type]] = _CHANGES,
) -> None:
    types = table.value_types
    for name, value in columns.items():
        kind = types.get(name)
        given = type(value)
        if kind is None:
            raise InvalidError(f"{table.name} has no column {name}")
        if value is None or (given is str and kind == "text"):
            continue
        if given in expressions[kind]:
            if given is Seq and value.log not in (appended or ()):
                raise InvalidError(f"Seq names {value.log}, to which this transaction appends nothing")
        else:
            _check_value(f"{table.name}.{name}" if given is not int else name, kind, value)


def _check_value(name: str, kind: ColumnType, value: Any) -> None:
    given = type(value)
    if given not in _FITS[kind] or (given is int and not -limits.INTEGER_MAX <= value <= limits.INTEGER_MAX):
        raise _misfit(name, kind, value)


def _misfit(name: str, kind: ColumnType, value: Any) -> InvalidError:
    wanted = "text" if kind == "text" else "an integer within ±2^52"
    return InvalidError(f"{name} must be {wanted}, not {shown(value)}")


def check_read(schema: Schema, read: Ask, position: int) -> None:
    """Refuse a read that is malformed in itself."""
    if isinstance(read, Get):
        table = _table(schema, read.table)
        if isinstance(read.keys, Ref):
            _check_ref(read.keys, position)
        else:
            for key in read.keys:
                _check_key(table, key)
    elif isinstance(read, Scan):
        _check_scan(_table(schema, read.table), read, position)
    elif isinstance(read, Read):
        _check_log_read(_log(schema, read.log), read)
    elif isinstance(read, Heads):
        _log(schema, read.log)
    elif isinstance(read, Now):
        _check_value("the offset of the clock", "int", read.plus)
    else:
        raise InvalidError(f"{read!r} is not a read")


def _check_scan(table: Table, scan: Scan, position: int) -> None:
    if scan.index is not None and scan.index not in table.index_by_name:
        raise InvalidError(f"{table.name} has no index {scan.index}")
    by = table.key_names if scan.index is None else table.index_by_name[scan.index].by
    if len(scan.eq) > len(by) or (scan.index is not None and len(scan.eq) != len(by)):
        raise InvalidError(f"a scan of {table.name} by {scan.index or 'key'} takes values for {by}")
    for value in scan.eq:
        if isinstance(value, Ref):
            _check_ref(value, position)
    for name in (*scan.where, *scan.upto):
        if name not in table.types:
            raise InvalidError(f"{table.name} has no column {name}")


def _check_log_read(log: Log, read: Read) -> None:
    for name in read.where:
        if name not in log.types:
            raise InvalidError(f"{log.name} has no column {name}")
    if read.segments is None:
        return
    if log.segment is None:
        raise InvalidError(f"{log.name} has no segments")
    reached = 0
    for segment in read.segments:
        if segment.after < reached or (segment.upto is not None and segment.upto < segment.after):
            raise InvalidError("segments must be disjoint and ascending")
        reached = limits.INTEGER_MAX if segment.upto is None else segment.upto


def _check_ref(ref: Ref, position: int) -> None:
    if not 0 <= ref.read < position:
        raise InvalidError("a Ref names an earlier read of the same view")


def _table(schema: Schema, name: str) -> Table:
    try:
        return schema.table[name]
    except KeyError:
        raise InvalidError(f"there is no table {name}") from None


def _log(schema: Schema, name: str) -> Log:
    try:
        return schema.log[name]
    except KeyError:
        raise InvalidError(f"there is no log {name}") from None
