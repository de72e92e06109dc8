"""`store.messages`: reads the log, raw or as a view. Writing is `store.commit`, and nothing written ever changes.

`list` and `range` are raw and cover all branches, and so does `follow` unless it names one. The others read one branch:
`path` as it was written, `history` for the model, `external` for people, `page` any of the three in pages. Nothing here
reads more messages than the answer needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, short_repr
from perdure.kernel import codec
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.ops import Get, LogEntry, Read
from perdure.model.message import MessageRecord, UnfinishedCall
from perdure.model.message_page import MessagePage
from perdure.model.page import Page
from perdure.rules import checks, views
from perdure.stores.branch_paths import PathQuery, check_branch, read_path, resolve_branch
from perdure.stores.context import Context, require
from perdure.stores.follower import Follower, check_timeout
from perdure.stores.following import BranchReader, FollowView, LogReader, MessageSource
from perdure.stores.message_pages import PageRequest, View, read_page
from perdure.stores.newest import Tail, newest_shown
from perdure.stores.paging import every
from perdure.stores.parents import LOG, records_in_line, records_with_parents
from perdure.stores.waker import SharedWait, Wakers

Direction = Literal["asc", "desc"]
Visibility = Literal["any", "external", "internal"]
Records = list[MessageRecord]
End = int | str
"""Where a path ends: at a seq, or at a message."""
UnfinishedCalls = list[UnfinishedCall]
_WHOLE = slice(None)


class Messages:
    """`store.messages`."""

    def __init__(self, context: Context, wakers: Wakers) -> None:
        self._context = context
        self._wakers = wakers

    async def list(
        self,
        thread_id: str,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        order: Direction = "asc",
        visibility: Visibility = "any",
        run_id: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        cursor: str | None = None,
    ) -> Page[MessageRecord]:
        """Raw records of all branches in seq order, filtered by seq window, visibility or producing run."""
        checks.check_id(thread_id, "thread id")
        checks.check_limit(limit)
        where = _filters(visibility, run_id)
        desc = checks.check_choice(order, "order", "asc", "desc") == "desc"
        low = 0 if after_seq is None else checks.check_count(after_seq, "after_seq")
        high = None if before_seq is None else checks.check_count(before_seq, "before_seq") - 1
        query = ("messages", thread_id, after_seq, before_seq, order, visibility, run_id)
        if cursor is not None:
            (last,) = decode_cursor(cursor, query, (int,))
            if desc:
                high = last - 1 if high is None else min(last - 1, high)
            else:
                low = max(last, low)
        # An extra entry shows whether there is a next page; one on the far side of the first is its parent.
        lead = 1 if low and not desc and not where else 0
        read = Read(LOG, thread_id, after=low - lead, upto=high, limit=limit + 1 + lead, desc=desc, where=where)
        records, count = await self._read(thread_id, read, slice(lead, limit + lead))
        more = encode_cursor(query, (records[-1].seq,)) if count > limit + lead else None
        return Page(records, more)

    async def _read(self, thread_id: str, read: Read, part: slice = _WHOLE) -> tuple[Records, int]:
        """A part of the entries of a read, as records with their parents, and the number of all these entries."""
        gapless = not read.where

        def build(answers: list[Any]) -> tuple[Sequence[LogEntry], Records | None]:
            heads, entries = answers
            require(heads[0], f"thread {thread_id!r}")
            return entries, records_in_line(thread_id, entries[part], entries) if gapless and entries else None

        entries, records = await self._context.view_through(build, Get("thread_heads", [(thread_id,)]), read)
        if records is None:
            around = entries if gapless else ()
            records = await records_with_parents(
                self._context, thread_id, entries[part], gapless=gapless, around=around
            )
        return records, len(entries)

    async def iter(
        self,
        thread_id: str,
        *,
        order: Direction = "asc",
        run_id: str | None = None,
        visibility: Visibility = "any",
        after_seq: int | None = None,
        before_seq: int | None = None,
    ) -> AsyncIterator[MessageRecord]:
        """Every record of the list, page by page."""
        fetch = partial(self.list, thread_id, after_seq=after_seq, before_seq=before_seq, order=order)
        async for record in every(partial(fetch, visibility=visibility, run_id=run_id, limit=limits.PAGE_MAX)):
            yield record

    async def find(self, thread_id: str, message_id: str) -> MessageRecord | None:
        """The record with this message id, or None."""
        checks.check_id(thread_id, "thread id")
        checks.check_id(message_id, "message id")
        records, _ = await self._read(thread_id, Read(LOG, thread_id, where={"id": message_id}))
        return records[0] if records else None

    async def get(self, thread_id: str, message_id: str) -> MessageRecord:
        """The record with this message id; raises `NotFoundError`."""
        record = await self.find(thread_id, message_id)
        if record is None:
            raise NotFoundError(f"message {message_id!r} is not in thread {thread_id!r}")
        return record

    async def range(self, thread_id: str, from_seq: int, to_seq: int) -> Records:
        """Raw records `from_seq` to `to_seq`, both included; what is not there yet is simply not returned."""
        checks.check_id(thread_id, "thread id")
        checks.check_count(from_seq, "from_seq", least=1)
        if checks.check_count(to_seq, "to_seq", least=1) < from_seq:
            raise InvalidError(f"the range {from_seq}..{to_seq} must not be empty")
        return (await self._read(thread_id, Read(LOG, thread_id, after=from_seq - 1, upto=to_seq)))[0]

    async def history(
        self,
        thread_id: str,
        *,
        branch: int | str | None = None,
        upto: End | None = None,
        limit: int | None = None,
        interrupted: str | None = None,
        run_id: str | None = None,
    ) -> Records:
        """What the model should see: one branch's path, compaction folded, tool pairs intact.

        - `branch`: a number or a name, by default the current one.
        - `upto`: ends the path at a seq, or at a message (on that message's own branch, deleted or not).
        - `limit`: keeps the newest records that the view shows; what it hides does not count. Where the cut separates a
          call from its results, the results are left out as well.
        - `interrupted`: a call without a result is shown with this text as its result, an error that is not stored: the
          model should know that the call may have taken effect. By default, such a call is left out.
          If a worker stored the real result late, when another one had answered the call, it is shown behind that one.
        - `run_id`: with `interrupted`, a run whose calls are left out all the same, because it is at work on them.
        """
        view = _history_view(interrupted, run_id)
        query = await self._query(thread_id, branch, upto, limit)
        if limit is None:
            return view(await self._path(thread_id, query))
        tail = await newest_shown(self._context, thread_id, query, Tail(view, limit, folded=True))
        return views.newest_of_history(tail.records, limit)

    async def external(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What an outsider may see of one branch's path: nothing internal, retracted or unanswered.

        `upto` and `limit` are those of `history`.
        """
        query = await self._query(thread_id, branch, upto, limit)
        if limit is None:
            return views.external(await self._path(thread_id, query))
        return (await newest_shown(self._context, thread_id, query, Tail(views.external, limit, folded=False))).records

    async def path(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """One branch as it was written, from its root on: nothing folded, nothing left out.

        Internal messages, retraction markers, unanswered calls and summaries are all there. `branch` is a number or a
        name, by default the current one; `upto` and `limit` are those of `history`. The answer holds every record
        that it names: of a long thread, ask for the newest by `limit`, or go through it with `page(view="raw")`.
        """
        query = await self._query(thread_id, branch, upto, limit)
        return await self._path(thread_id, msgspec.structs.replace(query, limit=limit))

    async def page(
        self,
        thread_id: str,
        *,
        branch: int | str | None = None,
        view: View = "external",
        before: End | None = None,
        limit: int = limits.PAGE_DEFAULT,
        cursor: str | None = None,
        variants: bool = False,
    ) -> MessagePage:
        """One page of a branch, for people who scroll up: the newest page first, each page oldest first.

        `next_cursor` continues with older records; it is None exactly when the view shows none. A page is a slice of
        the view as it is now: hidden records do not count, and what is committed between two pages neither repeats
        nor skips a record. To continue live from the newest page, follow its `branch` from its `after_seq`.

        - `branch`: a number or a name, by default the current one. The cursor stays on it, whatever is switched.
        - `view`: `external` is what people may see, `history` what the model sees, `raw` everything.
        - `before`: begin before this seq, or before this message, which must be on the branch.
        - `limit`: 1 to 200 records. A page of `history` never separates a call from its results: it is shorter if it
          has to be, and longer only if a single such group does not fit.
        - `cursor`: the `next_cursor` of the page before, with the same other arguments; `limit` may change, and
          `branch` may be the number that the page returned.
        - `variants`: also return `page.variants`: for every message of the page that has some, the messages written in
          its place on other branches ("2 of 3"), as `branches.variants` describes them. Those that the view hides are
          left out; a turn that begins with hidden messages is listed by its first visible one. On the newest page,
          `page.next_variants` lists what other branches have after its last record. Not for `history`.

        The cost follows the page, however long the branch is, with two exceptions. A page of `external` with tool
        calls also looks for retractions, and for missing results, among newer records. `history` is read from the
        end of the branch, because a later summary may replace what this page would show.
        """
        return await read_page(self._context, PageRequest(thread_id, branch, view, before, limit, cursor, variants))

    async def _query(
        self, thread_id: str, branch: int | str | None, upto: int | str | None, limit: int | None
    ) -> PathQuery:
        checks.check_id(thread_id, "thread id")
        if limit is not None:
            checks.check_count(limit, "limit", least=1)
        number, end = await self._target(thread_id, branch, upto)
        by_message = isinstance(upto, str)  # A message outlives the branch that it was written on.
        return PathQuery(branch=number, upto=end, even_deleted=by_message, decode=True)

    async def _path(self, thread_id: str, query: PathQuery) -> Records:
        return (await read_path(self._context, thread_id, query)).records

    async def _target(
        self, thread_id: str, branch: int | str | None, upto: int | str | None
    ) -> tuple[int | None, int | None]:
        if isinstance(upto, str):
            if branch is not None:
                raise InvalidError("give a branch or a message id as upto, not both: a message knows its branch")
            record = await self.get(thread_id, upto)
            return record.branch, record.seq
        if upto is not None:
            checks.check_count(upto, "upto")
        return await resolve_branch(self._context, thread_id, branch), upto

    async def unfinished_calls(
        self, thread_id: str, *, branch: int | str | None = None, run_id: str | None = None
    ) -> UnfinishedCalls:
        """Tool calls on the path that no result answers: what recovery must look at (of one run, if given)."""
        checks.check_id(thread_id, "thread id")
        if run_id is not None:
            checks.check_id(run_id, "run id")
        number = await resolve_branch(self._context, thread_id, branch)
        path = await read_path(self._context, thread_id, PathQuery(branch=number, decode=True))
        calls = views.unfinished(path.records)
        return [call for call in calls if run_id is None or call.run_id == run_id]

    def follow(
        self,
        thread_id: str,
        *,
        after_seq: int = 0,
        branch: int | str | None = None,
        view: FollowView = "raw",
        timeout: float | None = None,
        resource_id: str | None = None,
    ) -> Follower[MessageRecord]:
        """Records after a seq as they are committed: history first, then live, without gaps or repeats.

        Read it with `async for`. It ends when it is closed, from any task or thread, or by `timeout`. It raises
        `NotFoundError` when the thread or the branch is deleted, and `UnavailableError` when the store is closed.

        - `after_seq`: the last seq that you have; 0 begins with the first record. If the thread is not that long, the
          first read raises `CursorExpired`: the seq is of a thread that was deleted.
        - `branch`: only records on this branch's path, those from before its fork point included. Without it, the
          records of all branches.
        - `view`: `raw` yields everything. `external` leaves out what is not for all, retraction markers included; it
          looks at each record alone, so a call comes as soon as it is committed, before its result.
        - `timeout`: end after this many seconds without a record. 0 ends with the last record that is there now.
        - `resource_id`: the resource that the thread must belong to, for as long as it is followed; else
          `NotFoundError`.
        """
        checks.check_id(thread_id, "thread id")
        resource = checks.check_owner(resource_id)
        checks.check_count(after_seq, "after_seq")
        checks.check_choice(view, "view", "raw", "external")
        check_branch(branch)
        check_timeout(timeout)
        wait = SharedWait(self._wakers, self._context, thread_id, after_seq, resource)
        reader = LogReader(wait) if branch is None else BranchReader(wait, branch)
        return Follower(wait, MessageSource(wait, reader, view), timeout)


def _history_view(interrupted: str | None, run_id: str | None) -> Callable[[Sequence[MessageRecord]], Records]:
    if interrupted is None:
        if run_id is not None:
            raise InvalidError("run_id needs interrupted: it names a run whose open calls are not interrupted")
        return views.history
    if type(interrupted) is not str:
        raise InvalidError(f"interrupted must be text, not {short_repr(interrupted)}")
    codec.encode_checked(interrupted, "interrupted", limits.MESSAGE_BYTES)
    own = None if run_id is None else checks.check_id(run_id, "run id")
    return partial(views.history, interruption=views.Interruption(interrupted, own))


def _filters(visibility: Visibility, run_id: str | None) -> dict[str, Any]:
    checks.check_choice(visibility, "visibility", "any", "external", "internal")
    where: dict[str, Any] = {}
    if visibility != "any":
        where["visibility"] = "all" if visibility == "external" else "internal"
    if run_id is not None:
        where["run"] = checks.check_id(run_id, "run id")
    return where
