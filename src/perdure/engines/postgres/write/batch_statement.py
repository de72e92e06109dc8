"""One statement for many transactions of one kind.

The operations of one shape are the rows of one CTE, made from array parameters and sorted by key, so rows are locked in
the same order as by a solo statement. (A transaction that writes one table in several shapes, some documents guarded
and some not, locks by shape and key instead. It runs solo; if it ever meets another in a circle, the deadlock ends when
it runs again step by step.) The statement only reports whether all of them happened; if not, each runs again solo.

Example: two commits, each with one entry for its thread and a changed row, become

    WITH w0 AS (INSERT INTO messages__heads … FROM unnest($2::bigint[], $3::text[], …) … RETURNING scope, thread, last),
         "lasts of messages" AS (SELECT array_agg(last ORDER BY scope, thread) AS s FROM w0),
         e0 AS (INSERT INTO messages … SELECT …, (SELECT s FROM "lasts of messages")[e.m] - e.back, …),
         w1 AS (UPDATE thread_heads … RETURNING 1)
    SELECT CASE WHEN (SELECT count(*) FROM w0) <> $9 THEN refuse(…) … ELSE clock END, (SELECT s FROM "lasts of …")

where `m` says which head is an entry's own and `back` how far it is from the last entry of its append. Columns that
hold one value in all rows (the scope, often) are plain parameters; which they are is part of the statement's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.engines.postgres.schema.clock import SERVER_CLOCK
from perdure.engines.postgres.write.binders import Binder, cast, sent_as
from perdure.engines.postgres.write.columns import BatchColumns, Constants, FilledColumns, Ranks, unpacked
from perdure.engines.postgres.write.filled_transaction import FilledTransaction
from perdure.engines.postgres.write.operation_sql import EntrySource, OperationSql
from perdure.engines.postgres.write.transaction import Transaction
from perdure.engines.sql.ddl import quote
from perdure.kernel.shapes import LogShape, SeqOf, Shape, Values

_CACHED_STATEMENTS = 1_000


class Group(NamedTuple):
    """The operations of one shape in a batch; `types` are those of its values, `logs` those whose seqs it uses."""

    shape: Shape
    types: list[str]
    logs: list[str]

    def binder(self, clock: str, source: str) -> Binder:
        """Values are columns of the row `v`; of each log, a column `m…` is the index into the array of all heads."""
        lasts = {log: f'(SELECT s FROM "lasts of {log}")[v.m{n}]' for n, log in enumerate(self.logs)}
        return Binder("v.scope", "v.rev", clock, "v.c{number}{cast}", lasts, source=source)


class BatchStatements:
    """Statements for batches, by kind."""

    def __init__(self, sql: OperationSql) -> None:
        self._sql = sql
        self._constants: dict[tuple[Shape, ...], Constants] = {}
        self._groups: dict[tuple[Shape, ...], list[Group]] = {}
        self._statements: dict[tuple[Any, ...], str] = {}

    def build(self, transactions: Sequence[Transaction], clock: int | None) -> tuple[str, Values, Ranks]:
        """The statement for transactions of one kind, its arguments, and the positions of their seqs."""
        kind = transactions[0].form.kind
        batch = BatchColumns(self._known_groups(kind), transactions)
        return (*self._statement(kind, batch, clock), batch.ranks)

    def build_filled(self, transactions: Sequence[FilledTransaction], clock: int | None) -> tuple[str, Values] | None:
        """The same for transactions of a known kind, in the order of their partitions: so are the seqs. None if a value
        cannot be packed."""
        plan = transactions[0].plan
        groups = plan.groups
        if not groups:
            groups += self._known_groups(plan.form.kind)
            plan.types += [sql_type for group in groups for sql_type in self._column_types(group)]
        batch = FilledColumns(groups, transactions)
        constants = plan.constants = batch.constants(plan.constants)
        cache_key = (constants, clock is None)
        statement = plan.batches.get(cache_key)
        if statement is None:
            statement = _build(self._sql, groups, constants, bound_clock=clock is not None, packed=True)
            plan.batches[cache_key] = statement
        arguments = batch.packed(constants, plan.types, clock)
        return None if arguments is None else (statement, arguments)

    def _column_types(self, group: Group) -> list[str]:
        """The types of all columns of a group, in their order: its rows, those of its entries, the number of rows."""
        types = [sql_type for _, sql_type in _row_columns(group)]
        if isinstance(group.shape, LogShape):
            types += [sql_type for _, sql_type in _entry_columns(self._sql.entry_types(group.shape))]
        return [*types, "bigint"]

    def _known_groups(self, kind: tuple[Shape, ...]) -> list[Group]:
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = [_group(self._sql, shape) for shape in kind]
        return groups

    def _statement(self, kind: tuple[Shape, ...], batch: BatchColumns, clock: int | None) -> tuple[str, Values]:
        groups = self._known_groups(kind)
        constants = self._constants[kind] = batch.constants(self._constants.get(kind))
        cache_key = (kind, constants, clock is None)
        statement = self._statements.get(cache_key)
        if statement is None:
            statement = _build(self._sql, groups, constants, bound_clock=clock is not None)
            if len(self._statements) >= _CACHED_STATEMENTS:
                for cache in (self._statements, self._groups, self._constants):
                    cache.clear()
            self._statements[cache_key] = statement
        return statement, batch.arguments(constants, clock)


def _group(sql: OperationSql, shape: Shape) -> Group:
    """Writes the operation once without a source, to learn which values it binds."""
    kinds = () if isinstance(shape, LogShape) else shape.columns.kinds
    logs = dict.fromkeys(kind.log for kind in kinds if isinstance(kind, SeqOf))
    group = Group(shape, [], list(logs))
    binder = group.binder("", "")
    sql.write(shape, binder)
    return group._replace(types=binder.types)


class _Parameters:
    """Numbers the parameters of a batch statement; `constants` tells arrays from plain values. Arrays are `packed` into
    one text each, or sent as arrays."""

    def __init__(self, used: int, constants: Constants, *, packed: bool) -> None:
        self.used = used
        self._constants = iter(constants)
        self._packed = packed

    def _array(self, sql_type: str) -> str:
        if not self._packed:
            return self.add(f"{sql_type}[]")
        return unpacked(self.add("text"), sql_type)

    def add(self, sql_type: str) -> str:
        self.used += 1
        return f"${self.used}::{sql_type}"

    def rows(self, alias: str, columns: Sequence[tuple[str, str]]) -> str:
        """A FROM item with these columns, from arrays and constants."""
        arrays, array_names, selected = [], [], []
        for (name, sql_type), constant in zip(columns, self._constants, strict=False):
            if constant:
                selected.append(f"{self.add(sql_type)} AS {name}")
            else:
                arrays.append(self._array(sql_type))
                array_names.append(name)
                selected.append(f"u.{name}")
        source = f"unnest({', '.join(arrays)}) AS u({', '.join(array_names)})"
        # OFFSET hides which columns are constant, or the planner might read all rows of that scope.
        return f"(SELECT {', '.join(selected)} FROM {source} OFFSET 0) AS {alias}"

    def count(self) -> str:
        """The number of rows of a group, always a plain value."""
        next(self._constants)
        return self.add("bigint")

    def group_rows(self, group: Group) -> str:
        """The rows of a group: scope, rev, an index into the seqs of each log it uses, and its values."""
        return self.rows("v", _row_columns(group))


def _row_columns(group: Group) -> list[tuple[str, str]]:
    columns = [("scope", "text"), ("rev", "bigint"), *[(f"m{n}", "bigint") for n in range(len(group.logs))]]
    return columns + [(f"c{n}", sql_type) for n, sql_type in enumerate(group.types, 1)]


def _entry_columns(types: Sequence[str]) -> list[tuple[str, str]]:
    columns = [("scope", "text"), ("rev", "bigint"), ("part", "text"), ("m", "bigint"), ("back", "bigint")]
    return columns + [(f"c{n}", sent_as(sql_type)) for n, sql_type in enumerate(types)]


def _build(
    sql: OperationSql, groups: Sequence[Group], constants: Constants, *, bound_clock: bool, packed: bool = False
) -> str:
    clock = "$1::bigint" if bound_clock else SERVER_CLOCK
    parameters = _Parameters(1 if bound_clock else 0, constants, packed=packed)
    ctes, cases, seqs = [], [], ""
    for number, group in enumerate(groups):
        binder = group.binder(clock, parameters.group_rows(group))
        write, _ = sql.write(group.shape, binder)
        ctes.append(f"w{number} AS ({write})")
        if isinstance(group.shape, LogShape):
            ctes += _entries(sql, group.shape, number, clock, parameters)
            seqs += f', (SELECT s FROM "lasts of {group.shape.owner}")'
        refusal = sql.refusal(group.shape, number, "NULL, NULL", "NULL")
        cases.append(f"WHEN (SELECT count(*) FROM w{number}) <> {parameters.count()} THEN {refusal}")
    return f"WITH {', '.join(ctes)} SELECT CASE {' '.join(cases)} ELSE {clock} END{seqs}"


def _entries(sql: OperationSql, shape: LogShape, number: int, clock: str, parameters: _Parameters) -> list[str]:
    log = sql.schema.log[shape.owner]
    types = sql.entry_types(shape)
    rows = parameters.rows("e", _entry_columns(types))
    seq = f'(SELECT s FROM "lasts of {log.name}")[e.m] - e.back'
    entries = EntrySource("e.part", seq, [f"e.c{n}{cast(sql_type)}" for n, sql_type in enumerate(types)], rows)
    order = f'"scope", {quote(log.partition)}'
    return [
        f'"lasts of {log.name}" AS (SELECT array_agg("last" ORDER BY {order}) AS s FROM w{number})',
        f"e{number} AS ({sql.entries(shape, Binder('e.scope', 'e.rev', clock), entries)})",
    ]
