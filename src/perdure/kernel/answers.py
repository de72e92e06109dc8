"""Answers of engines, checked as they come in: every column of every row and log entry has its declared type.

A database keeps what it gets, so data that was damaged or prepared outside would otherwise surface as a `TypeError` in
the middle of a commit, or as a record whose numbers are text. The checks are compiled from the declarations, one type
per table, and run inside msgspec: a row costs a fifth of a microsecond. Details are worked out only when a check
fails. Text is not inspected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import convert

from perdure import limits
from perdure.errors import CorruptError, short_repr
from perdure.kernel.joined import Chosen, Joined, Values
from perdure.kernel.ops import Get, Heads, LogEntry, Read, ReadOp, Row, Scan
from perdure.kernel.schema import Column, Log, Schema, Table

MOST_REV = 2**53
_Length = Annotated[int, msgspec.Meta(ge=0, le=limits.INTEGER_MAX)]
_Rev = Annotated[int, msgspec.Meta(gt=0, lt=MOST_REV)]
_Seq = Annotated[int, msgspec.Meta(gt=0, le=limits.INTEGER_MAX)]


def _plain_row_name(table: str, key: tuple[Any, ...]) -> str:
    return f"{table} {key}"


def _plain_entry_name(log: str, partition: str, seq: str) -> str:
    return f"{log} {seq} of {partition!r}"


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a schema's columns beyond their types, and how its records are called in errors.

    `always` holds (table, column) of those that are never missing; `least` is the lowest integer there is.
    """

    always: frozenset[tuple[str, str]] = frozenset()
    least: int = -limits.INTEGER_MAX
    row_name: Callable[[str, tuple[Any, ...]], str] = _plain_row_name
    entry_name: Callable[[str, str, str], str] = _plain_entry_name

    @property
    def integer(self) -> Any:
        """The type of integer columns."""
        return Annotated[int, msgspec.Meta(ge=self.least, le=limits.INTEGER_MAX)]

    def plain(self, column: Column) -> Any:
        """The type of a column that is there."""
        return self.integer if column.type == "int" else str

    def column(self, table: str, column: Column) -> Any:
        """The type of a column outside the key."""
        plain = self.plain(column)
        return plain if (table, column.name) in self.always else plain | None


def _tuple(*kinds: Any) -> Any:
    return GenericAlias(tuple, kinds)


def _list(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


def _struct(**fields: Any) -> type[msgspec.Struct]:
    """A type to convert to. A struct rather than a bare list, because msgspec remembers what it knows of structs."""
    return msgspec.defstruct("Answer", list(fields.items()), array_like=True, gc=False)


_LENGTHS = _struct(lengths=_list(_Length))


class AnswerCheck:
    """Checks the answers of views of one schema."""

    def __init__(self, schema: Schema, expected: Expectations | None = None) -> None:
        self._schema = schema
        self._expected = expected = expected or Expectations()
        values = {
            table.name: _tuple(*[expected.column(table.name, column) for column in table.columns])
            for table in schema.tables
        }
        keys = {table.name: _tuple(*map(expected.plain, table.key)) for table in schema.tables}
        self._one = {name: _struct(values=kind, rev=_Rev) for name, kind in values.items()}
        self._some = {name: _struct(values=_list(kind), revs=_list(_Rev)) for name, kind in values.items()}
        self._keyed = {
            name: _struct(values=_list(kind), revs=_list(_Rev), keys=_list(keys[name])) for name, kind in values.items()
        }
        self._keys = {name: _struct(keys=_list(kind)) for name, kind in keys.items()}
        # An engine has its bodies as bytes or as text, always the same.
        self._entries = {
            (log.name, body): _struct(entries=_list(self._entry(log, body)))
            for log in schema.logs
            for body in (bytes, str)
        }
        self._joined: dict[Chosen, type[msgspec.Struct]] = {}

    def _entry(self, log: Log, body: type) -> Any:
        return _tuple(_Seq, Any, *[self._expected.column(log.name, column) for column in log.columns], body)

    def __call__(self, reads: Sequence[ReadOp], answers: Sequence[Any]) -> None:
        """Raise `CorruptError`, naming row and column, for the first answer that is not what was declared."""
        one = self._one
        for read, answer in zip(reads, answers, strict=False):
            if not answer:
                continue
            kind = type(read)
            try:
                if kind is Get:  # None is an absent row, and the keys are those of the request
                    if len(answer) > 1:
                        self._check_got(read.table, answer)  # type: ignore[union-attr]
                    elif (row := answer[0]) is not None:
                        convert((row.values, row.rev), one[read.table])  # type: ignore[union-attr]
                elif kind is Scan:
                    parts = ([row.values for row in answer], [row.rev for row in answer], [row.key for row in answer])
                    convert(parts, self._keyed[read.table])  # type: ignore[union-attr]
                elif kind is Read:
                    body = str if type(answer[0][-1]) is str else bytes
                    convert((answer,), self._entries[read.log, body])  # type: ignore[union-attr]
                elif kind is Heads:
                    convert((answer,), _LENGTHS)
            except msgspec.ValidationError as error:
                raise self._damage(read, answer, error) from None

    def _check_got(self, table: str, answer: Sequence[Row | None]) -> None:
        rows = [row for row in answer if row is not None]
        convert(([row.values for row in rows], [row.rev for row in rows]), self._some[table])

    def joined(self, joined: Joined, answers: Sequence[Sequence[Values]]) -> None:
        """The same for the answers to a `Joined`; the row of the other table must be there."""
        chosen = joined.chosen
        kind = self._joined.get(chosen)
        if kind is None:
            values = _tuple(*[column for _, column in self._chosen(chosen)])
            kind = self._joined[chosen] = _struct(rows=_list(_list(values)))
        try:
            convert((answers,), kind)
        except msgspec.ValidationError as error:
            damages = (self._joined_damage(chosen, values) for rows in answers for values in rows)
            known = next((damage for damage in damages if damage is not None), None)
            raise known or CorruptError(str(error), where=chosen.table) from None

    def _chosen(self, chosen: Chosen) -> list[tuple[str, Any]]:
        """The name and the type of each column."""
        tables, implicit = self._schema.table, {"rev": _Rev, "body": Any}
        named = []
        for name, column in chosen.columns:
            table = tables[name]
            kind = implicit.get(column)
            if column in table.types:
                declared = Column(column, table.types[column])
                is_key = column in table.key_names
                kind = self._expected.plain(declared) if is_key else self._expected.column(name, declared)
            named.append((f"{name}.{column}", kind))
        return named

    def _joined_damage(self, chosen: Chosen, values: Values) -> CorruptError | None:
        where = self._expected.row_name(chosen.table, values[: len(self._schema.table[chosen.table].key)])
        named = [(*column, value) for column, value in zip(self._chosen(chosen), values, strict=True)]
        others = [value for (table, _), value in zip(chosen.columns, values, strict=True) if table == chosen.other]
        if others.count(None) == len(others):
            return CorruptError(f"its row in {chosen.other} is missing", where=where)
        return _damage(where, named)

    def keys(self, reads: Sequence[ReadOp], answers: Sequence[Any]) -> None:
        """Check only what names a row, and the lengths of logs: enough for erasing, which must get rid of damage."""
        for read, answer in zip(reads, answers, strict=True):
            try:
                if isinstance(read, Scan):
                    convert(([row.key for row in answer],), self._keys[read.table])
                elif isinstance(read, Heads):
                    convert((answer,), _LENGTHS)
            except msgspec.ValidationError as error:
                raise self._damage(read, answer, error) from None

    def _damage(self, read: ReadOp, answer: Sequence[Any], error: msgspec.ValidationError) -> CorruptError:
        """Which of the rows is damaged, and what is wrong with it."""
        damages: Iterator[CorruptError | None] = iter(())
        if isinstance(read, (Get, Scan)):
            table = self._schema.table[read.table]
            damages = (self._row_damage(table, row) for row in answer if row is not None)
        elif isinstance(read, Read):
            log, partition = self._schema.log[read.log], read.partition
            damages = (self._entry_damage(log, partition, entry) for entry in answer)
        elif isinstance(read, Heads):
            named = zip(read.partitions, answer, strict=True)
            damages = (_damage(f"{read.log} of {name!r}", [("the length", _Length, length)]) for name, length in named)
        return next(
            (damage for damage in damages if damage is not None), CorruptError(str(error), where=repr(read)[:80])
        )

    def _row_damage(self, table: Table, row: Row) -> CorruptError | None:
        expected, prefix = self._expected, f"{table.name}."
        named = [
            *[(prefix + c.name, expected.plain(c), v) for c, v in zip(table.key, row.key, strict=True)],
            *[
                (prefix + c.name, expected.column(table.name, c), v)
                for c, v in zip(table.columns, row.values, strict=True)
            ],
            (prefix + "rev", _Rev, row.rev),
        ]
        return _damage(expected.row_name(table.name, row.key), named)

    def _entry_damage(self, log: Log, partition: str, entry: LogEntry) -> CorruptError | None:
        where = self._expected.entry_name(log.name, partition, short_repr(entry[0]))
        width = len(log.columns) + 3
        if len(entry) != width:
            return CorruptError(f"it has {len(entry)} columns instead of {width}", where=where)
        kinds = [("seq", _Seq), ("rev", Any), *[(c.name, self._expected.column(log.name, c)) for c in log.columns]]
        named = [(f"{log.name}.{name}", kind, value) for (name, kind), value in zip(kinds, entry, strict=False)]
        damage = _damage(where, named)
        if damage is None and type(entry[-1]) not in (bytes, str):
            return CorruptError(f"its body is {short_repr(entry[-1])}", where=where)
        return damage


def _damage(where: str, named: Sequence[tuple[str, Any, Any]]) -> CorruptError | None:
    for name, kind, value in named:
        try:
            convert(value, kind)
        except msgspec.ValidationError as error:
            wrong = "is missing" if value is None else f"is {short_repr(value)}: {error}"
            return CorruptError(f"{name} {wrong}", where=where)
    return None
