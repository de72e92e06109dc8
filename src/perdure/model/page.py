"""A page of a list: the items, and the cursor that continues it."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """`next_cursor` is None on the last page; otherwise pass it back with the same query."""

    items: list[T]
    next_cursor: str | None = None
