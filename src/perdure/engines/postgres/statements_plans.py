"""One statement for a transaction, or for many of one shape.

Every operation is a writable CTE; the last `SELECT` is a `CASE` that looks at them one after another and refuses at the
first that did not happen. A `CASE` is evaluated in order and a CTE runs when it is first looked at, so that is also the
order in which rows are locked: heads of logs first, then tables as declared, each by key. Two statements that want the
same rows therefore queue up and never wait for each other in a circle. (PostgreSQL does not promise the second half of
this; a test holds it to it.)

In a statement for many transactions, the operations of one table are the rows of one CTE, sorted by key. It tells only
whether all of them happened: if not, whoever asked runs them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.engines.postgres.functions import CONDITION, LENGTH
from perdure.engines.postgres.layout import Layout, quote
from perdure.engines.postgres.statements import Alone, Places, Shape, Together, Values, describe, entry_columns
from perdure.engines.postgres.statements_rows import Rows
from perdure.kernel.ops import ABSENT, ANY, Append, Delete, Drop, Op, Patch, Put
from perdure.kernel.schema import Schema

SERVER_CLOCK = "floor(date_part('epoch', now()) * 1000)::bigint"
_PLANS_KEPT = 1_000
_TOGETHER_BYTES = 64 * 1024
_ALONE_MOST = 32
"""Beyond this many operations a statement with a CTE for each is not worth its parsing: they become rows, or steps."""
Name = tuple[Any, ...]


class Member(NamedTuple):
    """An operation of a transaction in lock order: its number in the transaction, its shape and its values."""

    number: int
    op: Any
    shape: Shape
    values: Values


class Transaction:
    """A transaction taken apart: members in lock order, and what decides how it may be run."""

    __slots__ = ("careful", "large", "lasts", "members", "names", "ops", "rev", "scope", "shape", "together")

    def __init__(
        self, scope: str, rev: int, ops: Sequence[Op], order: dict[str, int], exclusive: frozenset[str]
    ) -> None:
        self.scope = scope
        self.rev = rev
        self.ops = ops
        found: list[tuple[int, Any, int, Op]] = []
        for index, op in enumerate(ops):
            if type(op) is Append or type(op) is Drop:
                found.append((order[op.log], (op.partition,), index, op))
            else:
                found.append((order[op.table], op.key, index, op))  # type: ignore[union-attr]
        found.sort(key=_place)
        self.names: list[Name] = [(scope, place, key) for place, key, _, _ in found]
        self.members = [Member(index, op, *describe(op)) for _, _, index, op in found]
        self.lasts: dict[str, int] = {}
        self.careful = False
        classes = set()
        size = 0
        for place, member in enumerate(self.members):
            shape = member.shape
            kind = shape[0]
            classes.add(shape[1])
            if kind is Append:
                first = self.lasts.get(shape[1])
                if first is None or self.members[first].number > member.number:
                    self.lasts[shape[1]] = place
                size += sum([len(entry[-1]) for entry in member.op.entries])
            elif kind is Drop or (kind is Delete and (shape[2] is ANY or shape[2] is ABSENT)):
                self.careful = True
        if exclusive and not self.careful:
            self.careful = any(passes_on(self.members, name) for name in classes & exclusive)
        self.shape = (*[member.shape for member in self.members], *self.lasts.values())
        alike = not self.careful and self._alike()
        self.together = alike and size <= _TOGETHER_BYTES
        self.large = alike and len(ops) > _ALONE_MOST
        self.careful = self.careful or (len(ops) > _ALONE_MOST and not alike)

    def _alike(self) -> bool:
        """True when the operations on each table or log have one shape, so that they can be rows of one CTE."""
        shapes = {member.shape[1]: member.shape for member in self.members}
        appends = 0
        for member in self.members:
            shape = member.shape
            if shapes[shape[1]] != shape or (shape[0] is Patch and shape[5] is not None):
                return False
            appends += shape[0] is Append
        return appends == len(self.lasts)


def _place(found: tuple[int, Any, int, Op]) -> tuple[int, Any]:
    return found[0], found[1]


def passes_on(members: list[Member], table: str) -> bool:
    """True when one row of a table with unique groups may give up a value that another takes."""
    here = [member for member in members if member.shape[1] == table]
    if len(here) < 2:
        return False
    gives = [m for m in here if m.shape[0] in (Patch, Delete) or (m.shape[0] is Put and m.shape[4] is not ABSENT)]
    takes = [m for m in here if m.shape[0] in (Patch, Put)]
    return any(giver is not taker for giver in gives for taker in takes)


class AlonePlan(msgspec.Struct, frozen=True):
    """A statement for one transaction; `logs` are the places of its appends."""

    sql: str
    logs: tuple[int, ...]


class TogetherPlan(msgspec.Struct, frozen=True):
    """A statement for many transactions: one group per table or log, with the logs whose seqs its rows use."""

    sql: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    logs: tuple[str, ...]


class Plans:
    """Statements by shape. With `bound_clock` the time is a parameter, else it is the server's."""

    def __init__(self, layout: Layout) -> None:
        self.rows = Rows(layout)
        self.layout = layout
        self._alone: dict[tuple[Any, ...], AlonePlan] = {}
        self._together: dict[tuple[Any, ...], TogetherPlan] = {}

    def alone(self, transaction: Transaction, *, bound_clock: bool) -> AlonePlan:
        """The statement of one transaction."""
        key = (transaction.shape, bound_clock)
        plan = self._alone.get(key)
        if plan is None:
            if len(self._alone) >= _PLANS_KEPT:
                self._alone.clear()
            plan = self._alone[key] = _plan_alone(self, transaction, bound_clock=bound_clock)
        return plan

    def together(self, transaction: Transaction, *, bound_clock: bool) -> TogetherPlan:
        """The statement for many transactions like this one."""
        key = (transaction.shape, bound_clock)
        plan = self._together.get(key)
        if plan is None:
            if len(self._together) >= _PLANS_KEPT:
                self._together.clear()
            plan = self._together[key] = _plan_together(self, transaction, bound_clock=bound_clock)
        return plan

    def refusal(self, shape: Shape, place: int, key: str, observe: str) -> str:
        """The call that refuses a member."""
        state = LENGTH if shape[0] is Append else CONDITION
        return f"{quote(self.layout.place)}.\"refuse\"('{state}', {place}, {observe}, {key})"


def literal(text: str) -> str:
    """A text constant in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _plan_alone(plans: Plans, transaction: Transaction, *, bound_clock: bool) -> AlonePlan:
    clock = "$3::bigint" if bound_clock else SERVER_CLOCK
    places = Alone(3 if bound_clock else 2, clock, {log: f"w{at}" for log, at in transaction.lasts.items()})
    parts, cases, logs = [], [], []
    for at, member in enumerate(transaction.members):
        shape = member.shape
        if shape[0] is Append:
            logs.append(at)
            sql, key = plans.rows.head(shape, places)
            parts.append(f"w{at} AS ({sql})")
            types = plans.rows.entry_types(shape)
            arrays = ", ".join(places.take(f"{kind}[]") for kind in types)
            source = f"w{at} AS h, unnest({arrays}) AS e({_columns('c', len(types))})"
            entries = plans.rows.entries(shape, places, key[0], 'h."last"', source)
            parts.append(f"e{at} AS ({entries})")
        else:
            sql, key = plans.rows.write(shape, places)
            parts.append(f"w{at} AS ({sql})")
        texts = ", ".join(f"({place})::text" for place in key)
        observe = literal(plans.rows.observe(shape))
        refusal = plans.refusal(shape, at, f"$1::text, ARRAY[{texts}]", observe)
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


def alone_arguments(transaction: Transaction, clock: int | None) -> Values:
    """The parameters of a transaction's own statement."""
    found: Values = [transaction.scope, transaction.rev]
    if clock is not None:
        found.append(clock)
    for member in transaction.members:
        found.extend(member.values)
        if member.shape[0] is Append:
            found.extend(entry_columns(member.op, member.shape[3]))
    return found


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


def _plan_together(plans: Plans, transaction: Transaction, *, bound_clock: bool) -> TogetherPlan:
    clock = "$1::bigint" if bound_clock else SERVER_CLOCK
    numbers = _Numbers(1 if bound_clock else 0)
    groups = {member.shape[1]: member.shape for member in transaction.members}
    parts, cases, told = [], [], []
    used: list[tuple[str, tuple[str, ...]]] = []
    for at, (name, shape) in enumerate(groups.items()):
        places = Together(clock)
        if shape[0] is Append:
            parts += _log_together(plans, shape, at, numbers, clock)
            told.append(name)
        else:
            # Written once to learn which places it needs, and again with the rows it then has.
            plans.rows.write(shape, places)
            rows = numbers.rows("v", _row_columns(places.types, len(places.logs)))
            sql, _ = plans.rows.write(shape, Together(clock, rows))
            parts.append(f"w{at} AS ({sql})")
        used.append((name, tuple(places.logs)))
        refusal = plans.refusal(shape, at, "NULL, NULL", "NULL")
        cases.append(f"WHEN (SELECT count(*) FROM w{at}) <> {numbers.take('bigint')} THEN {refusal}")
    seqs = "".join(f', (SELECT s FROM "lasts of {name}")' for name in told)
    sql = f"WITH {', '.join(parts)} SELECT CASE {' '.join(cases)} ELSE {clock} END{seqs}"
    return TogetherPlan(sql, tuple(used), tuple(told))


def _log_together(plans: Plans, shape: Shape, at: int, numbers: _Numbers, clock: str) -> list[str]:
    log = plans.rows.log(shape)
    places = Together(clock)
    plans.rows.head(shape, places)
    rows = numbers.rows("v", _row_columns(places.types, 0))
    head, _ = plans.rows.head(shape, Together(clock, rows))
    types = plans.rows.entry_types(shape)
    columns = [("scope", "text"), ("rev", "bigint"), ("part", "text"), ("m", "bigint")]
    source = numbers.rows("e", [*columns, *[(f"c{n}", kind) for n, kind in enumerate(types, 1)]])
    last = f'(SELECT s FROM "lasts of {log.name}")[e.m]'
    return [
        f"w{at} AS ({head})",
        f'"lasts of {log.name}" AS (SELECT array_agg("last" ORDER BY "scope", {quote(log.partition)}) AS s FROM w{at})',
        f"e{at} AS ({plans.rows.entries(shape, _EntryPlaces(clock), 'e.part', last, source)})",
    ]


def _row_columns(types: list[str], logs: int) -> list[tuple[str, str]]:
    columns = [("scope", "text"), ("rev", "bigint"), *[(f"m{n}", "bigint") for n in range(logs)]]
    return columns + [(f"c{n}", kind) for n, kind in enumerate(types, 1)]


def _columns(letter: str, count: int) -> str:
    return ", ".join(f"{letter}{n}" for n in range(1, count + 1))


def together_arguments(plan: TogetherPlan, batch: Sequence[Transaction], clock: int | None) -> tuple[Values, Ranks]:
    """The parameters of a statement for many, and where each transaction's seqs will stand among those of a log."""
    ranks: Ranks = {}
    for log in plan.logs:
        at = batch[0].lasts[log]
        order = sorted(range(len(batch)), key=lambda n, at=at: batch[n].names[at][::2])  # type: ignore[misc]
        ranks[log] = {who: rank for rank, who in enumerate(order, 1)}
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


Ranks = dict[str, dict[int, int]]


def _by_key(row: tuple[Any, int, Member]) -> Any:
    return row[0]


def _entry_arguments(batch: Sequence[Transaction], rows: list[Any], ranks: dict[int, int]) -> list[Values]:
    scopes: Values = []
    revs: Values = []
    parts: Values = []
    marks: Values = []
    columns: list[Values] = []
    for (scope, (partition,)), who, member in rows:
        count = len(member.op.entries)
        scopes += [scope] * count
        revs += [batch[who].rev] * count
        parts += [partition] * count
        marks += [ranks[who]] * count
        given = entry_columns(member.op, member.shape[3])
        if not columns:
            columns = given
        else:
            for column, more in zip(columns, given, strict=True):
                column += more
    return [scopes, revs, parts, marks, *columns]


def lock_order(schema: Schema) -> dict[str, int]:
    """Where each log and table stands in the order of locks: logs first, because others use the seqs they give."""
    return {
        name: place for place, name in enumerate([log.name for log in schema.logs] + [t.name for t in schema.tables])
    }
