"""Binders write values into SQL; they are all that the three forms of a statement differ in.

A transaction runs solo with plain parameters (`SoloBinder`), in a batch as rows of array parameters (`BatchBinder`), or
as steps of `run_steps` (`StepBinder`). Values never enter the text of a statement. The second key column of a row, for
example, is `$4::bigint`, `v.c2` or `($4)[7]::bigint`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

SENT_AS = {"json": "text"}
"""Types that are sent as another: the driver would have to ask the server what an array of JSON is, and a connection of
a caller's pool may encode JSON differently."""


def sent_as(sql_type: str) -> str:
    """The type of the parameter that carries a value of `sql_type`."""
    return SENT_AS.get(sql_type, sql_type)


def cast(sql_type: str) -> str:
    """The cast from the type sent to `sql_type`; empty when they are the same."""
    return f"::{sql_type}" if sql_type in SENT_AS else ""


class Binder(ABC):
    """Writes the values of operations into SQL, one after the other. `source` is the FROM item that holds them when
    they are rows; empty when they are parameters."""

    clock: str
    scope: str
    rev: str
    source = ""

    @abstractmethod
    def bind(self, sql_type: str) -> str:
        """The next value, as an SQL expression."""

    @abstractmethod
    def last(self, log: str) -> str:
        """The last seq that this transaction appends to a log."""


class SoloBinder(Binder):
    """Plain parameters, numbered through the whole statement."""

    scope, rev = "$1::text", "$2::bigint"

    def __init__(self, used: int, clock: str, heads: dict[str, str]) -> None:
        self.used = used
        self.clock = clock
        self.bound = [self.scope, self.rev]
        self._heads = heads

    def bind(self, sql_type: str) -> str:
        """A parameter."""
        self.used += 1
        self.bound.append(f"${self.used}::{sent_as(sql_type)}{cast(sql_type)}")
        return self.bound[-1]

    def last(self, log: str) -> str:
        """From the CTE that moved the head."""
        return f'(SELECT "last" FROM {self._heads[log]})'


class BatchBinder(Binder):
    """Columns of rows made from array parameters; `v` is the row, and its first columns are scope and rev. `types` and
    `logs` collect what the rows have to hold."""

    scope, rev = "v.scope", "v.rev"

    def __init__(self, clock: str = "", source: str = "") -> None:
        self.clock = clock
        self.source = source
        self.types: list[str] = []
        self.logs: list[str] = []

    def bind(self, sql_type: str) -> str:
        """A column of the row."""
        self.types.append(sent_as(sql_type))
        return f"v.c{len(self.types)}{cast(sql_type)}"

    def last(self, log: str) -> str:
        """From the array of all heads; a column of the row holds the index into it."""
        if log not in self.logs:
            self.logs.append(log)
        return f'(SELECT s FROM "lasts of {log}")[v.m{self.logs.index(log)}]'


class StepBinder(Binder):
    """Elements of the one array of text that `run_steps` takes."""

    scope, rev, clock = "$1", "$2", "$3"

    def __init__(self, used: int, heads: dict[str, int]) -> None:
        self.used = used
        self._heads = heads

    def bind(self, sql_type: str) -> str:
        """An element, cast to its type."""
        self.used += 1
        return f"($4)[{self.used}]::{sql_type}"

    def last(self, log: str) -> str:
        """What an earlier step returned."""
        return f"($5)[{self._heads[log]}]"
