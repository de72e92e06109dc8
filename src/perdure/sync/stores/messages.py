"""`Messages`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.messages`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure import limits
from perdure.model.message import MessageRecord
from perdure.model.message_page import MessagePage
from perdure.model.page import Page
from perdure.stores import messages as async_messages
from perdure.stores.following import FollowView
from perdure.stores.message_pages import View
from perdure.stores.messages import Direction, End, Records, UnfinishedCalls, Visibility
from perdure.sync.face import Face
from perdure.sync.follower import Follower

# fmt: off


class Messages(Face[async_messages.Messages], of=async_messages.Messages):
    """`store.messages`, blocking."""

    def list(
        self, thread_id: str, *, after_seq: int | None = None, before_seq: int | None = None,
        order: Direction = "asc", visibility: Visibility = "any", run_id: str | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[MessageRecord]:
        """Raw records of all branches in seq order, filtered by seq window, visibility or producing run."""
        return self._driver.read(self._inner.list(
            thread_id, after_seq=after_seq, before_seq=before_seq, order=order, visibility=visibility, run_id=run_id,
            limit=limit, cursor=cursor
        ))

    def iter(
        self, thread_id: str, *, order: Direction = "asc", run_id: str | None = None, visibility: Visibility = "any",
        after_seq: int | None = None, before_seq: int | None = None
    ) -> Iterator[MessageRecord]:
        """Every record of the list, page by page."""
        return self._driver.iterate(self._inner.iter(
            thread_id, order=order, run_id=run_id, visibility=visibility, after_seq=after_seq, before_seq=before_seq
        ))

    def find(self, thread_id: str, message_id: str) -> MessageRecord | None:
        """The record with this message id, or None."""
        return self._driver.read(self._inner.find(thread_id, message_id))

    def get(self, thread_id: str, message_id: str) -> MessageRecord:
        """The record with this message id; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id, message_id))

    def range(self, thread_id: str, from_seq: int, to_seq: int) -> Records:
        """Raw records `from_seq` to `to_seq`, both included; what is not there yet is simply not returned."""
        return self._driver.read(self._inner.range(thread_id, from_seq, to_seq))

    def history(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None,
        interrupted: str | None = None, run_id: str | None = None
    ) -> Records:
        """What the model should see: one branch's path, compaction folded, tool pairs intact."""
        return self._driver.read(self._inner.history(
            thread_id, branch=branch, upto=upto, limit=limit, interrupted=interrupted, run_id=run_id
        ))

    def external(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What an outsider may see of one branch's path: nothing internal, retracted or unanswered."""
        return self._driver.read(self._inner.external(thread_id, branch=branch, upto=upto, limit=limit))

    def path(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """One branch as it was written, from its root on: nothing folded, nothing left out."""
        return self._driver.read(self._inner.path(thread_id, branch=branch, upto=upto, limit=limit))

    def page(
        self, thread_id: str, *, branch: int | str | None = None, view: View = "external", before: End | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, variants: bool = False
    ) -> MessagePage:
        """One page of a branch, for people who scroll up: the newest page first, each page oldest first."""
        return self._driver.read(self._inner.page(
            thread_id, branch=branch, view=view, before=before, limit=limit, cursor=cursor, variants=variants
        ))

    def unfinished_calls(
        self, thread_id: str, *, branch: int | str | None = None, run_id: str | None = None
    ) -> UnfinishedCalls:
        """Tool calls on the path that no result answers: what recovery must look at (of one run, if given)."""
        return self._driver.read(self._inner.unfinished_calls(thread_id, branch=branch, run_id=run_id))

    def follow(
        self, thread_id: str, *, after_seq: int = 0, branch: int | str | None = None, view: FollowView = "raw",
        timeout: float | None = None, resource_id: str | None = None
    ) -> Follower[MessageRecord]:
        """Records after a seq as they are committed: history first, then live, without gaps or repeats."""
        return Follower(self._inner.follow(
            thread_id, after_seq=after_seq, branch=branch, view=view, timeout=timeout, resource_id=resource_id
        ), self._driver)
