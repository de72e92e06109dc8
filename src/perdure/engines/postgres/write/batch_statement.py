"""One statement for many transactions of one kind.

The operations of one shape on a table are the rows of one CTE, made from array parameters and sorted by key: so rows
are locked in the same order as by a statement for one. (A transaction that writes one table in several ways, some
documents guarded and some not, locks by way and key instead. It travels alone; if it ever meets another in a circle,
the deadlock ends by running it step by step.) The statement tells only whether all of them happened; if not, whoever
asked runs the transactions one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.postgres.schema.tables import quote
from perdure.engines.postgres.write.binding import SENT_AS, Together, cast
from perdure.engines.postgres.write.operation_shapes import Shape, Values, entry_columns
from perdure.engines.postgres.write.operation_sql import EntryPlace, Rows
from perdure.engines.postgres.write.transaction import Member, Transaction
from perdure.kernel.ops import Append

Same = tuple[bool, ...]
"""Of columns of rows, which hold one value."""
Ranks = dict[str, dict[int, int]]
"""Per log: where each transaction's seq stands among those that the statement returns."""


class TogetherPlan(msgspec.Struct, frozen=True):
    """A statement for many transactions; `logs` are those whose seqs it returns."""

    sql: str
    logs: tuple[str, ...]


class _Parameters:
    """Numbers the parameters of a statement for many; `same` says which columns of its rows are one value."""

    def __init__(self, used: int, same: Same) -> None:
        self.used = used
        self._same = iter(same)

    def take(self, kind: str) -> str:
        self.used += 1
        return f"${self.used}::{kind}"

    def rows(self, alias: str, columns: Sequence[tuple[str, str]]) -> str:
        """Rows with these columns, from arrays and from what is the same in all."""
        arrays, listed, shown = [], [], []
        for (name, kind), alike in zip(columns, self._same, strict=False):
            if alike:
                shown.append(f"{self.take(kind)} AS {name}")
            else:
                arrays.append(self.take(f"{kind}[]"))
                listed.append(name)
                shown.append(f"u.{name}")
        source = f"unnest({', '.join(arrays)}) AS u({', '.join(listed)})"
        # OFFSET hides which of these columns are one value, or the planner may go through all rows with that scope.
        return f"(SELECT {', '.join(shown)} FROM {source} OFFSET 0) AS {alias}"


class _EntryPlaces(Together):
    """Entries of many transactions: each row says whose it is."""

    scope, rev = "e.scope", "e.rev"


Groups = tuple[tuple[str, Shape, tuple[str, ...]], ...]
"""Per kind of operation: the name of its table or log, its shape, and the logs whose seqs it uses."""


def groups_of(rows: Rows, transaction: Transaction) -> Groups:
    """What a statement for many transactions like this one consists of."""
    found = []
    for shape in transaction.form.kind:
        places = Together("")
        if shape[0] is not Append:
            rows.write(shape, places)
        found.append((shape[1], shape, tuple(places.logs)))
    return tuple(found)


def plan_together(rows: Rows, groups: Groups, same: Same, server_clock: str | None) -> TogetherPlan:
    """Build the statement; without `server_clock` the time is its first parameter."""
    clock = server_clock or "$1::bigint"
    parameters = _Parameters(0 if server_clock else 1, same)
    parts, cases, told = [], [], []
    for at, (name, shape, logs) in enumerate(groups):
        if shape[0] is Append:
            parts += _log_together(rows, shape, at, parameters, clock)
            told.append(name)
        else:
            source = parameters.rows("v", _row_columns(_types(rows, shape), len(logs)))
            sql, _ = rows.write(shape, Together(clock, source))
            parts.append(f"w{at} AS ({sql})")
        refusal = rows.refusal(shape, at, "NULL, NULL", "NULL")
        cases.append(f"WHEN (SELECT count(*) FROM w{at}) <> {parameters.take('bigint')} THEN {refusal}")
    seqs = "".join(f', (SELECT s FROM "lasts of {name}")' for name in told)
    sql = f"WITH {', '.join(parts)} SELECT CASE {' '.join(cases)} ELSE {clock} END{seqs}"
    return TogetherPlan(sql, tuple(told))


def _types(rows: Rows, shape: Shape) -> list[str]:
    """The types of an operation's values: it is written for nobody, to see which places it takes."""
    places = Together("")
    if shape[0] is Append:
        rows.head(shape, places)
    else:
        rows.write(shape, places)
    return places.types


def _log_together(rows: Rows, shape: Shape, at: int, parameters: _Parameters, clock: str) -> list[str]:
    log = rows.log(shape)
    members = parameters.rows("v", _row_columns(_types(rows, shape), 0))
    head, _ = rows.head(shape, Together(clock, members))
    types = rows.entry_types(shape)
    columns = [("scope", "text"), ("rev", "bigint"), ("part", "text"), ("m", "bigint"), ("back", "bigint")]
    source = parameters.rows("e", [*columns, *[(f"c{n}", SENT_AS.get(kind, kind)) for n, kind in enumerate(types)]])
    seq = f'(SELECT s FROM "lasts of {log.name}")[e.m] - e.back'
    at_entries = EntryPlace("e.part", seq, [f"e.c{n}{cast(kind)}" for n, kind in enumerate(types)], source)
    return [
        f"w{at} AS ({head})",
        f'"lasts of {log.name}" AS (SELECT array_agg("last" ORDER BY "scope", {quote(log.partition)}) AS s FROM w{at})',
        f"e{at} AS ({rows.entries(shape, _EntryPlaces(clock), at_entries)})",
    ]


def _row_columns(types: list[str], logs: int) -> list[tuple[str, str]]:
    columns = [("scope", "text"), ("rev", "bigint"), *[(f"m{n}", "bigint") for n in range(logs)]]
    return columns + [(f"c{n}", kind) for n, kind in enumerate(types, 1)]


class Batch:
    """Many transactions as columns: per group the columns of its rows (of a log also those of its entries) and their
    number; and where each transaction's seqs will stand among those of a log."""

    def __init__(self, groups: Groups, transactions: Sequence[Transaction]) -> None:
        self.ranks: Ranks = {}
        self.columns: list[list[Any]] = []
        self._ends: list[tuple[int, int]] = []
        self._revs: set[int] = set()
        for number, (name, shape, logs) in enumerate(groups):
            rows = [
                (transaction.names[at][::2], who, transaction.members[at])
                for who, transaction in enumerate(transactions)
                for at, group in enumerate(transaction.form.groups)
                if group == number
            ]
            rows.sort(key=_by_key)
            self.columns.append([key[0] for key, _, _ in rows])
            self._revs.add(len(self.columns))
            self.columns.append([transactions[who].rev for _, who, _ in rows])
            self.columns.extend([self.ranks[log][who] for _, who, _ in rows] for log in logs)
            self.columns.extend(map(list, zip(*[member.values for _, _, member in rows], strict=True)))
            if shape[0] is Append:
                self.ranks[name] = {who: rank for rank, (_, who, _) in enumerate(rows, 1)}
                self._revs.add(len(self.columns) + 1)
                self.columns.extend(_entry_columns(transactions, rows))
            self._ends.append((len(self.columns), len(rows)))

    def _at_first(self) -> Same:
        """What may be one value for all: anything but revs, which tell how many rows there are."""
        return tuple([place not in self._revs for place in range(len(self.columns))])

    def same(self, usual: Same | None) -> Same:
        """Which of the columns that were one value in all rows so far are so in these as well: what is usual is learnt
        by use and only ever unlearnt, so statements stay few."""
        usual = usual or self._at_first()
        return tuple(
            [
                alike and column.count(column[0]) == len(column)
                for alike, column in zip(usual, self.columns, strict=True)
            ]
        )

    def arguments(self, same: Same, clock: int | None) -> Values:
        """The parameters of the statement for these."""
        found: Values = [] if clock is None else [clock]
        shrunk = [column[0] if alike else column for alike, column in zip(same, self.columns, strict=True)]
        begin = 0
        for end, count in self._ends:
            found += shrunk[begin:end]
            found.append(count)
            begin = end
        return found


def _by_key(row: tuple[Any, int, Member]) -> Any:
    return row[0]


def _entry_columns(transactions: Sequence[Transaction], rows: list[Any]) -> list[list[Any]]:
    scopes: Values = []
    revs: Values = []
    parts: Values = []
    marks: Values = []
    backs: Values = []
    columns: list[Values] = []
    for rank, ((scope, (partition,)), who, member) in enumerate(rows, 1):
        count = len(member.op.entries)
        scopes += [scope] * count
        revs += [transactions[who].rev] * count
        parts += [partition] * count
        marks += [rank] * count
        backs += range(count - 1, -1, -1)
        given = entry_columns(member.op, member.shape[3])
        if not columns:
            columns = given
        else:
            for column, more in zip(columns, given, strict=True):
                column += more
    return [scopes, revs, parts, marks, backs, *columns]
