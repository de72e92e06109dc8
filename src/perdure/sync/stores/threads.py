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
from perdure.sync.driver import Driver

# fmt: off


class Threads:
    """`store.threads`, blocking."""

    def __init__(self, inner: async_threads.Threads, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def create(self, thread_id: str | None = None, **options: Unpack[ThreadOptions]) -> Thread:
        """Make a new thread; raises `AlreadyExists` if the id is taken, `NotFoundError` if the parent is missing.

        - `thread_id`: its id; minted if None.
        - `title`: what people call it.
        - `resource_id`: the user, account or object it belongs to.
        - `parent_thread_id`: the thread above it in the hierarchy; it must exist.
        - `custom`: your own metadata, a JSON object.
        """
        return self._driver.run(self._inner.create(thread_id, **options))

    def ensure(self, thread_id: str, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of callers at the same time, one creates it.

        The options are those of `create`, and count only if this call creates the thread: one that exists is returned
        as it is. Raises `AlreadyExists` while a deleted thread of this id is being erased.
        """
        return self._driver.run(self._inner.ensure(thread_id, **options))

    def find(self, thread_id: str) -> Thread | None:
        """The thread, or None."""
        return self._driver.read(self._inner.find(thread_id))

    def get(self, thread_id: str) -> Thread:
        """The thread; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id))

    def update(
        self, thread_id: str, *, title: str | Unset | None = UNSET, custom: dict[str, Any] | Unset | None = UNSET,
        resource_id: str | Unset | None = UNSET, parent_thread_id: str | Unset | None = UNSET,
        if_rev: int | None = None
    ) -> Thread:
        """Change what is given and leave the rest; `custom` replaces the whole object, None clears.

        With `if_rev`, raises `VersionConflict` unless the thread still has that `rev`. What commits move (version,
        branch, runs, children) is returned as this call found it, just before the change.
        """
        return self._driver.run(self._inner.update(
            thread_id, title=title, custom=custom, resource_id=resource_id, parent_thread_id=parent_thread_id,
            if_rev=if_rev
        ))

    def delete(self, thread_id: str, *, strategy: Strategy = "detach") -> None:
        """Delete a thread and everything of it.

        Children: `reject` refuses with `HasChildren`, `detach` makes them roots, `cascade` deletes the whole subtree.
        Up to 1,000 threads change in one transaction. Of a larger set the thread goes first and the others follow in
        chunks, before the call returns; until its turn comes, a child can be read and written. If the process dies
        half way, housekeeping finishes the deletion, and so does deleting the thread again.
        """
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
        """The threads whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A thread whose id equals the prefix comes first. Use it to look up an id that somebody abbreviated.
        """
        return self._driver.read(self._inner.with_prefix(prefix, limit=limit))

    def validate_parent(self, thread_id: str, parent_thread_id: str | None) -> None:
        """Check a parent and write nothing: raises `InvalidError` (a cycle) or `NotFoundError` (missing, damaged)."""
        return self._driver.read(self._inner.validate_parent(thread_id, parent_thread_id))
