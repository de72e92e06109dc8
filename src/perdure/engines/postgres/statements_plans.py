"""One statement for a transaction.

Every operation is a writable CTE; the last `SELECT` is a `CASE` that looks at them one after another and refuses at the
first that did not happen. A `CASE` is evaluated in order and a CTE runs when it is first looked at, so that is also the
order in which rows are locked: heads of logs first, then tables as declared, each by key. Two statements that want the
same rows therefore queue up and never wait for each other in a circle. (PostgreSQL does not promise the second half of
this; a test holds it to it.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.postgres.layout import Layout
from perdure.engines.postgres.statements import SENT_AS, Alone, Same, Shape, Values, alone_columns, cast, find_same
from perdure.engines.postgres.statements_rows import EntryPlace, Rows
from perdure.engines.postgres.statements_together import Batch, Groups, Ranks, TogetherPlan, groups_of, plan_together
from perdure.engines.postgres.statements_transaction import Member, Transaction
from perdure.kernel.ops import Append

SERVER_CLOCK = "floor(date_part('epoch', now()) * 1000)::bigint"
_PLANS_KEPT = 1_000


class AlonePlan(msgspec.Struct, frozen=True):
    """A statement for one transaction; `logs` are the places of its appends."""

    sql: str
    logs: tuple[int, ...]


class Plans:
    """Statements by shape. With `bound_clock` the time is a parameter, else it is the server's."""

    def __init__(self, layout: Layout) -> None:
        self.rows = Rows(layout)
        self._usual: dict[tuple[Any, ...], Same] = {}
        self._alone: dict[tuple[Any, ...], AlonePlan] = {}
        self._together: dict[tuple[Any, ...], TogetherPlan] = {}
        self._groups: dict[tuple[Any, ...], Groups] = {}

    def alone(self, transaction: Transaction, clock: int | None) -> tuple[AlonePlan, Values]:
        """The statement of one transaction, and its parameters."""
        found: Values = [transaction.scope, transaction.rev]
        same: list[Same] = []
        if clock is not None:
            found.append(clock)
        for member in transaction.members:
            found.extend(member.values)
            if member.shape[0] is Append:
                alike, columns = self._entries(member)
                same.append(alike)
                found.extend(columns)
        return self._plan_alone(transaction, same, bound_clock=clock is not None), found

    def _entries(self, member: Member) -> tuple[Same, Values]:
        """What is usually one value is learnt by use, and only ever unlearnt: so the statements of a log stay few."""
        where = member.shape[1], member.shape[3]
        usual = self._usual.get(where)
        if usual is None:
            log, names = self.rows.log(member.shape), self.rows.entry_names(member.shape)
            usual = (*[name not in log.unique for name in names], False)
        same, columns = alone_columns(member.op, member.shape[3], usual)
        self._usual[where] = same
        return same, columns

    def _plan_alone(self, transaction: Transaction, same: list[Same], *, bound_clock: bool) -> AlonePlan:
        key = (transaction.shape, bound_clock, *same)
        plan = self._alone.get(key)
        if plan is None:
            plan = _plan_alone(self, transaction, same, bound_clock=bound_clock)
            self._keep(self._alone, key, plan)
        return plan

    def together(self, transactions: Sequence[Transaction], clock: int | None) -> tuple[TogetherPlan, Values, Ranks]:
        """The statement for many transactions of one kind, its parameters, and the places of their seqs."""
        kind = transactions[0].kind
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = groups_of(self.rows, transactions[0])
        batch = Batch(groups, transactions)
        same = find_same(batch.columns, self._usual.get(kind) or batch.usual())
        self._usual[kind] = same
        key = (kind, same, clock is None)
        plan = self._together.get(key)
        if plan is None:
            plan = plan_together(self.rows, groups, same, SERVER_CLOCK if clock is None else None)
            self._keep(self._together, key, plan)
        return plan, batch.arguments(same, clock), batch.ranks

    def _keep(self, plans: dict[tuple[Any, ...], Any], key: tuple[Any, ...], plan: Any) -> None:
        if len(plans) >= _PLANS_KEPT:
            plans.clear()
            self._groups.clear()
            self._usual.clear()
        plans[key] = plan


def literal(text: str) -> str:
    """A text constant in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _plan_alone(plans: Plans, transaction: Transaction, same: Sequence[Same], *, bound_clock: bool) -> AlonePlan:
    clock = "$3::bigint" if bound_clock else SERVER_CLOCK
    places = Alone(3 if bound_clock else 2, clock, {log: f"w{at}" for log, at in transaction.lasts.items()})
    parts, cases, logs = [], [], []
    for at, member in enumerate(transaction.members):
        shape = member.shape
        if shape[0] is Append:
            logs.append(at)
            sql, key = plans.rows.head(shape, places)
            parts.append(f"w{at} AS ({sql})")
            parts.append(f"e{at} AS ({_entries_alone(plans.rows, shape, places, (at, key), same[len(logs) - 1])})")
        else:
            sql, key = plans.rows.write(shape, places)
            parts.append(f"w{at} AS ({sql})")
        keyed = key[:1] if shape[0] is Append else key
        texts = ", ".join(f"({place})::text" for place in keyed)
        observe = literal(plans.rows.observe(shape))
        refusal = plans.rows.refusal(shape, at, f"$1::text, ARRAY[{texts}]", observe)
        cases.append(f"WHEN NOT EXISTS (SELECT FROM w{at}) THEN {refusal}")
    seqs = "".join(f', (SELECT "last" FROM w{at})' for at in logs)
    # A CTE that nobody reads is not run; it only says what type a parameter has that no operation came to use.
    rest = f"SELECT CASE {' '.join(cases)} ELSE {clock} END{seqs}"
    text = " ".join(parts)
    unused = [place for place in places.taken if place not in text and place not in rest]
    if unused:
        parts.append(f"unused AS (SELECT {', '.join(unused)})")
    sql = f"WITH {', '.join(parts)} {rest}"
    return AlonePlan(sql, tuple(logs))


def _entries_alone(rows: Rows, shape: Shape, places: Alone, head: tuple[int, list[str]], same: Same) -> str:
    at, (partition, count, *_) = head
    values: list[str] = []
    arrays: list[str] = []
    for kind, alike in zip(rows.entry_types(shape), same, strict=True):
        place = places.take(kind if alike else f"{SENT_AS.get(kind, kind)}[]")
        values.append(place if alike else f"e.c{len(arrays)}{cast(kind)}")
        arrays += [] if alike else [place]
    columns = ", ".join([f"c{n}" for n in range(len(arrays))] + ["o"])
    source = f"w{at} AS h, unnest({', '.join(arrays)}) WITH ORDINALITY AS e({columns})"
    return rows.entries(shape, places, EntryPlace(partition, f'h."last" - {count} + e.o', values, source))
