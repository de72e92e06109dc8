"""Generates the Lua of one operation on a row: the part that reads and checks, and the part that writes.

Everything that does not depend on stored data is decided here and not on the server: which fields to read, which
indexes and unique groups can change, which of their parts can be NULL. The generated code is straight-line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from perdure.engines.redis.schema.table_info import unique_name
from perdure.engines.redis.write.index_lua import Entry, Term, Terms, UniqueGroup, claim_of, columns_of, entry_of
from perdure.engines.redis.write.value_lua import (
    ADDED,
    LOWERED,
    LOWERED_TO_TIME,
    NEEDS_OLD,
    NOTHING,
    SWAPPED,
    argument_count,
    expression,
    quoted,
)
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Check, Delete, Op, Patch, Presence, Put
from perdure.kernel.schema import Index, Table

REV = "rev"
_PER_CALL = 100
_IS_NULL = {NOTHING: True, SWAPPED: None}

Changes = tuple[tuple[str, ...], tuple[str, ...], bool]
"""Names of columns, their codes, and whether there is a body."""
Condition = Presence | str | tuple[tuple[str, str], ...]
"""A rule, REV, or the name and the code of each column."""


class Frame(NamedTuple):
    """The Lua names of an operation's arguments and variables. `source` identifies the operation in a conflict."""

    argument: Callable[[int], str]
    key: str
    name: str
    row: str
    source: str
    key_value: Callable[[int], str] | None = None


class Column(NamedTuple):
    """A column in a condition or a change: the code of its value, and where its arguments begin."""

    name: str
    code: str
    at: int

    def arguments(self, frame: Frame) -> list[str]:
        """Its arguments in Lua."""
        return [frame.argument(self.at + k) for k in range(argument_count(self.code))]


class Columns:
    """Columns whose arguments follow each other from `first`; the arguments of what comes next begin at `end`."""

    def __init__(self, names: Iterable[str], codes: Iterable[str], has_body: bool, first: int) -> None:
        self.columns: list[Column] = []
        at = first
        for name, code in zip(names, codes, strict=True):
            self.columns.append(Column(name, code, at))
            at += argument_count(code)
        self.names = [column.name for column in self.columns]
        self.body = at if has_body else None
        self.end = at + has_body


class RowCode:
    """Operations that are alike in all that shapes their script. The arguments: key, condition, changes, body, default,
    its body, the key's values if needed."""

    def __init__(
        self, table: Table, kind: type[Op], condition: Condition, changes: Changes, default: Changes | None
    ) -> None:
        self.table, self.kind, self.condition = table, kind, condition
        conditions = condition if isinstance(condition, tuple) else ()
        self.conditions = Columns([name for name, _ in conditions], [code for _, code in conditions], False, 1)
        self.changes = Columns(*changes, first=2 if condition == REV else self.conditions.end)
        self.default = None if default is None else Columns(*default, first=self.changes.end)
        self.inserted = self.default or self.changes
        # The columns whose indexes and unique groups may change in a row that exists.
        touched = {Check: set[str](), Patch: set(self.changes.names)}.get(kind, set(table.types))
        self._every_holder: list[Index | UniqueGroup] = [*table.indexes, *table.unique]
        self.holders = [holder for holder in self._every_holder if not touched.isdisjoint(columns_of(holder))]
        self.unique = [holder for holder in self.holders if not isinstance(holder, Index)]
        used = {name for holder in self.holders for name in columns_of(holder)}
        computed = {column.name for column in self.changes.columns if column.code in NEEDS_OLD}
        self.read = ["rev", *sorted(computed.union(self.conditions.names, used & set(table.value_types)))]
        if default is not None:
            used = {name for holder in self._every_holder for name in columns_of(holder)}
        self.by_key = not used.isdisjoint(table.key_names)
        self._key_at = self.inserted.end
        # A new row that has every column, and a body, leaves nothing of the old one: no need to delete that first.
        always = {column.name for column in self.changes.columns if column.code not in _IS_NULL}
        self._is_overwritten = kind is Put and self.changes.body is not None and always >= set(table.value_types)
        self.size = self._key_at + (len(table.key) if self.by_key else 0)

    def _terms(self, frame: Frame, column: Terms) -> Terms:
        """The values of a row: those of its key, and its columns as `column` has them."""
        key_value = frame.key_value or (lambda position: frame.argument(self._key_at + position))

        def term(name: str) -> Term:
            if name in self.table.value_types:
                return column(name)
            return Term(key_value(self.table.key_names.index(name)), False)

        return term

    def _old(self, frame: Frame) -> Terms:
        return self._terms(frame, lambda name: Term(f"{frame.row}[{self.read.index(name) + 1}]", None))

    def _new(self, frame: Frame, changes: Columns, otherwise: Terms) -> Terms:
        """The columns after a change; columns that it does not name come from `otherwise`."""
        terms = {}
        for column in changes.columns:
            old = otherwise(column.name).lua if column.code in NEEDS_OLD else ""
            lua = expression(column.code, column.arguments(frame), old)
            terms[column.name] = Term(lua, _IS_NULL.get(column.code, False))
        return lambda name: terms[name] if name in terms else otherwise(name)

    def _patched(self, frame: Frame) -> Terms:
        return self._new(frame, self.changes, self._old(frame))

    def _inserted(self, frame: Frame) -> Terms:
        return self._new(frame, self.inserted, self._terms(frame, lambda _: Term("false", True)))

    def checks(self, frame: Frame) -> Iterator[str]:
        """Read the row and refuse what must be refused; writes nothing."""
        fields = ", ".join(map(quoted, self.read))
        yield f"{frame.row} = call('HMGET', {frame.name}, {fields})"
        yield from self._numbers(frame)
        if self.default is not None:
            yield f"if {frame.row}[1] then"
        elif self.kind is Patch:
            yield f"if not {frame.row}[1] then {_conflict(frame, 'false')} end"
        yield from self._conditions(frame)
        if self.kind is Patch:
            yield from self._counters(frame)
            yield from self._claims(frame, self.unique, self._patched(frame))
        if self.default is not None:
            yield "else"
        if self.default is not None or self.kind is Put:
            yield from self._claims(frame, self.table.unique, self._inserted(frame))
        if self.default is not None:
            yield "end"

    def _numbers(self, frame: Frame) -> Iterator[str]:
        """Refuse a row with a damaged integer: an expression that uses it would fail after the first write."""
        numbers = [n for n, name in enumerate(self.read, 1) if self.table.value_types.get(name) == "int"]
        if numbers and self.kind is not Check:
            values = [f"{frame.row}[{n}]" for n in numbers]
            broken = " or ".join(f"({v} and (#{v} > 17 or not string.find({v}, '^%-?%d+$')))" for v in values)
            yield f"if {broken} then error('PERDURE_CORRUPT ' .. {frame.name} .. ' holds an invalid number') end"

    def _counters(self, frame: Frame) -> Iterator[str]:
        """Refuse a sum that could not be kept exactly in a double, before anything is written."""
        old = self._old(frame)
        for column in self.changes.columns:
            if column.code == ADDED:
                message = quoted(f"{self.table.name}.{column.name} would leave the range of ±2^53")
                total = f"({old(column.name).lua} or 0) + {frame.argument(column.at)}"
                yield f"if math.abs({total}) >= 9007199254740992 then error('PERDURE_RANGE ' .. {message}) end"

    def _conditions(self, frame: Frame) -> Iterator[str]:
        row = frame.row
        if self.condition is ABSENT:
            yield f"if {row}[1] then {_conflict(frame, f'{row}[1]')} end"
        elif self.condition is PRESENT:
            yield f"if not {row}[1] then {_conflict(frame, 'false')} end"
        elif self.condition == REV:
            yield f"if {row}[1] ~= {frame.argument(1)} then {_conflict(frame, f'{row}[1]')} end"
        elif self.condition is not ANY:
            old, unmet = self._old(frame), [f"not {row}[1]"]
            for name, code, at in self.conditions.columns:
                actual = old(name).lua
                if code == NOTHING:
                    unmet.append(actual)
                elif code == LOWERED:
                    unmet.append(f"{actual} and tonumber({actual}) > tonumber({frame.argument(at)})")
                elif code == LOWERED_TO_TIME:
                    unmet.append(f"{actual} and tonumber({actual}) > clock + {frame.argument(at)}")
                else:
                    unmet.append(f"{actual} ~= {frame.argument(at)}")
            values = ", ".join(old(name).lua for name in self.conditions.names)
            yield f"if {' or '.join(unmet)} then {_conflict(frame, f'{row}[1] and {{{values}}}')} end"

    def _claims(self, frame: Frame, groups: Iterable[UniqueGroup], new: Terms) -> Iterator[str]:
        """Refuse a unique value that another row has before this transaction, or takes in it."""
        for group in groups:
            claim, present = claim_of(group, new)
            if claim is None:
                continue
            name = quoted(unique_name(self.table, group))
            values = ", ".join(new(column).lua for column in group)
            yield f"if {present} then"
            yield f"local claim = {claim}"
            yield f"local owner = owners[{name} .. claim] or call('HGET', base .. {name}, claim)"
            conflict = f"return pack({{1, {{{frame.source}, 'unique', {{{values}}}, {name}}}}})"
            yield f"if owner and owner ~= {frame.key} then {conflict} end"
            yield f"owners[{name} .. claim] = {frame.key}"
            yield "end"

    def writes(self, frame: Frame) -> Iterator[str]:
        """Write, after all checks passed."""
        if self.kind is Delete or (self.kind is Put and self.condition is not ABSENT):
            yield from self._removal(frame)
        if self.kind is Put:
            yield from self._insertion(frame)
        elif self.kind is Patch and self.default is None:
            yield from self._patching(frame)
        elif self.kind is Patch:
            yield f"if {frame.row}[1] then"
            yield from self._patching(frame)
            yield "else"
            yield from self._insertion(frame)
            yield "end"

    def _removal(self, frame: Frame) -> Iterator[str]:
        if self._is_overwritten and not self.holders:
            return
        yield f"if {frame.row}[1] then"
        if not self._is_overwritten:
            yield f"call('DEL', {frame.name})"
        yield from [entry.remove for entry in self._entries(self.holders, self._old(frame), frame.key)]
        if self.kind is Delete:
            yield f"call('ZREM', base .. {quoted(f'k:{self.table.name}')}, {frame.key})"
        yield "end"

    def _insertion(self, frame: Frame) -> Iterator[str]:
        new = self._inserted(frame)
        yield f"if not {frame.row}[1] then call('ZADD', base .. {quoted(f'k:{self.table.name}')}, 0, {frame.key}) end"
        yield from self._fields(frame, self.inserted, new)
        yield from [entry.add for entry in self._entries(self._every_holder, new, frame.key)]

    def _patching(self, frame: Frame) -> Iterator[str]:
        old, new = self._old(frame), self._patched(frame)
        yield from self._fields(frame, self.changes, new)
        gone = [quoted(column.name) for column in self.changes.columns if column.code == NOTHING]
        if gone:
            yield f"call('HDEL', {frame.name}, {', '.join(gone)})"
        for name, code, _ in self.changes.columns:
            if code == SWAPPED:
                yield f"local value = {new(name).lua}"
                yield f"if value then call('HSET', {frame.name}, {quoted(name)}, value)"
                yield f"elseif {old(name).lua} then call('HDEL', {frame.name}, {quoted(name)}) end"
        for holder in self.holders:
            names = [name for name in dict.fromkeys(columns_of(holder)) if name in self.changes.names]
            yield f"if {' or '.join(f'{old(name).lua} ~= {new(name).lua}' for name in names)} then"
            yield from [entry.remove for entry in self._entries([holder], old, frame.key)]
            yield from [entry.add for entry in self._entries([holder], new, frame.key)]
            yield "end"

    def _fields(self, frame: Frame, changes: Columns, new: Terms) -> Iterator[str]:
        """Write the columns that cannot be NULL, and the body."""
        pairs = [("rev", "rev"), *[(name, new(name).lua) for name in changes.names if new(name).null is False]]
        if changes.body is not None:
            pairs.append(("body", frame.argument(changes.body)))
        for at in range(0, len(pairs), _PER_CALL):
            fields = ", ".join(f"{quoted(field)}, {value}" for field, value in pairs[at : at + _PER_CALL])
            yield f"call('HSET', {frame.name}, {fields})"

    def _entries(self, holders: Iterable[Index | UniqueGroup], values: Terms, key: str) -> list[Entry]:
        entries = [entry_of(self.table, holder, values, key) for holder in holders]
        return [entry for entry in entries if entry is not None]


def _conflict(frame: Frame, actual: str) -> str:
    return f"return pack({{1, {{{frame.source}, 'condition', {actual}}}}})"
