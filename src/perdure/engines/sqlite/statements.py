"""Writing statements, derived from the declarations and cached by shape.

A *shape* is everything about an operation but its values: which columns are set, by which kind of expression, under
which condition. It is a cheap tuple, so that the hot path looks a statement up and never builds one. Parameters are
numbered, so that an expression may use its value twice. Values never enter the text of a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from perdure.engines.sqlite.layout import names, quote
from perdure.kernel.ops import ABSENT, AtMost, Condition, Inc, Max, Min, Now, Rule, Seq, Swap
from perdure.kernel.schema import Log, Schema, Table

# Shapes are few in practice (stores build their operations in a handful of places); the bound is against abuse.
SHAPES_KEPT = 4096

Shape = tuple[Any, ...]

_ASSIGN: dict[type, Callable[[str, int], str]] = {
    Inc: lambda c, n: f"ifnull({c}, 0) + ?{n}",
    Max: lambda c, n: f"max(ifnull({c}, ?{n}), ?{n})",
    Min: lambda c, n: f"min(ifnull({c}, ?{n}), ?{n})",
    Swap: lambda c, n: f"CASE WHEN {c} IS ?{n} THEN ?{n + 1} ELSE {c} END",
}


class Numbers:
    """Hands out parameter numbers in the order in which arguments are collected."""

    def __init__(self) -> None:
        self.last = 0

    def take(self, count: int = 1) -> int:
        """The first of the next `count` numbers."""
        first = self.last + 1
        self.last += count
        return first


class TableStatements:
    """Every writing statement of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.columns = table.column_names
        self.groups = table.unique
        self._name = quote(table.name)
        self._shapes: dict[Shape, str] = {}
        width = 1 + len(table.key)
        every = ("scope", *table.key_names, *table.column_names, "rev", "body")
        values = ", ".join(f"?{n}" for n in range(1, len(every)))
        insert = f"INSERT INTO {self._name} ({names(every)}) VALUES ({values}, CAST(?{len(every)} AS TEXT))"
        at_key = f"ON CONFLICT ({names(every[:width])})"
        upsert = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in every[width:])
        self.insert = insert
        self.put_any = f"{insert} {at_key} DO UPDATE SET {upsert}"
        self.put_absent = f"{insert} {at_key} DO NOTHING"
        plain = [f"{quote(c)} = ?{n}" for n, c in enumerate(every[width:-1], width + 1)]
        replace = ", ".join([*plain, f'"body" = CAST(?{len(every)} AS TEXT)'])
        key = " AND ".join(f"{quote(c)} = ?{n}" for n, c in enumerate(every[:width], 1))
        self.put_present = f"UPDATE {self._name} SET {replace} WHERE {key}"
        self.put_rev = f'{self.put_present} AND "rev" = ?{len(every) + 1}'
        self.owner = {group: self._owner(group) for group in table.unique}

    def _owner(self, group: tuple[str, ...]) -> str:
        taken = " AND ".join(f"{quote(c)} = ?" for c in ("scope", *group))
        return f"SELECT {names(self.table.key_names)} FROM {self._name} WHERE {taken}"

    def patch(self, assigned: dict[str, Any], has_body: bool, condition: Condition) -> str:
        """`UPDATE`; arguments are the assigned values, the body if there is one, rev, scope, key, condition."""
        shape = ("patch", has_body, *assigned, *map(type, assigned.values()), *condition_shape(condition))
        return self._shapes.get(shape) or self._keep(shape, self._patch(assigned, has_body, condition))

    def delete(self, condition: Condition) -> str:
        """`DELETE`; arguments are scope, key, condition."""
        shape = ("delete", *condition_shape(condition))
        return self._shapes.get(shape) or self._keep(
            shape, f"DELETE FROM {self._name} WHERE {self._where(Numbers(), condition)}"
        )

    def check(self, condition: Condition) -> str:
        """`SELECT 1` if the row meets the condition; arguments are scope, key, condition."""
        shape = ("check", *condition_shape(condition))
        return self._shapes.get(shape) or self._keep(
            shape, f"SELECT 1 FROM {self._name} WHERE {self._where(Numbers(), condition)}"
        )

    def _keep(self, shape: Shape, sql: str) -> str:
        if len(self._shapes) >= SHAPES_KEPT:
            self._shapes.clear()
        self._shapes[shape] = sql
        return sql

    def _patch(self, assigned: dict[str, Any], has_body: bool, condition: Condition) -> str:
        numbers = Numbers()
        parts = []
        for name, value in assigned.items():
            assign = _ASSIGN.get(type(value))
            first = numbers.take(2 if type(value) is Swap else 1)
            parts.append(f"{quote(name)} = {assign(quote(name), first) if assign else f'?{first}'}")
        if has_body:
            parts.append(f'"body" = CAST(?{numbers.take()} AS TEXT)')
        parts.append(f'"rev" = ?{numbers.take()}')
        return f"UPDATE {self._name} SET {', '.join(parts)} WHERE {self._where(numbers, condition)}"

    def _where(self, numbers: Numbers, condition: Condition) -> str:
        key = [f"{quote(c)} = ?{numbers.take()}" for c in ("scope", *self.table.key_names)]
        return " AND ".join([*key, *_condition_terms(condition, numbers)])


class LogStatements:
    """Every writing statement of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        name, partition = quote(log.name), quote(log.partition)
        every = ("scope", log.partition, "seq", "rev", *log.column_names, "body")
        # Bodies arrive as UTF-8 bytes; the cast only relabels them, so that the file holds readable text.
        values = "?, " * (len(every) - 1) + "CAST(? AS TEXT)"
        self.append = f"INSERT INTO {name} ({names(every)}) VALUES ({values})"
        self.head = f'SELECT max("seq") FROM {name} WHERE "scope" = ? AND {partition} = ?'
        self.drop = f'DELETE FROM {name} WHERE "scope" = ? AND {partition} = ?'
        self.unique = tuple((column, log.position[column], self._taken(column)) for column in log.unique)

    def _taken(self, column: str) -> str:
        where = " AND ".join(f"{quote(c)} = ?" for c in ("scope", column, self.log.partition))
        return f"SELECT 1 FROM {quote(self.log.name)} WHERE {where}"


class Statements:
    """The statements of a whole schema."""

    def __init__(self, schema: Schema) -> None:
        self.tables = {table.name: TableStatements(table) for table in schema.tables}
        self.logs = {log.name: LogStatements(log) for log in schema.logs}


def condition_shape(condition: Condition) -> Iterable[Any]:
    """What of a condition its statement depends on."""
    if type(condition) is dict:
        # The marker keeps the names apart from the assigned ones before them.
        return (dict, *condition, *[type(v) is AtMost for v in condition.values()])
    if isinstance(condition, Rule):
        return (condition is ABSENT,)
    return (int,)


def condition_arguments(condition: Condition) -> list[Any]:
    """The values of a condition, in the order of its parameters."""
    if type(condition) is dict:
        return [v.limit if type(v) is AtMost else v for v in condition.values()]
    return [] if isinstance(condition, Rule) else [condition]


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


def assigned_arguments(assigned: dict[str, Any], now: int, seqs: dict[tuple[str, str], int]) -> list[Any]:
    """The values of a patch, in the order of its parameters."""
    arguments: list[Any] = []
    for value in assigned.values():
        kind = type(value)
        if kind is str or kind is int or value is None:
            arguments.append(value)
        elif kind is Swap:
            arguments += (value.old, value.new)
        elif kind is Inc:
            arguments.append(value.by)
        elif kind is Max or kind is Min:
            arguments.append(value.value)
        else:
            arguments.append(plain(value, now, seqs))
    return arguments


def plain(value: Any, now: int, seqs: dict[tuple[str, str], int]) -> Any:
    """`Now` and `Seq` as numbers; anything else as it is."""
    if type(value) is Now:
        return now + value.plus
    if type(value) is Seq:
        return next(seq for (log, _), seq in seqs.items() if log == value.log) - value.back
    return value
