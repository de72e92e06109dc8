"""`Threads`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.threads`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from perdure import limits
from perdure.model.page import Page
from perdure.model.thread import Thread, ThreadOptions
from perdure.model.unset import UNSET, Unset
from perdure.stores import threads as async_threads
from perdure.stores.thread_lists import Order
from perdure.stores.threads import Strategy, ThreadRecords
from perdure.sync.face import Face

# fmt: off


class Threads(Face[async_threads.Threads], of=async_threads.Threads):
    """`store.threads`, blocking."""

    def create(self, thread_id: str | None = None, **options: Unpack[ThreadOptions]) -> Thread:
        """Create a thread; raises `AlreadyExists` if the id is taken, `NotFoundError` if the parent is missing."""
        return self._driver.run(self._inner.create(thread_id, **options))

    def ensure(self, thread_id: str, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of concurrent callers, one creates it."""
        return self._driver.run(self._inner.ensure(thread_id, **options))

    def find(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """The thread, or None. With `resource_id`, only a thread that belongs to this resource."""
        return self._driver.read(self._inner.find(thread_id, resource_id=resource_id))

    def get(self, thread_id: str, *, resource_id: str | None = None) -> Thread:
        """The thread; raises `NotFoundError`. With `resource_id`, also for a thread of another resource."""
        return self._driver.read(self._inner.get(thread_id, resource_id=resource_id))

    def update(
        self, thread_id: str, *, title: str | Unset | None = UNSET, custom: dict[str, Any] | Unset | None = UNSET,
        resource_id: str | Unset | None = UNSET, parent_thread_id: str | Unset | None = UNSET,
        if_rev: int | None = None
    ) -> Thread:
        """Change the fields that are passed and leave the rest; `custom` replaces the whole object, None clears."""
        return self._driver.run(self._inner.update(
            thread_id, title=title, custom=custom, resource_id=resource_id, parent_thread_id=parent_thread_id,
            if_rev=if_rev
        ))

    def delete(self, thread_id: str, *, strategy: Strategy = "detach") -> None:
        """Delete a thread and all that belongs to it."""
        return self._driver.run(self._inner.delete(thread_id, strategy=strategy))

    def list(
        self, *, resource_id: str | None = None, parent_thread_id: str | None = None, root: bool = False,
        order: Order = "active", limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Thread]:
        """Threads, newest first by activity (or creation), all or those of a resource, a parent, or the roots."""
        return self._driver.read(self._inner.list(
            resource_id=resource_id, parent_thread_id=parent_thread_id, root=root, order=order, limit=limit,
            cursor=cursor
        ))

    def iter(
        self, *, resource_id: str | None = None, parent_thread_id: str | None = None, root: bool = False,
        order: Order = "active"
    ) -> Iterator[Thread]:
        """Every thread of the list, page by page."""
        return self._driver.iterate(self._inner.iter(
            resource_id=resource_id, parent_thread_id=parent_thread_id, root=root, order=order
        ))

    def children(
        self, thread_id: str, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Thread]:
        """The direct children of a thread, newest activity first; raises `NotFoundError` if it does not exist."""
        return self._driver.read(self._inner.children(thread_id, limit=limit, cursor=cursor))

    def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> ThreadRecords:
        """The threads whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200)."""
        return self._driver.read(self._inner.with_prefix(prefix, limit=limit))

    def validate_parent(self, thread_id: str, parent_thread_id: str | None) -> None:
        """Check a parent and write nothing: raises `InvalidError` (a cycle) or `NotFoundError` (missing, damaged)."""
        return self._driver.read(self._inner.validate_parent(thread_id, parent_thread_id))
