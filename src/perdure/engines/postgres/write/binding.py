"""How a value is written down in SQL, which is all that the three forms of a statement differ in.

A transaction is written alone with plain parameters (`Alone`), together with others as rows of arrays (`Together`), or
as steps of `carry_out` (`Step`). Values never enter the text of a statement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

SENT_AS = {"json": "text"}
"""What travels as something else: the driver would have to ask the server what an array of JSON is, and a connection of
a caller's pool may encode JSON in its own way."""


def cast(kind: str) -> str:
    """What makes a value that was sent the value it stands for."""
    return f"::{kind}" if kind in SENT_AS else ""


class Places(ABC):
    """Writes values down in SQL and remembers their types. `source` is where they come from when they are rows (empty:
    they are parameters), `tells` what a write returns when it happened."""

    clock: str
    scope: str
    rev: str
    source = ""
    tells = "1"

    def __init__(self) -> None:
        self.types: list[str] = []

    @abstractmethod
    def take(self, kind: str) -> str:
        """The next value."""

    @abstractmethod
    def last(self, log: str) -> str:
        """The last seq that this transaction appends to a log."""


class Alone(Places):
    """Plain parameters, numbered through the whole statement."""

    scope, rev = "$1::text", "$2::bigint"

    def __init__(self, used: int, clock: str, lasts: dict[str, str]) -> None:
        super().__init__()
        self.used = used
        self.clock = clock
        self.taken = [self.scope, self.rev]
        self._lasts = lasts

    def take(self, kind: str) -> str:
        """A parameter."""
        self.used += 1
        self.taken.append(f"${self.used}::{SENT_AS.get(kind, kind)}{cast(kind)}")
        return self.taken[-1]

    def last(self, log: str) -> str:
        """From the statement that moved the head."""
        return f'(SELECT "last" FROM {self._lasts[log]})'


class Together(Places):
    """Columns of rows made from array parameters; `v` is the row, and its first columns are scope and rev."""

    scope, rev = "v.scope", "v.rev"

    def __init__(self, clock: str, source: str = "") -> None:
        super().__init__()
        self.clock = clock
        self.source = source
        self.logs: list[str] = []

    def take(self, kind: str) -> str:
        """A column of the row."""
        self.types.append(SENT_AS.get(kind, kind))
        return f"v.c{len(self.types)}{cast(kind)}"

    def last(self, log: str) -> str:
        """The row says which head is its own; `logs` lists what it has to say."""
        if log not in self.logs:
            self.logs.append(log)
        return f'(SELECT s FROM "lasts of {log}")[v.m{self.logs.index(log)}]'


class Step(Places):
    """Elements of the one array of text that `carry_out` is given."""

    scope, rev, clock = "$1", "$2", "$3"

    def __init__(self, used: int, lasts: dict[str, int], tells: str = "1") -> None:
        super().__init__()
        self.used = used
        self.tells = tells
        self._lasts = lasts

    def take(self, kind: str) -> str:
        """An element, as what it is."""
        self.used += 1
        return f"($4)[{self.used}]::{kind}"

    def last(self, log: str) -> str:
        """What an earlier step returned."""
        return f"($5)[{self._lasts[log]}]"
