"""Transactions on their way to a script: each operation as the code that carries it out and the arguments it needs.

Everything that can be decided without looking at data is decided here: names, encoded keys, packed entries, where a
column stands. What a script reports comes back as the conflict that the kernel speaks of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from perdure.engines.redis.read.decode import whole
from perdure.engines.redis.schema.keys import encode_key
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.redis.write.log_lua import AppendCode, LogCodes
from perdure.engines.redis.write.row_lua import CHECK, DELETE, PATCH, PUT, REV, Changes, RowCode, Signature
from perdure.engines.redis.write.transaction_scripts import Code, Program, Programs, Step, is_single
from perdure.engines.redis.write.value_lua import codes_of, plain
from perdure.errors import CorruptError, InvalidError, PerdureError, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import (
    ANY,
    PRESENT,
    Append,
    Check,
    Delete,
    Drop,
    Op,
    Patch,
    Put,
    Rule,
)

_KINDS = {Check: CHECK, Put: PUT, Patch: PATCH, Delete: DELETE}
_KEPT_AT_MOST = 1_000


Groups = dict[Code, tuple[list[int], list[bytes]]]
"""Operations that have the same code: their positions in the transaction, and their arguments."""


class Prepared(NamedTuple):
    """A transaction: its program, the arguments of its operations, and their groups, in the order in which the script
    numbers them."""

    program: Program
    arguments: list[bytes]
    groups: Groups

    def appended(self, ops: Sequence[Op]) -> list[tuple[str, str]]:
        """The partitions it appends to, in the order in which the answer tells their seqs."""
        return [
            (ops[at].log, ops[at].partition)  # type: ignore[union-attr]
            for code, (positions, _) in self.groups.items()
            if type(code) is AppendCode
            for at in positions
        ]


class Writer:
    """Prepares transactions of one schema; remembers the code of those that came before."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.programs = Programs()
        self._logs = {log.name: LogCodes(log, layout.order[log.name]) for log in layout.schema.logs}
        self._rows: dict[object, RowCode] = {}

    def prepare(self, ops: Sequence[Op]) -> Prepared:
        """A transaction; text that is not Unicode is refused."""
        try:
            groups = self._grouped(ops)
        except UnicodeEncodeError as error:
            raise InvalidError(f"{error.object!r:.80} is not valid Unicode: {error.reason}") from None
        alone = is_single(len(groups))
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
        program = self.programs.transaction(tuple(steps))
        return Prepared(program, singles + appends + others, groups)

    def _grouped(self, ops: Sequence[Op]) -> Groups:
        groups: Groups = {}
        code: Code
        for position, op in enumerate(ops):
            if type(op) is Append:
                code, arguments = self._logs[op.log].append(op)
            elif type(op) is Drop:
                code, arguments = self._logs[op.log].drop, [op.partition.encode(), b"%d" % op.keep]
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
        condition = op.if_ if type(op.if_) is Rule else _condition(op.if_, arguments)
        changes: Changes = ((), (), False)
        default: Changes | None = None
        if type(op) is Patch:
            changes = _changes(op.set, op.body, arguments)
            if op.default is not None:
                default = _changes(op.default.columns, op.default.body, arguments)
        elif type(op) is Put:
            changes = _changes(op.columns, op.body, arguments)
        told = (_KINDS[type(op)], op.table, condition, changes, default)
        code = self._rows.get(told)
        if code is None:
            if len(self._rows) >= _KEPT_AT_MOST:
                self._rows.clear()
            code = self._rows[told] = RowCode(self._layout.schema.table[op.table], Signature(*told))
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
    if body is None:
        return tuple(columns), codes, False
    arguments.append(body)
    return tuple(columns), codes, True


def encode_record(record: Any) -> bytes:
    """A record for a script; text that is not Unicode is refused."""
    try:
        return pack(record)
    except UnicodeEncodeError as error:
        raise InvalidError(f"{error.object!r:.80} is not valid Unicode: {error.reason}") from None


def conflict_of(layout: Layout, ops: Sequence[Op], groups: Groups, told: Sequence[Any]) -> PerdureError | Conflict:
    """The conflict that a script reported: {number of the group, place in it, kind, actual, where}."""
    try:
        return _conflict(layout, ops, groups, told)
    except (LookupError, TypeError, AttributeError) as error:
        where = layout.prefix
        return UnavailableError(f"{where}: the server refused with a report that makes no sense: {error!r:.200}")
    except ValueError as error:
        return CorruptError(f"a column that a commit depends on: {error}", where=layout.prefix)


def _conflict(layout: Layout, ops: Sequence[Op], groups: Groups, told: Sequence[Any]) -> Conflict:
    positions, _ = list(groups.values())[told[0] - 1]
    position, kind, actual = positions[told[1] - 1], told[2], told[3]
    op: Any = ops[position]
    if kind == "length":
        return Conflict(position, "length", op.expect, int(actual))
    if kind == "unique":
        return Conflict(position, "unique", None, _rival(layout, op, told))
    condition = op.if_
    if actual is False:
        return Conflict(position, "condition", PRESENT if condition is ANY else condition, None)
    if type(condition) is not dict:
        return Conflict(position, "condition", condition, whole(actual))
    types = layout.schema.table[op.table].types
    seen = {name: _typed(value, types[name]) for name, value in zip(condition, actual, strict=True)}
    return Conflict(position, "condition", condition, seen)


def _rival(layout: Layout, op: Any, told: Sequence[Any]) -> dict[str, Any]:
    if type(op) is Append:
        column, _, value = told[3].partition("+")
        return {column: _typed(value, layout.schema.log[op.log].types[column])}
    types = layout.schema.table[op.table].types
    names = told[4].rpartition(":")[2].split(",")
    return {name: _typed(value, types[name]) for name, value in zip(names, told[3], strict=True)}


def _typed(value: Any, kind: str) -> Any:
    if value is False:
        return None
    return whole(value) if kind == "int" else value
