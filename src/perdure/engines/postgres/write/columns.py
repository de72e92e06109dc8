"""Many transactions of one kind as columns, which are the array parameters of a batch statement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

from perdure.engines.postgres.write.filled_transaction import FilledTransaction
from perdure.engines.postgres.write.transaction import Member, Transaction
from perdure.kernel.shapes import LogShape, Shape, Values, entry_columns

Constants = tuple[bool, ...]
"""Per column of a batch: whether it holds the same value in every row."""
Ranks = dict[str, dict[int, int]]
"""Per log, in the order in which the statement returns their seqs: the position of each transaction's, from 1."""


class Group(Protocol):
    """The operations of one shape in a batch; `logs` are those whose seqs they use."""

    @property
    def shape(self) -> Shape:
        """Their shape."""
        ...

    @property
    def logs(self) -> list[str]:
        """The logs."""
        ...


class _Row(NamedTuple):
    """An operation of a batch, and the number of its transaction; rows of a group sort by scope and key."""

    scope: str
    key: tuple[Any, ...]
    transaction: int
    member: Member


class ColumnSet:
    """Many transactions as columns: per group the columns of its rows (of a log also those of its entries), and one
    with their number."""

    def __init__(self) -> None:
        self._columns: list[Sequence[Any]] = []
        self._revs: set[int] = set()

    def constants(self, known: Constants | None) -> Constants:
        """Which columns hold one value in all rows, in this batch and in those before it: the set of constant columns
        only shrinks, so statements stay few. Revs are never constant: their arrays give the number of rows."""
        if known is None:
            known = tuple([number not in self._revs for number in range(len(self._columns))])
        pairs = zip(known, self._columns, strict=True)
        return tuple([constant and column.count(column[0]) == len(column) for constant, column in pairs])

    def arguments(self, constants: Constants, clock: int | None) -> Values:
        """The arguments of the statement."""
        values = [column[0] if constant else column for constant, column in zip(constants, self._columns, strict=True)]
        return values if clock is None else [clock, *values]


class BatchColumns(ColumnSet):
    """The columns of transactions that are operations; rows of a group sort by scope and key."""

    def __init__(self, groups: Sequence[Group], transactions: Sequence[Transaction]) -> None:
        super().__init__()
        self.ranks: Ranks = {}
        for number, group in enumerate(groups):
            rows = _group_rows(number, transactions)
            self._revs.add(len(self._columns) + 1)
            self._columns += [[row.scope for row in rows], [transactions[row.transaction].rev for row in rows]]
            self._columns += [[self.ranks[log][row.transaction] for row in rows] for log in group.logs]
            self._columns += map(list, zip(*[row.member.values for row in rows], strict=True))
            if isinstance(group.shape, LogShape):
                self.ranks[group.shape.owner] = {row.transaction: rank for rank, row in enumerate(rows, 1)}
                self._revs.add(len(self._columns) + 1)
                self._columns += _entry_columns(transactions, rows, group.shape)
            self._columns.append([len(rows)])


def _group_rows(number: int, transactions: Sequence[Transaction]) -> list[_Row]:
    rows = [
        _Row(transaction.scope, transaction.names[position][2], which, transaction.members[position])
        for which, transaction in enumerate(transactions)
        for position, group in enumerate(transaction.form.groups)
        if group == number
    ]
    rows.sort(key=lambda row: row[:2])
    return rows


def _entry_columns(transactions: Sequence[Transaction], rows: Sequence[_Row], shape: LogShape) -> list[Values]:
    counts = [len(row.member.op.entries) for row in rows]
    owners = [(rank, row) for rank, (row, count) in enumerate(zip(rows, counts, strict=True), 1) for _ in range(count)]
    return [
        [row.scope for _, row in owners],
        [transactions[row.transaction].rev for _, row in owners],
        [row.member.op.partition for _, row in owners],
        [rank for rank, _ in owners],
        [back for count in counts for back in reversed(range(count))],
        *entry_columns([entry for row in rows for entry in row.member.op.entries], shape.kinds),
    ]


_SEPARATOR, _NULL = "\x1f", "\x1e"
"""What stands between texts that are packed, and for NULL: neither is in an id, nor in JSON."""
_LONG = 64
"""Longer values than this are searched one by one: `in` is many times as fast as `count`, per character."""


def unpacked(text: str, sql_type: str) -> str:
    """The SQL that makes an array of a packed text."""
    if sql_type == "bigint":
        return f"({text})::bigint[]"
    return f"string_to_array({text}, E'\\x1f', E'\\x1e')"


def _pack(column: Sequence[Any], sql_type: str) -> str | None:
    """A column as one text; None if a value has a separator in it. A driver takes longer over the elements of an array
    than over anything else in a commit."""
    if sql_type == "bigint":
        return "{" + ",".join(["NULL" if value is None else str(value) for value in column]) + "}"
    nulls = column.count(None)
    text = _SEPARATOR.join([_NULL if value is None else value for value in column] if nulls else column)
    if len(text) > _LONG * len(column):
        unsafe = [value for value in column if value is not None and (_SEPARATOR in value or _NULL in value)]
        return None if unsafe else text
    return text if text.count(_SEPARATOR) == len(column) - 1 and text.count(_NULL) == nulls else None


class FilledColumns(ColumnSet):
    """The columns of filled transactions, which the caller has sorted by scope and first key. All their rows come in
    that order."""

    def __init__(self, groups: Sequence[Group], transactions: Sequence[FilledTransaction]) -> None:
        super().__init__()
        plan = transactions[0].plan
        values = list(zip(*[each.filled.values for each in transactions], strict=True))
        scopes, revs = [each.scope for each in transactions], [each.rev for each in transactions]
        ranks = list(range(1, len(transactions) + 1))
        for number, group in enumerate(groups):
            spans = [span for span, member in zip(plan.spans, plan.form.groups, strict=True) if member == number]
            self._revs.add(len(self._columns) + 1)
            columns: list[list[Any]] = [scopes, revs, *[ranks for _ in group.logs]]
            if len(spans) == 1:
                self._columns += [*columns, *[values[n] for n in spans[0]]]
            else:
                self._columns += [[item for item in column for _ in spans] for column in columns]
                for numbers in zip(*spans, strict=True):
                    self._columns.append(list(chain(*zip(*[values[n] for n in numbers], strict=True))))
            if isinstance(group.shape, LogShape):
                self._revs.add(len(self._columns) + 1)
                self._columns += _filled_entries(transactions, group.shape)
            self._columns.append([len(transactions) * len(spans)])

    def packed(self, constants: Constants, types: Sequence[str], clock: int | None) -> Values | None:
        """The arguments of the statement, each column as one text; None if that cannot be done."""
        texts: dict[int, str | None] = {}
        values: Values = [] if clock is None else [clock]
        for constant, sql_type, column in zip(constants, types, self._columns, strict=True):
            if constant:
                values.append(column[0])
                continue
            # Some columns are in several groups: the revs, and the positions of seqs.
            text = texts[id(column)] if id(column) in texts else _pack(column, sql_type)
            if text is None:
                return None
            texts[id(column)] = text
            values.append(text)
        return values


def _filled_entries(transactions: Sequence[FilledTransaction], shape: LogShape) -> list[Any]:
    partition = transactions[0].plan.spans[0][0]
    owners = [
        (each.scope, each.rev, each.filled.values[partition], rank, back)
        for rank, each in enumerate(transactions, 1)
        for back in range(len(each.filled.entries) - 1, -1, -1)
    ]
    entries = list(chain.from_iterable([each.filled.entries for each in transactions]))
    return [*zip(*owners, strict=True), *entry_columns(entries, shape.kinds)]
