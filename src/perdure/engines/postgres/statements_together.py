"""One statement for many transactions of one kind.

The operations of one table are the rows of one CTE, made from array parameters and sorted by key: so rows are locked in
the same order as by a statement for one. It tells only whether all of them happened; if not, whoever asked runs the
transactions one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.postgres.layout import quote
from perdure.engines.postgres.statements import ARRAY_OF, Places, Shape, Together, Values, cast, entry_columns
from perdure.engines.postgres.statements_rows import EntryPlace, Rows
from perdure.engines.postgres.statements_transaction import Member, Transaction
from perdure.kernel.ops import Append

Ranks = dict[str, dict[int, int]]
"""Per log: where each transaction's seq stands among those that the statement returns."""


class TogetherPlan(msgspec.Struct, frozen=True):
    """A statement for many transactions: one group per table or log, with the logs whose seqs its rows use."""

    sql: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    logs: tuple[str, ...]


class _Numbers:
    """Array parameters of a statement for many."""

    def __init__(self, used: int) -> None:
        self.used = used

    def take(self, kind: str) -> str:
        self.used += 1
        return f"${self.used}::{kind}"

    def rows(self, alias: str, columns: Sequence[tuple[str, str]]) -> str:
        arrays = ", ".join(self.take(f"{kind}[]") for _, kind in columns)
        return f"unnest({arrays}) AS {alias}({', '.join(name for name, _ in columns)})"


class _EntryPlaces(Places):
    """Entries of many transactions: each row says whose it is."""

    scope, rev = "e.scope", "e.rev"

    def __init__(self, clock: str) -> None:
        super().__init__()
        self.clock = clock


def plan_together(rows: Rows, transaction: Transaction, server_clock: str | None) -> TogetherPlan:
    """Build the statement; without `server_clock` the time is its first parameter."""
    clock = server_clock or "$1::bigint"
    numbers = _Numbers(0 if server_clock else 1)
    groups = {member.shape[1]: member.shape for member in transaction.members}
    parts, cases, told = [], [], []
    used: list[tuple[str, tuple[str, ...]]] = []
    for at, (name, shape) in enumerate(groups.items()):
        places = Together(clock)
        if shape[0] is Append:
            parts += _log_together(rows, shape, at, numbers, clock)
            told.append(name)
        else:
            # Written once to learn which places it needs, and again with the rows it then has.
            rows.write(shape, places)
            source = numbers.rows("v", _row_columns(places.types, len(places.logs)))
            sql, _ = rows.write(shape, Together(clock, source))
            parts.append(f"w{at} AS ({sql})")
        used.append((name, tuple(places.logs)))
        refusal = rows.refusal(shape, at, "NULL, NULL", "NULL")
        cases.append(f"WHEN (SELECT count(*) FROM w{at}) <> {numbers.take('bigint')} THEN {refusal}")
    seqs = "".join(f', (SELECT s FROM "lasts of {name}")' for name in told)
    sql = f"WITH {', '.join(parts)} SELECT CASE {' '.join(cases)} ELSE {clock} END{seqs}"
    return TogetherPlan(sql, tuple(used), tuple(told))


def _log_together(rows: Rows, shape: Shape, at: int, numbers: _Numbers, clock: str) -> list[str]:
    log = rows.log(shape)
    places = Together(clock)
    rows.head(shape, places)
    members = numbers.rows("v", _row_columns(places.types, 0))
    head, _ = rows.head(shape, Together(clock, members))
    types = rows.entry_types(shape)
    columns = [("scope", "text"), ("rev", "bigint"), ("part", "text"), ("m", "bigint"), ("back", "bigint")]
    source = numbers.rows("e", [*columns, *[(f"c{n}", ARRAY_OF.get(kind, kind)) for n, kind in enumerate(types)]])
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


def together_arguments(plan: TogetherPlan, batch: Sequence[Transaction], clock: int | None) -> tuple[Values, Ranks]:
    """The parameters of a statement for many, and where each transaction's seqs will stand among those of a log."""
    ranks: Ranks = {}
    for log in plan.logs:
        named = sorted((transaction.names[transaction.lasts[log]][::2], who) for who, transaction in enumerate(batch))
        ranks[log] = {who: rank for rank, (_, who) in enumerate(named, 1)}
    found: Values = [] if clock is None else [clock]
    for name, logs in plan.groups:
        rows = [
            (transaction.names[at][::2], who, member)
            for who, transaction in enumerate(batch)
            for at, member in enumerate(transaction.members)
            if member.shape[1] == name
        ]
        rows.sort(key=_by_key)
        found.append([key[0] for key, _, _ in rows])
        found.append([batch[who].rev for _, who, _ in rows])
        found.extend([ranks[log][who] for _, who, _ in rows] for log in logs)
        found.extend(map(list, zip(*[member.values for _, _, member in rows], strict=True)))
        if name in ranks:
            found.extend(_entry_arguments(batch, rows, ranks[name]))
        found.append(len(rows))
    return found, ranks


def _by_key(row: tuple[Any, int, Member]) -> Any:
    return row[0]


def _entry_arguments(batch: Sequence[Transaction], rows: list[Any], ranks: dict[int, int]) -> list[Values]:
    scopes: Values = []
    revs: Values = []
    parts: Values = []
    marks: Values = []
    backs: Values = []
    columns: list[Values] = []
    for (scope, (partition,)), who, member in rows:
        count = len(member.op.entries)
        scopes += [scope] * count
        revs += [batch[who].rev] * count
        parts += [partition] * count
        marks += [ranks[who]] * count
        backs += range(count - 1, -1, -1)
        given = entry_columns(member.op, member.shape[3])
        if not columns:
            columns = given
        else:
            for column, more in zip(columns, given, strict=True):
                column += more
    return [scopes, revs, parts, marks, backs, *columns]
