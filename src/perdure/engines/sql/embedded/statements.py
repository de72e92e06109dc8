"""Writing statements, derived from the declarations and cached by shape.

A *shape* is everything about an operation but its values: which columns are set, by which kind of expression, under
which condition. It is a cheap tuple, so that the hot path looks a plan up and never builds a statement. Parameters are
numbered, so that an expression may use its value twice. Values never enter the text of a statement.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from perdure.engines.sql.embedded.schema import names, quote
from perdure.kernel.ops import ABSENT, ANY, AtMost, Condition, Inc, Max, Min, Now, Rule, Seq, Swap
from perdure.kernel.schema import Log, Schema, Table

# Shapes are few in practice (stores build their operations in a handful of places); the bound is against abuse.
SHAPES_KEPT = 4096

Shape = tuple[Any, ...]
Getter = Callable[[Any], Any]

_ASSIGN: dict[type, Callable[[str, int], str]] = {
    Inc: lambda c, n: f"ifnull({c}, 0) + ?{n}",
    Max: lambda c, n: f"max(ifnull({c}, ?{n}), ?{n})",
    Min: lambda c, n: f"min(ifnull({c}, ?{n}), ?{n})",
}

COMPUTED = frozenset(_ASSIGN)
"""Expressions that compute with what a column holds."""


class Moment:
    """What `Now` and `Seq` mean in the transaction at hand."""

    __slots__ = ("last", "now")

    def __init__(self) -> None:
        self.now = 0
        self.last: dict[str, int] = {}

    def time(self, value: Now) -> int:
        """The clock plus an offset."""
        return self.now + value.plus

    def seq(self, value: Seq) -> int:
        """The last seq appended to a log."""
        return self.last[value.log] - value.back

    def plain(self, value: Any) -> Any:
        """`Now` and `Seq` as numbers; anything else as it is."""
        kind = type(value)
        if kind is Now:
            return self.now + value.plus
        return self.seq(value) if kind is Seq else value


class PatchPlan:
    """How to run a `Patch` of one shape. Its arguments are the assigned values (an expression's by its getter), then
    the new values of swaps, the body if there is one, rev, scope, key, condition."""

    __slots__ = ("getters", "sql", "swaps")

    def __init__(self, sql: str, getters: tuple[tuple[int, Getter], ...], *, swaps: bool) -> None:
        self.sql = sql
        self.getters = getters
        self.swaps = swaps


class Numbers:
    """Hands out parameter numbers in the order in which arguments are collected."""

    def __init__(self) -> None:
        self.last = 0

    def take(self) -> int:
        """The next number."""
        self.last += 1
        return self.last


class TableStatements:
    """Every writing statement of one table."""

    def __init__(self, table: Table, moment: Moment) -> None:
        self.table = table
        self.columns = table.column_names
        self.groups = table.unique
        self.patches: dict[Shape, PatchPlan] = {}
        self._getters: dict[type, Getter] = {
            Inc: attrgetter("by"),
            Max: attrgetter("value"),
            Min: attrgetter("value"),
            Swap: attrgetter("old"),
            Now: moment.time,
            Seq: moment.seq,
        }
        self._conditional: dict[Shape, str] = {}
        self._name = quote(table.name)
        width = 1 + len(table.key)
        every = ("scope", *table.key_names, *table.column_names, "rev", "body")
        values = ", ".join(f"?{n}" for n in range(1, len(every) + 1))
        insert = f"INSERT INTO {self._name} ({names(every)}) VALUES ({values})"
        at_key = f"ON CONFLICT ({names(every[:width])})"
        upsert = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in every[width:])
        self.insert = insert
        self.put_any = f"{insert} {at_key} DO UPDATE SET {upsert}"
        self.put_absent = f"{insert} {at_key} DO NOTHING"
        replace = ", ".join(f"{quote(c)} = ?{n}" for n, c in enumerate(every[width:], width + 1))
        key = " AND ".join(f"{quote(c)} = ?{n}" for n, c in enumerate(every[:width], 1))
        self.put_present = f"UPDATE {self._name} SET {replace} WHERE {key}"
        self.put_rev = f'{self.put_present} AND "rev" = ?{len(every) + 1}'
        self.owner = {group: self._owner(group) for group in table.unique}

    def _owner(self, group: tuple[str, ...]) -> str:
        taken = " AND ".join(f"{quote(c)} = ?" for c in ("scope", *group))
        return f"SELECT {names(self.table.key_names)} FROM {self._name} WHERE {taken}"

    def plan_patch(self, shape: Shape, assigned: dict[str, Any], condition: Condition, *, body: bool) -> PatchPlan:
        """Build and keep the plan of a shape that was not met before."""
        numbers = Numbers()
        kinds = [type(value) for value in assigned.values()]
        first = [numbers.take() for _ in assigned]
        new = [numbers.take() if kind is Swap else 0 for kind in kinds]
        parts = [
            f"{quote(name)} = {_assign(quote(name), kind, n, m)}"
            for name, kind, n, m in zip(assigned, kinds, first, new, strict=True)
        ]
        if body:
            parts.append(f'"body" = ?{numbers.take()}')
        parts.append(f'"rev" = ?{numbers.take()}')
        where = [self._where(numbers, condition)]
        # SQLite would take text for 0. A row that is left out for this is told apart in `Session._not_patched`.
        where += [
            f"typeof({quote(name)}) IN ('integer', 'null')"
            for name, kind in zip(assigned, kinds, strict=True)
            if kind in _ASSIGN
        ]
        sql = f"UPDATE {self._name} SET {', '.join(parts)} WHERE {' AND '.join(where)}"
        getters = tuple((place, self._getters[kind]) for place, kind in enumerate(kinds) if kind in self._getters)
        plan = PatchPlan(sql, getters, swaps=Swap in kinds)
        if len(self.patches) >= SHAPES_KEPT:
            self.patches.clear()
        self.patches[shape] = plan
        return plan

    def delete(self, condition: Condition) -> str:
        """`DELETE`; arguments are scope, key, condition."""
        return self._conditioned("DELETE", condition)

    def check(self, condition: Condition) -> str:
        """`SELECT 1` if the row meets the condition; arguments are scope, key, condition."""
        return self._conditioned("SELECT 1", condition)

    def _conditioned(self, verb: str, condition: Condition) -> str:
        shape = (verb, *condition_shape(condition))
        sql = self._conditional.get(shape)
        if sql is None:
            if len(self._conditional) >= SHAPES_KEPT:
                self._conditional.clear()
            sql = f"{verb} FROM {self._name} WHERE {self._where(Numbers(), condition)}"
            self._conditional[shape] = sql
        return sql

    def _where(self, numbers: Numbers, condition: Condition) -> str:
        key = [f"{quote(c)} = ?{numbers.take()}" for c in ("scope", *self.table.key_names)]
        return " AND ".join([*key, *_condition_terms(condition, numbers)])


class LogStatements:
    """Every writing statement of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        name, partition = quote(log.name), quote(log.partition)
        every = ("scope", log.partition, "seq", "rev", *log.column_names, "body")
        self.append = f"INSERT INTO {name} ({names(every)}) VALUES ({', '.join('?' * len(every))})"
        self.head = f'SELECT max("seq") FROM {name} WHERE "scope" = ? AND {partition} = ?'
        self.drop = f'DELETE FROM {name} WHERE "scope" = ? AND {partition} = ? AND "seq" > ?'
        self.unique = tuple((column, log.position[column], self._taken(column)) for column in log.unique)

    def _taken(self, column: str) -> str:
        where = " AND ".join(f"{quote(c)} = ?" for c in ("scope", column, self.log.partition))
        # Entries before the refused one are already in; the transaction's own rev tells them from others'.
        return f'SELECT 1 FROM {quote(self.log.name)} WHERE {where} AND "rev" <> ?'


class Statements:
    """The statements of a whole schema."""

    def __init__(self, schema: Schema) -> None:
        self.moment = Moment()
        self.tables = {table.name: TableStatements(table, self.moment) for table in schema.tables}
        self.logs = {log.name: LogStatements(log) for log in schema.logs}


def condition_shape(condition: Condition) -> Shape:
    """What of a condition its statement depends on; empty for ANY."""
    if type(condition) is dict:
        # `dict` keeps these names and types apart from whatever stands before them.
        return (dict, *condition, *map(type, condition.values()))
    if condition is ANY:
        return ()
    return (condition is ABSENT,) if isinstance(condition, Rule) else (int,)


def condition_arguments(condition: Condition) -> list[Any]:
    """The values of a condition, in the order of its parameters."""
    if type(condition) is dict:
        return [v.limit if type(v) is AtMost else v for v in condition.values()]
    return [] if isinstance(condition, Rule) else [condition]


def _assign(column: str, kind: type, first: int, new: int) -> str:
    if kind is Swap:
        return f"CASE WHEN {column} IS ?{first} THEN ?{new} ELSE {column} END"
    assign = _ASSIGN.get(kind)
    return assign(column, first) if assign is not None else f"?{first}"


def _condition_terms(condition: Condition, numbers: Numbers) -> list[str]:
    if isinstance(condition, Rule):
        return ["0"] if condition is ABSENT else []
    if not isinstance(condition, dict):
        return [f'"rev" = ?{numbers.take()}']
    return [
        f"({quote(name)} IS NULL OR {quote(name)} <= ?{numbers.take()})"
        if type(value) is AtMost
        else f"{quote(name)} IS ?{numbers.take()}"
        for name, value in condition.items()
    ]
