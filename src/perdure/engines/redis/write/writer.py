"""Prepares transactions: each operation becomes the code that applies it and the arguments of that code.

Everything that does not depend on stored data is decided here: names, encoded keys, packed entries, positions of
columns. A conflict that a script reports becomes the `Conflict` of the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from perdure.engines.redis.read.decode import whole
from perdure.engines.redis.schema.keys import encode_key
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.redis.write.log_lua import AppendCode, LogCodes
from perdure.engines.redis.write.outcomes import ConflictReport
from perdure.engines.redis.write.row_lua import REV, Changes, RowCode
from perdure.engines.redis.write.transaction_scripts import MOST_SINGLE, Code, Program, Programs, Step
from perdure.engines.redis.write.value_lua import codes_of, plain
from perdure.errors import CorruptError, InvalidError, PerdureError, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ANY, PRESENT, Append, Check, Delete, Drop, Op, Patch, Presence, Put, Trim

_MOST_CODES = 1_000


Groups = dict[Code, tuple[list[int], list[bytes]]]
"""Operations that have the same code: their positions in the transaction, and their arguments."""


class Prepared(NamedTuple):
    """A transaction: its program, the arguments of its operations, and their groups, in the order in which the script
    numbers them."""

    program: Program
    arguments: list[bytes]
    groups: Groups

    def appended(self, ops: Sequence[Op]) -> list[tuple[str, str]]:
        """The partitions it appends to, in the order of their seqs in the reply."""
        return [
            (ops[at].log, ops[at].partition)  # type: ignore[union-attr]
            for code, (positions, _) in self.groups.items()
            if type(code) is AppendCode
            for at in positions
        ]


class Writer:
    """Prepares transactions of one schema, and caches the code of their operations."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.programs = Programs()
        self.logs = {log.name: LogCodes(log, layout.order[log.name]) for log in layout.schema.logs}
        self._rows: dict[object, RowCode] = {}

    def prepare(self, ops: Sequence[Op]) -> Prepared:
        """The script and the arguments of a transaction; text that is not Unicode is refused."""
        try:
            groups = self._grouped(ops)
        except UnicodeEncodeError as error:
            raise InvalidError(f"{error.object!r:.80} is not valid Unicode: {error.reason}") from None
        alone = len(groups) <= MOST_SINGLE
        steps: list[Step] = []
        singles: list[bytes] = []
        appends: list[bytes] = []
        others: list[bytes] = []
        for code, (positions, arguments) in groups.items():
            if alone and len(positions) == 1 and type(code) is RowCode:
                steps.append(code)
                singles += arguments
            else:
                steps.append((code,))
                following = appends if type(code) is AppendCode else others
                following.append(b"%d" % len(positions))
                following += arguments
        program = self.programs.get(tuple(steps))
        return Prepared(program, singles + appends + others, groups)

    def _grouped(self, ops: Sequence[Op]) -> Groups:
        groups: Groups = {}
        code: Code
        for position, op in enumerate(ops):
            if type(op) is Append:
                code, arguments = self.logs[op.log].append(op)
            elif type(op) is Drop:
                code, arguments = self.logs[op.log].drop, [op.partition.encode(), b"%d" % op.keep]
            elif type(op) is Trim:
                code, arguments = self.logs[op.log].trim, [op.partition.encode(), b"%d" % op.upto]
            else:
                code, arguments = self.row(op)  # type: ignore[arg-type]
            members = groups.get(code)
            if members is None:
                groups[code] = ([position], arguments)
            else:
                members[0].append(position)
                members[1].extend(arguments)
        return groups

    def row(self, op: Check | Put | Patch | Delete) -> tuple[RowCode, list[bytes]]:
        """One operation on a row."""
        arguments = [encode_key(op.key).encode()]
        condition = op.if_ if type(op.if_) is Presence else _condition(op.if_, arguments)
        changes: Changes = ((), (), False)
        default: Changes | None = None
        if type(op) is Patch:
            changes = _changes(op.set, op.body, arguments)
            if op.default is not None:
                default = _changes(op.default.columns, op.default.body, arguments)
        elif type(op) is Put:
            changes = _changes(op.columns, op.body, arguments)
        signature = (op.table, type(op), condition, changes, default)
        code = self._rows.get(signature)
        if code is None:
            if len(self._rows) >= _MOST_CODES:
                self._rows.clear()
            code = self._rows[signature] = RowCode(self._layout.schema.table[op.table], *signature[1:])
        if code.by_key:
            arguments += map(plain, op.key)
        return code, arguments


def _condition(condition: Any, arguments: list[bytes]) -> Any:
    if type(condition) is int:
        arguments.append(b"%d" % condition)
        return REV
    return tuple(zip(condition, codes_of(condition.values(), arguments), strict=True))


def _changes(columns: Mapping[str, Any], body: bytes | None, arguments: list[bytes]) -> Changes:
    codes = codes_of(columns.values(), arguments)
    if body is not None:
        arguments.append(body)
    return tuple(columns), codes, body is not None


def encode_record(record: Any) -> bytes:
    """A record for a script; text that is not Unicode is refused."""
    try:
        return pack(record)
    except UnicodeEncodeError as error:
        raise InvalidError(f"{error.object!r:.80} is not valid Unicode: {error.reason}") from None


def conflict_of(layout: Layout, ops: Sequence[Op], groups: Groups, report: ConflictReport) -> PerdureError | Conflict:
    """The conflict that a script reported."""
    try:
        return _conflict(layout, ops, groups, report)
    except (LookupError, TypeError, AttributeError) as error:
        where = layout.prefix
        return UnavailableError(f"{where}: the server refused with a report that makes no sense: {error!r:.200}")
    except ValueError as error:
        return CorruptError(f"a column that a commit depends on: {error}", where=layout.prefix)


def _conflict(layout: Layout, ops: Sequence[Op], groups: Groups, report: ConflictReport) -> Conflict:
    positions, _ = list(groups.values())[report.group - 1]
    position, actual = positions[report.position - 1], report.actual
    op: Any = ops[position]
    if report.kind == "length":
        return Conflict(position, "length", op.before, int(actual))
    if report.kind == "unique":
        return Conflict(position, "unique", None, _rival(layout, op, report))
    condition = op.if_
    if actual is False:
        return Conflict(position, "condition", PRESENT if condition is ANY else condition, None)
    if type(condition) is not dict:
        return Conflict(position, "condition", condition, whole(actual))
    types = layout.schema.table[op.table].types
    values = {name: _typed(value, types[name]) for name, value in zip(condition, actual, strict=True)}
    return Conflict(position, "condition", condition, values)


def _rival(layout: Layout, op: Any, report: ConflictReport) -> dict[str, Any]:
    """The unique values that another row or entry has."""
    if type(op) is Append:
        column, _, value = report.actual.partition("+")
        return {column: _typed(value, layout.schema.log[op.log].types[column])}
    types = layout.schema.table[op.table].types
    names = report.unique_name.rpartition(":")[2].split(",")
    return {name: _typed(value, types[name]) for name, value in zip(names, report.actual, strict=True)}


def _typed(value: Any, kind: str) -> Any:
    if value is False:
        return None
    return whole(value) if kind == "int" else value
