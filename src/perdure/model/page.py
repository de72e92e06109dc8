"""A page of a list: the items, and the cursor that continues it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from perdure.model.public_json import item_json
from perdure.model.record import Record

T = TypeVar("T")


class Page(Record, Generic[T], frozen=True):
    """One page of a list. `for item in page` and `len(page)` are those of its items.

    A page without items is false, like an empty list. Whether more follows is what `next_cursor` says, nothing else.
    """

    items: list[T]
    """The items, in the order of the query."""
    next_cursor: str | None = None
    """Pass it back with the same query for the next page; None on the last one."""

    def __iter__(self) -> Iterator[T]:
        """The items of this page alone."""
        return iter(self.items)

    def __len__(self) -> int:
        """How many items this page has."""
        return len(self.items)

    def public_json(self) -> dict[str, Any]:
        """The same data as `to_json`, each item as its `public_json` if it has one: for the browser of a user."""
        items = [item_json(item) for item in self.items]
        return {**msgspec.structs.replace(self, items=[]).to_json(), "items": items}
