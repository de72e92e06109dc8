"""`Messages`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.messages`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure import limits
from perdure.model.message import MessageRecord
from perdure.model.page import Page
from perdure.stores import messages as async_messages
from perdure.stores.following import FollowView
from perdure.stores.message_pages import View
from perdure.stores.messages import Direction, End, Records, UnfinishedCalls, Visibility
from perdure.sync.driver import Driver
from perdure.sync.follower import Follower

# fmt: off


class Messages:
    """`store.messages`, blocking."""

    def __init__(self, inner: async_messages.Messages, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

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
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What the model should see: one branch's path, compaction folded, tool pairs intact.

        `upto` ends the path at a seq, or at a message (on that message's own branch, deleted or not). `limit` keeps
        the newest records that the view shows; what it hides does not count. Where the cut separates a call from its
        results, the results are left out as well.
        """
        return self._driver.read(self._inner.history(thread_id, branch=branch, upto=upto, limit=limit))

    def external(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What an outsider may see of one branch's path: nothing internal, retracted or unanswered.

        `upto` and `limit` are those of `history`.
        """
        return self._driver.read(self._inner.external(thread_id, branch=branch, upto=upto, limit=limit))

    def path(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """One branch as it was written, from its root on: nothing folded, nothing left out.

        Internal messages, retraction markers, unanswered calls and summaries are all there. `branch` is a number or a
        name, by default the current one; `upto` and `limit` are those of `history`. The answer holds every record
        that it names: of a long thread, ask for the newest by `limit`, or go through it with `page(view="raw")`.
        """
        return self._driver.read(self._inner.path(thread_id, branch=branch, upto=upto, limit=limit))

    def page(
        self, thread_id: str, *, branch: int | str | None = None, view: View = "external", before: End | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[MessageRecord]:
        """One page of a branch, for people who scroll up: the newest page first, each in reading order (oldest first).

        `next_cursor` continues with older records; it is None exactly when the view shows none. A page is a slice of
        the view as it is now: hidden records do not count, and what is committed between two pages neither repeats
        nor skips a record.

        - `branch`: a number or a name, by default the current one. The cursor stays on it, whatever is switched.
        - `view`: `external` is what people may see, `history` what the model sees, `raw` everything.
        - `before`: begin before this seq, or before this message, which must be on the branch.
        - `limit`: 1 to 200 records. A page of `history` never separates a call from its results: it is shorter if it
          has to be, and longer only if a single such group does not fit.
        - `cursor`: the `next_cursor` of the page before, with the same other arguments; only `limit` may change.

        The cost follows the page, however long the branch is, with two exceptions. A page of `external` with tool
        calls also looks for retractions, and for missing results, among newer records. `history` is read from the
        end of the branch, because a later summary may replace what this page would show.
        """
        return self._driver.read(self._inner.page(
            thread_id, branch=branch, view=view, before=before, limit=limit, cursor=cursor
        ))

    def unfinished_calls(
        self, thread_id: str, *, branch: int | str | None = None, run_id: str | None = None
    ) -> UnfinishedCalls:
        """Tool calls on the path that no result answers: what recovery must look at (of one run, if given)."""
        return self._driver.read(self._inner.unfinished_calls(thread_id, branch=branch, run_id=run_id))

    def follow(
        self, thread_id: str, *, after_seq: int = 0, branch: int | str | None = None, view: FollowView = "raw",
        timeout: float | None = None
    ) -> Follower[MessageRecord]:
        """Records after a seq as they are committed: history first, then live, without gaps or repeats.

        Read it with `async for`. It ends when it is closed, from any task or thread, or by `timeout`. It raises
        `NotFoundError` when the thread or the branch is deleted, and `UnavailableError` when the store is closed.

        - `after_seq`: the last seq that you have; 0 begins with the first record.
        - `branch`: only records on this branch's path, those from before its fork point included. Without it, the
          records of all branches.
        - `view`: `raw` yields everything. `external` leaves out what is not for all, retraction markers included; it
          looks at each record alone, so a call comes as soon as it is committed, before its result.
        - `timeout`: end after this many seconds without a record. 0 ends with the last record that is there now.
        """
        return Follower(self._inner.follow(
            thread_id, after_seq=after_seq, branch=branch, view=view, timeout=timeout
        ), self._driver)
