"""One statement for a transaction.

Every operation is a writable CTE; the last `SELECT` is a `CASE` that looks at them one after another and refuses at the
first that did not happen. A `CASE` is evaluated in order and a CTE runs when it is first looked at, so that is also the
order in which rows are locked: heads of logs first, then tables as declared, each by key. Two statements that want the
same rows therefore queue up and never wait for each other in a circle. (PostgreSQL does not promise the second half of
this; a test holds it to it.)

Entries are plain parameters while they are few, and arrays beyond that: a driver takes far longer over an array than
over a value, and a statement of its own for every number of entries would be too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.postgres.schema.tables import SERVER_CLOCK, Layout
from perdure.engines.postgres.write.batch_statement import (
    Batch,
    Groups,
    Ranks,
    Same,
    TogetherPlan,
    groups_of,
    plan_together,
)
from perdure.engines.postgres.write.binding import SENT_AS, Alone, cast
from perdure.engines.postgres.write.operation_shapes import NOW_PLUS, PLAIN, Shape, Values, entry_columns
from perdure.engines.postgres.write.operation_sql import EntryPlace, Rows
from perdure.engines.postgres.write.transaction import Transaction
from perdure.kernel.ops import Append

_PLANS_KEPT = 1_000
_FEW = 4
"""So many entries of an append are plain parameters."""
_MANY = 0


class AlonePlan(msgspec.Struct, frozen=True):
    """A statement for one transaction; `logs` are the places of its appends."""

    sql: str
    logs: tuple[int, ...]


class Plans:
    """Statements by shape. With a `clock` the time is a parameter, else it is the server's."""

    def __init__(self, layout: Layout) -> None:
        self.rows = Rows(layout)
        self._usual: dict[tuple[Any, ...], Same] = {}
        self._together: dict[tuple[Any, ...], TogetherPlan] = {}
        self._groups: dict[tuple[Any, ...], Groups] = {}

    def alone(self, transaction: Transaction, clock: int | None) -> tuple[AlonePlan, Values]:
        """The statement of one transaction, and its parameters."""
        found: Values = [transaction.scope, transaction.rev]
        counts: list[int] = []
        if clock is not None:
            found.append(clock)
        for member in transaction.members:
            found += member.values
            if member.shape[0] is Append:
                counts.append(_add_entries(member.op, member.shape[3], found, few=transaction.form.few_appends))
        plans = transaction.form.plans
        key = (clock is None, *counts)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = _plan_alone(self.rows, transaction, counts, bound_clock=clock is not None)
        return plan, found

    def together(self, transactions: Sequence[Transaction], clock: int | None) -> tuple[TogetherPlan, Values, Ranks]:
        """The statement for many transactions of one kind, its parameters, and the places of their seqs."""
        kind = transactions[0].form.kind
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = groups_of(self.rows, transactions[0])
        batch = Batch(groups, transactions)
        same = self._usual[kind] = batch.same(self._usual.get(kind))
        key = (kind, same, clock is None)
        plan = self._together.get(key)
        if plan is None:
            plan = plan_together(self.rows, groups, same, SERVER_CLOCK if clock is None else None)
            self._keep(key, plan)
        return plan, batch.arguments(same, clock), batch.ranks

    def _keep(self, key: tuple[Any, ...], plan: TogetherPlan) -> None:
        if len(self._together) >= _PLANS_KEPT:
            self._together.clear()
            self._groups.clear()
            self._usual.clear()
        self._together[key] = plan


def _add_entries(op: Append, kinds: tuple[str, ...], found: Values, *, few: bool) -> int:
    """Add the values of entries to those of a statement; which statement that is: how many of them, or many."""
    count = len(op.entries)
    if count > _FEW or not few or NOW_PLUS in kinds:
        found += entry_columns(op, kinds)
        return _MANY
    for entry in op.entries:
        found += [value for kind, value in zip(kinds, entry, strict=False) if kind is PLAIN]
        found.append(entry[-1].decode())
    return count


def literal(text: str) -> str:
    """A text constant in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _plan_alone(rows: Rows, transaction: Transaction, counts: Sequence[int], *, bound_clock: bool) -> AlonePlan:
    clock = "$3::bigint" if bound_clock else SERVER_CLOCK
    places = Alone(3 if bound_clock else 2, clock, {log: f"w{at}" for log, at in transaction.form.lasts.items()})
    parts, cases = [], []
    logs: list[int] = []
    for at, member in enumerate(transaction.members):
        shape = member.shape
        if shape[0] is Append:
            sql, key = rows.head(shape, places)
            parts.append(f"w{at} AS ({sql})")
            parts.append(f"e{at} AS ({_entries(rows, shape, places, (at, key), counts[len(logs)])})")
            logs.append(at)
        else:
            sql, key = rows.write(shape, places)
            parts.append(f"w{at} AS ({sql})")
        keyed = key[:1] if shape[0] is Append else key
        texts = ", ".join(f"({place})::text" for place in keyed)
        observe = literal(rows.observe(shape))
        refusal = rows.refusal(shape, at, f"$1::text, ARRAY[{texts}]", observe)
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


def _entries(rows: Rows, shape: Shape, places: Alone, head: tuple[int, list[str]], count: int) -> str:
    """The insert of the entries of one append: rows of values, or of arrays when there are many."""
    at, (partition, total, *_) = head
    types = rows.entry_types(shape)
    columns = ", ".join([f"c{n}" for n in range(len(types))] + ["o"])
    if count == _MANY:
        arrays = ", ".join([places.take(f"{SENT_AS.get(kind, kind)}[]") for kind in types])
        source = f"unnest({arrays}) WITH ORDINALITY AS e({columns})"
    else:
        listed = [[*[places.take(SENT_AS.get(kind, kind)) for kind in types], f"{n}"] for n in range(1, count + 1)]
        source = f"(VALUES ({'), ('.join(map(', '.join, listed))})) AS e({columns})"
    values = [f"e.c{n}{cast(kind)}" for n, kind in enumerate(types)]
    place = EntryPlace(partition, f'h."last" - {total} + e.o', values, f"w{at} AS h, {source}")
    return rows.entries(shape, places, place)
