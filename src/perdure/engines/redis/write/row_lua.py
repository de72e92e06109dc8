"""Generates the Lua of one operation on a row: the part that reads and checks, and the part that writes.

Everything that does not depend on stored data is decided here and not on the server: which fields to read, which
indexes and unique groups can change, which of their parts can be NULL. The generated code is straight-line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from perdure.engines.redis.schema.table_info import unique_name
from perdure.engines.redis.write.index_lua import Term, Terms, claim_of, entry, index_position
from perdure.engines.redis.write.value_lua import (
    LOWERED,
    NEEDS_OLD,
    NOTHING,
    SWAPPED,
    argument_count,
    bounded,
    expression,
    may_be_null,
    quoted,
)
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Presence
from perdure.kernel.schema import Index, Table

CHECK, PUT, PATCH, DELETE = "check", "put", "patch", "delete"
REV = "rev"
_PER_CALL = 100

Changes = tuple[tuple[str, ...], tuple[str, ...], bool]
"""Names of columns, their codes, and whether there is a body."""


class Signature(NamedTuple):
    """The parts of an operation that shape its script. A condition is a rule, REV, or (column, code) pairs."""

    kind: str
    table: str
    condition: Presence | str | tuple[tuple[str, str], ...] = ANY
    changes: Changes = ((), (), False)
    default: Changes | None = None


class Frame(NamedTuple):
    """The Lua names of an operation's arguments and variables. `source` identifies the operation in a conflict."""

    argument: Callable[[int], str]
    key: str
    name: str
    row: str
    source: str
    key_value: Callable[[int], str] | None = None


class RowCode:
    """One signature. The arguments: key, condition, changes, body, default, its body, the key's values if needed."""

    def __init__(self, table: Table, signature: Signature) -> None:
        self.table = table
        self.kind, _, self.condition, self.changes, self.default = signature
        touched = self._touched()
        self.indexes = [i for i in table.indexes if touched & {*i.by, *i.order}]
        self.unique = [g for g in table.unique if touched & set(g)]
        used = _named(self.indexes, self.unique)
        self.read = ["rev", *sorted(self._columns_read() | (used & set(table.value_types)))]
        if self.default is not None:
            used = _named(table.indexes, table.unique)
        self.by_key = not used.isdisjoint(table.key_names)
        condition_codes = [code for _, code in self._column_conditions()]
        self._changes_at = 1 + (1 if self.condition == REV else argument_count(condition_codes))
        self._default_at = self._changes_at + argument_count(self.changes[1]) + self.changes[2]
        default_size = 0 if self.default is None else argument_count(self.default[1]) + self.default[2]
        self._key_at = self._default_at + default_size
        self.size = self._key_at + (len(table.key) if self.by_key else 0)

    def _touched(self) -> set[str]:
        """Columns whose indexes and unique groups may change in a row that exists."""
        if self.kind == CHECK:
            return set()
        return set(self.changes[0]) if self.kind == PATCH else set(self.table.types)

    def _column_conditions(self) -> Sequence[tuple[str, str]]:
        return self.condition if isinstance(self.condition, tuple) else ()

    def _columns_read(self) -> set[str]:
        needed = {name for name, code in zip(*self.changes[:2], strict=True) if code in NEEDS_OLD}
        return needed | {name for name, _ in self._column_conditions()}

    def _old(self, frame: Frame) -> Terms:
        def term(name: str) -> Term:
            if name not in self.table.value_types:
                return Term(self._key_value(frame, name), False)
            return Term(f"{frame.row}[{self.read.index(name) + 1}]", None)

        return term

    def _key_value(self, frame: Frame, name: str) -> str:
        position = self.table.key_names.index(name)
        return frame.argument(self._key_at + position) if frame.key_value is None else frame.key_value(position)

    def _new(self, frame: Frame, changes: Changes, first: int, otherwise: Terms) -> Terms:
        """The columns after a change; columns that it does not name come from `otherwise`."""
        at, terms = first, {}
        for name, code in zip(*changes[:2], strict=True):
            old = otherwise(name).lua if code in NEEDS_OLD else ""
            null = True if code == NOTHING else None if may_be_null(code) else False
            arguments = [frame.argument(at + k) for k in range(argument_count((code,)))]
            terms[name] = Term(expression(code, arguments, old), null)
            at += len(arguments)
        return lambda name: terms[name] if name in terms else otherwise(name)

    def _patched(self, frame: Frame) -> Terms:
        return self._new(frame, self.changes, self._changes_at, self._old(frame))

    def _inserted(self, frame: Frame) -> Terms:
        def nothing(name: str) -> Term:
            known = name not in self.table.value_types
            return Term(self._key_value(frame, name), False) if known else Term("false", True)

        if self.default is None:
            return self._new(frame, self.changes, self._changes_at, nothing)
        return self._new(frame, self.default, self._default_at, nothing)

    def checks(self, frame: Frame) -> Iterator[str]:
        """Read the row and refuse what must be refused; writes nothing."""
        fields = ", ".join(map(quoted, self.read))
        yield f"{frame.row} = call('HMGET', {frame.name}, {fields})"
        yield from self._numbers(frame)
        if self.kind != PATCH:
            yield from self._conditions(frame)
            if self.kind == PUT:
                yield from self._claims(frame, self.table.unique, self._inserted(frame))
        elif self.default is None:
            yield f"if not {frame.row}[1] then {_conflict(frame, 'false')} end"
            yield from self._conditions(frame)
            yield from self._counters(frame, self.changes, self._changes_at, self._old(frame))
            yield from self._claims(frame, self.unique, self._patched(frame))
        else:
            yield f"if {frame.row}[1] then"
            yield from self._conditions(frame)
            yield from self._counters(frame, self.changes, self._changes_at, self._old(frame))
            yield from self._claims(frame, self.unique, self._patched(frame))
            yield "else"
            yield from self._claims(frame, self.table.unique, self._inserted(frame))
            yield "end"

    def _numbers(self, frame: Frame) -> Iterator[str]:
        """Refuse a row with a damaged integer: an expression that uses it would fail after the first write."""
        numbers = [n for n, name in enumerate(self.read, 1) if self.table.value_types.get(name) == "int"]
        if numbers and self.kind != CHECK:
            values = [f"{frame.row}[{n}]" for n in numbers]
            broken = " or ".join(f"({v} and (#{v} > 17 or not string.find({v}, '^%-?%d+$')))" for v in values)
            yield f"if {broken} then error('PERDURE_CORRUPT ' .. {frame.name} .. ' holds an invalid number') end"

    def _counters(self, frame: Frame, changes: Changes, first: int, old: Terms) -> Iterator[str]:
        """Refuse a sum that could not be kept exactly, before anything is written."""
        at = first
        for name, code in zip(*changes[:2], strict=True):
            arguments = [frame.argument(at + k) for k in range(argument_count((code,)))]
            at += len(arguments)
            beyond = bounded(code, arguments, old(name).lua if code in NEEDS_OLD else "")
            if beyond is not None:
                message = f"'PERDURE_RANGE ' .. {quoted(f'{self.table.name}.{name} would leave the range of ±2^53')}"
                yield f"if {beyond} then error({message}) end"

    def _conditions(self, frame: Frame) -> Iterator[str]:
        condition, row, columns = self.condition, frame.row, self._column_conditions()
        if condition is ANY:
            return
        if condition is ABSENT:
            yield f"if {row}[1] then {_conflict(frame, f'{row}[1]')} end"
        elif condition is PRESENT:
            yield f"if not {row}[1] then {_conflict(frame, 'false')} end"
        elif condition == REV:
            yield f"if {row}[1] ~= {frame.argument(1)} then {_conflict(frame, f'{row}[1]')} end"
        else:
            old, at, unmet = self._old(frame), 1, [f"not {row}[1]"]
            for name, code in columns:
                actual = old(name).lua
                if code == NOTHING:
                    unmet.append(actual)
                elif code == LOWERED:
                    unmet.append(f"{actual} and tonumber({actual}) > tonumber({frame.argument(at)})")
                else:
                    unmet.append(f"{actual} ~= {frame.argument(at)}")
                at += argument_count((code,))
            values = ", ".join(old(name).lua for name, _ in columns)
            yield f"if {' or '.join(unmet)} then {_conflict(frame, f'{row}[1] and {{{values}}}')} end"

    def _claims(self, frame: Frame, groups: Sequence[tuple[str, ...]], new: Terms) -> Iterator[str]:
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
        row = frame.row
        if self.kind == DELETE:
            yield f"if {row}[1] then"
            yield from self._removal(frame)
            yield f"call('ZREM', base .. {quoted(f'k:{self.table.name}')}, {frame.key})"
            yield "end"
        elif self.kind == PUT:
            if self.condition is not ABSENT:
                yield f"if {row}[1] then"
                yield from self._removal(frame)
                yield "end"
            yield from self._insertion(frame, self.changes, self._changes_at)
        elif self.kind == PATCH and self.default is None:
            yield from self._patching(frame)
        elif self.kind == PATCH and self.default is not None:
            yield f"if {row}[1] then"
            yield from self._patching(frame)
            yield "else"
            yield from self._insertion(frame, self.default, self._default_at)
            yield "end"

    def _removal(self, frame: Frame) -> Iterator[str]:
        old = self._old(frame)
        yield f"call('DEL', {frame.name})"
        for index in self.indexes:
            yield from entry("ZREM", index_position(self.table, index, old), frame.key)
        for group in self.unique:
            claim, present = claim_of(group, old)
            name = quoted(unique_name(self.table, group))
            yield f"if {present} then call('HDEL', base .. {name}, {claim}) end"

    def _insertion(self, frame: Frame, changes: Changes, first: int) -> Iterator[str]:
        new = self._inserted(frame)
        yield f"if not {frame.row}[1] then call('ZADD', base .. {quoted(f'k:{self.table.name}')}, 0, {frame.key}) end"
        yield from self._fields(frame, changes, first, new)
        for index in self.table.indexes:
            yield from entry("ZADD", index_position(self.table, index, new), frame.key)
        for group in self.table.unique:
            claim, present = claim_of(group, new)
            if claim is not None:
                name = quoted(unique_name(self.table, group))
                yield f"if {present} then call('HSET', base .. {name}, {claim}, {frame.key}) end"

    def _patching(self, frame: Frame) -> Iterator[str]:
        old, new = self._old(frame), self._patched(frame)
        yield from self._fields(frame, self.changes, self._changes_at, new)
        gone = [name for name, code in zip(*self.changes[:2], strict=True) if code == NOTHING]
        if gone:
            yield f"call('HDEL', {frame.name}, {', '.join(map(quoted, gone))})"
        for name, code in zip(*self.changes[:2], strict=True):
            if code == SWAPPED:
                value, field = new(name).lua, quoted(name)
                yield f"local value = {value}"
                yield f"if value then call('HSET', {frame.name}, {field}, value)"
                yield f"elseif {old(name).lua} then call('HDEL', {frame.name}, {field}) end"
        for index in self.indexes:
            yield from self._move(index, old, new, frame.key)
        for group in self.unique:
            yield from self._move_claim(group, old, new, frame.key)

    def _fields(self, frame: Frame, changes: Changes, first: int, new: Terms) -> Iterator[str]:
        """Write the columns that cannot be NULL, and the body."""
        pairs = [("rev", "rev")]
        pairs += [(n, new(n).lua) for n, code in zip(*changes[:2], strict=True) if not may_be_null(code)]
        if changes[2]:
            pairs.append(("body", frame.argument(first + argument_count(changes[1]))))
        for at in range(0, len(pairs), _PER_CALL):
            fields = ", ".join(f"{quoted(field)}, {value}" for field, value in pairs[at : at + _PER_CALL])
            yield f"call('HSET', {frame.name}, {fields})"

    def _move(self, index: Index, old: Terms, new: Terms, key: str) -> Iterator[str]:
        names = [name for name in dict.fromkeys((*index.by, *index.order)) if name in self.changes[0]]
        if not names:
            return
        yield f"if {' or '.join(f'{old(name).lua} ~= {new(name).lua}' for name in names)} then"
        yield from entry("ZREM", index_position(self.table, index, old), key)
        yield from entry("ZADD", index_position(self.table, index, new), key)
        yield "end"

    def _move_claim(self, group: tuple[str, ...], old: Terms, new: Terms, key: str) -> Iterator[str]:
        names = [name for name in group if name in self.changes[0]]
        if not names:
            return
        name = f"base .. {quoted(unique_name(self.table, group))}"
        old_claim, had = claim_of(group, old)
        new_claim, present = claim_of(group, new)
        yield f"if {' or '.join(f'{old(n).lua} ~= {new(n).lua}' for n in names)} then"
        yield f"if {had} then call('HDEL', {name}, {old_claim}) end"
        if new_claim is not None:
            yield f"if {present} then call('HSET', {name}, {new_claim}, {key}) end"
        yield "end"


def _named(indexes: Sequence[Index], unique: Sequence[tuple[str, ...]]) -> set[str]:
    """The columns of these indexes and unique groups."""
    return {name for i in indexes for name in (*i.by, *i.order)} | {name for group in unique for name in group}


def _conflict(frame: Frame, actual: str) -> str:
    return f"return pack({{1, {{{frame.source}, 'condition', {actual}}}}})"
