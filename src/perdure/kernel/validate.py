"""Validates every request of a store once, before any I/O; engines trust their arguments.

`Kernel` has the four verbs of an engine and adds only refusals: unknown names, wrong types, a row named twice, an empty
transaction, a `Ref` that points nowhere. So all engines refuse the same requests with the same error.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, OutcomeUnknown, short_repr
from perdure.kernel.engine import FIXED_TOPICS, Engine, Watch
from perdure.kernel.joined import Joined, Values
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    Append,
    Applied,
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
    Presence,
    Put,
    Read,
    ReadOp,
    Ref,
    Scan,
    Seq,
    Swap,
    Taken,
    Trim,
)  # fmt: skip
from perdure.kernel.schema import ColumnType, Log, Schema, Table
from perdure.kernel.trimming import bases_of, ends_of, trimmed_logs, view_whole
from perdure.kernel.unique_handover import RowOp, refuse_handover

_logger = logging.getLogger("perdure.commit")
_NULL = type(None)
_FITS: dict[ColumnType, frozenset[type]] = {"text": frozenset((str, _NULL)), "int": frozenset((int, _NULL))}
_CHANGES: dict[ColumnType, frozenset[type]] = {
    "text": frozenset((Swap,)),
    "int": frozenset((Inc, Max, Min, Now, Seq, Swap)),
}
_STAMPS: dict[ColumnType, frozenset[type]] = {"text": frozenset(), "int": frozenset((Now, Seq))}
"""Which plain values fit a column; which expressions may replace one in a patch, and in a new row."""


Fill = Callable[[str, Filled, Sequence[str]], Awaitable[Applied]]
Join = Callable[[str, Joined, Callable[[list[list[Values]]], Any]], Awaitable[Any]]
Build = Callable[[list[Any]], Any]
"""A pure function of the answers to a view; it may be called in another thread."""
Through = Callable[[str, Sequence[ReadOp], Build], Awaitable[Any]]
Pause = Callable[[], Awaitable[None]]


class Kernel:
    """An engine behind validation. Stores hold one of these."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.schema: Schema = engine.schema
        # By its class: a wrapper that delegates what it does not know must see every transaction.
        takes_kinds, joins, builds = (
            hasattr(type(engine), name) for name in ("transact_filled", "view_joined", "view_through")
        )
        self.fill: Fill | None = getattr(engine, "transact_filled", None) if takes_kinds else None
        """`transact_unchecked` for a transaction of a known kind; None if the engine takes operations only."""
        self.join: Join | None = getattr(engine, "view_joined", None) if joins else None
        """What a function makes of the answers to a `Joined` whose scans were built from checked values, as by
        `view_through`; None if the engine cannot join."""
        self._through: Through | None = getattr(engine, "view_through", None) if builds else None
        self._trimmed = trimmed_logs(engine.schema)

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Validate, then apply all or nothing."""
        check_ops(self.schema, ops)
        try:
            return await self.engine.transact(scope, ops, hints)
        except OutcomeUnknown as unknown:
            note_unknown(scope, hints, unknown)
            raise

    def transact_unchecked(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Awaitable[Applied]:
        """`transact` without validation, for operations built from checked values: the hot path of a commit.

        A test runs the conformance cases with the validation put back, so that all such operations are known to be
        valid. The caller logs an unknown outcome, with `note_unknown`.
        """
        return self.engine.transact(scope, ops, hints)

    async def view(self, scope: str, *reads: ReadOp) -> list[Any]:
        """Validate, then answer every read from one snapshot. Raises `CursorExpired` if a read of a log begins before
        what was trimmed: see `trimming`."""
        check_reads(self.schema, reads)
        if self._trimmed:
            return await view_whole(self.engine, self._trimmed, scope, reads)
        return await self.engine.view(scope, reads)

    async def view_through(self, scope: str, reads: Sequence[ReadOp], build: Build) -> Any:
        """What `build` makes of the answers of `view`: in the thread that read them, if the engine has one, so that
        decoding a long answer does not hold up the event loop."""
        if self._through is None or any(type(read) is Read and read.log in self._trimmed for read in reads):
            return build(await self.view(scope, *reads))
        check_reads(self.schema, reads)
        return await self._through(scope, reads, build)

    async def bases(self, scope: str, log: str, partitions: Sequence[str]) -> list[int]:
        """The seq after which each partition of a log begins: 0 unless it was trimmed."""
        _log(self.schema, log)
        return await bases_of(self.engine, scope, log, partitions)

    async def trim(
        self,
        scope: str,
        log: str,
        partition: str,
        upto: int,
        *,
        checks: Sequence[Check] = (),
        pause: Pause | None = None,
    ) -> int:
        """Remove the entries up to a seq, but not the newest, in short transactions; returns the base.

        Each transaction makes the `checks`; `pause` is awaited between two of them. A crash leaves a log that is
        trimmed in part; calling this again goes on.
        """
        check_ops(self.schema, [Trim(log, partition, upto), *checks])
        base, last = await ends_of(self.engine, scope, log, partition)
        goal = min(upto, last - 1)
        while base < goal:
            base = min(goal, base + limits.TRIM_PIECE)
            await self.transact(scope, [Trim(log, partition, base), *checks])
            if pause is not None and base < goal:
                await pause()
        return base

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Validate, then claim the first rows of an index within `scan.upto`; the hints leave if there are any."""
        table = _table(self.schema, scan.table)
        index = table.index_by_name.get(scan.index or "")
        if index is None or len(scan.eq) != len(index.by):
            raise InvalidError(f"take needs an index of {scan.table} and a value for each of its `by` columns")
        if index.order[0] not in scan.upto:
            raise InvalidError(f"take must bound {index.order[0]}, the first ordering column")
        if scan.limit is None or scan.limit < 1:
            raise InvalidError("take needs a limit of at least 1")
        _check_scan(self.schema, scan, (), 0, bounds=_BOUNDS)
        _check_columns(table, changes)
        return await self.engine.take(scope, scan, changes, hints)

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints; in every scope at once, only to the fixed topics."""
        if scope is None and not FIXED_TOPICS.issuperset(topics):
            raise InvalidError(
                f"only {', '.join(sorted(FIXED_TOPICS))} can be watched in every scope, not {short_repr(list(topics))}"
            )
        return self.engine.watch(scope, topics)


def note_unknown(scope: str, topics: Sequence[str], unknown: OutcomeUnknown) -> None:
    """Log that a write may or may not have been made."""
    _logger.warning("the outcome of a write is unknown: scope %r, topics %r, rev %d", scope, list(topics), unknown.rev)


def check_ops(schema: Schema, ops: Sequence[Op]) -> None:
    """Raise `InvalidError` for a malformed transaction."""
    if not ops:
        raise InvalidError("an empty transaction")
    named: set[tuple[Any, ...]] = set()
    unique: dict[str, list[RowOp]] = {}
    appended = {op.log for op in ops if type(op) is Append}
    tables = schema.table
    for op in ops:
        kind = type(op)
        if kind is Append or kind is Drop or kind is Trim:
            name: tuple[Any, ...] = (op.log, op.partition)  # type: ignore[union-attr]
            _check_log_op(_log(schema, op.log), op)  # type: ignore[union-attr,arg-type]
        else:
            name = (op.table, op.key)  # type: ignore[union-attr]
            table = tables.get(op.table) or _table(schema, op.table)  # type: ignore[union-attr]
            _check_table_op(table, op, appended)  # type: ignore[arg-type]
            if table.unique and kind is not Check:
                unique.setdefault(table.name, []).append(op)  # type: ignore[arg-type]
        if name in named:
            raise InvalidError(f"{name[0]} {name[1]!r} is named twice in one transaction")
        named.add(name)
    for table_name, changes in unique.items():
        if len(changes) > 1:
            refuse_handover(tables[table_name], changes)
    if len(ops) > 1 and any(type(op) is Trim for op in ops) and [type(op) for op in ops].count(Check) != len(ops) - 1:
        raise InvalidError("a trim is alone in its transaction, but for checks")


def _check_log_op(log: Log, op: Append | Drop | Trim) -> None:
    if type(op.partition) is not str:
        raise InvalidError(f"the partition of {log.name} must be text")
    if isinstance(op, Drop):
        if type(op.keep) is not int or op.keep < 0:
            raise InvalidError(f"a drop keeps a number of entries, not {op.keep!r:.80}")
        return
    if isinstance(op, Trim):
        _check_trim(log, op)
    else:
        _check_append(log, op)


def _check_append(log: Log, op: Append) -> None:
    if not op.entries:
        raise InvalidError(f"an empty append to {log.name}")
    if op.start is not None:
        _check_start(log, op)
    kinds = log.kinds
    plain = [log.positions[name] for name in (*log.unique, log.segment) if name is not None]
    for entry in op.entries:
        if len(entry) != len(kinds) + 1 or type(entry[-1]) is not bytes:
            raise InvalidError(f"an entry of {log.name} is {len(kinds)} column values and a body")
        for kind, value in zip(kinds, entry, strict=False):
            if value is None or (kind == "text" and type(value) is str):
                continue
            if kind == "int" and type(value) is Now:
                _check_stamp(log, value)
            else:
                _check_value(f"a column of {log.name}", kind, value)
        if Now in [type(entry[position]) for position in plain]:
            raise InvalidError(f"unique columns and the segment of {log.name} take plain values, not the clock")


def _check_trim(log: Log, op: Trim) -> None:
    if not log.trim:
        raise InvalidError(f"{log.name} is not declared with trim: its entries stay")
    if type(op.upto) is not int or not 0 <= op.upto <= limits.INTEGER_MAX:
        raise InvalidError(f"a trim ends at a seq, not {op.upto!r:.80}")


def _check_start(log: Log, op: Append) -> None:
    if not log.trim:
        raise InvalidError(f"{log.name} is not declared with trim: its entries are numbered from 1")
    if op.expect is not None:
        raise InvalidError(f"an append to {log.name} has either `expect` or `start`")
    if type(op.start) is not int or not 1 <= op.start <= limits.INTEGER_MAX - len(op.entries):
        raise InvalidError(f"an append starts at a seq, not {op.start!r:.80}")


def _check_stamp(log: Log, stamp: Now) -> None:
    if stamp.plus:
        raise InvalidError(f"an entry of {log.name} is stamped with the engine's time, without an offset")


def _check_table_op(table: Table, op: Check | Put | Patch | Delete, appended: set[str]) -> None:
    _check_key(table, op.key)
    condition = op.if_
    if type(condition) is dict:
        _check_condition(table, condition)
    elif type(condition) is not int and type(condition) is not Presence:
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
            if type(value) is AtMost:
                _check_bound(f"AtMost of {table.name}.{name}", kind, value.limit)
            else:
                _check_value(name, kind, value)


def _check_columns(
    table: Table,
    columns: Mapping[str, Any],
    appended: set[str] | None = None,
    expressions: Mapping[ColumnType, frozenset[type]] = _CHANGES,
) -> None:
    types = table.value_types
    for name, value in columns.items():
        kind = types.get(name)
        value_type = type(value)
        if kind is None:
            raise InvalidError(f"{table.name} has no column {name}")
        if value is None or (value_type is str and kind == "text"):
            continue
        if value_type in expressions[kind]:
            if value_type is Seq and value.log not in (appended or ()):
                raise InvalidError(f"Seq names {value.log}, to which this transaction appends nothing")
            if value_type is Max or value_type is Min:
                _check_bound(f"{value_type.__name__} of {table.name}.{name}", kind, value.value)
            elif value_type is Inc:
                _check_bound(f"Inc of {table.name}.{name}", kind, value.by, _INTEGERS)
            elif value_type is Now:
                _check_offset(value)
        else:
            _check_value(f"{table.name}.{name}" if value_type is not int else name, kind, value)


_INTEGERS: frozenset[type] = frozenset((int,))
_BOUNDS: frozenset[type] = frozenset((int, Now))


def _check_bound(name: str, kind: ColumnType, bound: Any, bounds: frozenset[type] = _BOUNDS) -> None:
    """A bound of an integer column: an integer or, unless `bounds` has only these, the clock."""
    if kind != "int":
        raise InvalidError(f"{name} bounds a column of text; only integers have bounds")
    if type(bound) not in bounds:
        clock = " or Now" if Now in bounds else ""
        hint = "only a take compares with the clock; a view can read NOW with the rows" if type(bound) is Now else None
        raise InvalidError(f"{name} must be an integer within ±2^52{clock}, not {short_repr(bound)}", hint=hint)
    if isinstance(bound, Now):
        _check_offset(bound)
    else:
        _check_value(name, "int", bound)


def _check_offset(now: Now) -> None:
    if type(now.plus) is not int or abs(now.plus) > limits.CLOCK_OFFSET_MS:
        raise InvalidError(f"the offset of Now must be an integer within ±2^51, not {short_repr(now.plus)}")


def _check_value(name: str, kind: ColumnType, value: Any) -> None:
    value_type = type(value)
    if value_type not in _FITS[kind] or (value_type is int and not -limits.INTEGER_MAX <= value <= limits.INTEGER_MAX):
        raise _misfit(name, kind, value)


def _misfit(name: str, kind: ColumnType, value: Any) -> InvalidError:
    expected = "text" if kind == "text" else "an integer within ±2^52"
    return InvalidError(f"{name} must be {expected}, not {short_repr(value)}")


def check_reads(schema: Schema, reads: Sequence[ReadOp]) -> None:
    """Raise `InvalidError` for a malformed view."""
    for position, read in enumerate(reads):
        _check_read(schema, read, reads, position)


def _check_read(schema: Schema, read: ReadOp, reads: Sequence[ReadOp], position: int) -> None:
    if isinstance(read, Get):
        table = _table(schema, read.table)
        if isinstance(read.keys, Ref):
            _check_ref(schema, read.keys, reads[:position])
        else:
            for key in read.keys:
                _check_key(table, key)
    elif isinstance(read, Scan):
        _check_scan(schema, read, reads, position)
    elif isinstance(read, Read):
        _check_log_read(_log(schema, read.log), read)
    elif isinstance(read, Heads):
        _log(schema, read.log)
    elif isinstance(read, Now):
        _check_offset(read)
    else:
        raise InvalidError(f"{read!r} is not a read")


def _check_scan(
    schema: Schema, scan: Scan, reads: Sequence[ReadOp], position: int, bounds: frozenset[type] = _INTEGERS
) -> None:
    table = _table(schema, scan.table)
    if scan.index is not None and scan.index not in table.index_by_name:
        raise InvalidError(f"{table.name} has no index {scan.index}")
    by = table.key_names if scan.index is None else table.index_by_name[scan.index].by
    if len(scan.eq) > len(by) or (scan.index is not None and len(scan.eq) != len(by)):
        raise InvalidError(f"a scan of {table.name} by {scan.index or 'key'} takes values for {by}")
    for value in scan.eq:
        if isinstance(value, Ref):
            _check_ref(schema, value, reads[:position])
    for name in (*scan.where, *scan.upto):
        if name not in table.types:
            raise InvalidError(f"{table.name} has no column {name}")
    for name, bound in scan.upto.items():
        _check_bound(f"upto of {table.name}.{name}", table.types[name], bound, bounds)


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


def _check_ref(schema: Schema, ref: Ref, earlier: Sequence[ReadOp]) -> None:
    if not 0 <= ref.read < len(earlier):
        raise InvalidError("a Ref names an earlier read of the same view")
    target = earlier[ref.read]
    if not isinstance(target, (Get, Scan)):
        raise InvalidError("a Ref names a Get or a Scan")
    types = _table(schema, target.table).types
    for name in ref.columns:
        if name not in types:
            raise InvalidError(f"a Ref names {name}, which {target.table} does not have")


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
