"""The parts of a reading statement that depend on its shape: filters, keysets, and the cache that keeps statements.

A *shape* is everything about a read but its values. Arguments are collected in the order in which the terms take their
parameters, by functions that stand beside those that write the terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from perdure.engines.sql.dialect import Dialect, Marks

T = TypeVar("T")
Shape = tuple[Any, ...]

# Shapes are few in practice (stores build their reads in a handful of places); the bound is against abuse.
MAX_SHAPES = 4096


class ShapeCache(dict[Shape, T], Generic[T]):
    """Statements by shape, bounded."""

    def keep(self, shape: Shape, statement: T) -> T:
        """Remember a statement that was just built."""
        if len(self) >= MAX_SHAPES:
            self.clear()
        self[shape] = statement
        return statement


def where_shape(where: Mapping[str, Any]) -> Shape:
    """What of a filter its terms depend on."""
    return tuple((name, _kind(value)) for name, value in where.items())


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if type(value) is tuple:
        return "in or null" if None in value else "in"
    return "="


def where_terms(dialect: Dialect, where: Mapping[str, Any], marks: Marks, prefix: str = "") -> list[str]:
    """A term per filtered column: a value, any of a tuple, NULL."""
    terms = []
    for name, value in where.items():
        column, kind = prefix + dialect.quote(name), _kind(value)
        if kind == "null":
            terms.append(f"{column} IS NULL")
        elif kind == "=":
            terms.append(f"{column} = {marks.take()}")
        else:
            listed = dialect.within.format(column, marks.take())
            terms.append(f"({listed} OR {column} IS NULL)" if kind == "in or null" else listed)
    return terms


def where_arguments(dialect: Dialect, where: Mapping[str, Any]) -> list[Any]:
    """The values of a filter."""
    return [
        dialect.pack([v for v in value if v is not None]) if type(value) is tuple else value
        for value in where.values()
        if value is not None
    ]


def beyond_term(dialect: Dialect, columns: Sequence[str], marks: Marks, *, desc: bool) -> str:
    """Rows after a keyset in the order of `columns` (already quoted)."""
    way = "<" if desc else ">"
    if dialect.compares_rows:
        values = ", ".join(marks.take() for _ in columns)
        return f"({', '.join(columns)}) {way} ({values})"
    first, *rest = columns
    if not rest:
        return f"{first} {way} {marks.take()}"
    at_least, above = marks.take(), marks.take()
    return f"{first} {way}= {at_least} AND ({first} {way} {above} OR ({beyond_term(dialect, rest, marks, desc=desc)}))"


def beyond_arguments(dialect: Dialect, values: Sequence[Any]) -> list[Any]:
    """The values of a keyset, as often as its term names them."""
    if dialect.compares_rows:
        return list(values)
    return [value for value in values[:-1] for _ in range(2)] + list(values[-1:])
