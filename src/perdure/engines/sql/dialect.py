"""How one database's SQL differs from another's, as data: all that the shared statements need to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec


class Dialect(msgspec.Struct, frozen=True):
    """The differences.

    `mark` writes the n-th parameter (from 1). `within` is "the column {0} is one of the values of the parameter
    {1}", and `pack` makes one argument of those values. `hint` names the index {0} behind a table. `body` reads the
    column {0} of a body. `primary` is the name of every primary index, where a hint can name it. `compares_rows`
    says whether `(a, b) > (x, y)` walks an index; where it does not, it is written out.
    `limit` writes how many rows are wanted at most, {0}. `walk`, if not empty, ends a subquery so that it stays one:
    there the rows of an index are walked first and filtered by other columns afterwards.
    """

    mark: Callable[[int], str]
    within: str
    pack: Callable[[list[Any]], Any]
    quotes: str = '"'
    hint: str = ""
    primary: str = ""
    body: str = "{0}"
    compares_rows: bool = True
    limit: str = "{0}"
    walk: str = ""

    def quote(self, name: str) -> str:
        """A name as an identifier."""
        return _quoted(name, self.quotes)

    def names(self, columns: Iterable[str]) -> str:
        """Names as a column list."""
        return ", ".join(map(self.quote, columns))

    def hinted(self, table: str, index: str) -> str:
        """A table (already quoted) with the index that must be used, where the dialect can say so."""
        return table + self.hint.format(self.quote(index)) if self.hint else table


@lru_cache(maxsize=1024)
def _quoted(name: str, quotes: str) -> str:
    return quotes + name.replace(quotes, quotes * 2) + quotes


class Marks:
    """Hands out parameters in the order in which arguments are collected."""

    def __init__(self, dialect: Dialect, used: int = 0) -> None:
        self._mark = dialect.mark
        self.last = used

    def take(self) -> str:
        """The next parameter."""
        self.last += 1
        return self._mark(self.last)

    def bound(self, value: Any) -> str:
        """The next parameter, as the bound of a range."""
        return self.take()

    def scope(self) -> str:
        """The parameter that holds the scope. Dialects with numbered parameters may name the same one every time."""
        return self.take()
