"""A page of a list: the items, and the cursor that continues it."""

from __future__ import annotations

from typing import Generic, TypeVar

from perdure.model.record import Record

T = TypeVar("T")


class Page(Record, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T]
    """The items, in the order of the query."""
    next_cursor: str | None = None
    """Pass it back with the same query for the next page; None on the last one."""
