"""Iterates over every item of a paged list, fetching page after page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from perdure.model.page import Page

T = TypeVar("T")


class Fetch(Protocol[T]):
    """A list method with its filters: reads the page at a cursor, None for the first."""

    async def __call__(self, *, cursor: str | None) -> Page[T]:
        """The page."""
        ...


async def every(fetch: Fetch[T]) -> AsyncIterator[T]:
    """The items of all pages."""
    cursor: str | None = None
    while True:
        page = await fetch(cursor=cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
