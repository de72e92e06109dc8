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
                self._columns += [list(chain(*zip(*[values[n] for n in each], strict=True))) for each in zip(*spans)]
            if isinstance(group.shape, LogShape):
                self._revs.add(len(self._columns) + 1)
                self._columns += _filled_entries(transactions, group.shape)
            self._columns.append([len(transactions) * len(spans)])


def _filled_entries(transactions: Sequence[FilledTransaction], shape: LogShape) -> list[Any]:
    partition = transactions[0].plan.spans[0][0]
    owners = [
        (each.scope, each.rev, each.filled.values[partition], rank, back)
        for rank, each in enumerate(transactions, 1)
        for back in range(len(each.filled.entries) - 1, -1, -1)
    ]
    entries = list(chain.from_iterable([each.filled.entries for each in transactions]))
    return [*zip(*owners, strict=True), *entry_columns(entries, shape.kinds)]
