"""Transactions of known kinds: their statements are looked up by kind, and their values go to the driver as they are.

A `KindPlan` holds what follows from a kind on this schema: the form, the order of locks, and where the values of each
operation are in the flat list. It is made once, from the kind's template. If the kind is *owned*, all rows of a
transaction belong to its first one, so that row alone is what it waits for in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from perdure.engines.postgres.write.operation_sql import OperationSql
from perdure.engines.postgres.write.solo_statement import AS_ARRAYS, FEW_ENTRIES, build_solo
from perdure.engines.postgres.write.transaction import BATCHABLE_BYTES, Analyser, Form, RowName, Transaction
from perdure.kernel.kinds import Filled, Kind
from perdure.kernel.shapes import BODY, NOW, NULL, PLAIN, Columns, LogShape, RowShape, Values, entry_columns

Pick = Callable[[Sequence[Any]], tuple[Any, ...]]


class KindPlan:
    """A kind on one schema.

    `spans` are the positions of each operation's values, in lock order. `names` are the rows that a transaction waits
    for: the number of the table, and where the key is. `append` is the shape of the append, which is always the first
    to be locked, and `partition` the position of its partition (or else of the first key): a batch is sorted by it.
    `fillable`: transactions of this kind run as they are; others run as operations.
    """

    def __init__(self, kind: Kind, analyser: Analyser) -> None:
        template = analyser.analyse("", 0, kind.template)
        self.template: Transaction = template
        self.form: Form = template.form
        order = [member.number for member in template.members]
        self.spans = [range(kind.starts[number], kind.starts[number + 1]) for number in order]
        self.append = template.members[0].shape if isinstance(template.members[0].shape, LogShape) else None
        split = 1 if self.append is not None else 0
        self._pick_head = _picker([n for span in self.spans[:split] for n in span])
        self._pick_rest = _picker([n for span in self.spans[split:] for n in span])
        self._bodies = [
            n for span, member in zip(self.spans, template.members, strict=True) for n in _body(span, member)
        ]
        keys = zip(template.names, self.spans, strict=True)
        names = [(table, slice(span.start, span.start + len(key))) for (_, table, key), span in keys]
        self.names = [names[order.index(0)]] if kind.owned else names
        self.partition = self.spans[0][0]
        self._pick_entry = _picker(_sent(self.append)) if self.append is not None else _picker([])
        form = self.form
        plain = len(form.appends) <= 1 and (self.append is None or set(self.append.kinds) <= {PLAIN, NOW})
        self.groups: list[Any] = []
        self.types: list[str] = []
        self.constants: tuple[bool, ...] | None = None
        self.batches: dict[Any, str] = {}
        """What batch statements of this kind share."""
        self.fillable: bool = plain and form.batchable and not form.bulk and not form.stepwise

    def size(self, filled: Filled) -> int:
        """About how many bytes a transaction sends."""
        values = filled.values
        return sum([len(entry[-1]) for entry in filled.entries]) + sum([len(values[n] or "") for n in self._bodies])

    def solo(self, sql: OperationSql, filled: Filled, head: Values, *, bound_clock: bool) -> tuple[str, Values]:
        """The statement of one transaction, and its arguments after the `head`."""
        values, entries = filled.values, filled.entries
        count = len(entries)
        if count > FEW_ENTRIES and self.append is not None:
            count, sent = AS_ARRAYS, entry_columns(entries, self.append.kinds)
        else:
            pick = self._pick_entry
            sent = [part for entry in entries for part in (*pick(entry), entry[-1].decode())]
        cache_key = (not bound_clock, count) if entries else (not bound_clock,)
        statement = self.form.statements.get(cache_key)
        if statement is None:
            statement = build_solo(sql, self.template, cache_key[1:], bound_clock=bound_clock)
            self.form.statements[cache_key] = statement
        return statement, [*head, *self._pick_head(values), *sent, *self._pick_rest(values)]


def _picker(numbers: list[int]) -> Pick:
    if not numbers:
        return lambda _: ()
    if len(numbers) == 1:
        return lambda values: (values[numbers[0]],)
    return itemgetter(*numbers)


def _sent(shape: LogShape) -> list[int]:
    return [number for number, kind in enumerate(shape.kinds) if kind is not NOW]


def _body(span: range, member: Any) -> list[int]:
    """The position of an operation's body, if it has one: after its other columns, before its condition."""
    shape = member.shape
    if not isinstance(shape, RowShape) or BODY not in shape.columns.names:
        return []
    condition = shape.condition
    guards = sum(kind is not NULL for kind in condition.kinds) if isinstance(condition, Columns) else condition is int
    return [span[len(span) - guards - 1]]


class FilledTransaction(msgspec.Struct, frozen=True):
    """A transaction of a known kind."""

    scope: str
    rev: int
    form: Form
    plan: KindPlan
    filled: Filled
    names: list[RowName]

    @property
    def batch_key(self) -> KindPlan:
        """Equal for transactions that may share a statement."""
        return self.plan

    def batchable(self) -> bool:
        """True when it may share a statement with others."""
        return self.plan.size(self.filled) <= BATCHABLE_BYTES


_MOST_PLANS = 4_096
"""Kinds are few in practice; the bound is against abuse."""


class Plans:
    """The plans of all kinds that this engine has met."""

    def __init__(self, analyser: Analyser) -> None:
        self._analyser = analyser
        self._plans: dict[Kind, KindPlan] = {}

    def transaction(self, scope: str, rev: int, filled: Filled) -> Transaction | FilledTransaction:
        """The transaction, by its plan."""
        plan = self._plans.get(filled.kind)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[filled.kind] = KindPlan(filled.kind, self._analyser)
        if not plan.fillable:
            return self._analyser.analyse(scope, rev, filled.operations())
        names = [(scope, table, tuple(filled.values[key])) for table, key in plan.names]
        return FilledTransaction(scope, rev, plan.form, plan, filled, names)

    def as_operations(self, transaction: FilledTransaction) -> Transaction:
        """The same transaction as operations, which say what was refused."""
        return self._analyser.analyse(transaction.scope, transaction.rev, transaction.filled.operations())
