"""Values as SQL text, quoted by the driver's own escaping.

A transaction is a packet of many statements, which the binary protocol cannot carry, so values are part of the text.
Sessions run with a fixed `sql_mode` without NO_BACKSLASH_ESCAPES and in utf8mb4, which is what this quoting assumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncmy.converters import escape_string

from perdure.engines.mysql.schema import names, quote


def literal(value: Any) -> str:
    """A column value or body (text, an integer, JSON bytes or NULL) as SQL; a tuple of values as a list for IN."""
    kind = type(value)
    if kind is str:
        return f"'{escape_string(value)}'"
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is bytes:
        return f"'{escape_string(value.decode())}'"
    if kind is tuple:
        return f"({literals(value)})" if value else "(NULL)"
    raise TypeError(f"{kind.__name__} is not a column value")


def literals(values: Iterable[Any]) -> str:
    """Several values, for VALUES and IN."""
    return ", ".join([literal(value) for value in values])


def insert(table: str, columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """A statement that inserts these rows; without any, its beginning."""
    values = ", ".join([f"({literals(row)})" for row in rows])
    return f"INSERT INTO {quote(table)} ({names(columns)}) VALUES {values}"


def equal(columns: Iterable[str], values: Iterable[Any]) -> str:
    """A condition: each column has its value, none of which is NULL."""
    return " AND ".join([f"{quote(c)} = {literal(v)}" for c, v in zip(columns, values, strict=True)])


def one_of(columns: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> str:
    """A condition: the columns have the values of one of the keys."""
    if len(columns) == 1:
        return f"{quote(columns[0])} IN ({literals(key[0] for key in keys)})"
    return " OR ".join([f"({equal(columns, key)})" for key in keys])
