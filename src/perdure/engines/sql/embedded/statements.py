"""Writing statements, derived from the declarations and cached by shape.

A *shape* is everything about an operation but its values: which columns it sets, by which kind of expression, under
which condition. It is a cheap tuple, so the hot path looks a plan up and never builds a statement. Parameters are
numbered, because an expression may use its value twice. Values never enter the text of a statement.

    Patch("runs", ("r",), {"steps": Inc(1)}, {"status": "running"})

has the shape `(True, "steps", Inc, dict, "status", str)` and the statement

    UPDATE "runs" SET "steps" = coalesce("steps", 0) + ?1, "rev" = ?2
     WHERE "scope" = ?3 AND "run" = ?4 AND "status" IS ?5 AND typeof("steps") IN (…)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from perdure.engines.sql.ddl import names, quote
from perdure.engines.sql.embedded.read import SQLITE_CLOCK
from perdure.engines.sql.expressions import Operators, Parameter, assignment, condition_terms
from perdure.engines.sql.terms import Shape, ShapeCache
from perdure.kernel.ops import ABSENT, ANY, PRESENT, Condition, Inc, Max, Min, Now, Patch, Presence, Seq, Swap
from perdure.kernel.schema import Log, Schema, Table
from perdure.kernel.semantics import bound_at

Getter = Callable[[Any], Any]

_OPERATORS = Operators("max(ifnull({0}, {1}), {1})", "min(ifnull({0}, {1}), {1})", "{0} IS {1}")
ARITHMETIC = frozenset((Inc, Max, Min))
"""Expressions that compute with what a column holds."""


class Moment:
    """What `Now` and `Seq` mean in the current transaction."""

    __slots__ = ("last", "now")

    def __init__(self) -> None:
        self.now = 0
        self.last: dict[str, int] = {}

    def time(self, value: Now) -> int:
        """The clock plus an offset."""
        return self.now + value.plus

    def bound(self, value: Max | Min) -> int:
        """The bound of an expression."""
        return bound_at(value.value, self.now)

    def seq(self, value: Seq) -> int:
        """The last seq appended to a log."""
        return self.last[value.log] - value.back

    def resolve(self, value: Any) -> Any:
        """`Now` and `Seq` as numbers; anything else as it is."""
        if type(value) is Now:
            return self.time(value)
        return self.seq(value) if type(value) is Seq else value


class PatchPlan(NamedTuple):
    """How to run a `Patch` of one shape.

    The arguments are the assigned values, then the new values of swaps, the body if there is one, rev, scope, key and
    condition. `getters` pairs the position of an expression with the function that extracts its value.
    """

    sql: str
    getters: tuple[tuple[int, Getter], ...]
    swaps: bool


class UniqueColumn(NamedTuple):
    """A unique column of a log: its position in an entry, and the statement that looks for another owner."""

    name: str
    position: int
    owner: str


class TableStatements:
    """Every writing statement of one table."""

    def __init__(self, table: Table, moment: Moment) -> None:
        self.table = table
        self.columns = table.column_names
        self.patches: ShapeCache[PatchPlan] = ShapeCache()
        self._getters: dict[type, Getter] = {
            Inc: attrgetter("by"),
            Max: moment.bound,
            Min: moment.bound,
            Swap: attrgetter("old"),
            Now: moment.time,
            Seq: moment.seq,
        }
        self._conditional: ShapeCache[str] = ShapeCache()
        self._name = quote(table.stored)
        width = 1 + len(table.key)
        every = ("scope", *table.key_names, *table.column_names, "rev", "body")
        values = ", ".join(f"?{n}" for n in range(1, len(every) + 1))
        self.insert = insert = f"INSERT INTO {self._name} ({names(every)}) VALUES ({values})"
        at_key = f"ON CONFLICT ({names(every[:width])})"
        upsert = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in every[width:])
        replace = ", ".join(f"{quote(c)} = ?{n}" for n, c in enumerate(every[width:], width + 1))
        key = " AND ".join(f"{quote(c)} = ?{n}" for n, c in enumerate(every[:width], 1))
        update = f"UPDATE {self._name} SET {replace} WHERE {key}"
        self.puts: dict[Presence | type, str] = {
            ANY: f"{insert} {at_key} DO UPDATE SET {upsert}",
            ABSENT: f"{insert} {at_key} DO NOTHING",
            PRESENT: update,
            int: f'{update} AND "rev" = ?{len(every) + 1}',
        }
        """How to write a whole row, by its condition; `int` for a rev, which is the last argument."""

    def put(self, condition: Condition) -> str:
        """How to write a whole row; its arguments are scope, key, columns, rev, body, condition."""
        return self.puts[condition if isinstance(condition, Presence) else int]

    def patch(self, op: Patch) -> PatchPlan:
        """How to run a patch."""
        assigned, condition, body = op.set, op.if_, op.body
        shape = (body is None, *assigned, *map(type, assigned.values()), *condition_shape(condition))
        return self.patches.get(shape) or self._plan_patch(shape, assigned, condition, body=body is not None)

    def _plan_patch(self, shape: Shape, assigned: dict[str, Any], condition: Condition, *, body: bool) -> PatchPlan:
        """Build and cache the plan of a new shape."""
        parameter = _numbered()
        kinds = [type(value) for value in assigned.values()]
        columns = [quote(name) for name in assigned]
        first = [parameter() for _ in kinds]
        second = [parameter() if kind is Swap else "" for kind in kinds]
        parts = [
            f"{column} = {_assignment(kind, column, pair)}"
            for column, kind, *pair in zip(columns, kinds, first, second, strict=True)
        ]
        if body:
            parts.append(f'"body" = {parameter()}')
        parts.append(f'"rev" = {parameter()}')
        terms = [self._where(parameter, condition)]
        # SQLite would take text for 0. `Session._not_patched` reports a row that this term leaves out.
        terms += [
            f"typeof({column}) IN ('integer', 'null')"
            for column, kind in zip(columns, kinds, strict=True)
            if kind in ARITHMETIC
        ]
        sql = f"UPDATE {self._name} SET {', '.join(parts)} WHERE {' AND '.join(terms)}"
        getters = tuple((position, self._getters[kind]) for position, kind in enumerate(kinds) if kind in self._getters)
        return self.patches.keep(shape, PatchPlan(sql, getters, Swap in kinds))

    def conditional(self, verb: str, condition: Condition) -> str:
        """`DELETE` or `SELECT 1` of a row that meets the condition; arguments are scope, key, condition."""
        shape = (verb, *condition_shape(condition))
        return self._conditional.get(shape) or self._conditional.keep(
            shape, f"{verb} FROM {self._name} WHERE {self._where(_numbered(), condition)}"
        )

    def _where(self, parameter: Parameter, condition: Condition) -> str:
        key = [f"{quote(c)} = {parameter()}" for c in ("scope", *self.table.key_names)]
        return " AND ".join([*key, *condition_terms(condition, quote, parameter, _OPERATORS, never="0")])


class LogStatements:
    """Every writing statement of one log."""

    def __init__(self, log: Log) -> None:
        name, partition = quote(log.stored), quote(log.partition)
        every = ("scope", log.partition, "seq", "rev", *log.column_names, "body")
        self.append = f"INSERT INTO {name} ({names(every)}) VALUES ({', '.join('?' * len(every))})"
        self.head = f'SELECT max("seq") FROM {name} WHERE "scope" = ? AND {partition} = ?'
        self.head_and_time = f"SELECT ({self.head}), {SQLITE_CLOCK}"
        self.drop = f'DELETE FROM {name} WHERE "scope" = ? AND {partition} = ? AND "seq" > ?'
        self.trim = f'DELETE FROM {name} WHERE "scope" = ? AND {partition} = ? AND "seq" <= ?'
        self.first = f'SELECT min("seq") FROM {name} WHERE "scope" = ? AND {partition} = ?'
        # Entries before the refused one are already in, with the rev of this transaction.
        owner = f'SELECT 1 FROM {name} WHERE "scope" = ? AND {partition} = ? AND "rev" <> ?'
        self.unique = [UniqueColumn(c, log.positions[c], f"{owner} AND {quote(c)} = ?") for c in log.unique]


class Statements:
    """The statements of a whole schema."""

    def __init__(self, schema: Schema) -> None:
        self.moment = Moment()
        self.tables = {table.name: TableStatements(table, self.moment) for table in schema.tables}
        self.logs = {log.name: LogStatements(log) for log in schema.logs}


def condition_shape(condition: Condition) -> Shape:
    """What of a condition its statement depends on; empty for ANY."""
    if type(condition) is dict:
        # `dict` keeps these names and types apart from the part of the shape before them.
        return (dict, *condition, *map(type, condition.values()))
    if condition is ANY:
        return ()
    return (condition is ABSENT,) if isinstance(condition, Presence) else (int,)


def _assignment(kind: type, column: str, parameters: list[str]) -> str:
    # `Now` and `Seq` are bound as plain numbers.
    return assignment(int if kind in (Now, Seq) else kind, column, iter(parameters).__next__, "", _OPERATORS)


def _numbered() -> Parameter:
    """A source of parameters: ?1, ?2, …"""
    return map("?{}".format, count(1)).__next__
