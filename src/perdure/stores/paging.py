"""Iterates over every item of a paged list, fetching page after page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from perdure.model.page import Page

T = TypeVar("T")


async def every(fetch: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """The items of all pages; `fetch` gets the cursor of the page to read, None for the first."""
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
