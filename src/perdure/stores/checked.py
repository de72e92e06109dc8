"""What comes from a store is checked as it comes in: every column of every row and log entry that a view answers with.

A database keeps what it is given, so what was damaged or prepared outside would otherwise surface as a `TypeError` in
the middle of a commit, or as a record whose numbers are text. `Core.view` sends all its answers through here, so no
store can forget it. The checks are compiled from the declarations, one type per table, and run inside msgspec: a row
costs a fifth of a microsecond. What is wrong is worked out only once something is.

Text is not looked into here: unknown words are carried, because a newer build may know them, and what is too long or
holds control characters cannot hurt a store. `doctor verify` reports such text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import convert

from perdure import limits
from perdure.errors import CorruptError, shown
from perdure.kernel.ops import Ask, Get, Heads, LogEntry, Read, Row, Scan
from perdure.kernel.schema import Log, Schema, Table
from perdure.rules.columns import COLUMNS
from perdure.rules.stored import row_name
from perdure.stores.layout import SCHEMA

MOST_REV = 2**53
_Integer = Annotated[int, msgspec.Meta(ge=0, le=limits.INTEGER_MAX)]
_Rev = Annotated[int, msgspec.Meta(gt=0, lt=MOST_REV)]
_Seq = Annotated[int, msgspec.Meta(gt=0, le=limits.INTEGER_MAX)]


def _column(table: str, name: str, kind: str) -> Any:
    plain: Any = _Integer if kind == "int" else str
    rule = COLUMNS.get(table, {}).get(name)
    return plain if rule is not None and rule.always else plain | None


def _tuple(*kinds: Any) -> Any:
    return GenericAlias(tuple, kinds)


def _list(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


def _values(table: Table) -> Any:
    return _tuple(*[_column(table.name, column.name, column.type) for column in table.columns])


def _key(table: Table) -> Any:
    return _tuple(*[_Integer if column.type == "int" else str for column in table.key])


def _entry(log: Log, body: type) -> Any:
    columns = [_column(log.name, column.name, column.type) for column in log.columns]
    return _tuple(_Seq, Any, *columns, body)


def _struct(**fields: Any) -> type[msgspec.Struct]:
    """A type to convert to. A struct rather than a bare list, because msgspec remembers what it knows of structs."""
    return msgspec.defstruct("Answer", list(fields.items()), array_like=True, gc=False)


_LENGTHS = _struct(lengths=_list(_Integer))


class AnswerCheck:
    """Checks the answers of views of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        values = {table.name: _values(table) for table in schema.tables}
        keys = {table.name: _key(table) for table in schema.tables}
        self._one = {name: _struct(values=kind, rev=_Rev) for name, kind in values.items()}
        self._some = {name: _struct(values=_list(kind), revs=_list(_Rev)) for name, kind in values.items()}
        self._keyed = {
            name: _struct(values=_list(kind), revs=_list(_Rev), keys=_list(keys[name])) for name, kind in values.items()
        }
        self._keys = {name: _struct(keys=_list(kind)) for name, kind in keys.items()}
        # An engine has its bodies as bytes or as text, always the same.
        self._entries = {
            (log.name, body): _struct(entries=_list(_entry(log, body))) for log in schema.logs for body in (bytes, str)
        }

    def __call__(self, reads: Sequence[Ask], answers: Sequence[Any]) -> None:
        """Raise `CorruptError`, naming row and column, for the first answer that is not what was declared."""
        one = self._one
        for read, answer in zip(reads, answers, strict=False):
            if not answer:
                continue
            kind = type(read)
            try:
                if kind is Get:  # None stands for an absent row, and the keys are those that were asked for
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

    def keys(self, reads: Sequence[Ask], answers: Sequence[Any]) -> None:
        """Check only what names a row, and the lengths of logs: enough for erasing, which must get rid of damage."""
        for read, answer in zip(reads, answers, strict=True):
            try:
                if isinstance(read, Scan):
                    convert(([row.key for row in answer],), self._keys[read.table])
                elif isinstance(read, Heads):
                    convert((answer,), _LENGTHS)
            except msgspec.ValidationError as error:
                raise self._damage(read, answer, error) from None

    def _damage(self, read: Ask, answer: Sequence[Any], error: msgspec.ValidationError) -> CorruptError:
        """Which of the rows is damaged, and what is wrong with it."""
        found: Iterator[CorruptError | None] = iter(())
        if isinstance(read, (Get, Scan)):
            table = self._schema.table[read.table]
            found = (_row_damage(table, row) for row in answer if row is not None)
        elif isinstance(read, Read):
            log, partition = self._schema.log[read.log], read.partition
            found = (_entry_damage(log, partition, entry) for entry in answer)
        elif isinstance(read, Heads):
            named = zip(read.partitions, answer, strict=True)
            found = (_damage(f"thread {name!r}", [(f"the length of {read.log}", _Integer, n)]) for name, n in named)
        return next((damage for damage in found if damage is not None), CorruptError(str(error), where=repr(read)[:80]))


def _row_damage(table: Table, row: Row) -> CorruptError | None:
    named: list[tuple[str, Any, Any]] = [
        *[(c.name, _Integer if c.type == "int" else str, v) for c, v in zip(table.key, row.key, strict=True)],
        *[(c.name, _column(table.name, c.name, c.type), v) for c, v in zip(table.columns, row.values, strict=True)],
        ("rev", _Rev, row.rev),
    ]
    return _damage(row_name(table.name, row.key), [(f"{table.name}.{name}", kind, v) for name, kind, v in named])


def _entry_damage(log: Log, partition: str, entry: LogEntry) -> CorruptError | None:
    where = f"message {shown(entry[0])} of thread {partition!r}"
    width = len(log.columns) + 3
    if len(entry) != width:
        return CorruptError(f"it has {len(entry)} columns instead of {width}", where=where)
    kinds = [("seq", _Seq), ("rev", Any), *[(c.name, _column(log.name, c.name, c.type)) for c in log.columns]]
    named = [(f"{log.name}.{name}", kind, value) for (name, kind), value in zip(kinds, entry, strict=False)]
    damage = _damage(where, named)
    if damage is None and type(entry[-1]) not in (bytes, str):
        return CorruptError(f"its body is {shown(entry[-1])}", where=where)
    return damage


def _damage(where: str, named: Sequence[tuple[str, Any, Any]]) -> CorruptError | None:
    for name, kind, value in named:
        try:
            convert(value, kind)
        except msgspec.ValidationError as error:
            wrong = "is missing" if value is None else f"is {shown(value)}: {error}"
            return CorruptError(f"{name} {wrong}", where=where)
    return None


_PRODUCT = AnswerCheck(SCHEMA)


@lru_cache(maxsize=16)
def _other(schema: Schema) -> AnswerCheck:
    return AnswerCheck(schema)


def answer_check(schema: Schema) -> AnswerCheck:
    """The check of a schema's answers."""
    return _PRODUCT if schema is SCHEMA else _other(schema)
