"""`messages.page`: one branch as people scroll it, the newest page first, each page in reading order.

A page is a slice of a view as it is now, ended by a position on the branch's path. Positions never change, because the
log only grows: no record comes twice, and what is committed between two pages moves nothing. The cursor holds the
branch's number and the position where the page began, so renaming or switching branches between two pages does not
mix lines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from perdure.errors import CursorExpired, InvalidError, NotFoundError
from perdure.kernel.cursor import RESTART, decode_cursor, encode_cursor
from perdure.kernel.ops import Get, Read, Row
from perdure.model.message import MessageRecord
from perdure.model.message_page import MessagePage
from perdure.rules import checks, views
from perdure.stores.branch_paths import PathQuery, check_branch, read_path, resolve_branch
from perdure.stores.context import Context
from perdure.stores.newest import Tail, newest_shown
from perdure.stores.page_variants import PageVariants, PageWindow, read_page_variants
from perdure.stores.records import MessageEntry
from perdure.stores.retry import Stale, retry

View = Literal["external", "history", "raw"]
Records = list[MessageRecord]


class PageRequest(msgspec.Struct, frozen=True):
    """The arguments of `messages.page`."""

    thread_id: str
    branch: int | str | None
    view: View
    before: int | str | None
    limit: int
    cursor: str | None
    variants: bool

    def check(self) -> None:
        """Raise `InvalidError` for what needs no look at the data."""
        checks.check_id(self.thread_id, "thread id")
        check_branch(self.branch)
        checks.check_limit(self.limit)
        checks.check_choice(self.view, "view", "external", "history", "raw")
        if isinstance(self.before, str):
            checks.check_id(self.before, "before")
        elif self.before is not None:
            checks.check_count(self.before, "before", least=1)
        if checks.check_flag(self.variants, "variants") and self.view == "history":
            raise InvalidError("a page of the history has no variants", hint='view="external" or view="raw"')

    @property
    def query(self) -> tuple[object, ...]:
        """What a cursor belongs to.

        It holds the number of its branch, so that a page without `branch=` may be continued with the number that it
        returned.
        """
        named = self.branch if isinstance(self.branch, str) else None
        return ("page", self.thread_id, named, self.view, self.before)


class _End(msgspec.Struct, frozen=True):
    """Where a page ends: before a position on the path of a branch (None: the current one), or at its end."""

    branch: int | None
    before: int | None = None
    message_seq: int | None = None
    """The seq of the message that `before` names: in a history, a summary stands elsewhere."""


class _Slice(msgspec.Struct, frozen=True):
    """The records of a page, whether older ones are shown, and where the first of these stands on which branch.

    `previous` is where the newest of the older ones stands, 0 without any. `head` is the thread's hot row, and `path`
    the end of the path, as the view saw them.
    """

    records: Records
    more: bool
    position: int
    previous: int
    branch: int
    head: Row
    path: Records


async def read_page(context: Context, request: PageRequest) -> MessagePage:
    """The page that a request asks for."""
    request.check()

    async def attempt() -> MessagePage:
        return await _read_page(context, request)

    return await retry("thread", request.thread_id, attempt, on=(Stale,))


async def _read_page(context: Context, request: PageRequest) -> MessagePage:
    keyset = None if request.cursor is None else decode_cursor(request.cursor, request.query, (int, int))
    named = await resolve_branch(context, request.thread_id, request.branch)
    if keyset is None:
        part = await _read_slice(context, request, await _end(context, request, named))
    else:
        part = await _continue(context, request, named, keyset[0], keyset[1])
    more = encode_cursor(request.query, (part.branch, part.position)) if part.more else None
    run_id: str | None = part.head["open_run"]
    after_seq = _after_seq(part, hides_calls=request.view != "raw")
    variants = await _variants(context, request, part) if request.variants else PageVariants({}, [])
    return MessagePage(
        part.records,
        more,
        branch=part.branch,
        after_seq=after_seq,
        open_run_id=run_id,
        variants=variants.of_records,
        next_variants=variants.after_newest,
    )


async def _variants(context: Context, request: PageRequest, part: _Slice) -> PageVariants:
    # Of the raw path nothing is hidden, so only what is on the page has its variants there.
    after = part.position - 1 if request.view == "raw" else part.previous
    newest = request.cursor is None and request.before is None
    window = PageWindow(part.records, part.branch, after, newest, part.head)
    return await read_page_variants(context, window, external=request.view == "external")


def _after_seq(part: _Slice, *, hides_calls: bool) -> int:
    """Where what was read ends, or before the first message that the page shows without its calls, or not at all.

    Any of these calls may still get a result, even if its run is done: a tool may have been at work.
    """
    end = part.path[-1].seq if part.path else 0
    calls = views.unfinished(part.path) if hides_calls else []
    # What is hidden before the last record of an older page is the concern of that page.
    return min([end, *(item.seq - 1 for item in calls if item.seq > part.previous)])


async def _continue(context: Context, request: PageRequest, named: int | None, branch: int, before: int) -> _Slice:
    """The page before a position that a cursor holds; a forged cursor leaves neither the branch nor the window."""
    if named is not None and named != branch:
        if isinstance(request.branch, int):
            raise InvalidError("the cursor belongs to another query", hint=RESTART)
        raise CursorExpired(f"branch {branch} is no longer called {request.branch!r}", hint=RESTART)
    try:
        end = await _end(context, request, branch)
        earliest = before if end.before is None else min(before, end.before)
        return await _read_slice(context, request, msgspec.structs.replace(end, before=max(earliest, 1)))
    except NotFoundError:
        heads = (await context.view(Get("thread_heads", [(request.thread_id,)])))[0]
        if heads[0] is None:
            raise
        raise CursorExpired(f"branch {branch}, which this cursor continues, was deleted", hint=RESTART) from None


async def _end(context: Context, request: PageRequest, branch: int | None) -> _End:
    if not isinstance(request.before, str):
        return _End(branch, request.before)
    (entries,) = await context.view(Read("messages", request.thread_id, where={"id": request.before}))
    seq = MessageEntry._make(entries[0]).seq if entries else 1
    path = await read_path(context, request.thread_id, PathQuery(branch=branch, upto=seq, limit=1))
    if not path.entries or MessageEntry._make(path.entries[0]).id != request.before:
        line = f"branch {path.head['branch'] if branch is None else branch} of thread {request.thread_id!r}"
        raise NotFoundError(f"message {request.before!r} is not on {line}")
    return _End(int(path.head["branch"]) if branch is None else branch, seq, seq)


async def _read_slice(context: Context, request: PageRequest, end: _End) -> _Slice:
    return await _SLICES[request.view](context, request, end)


async def _raw_slice(context: Context, request: PageRequest, end: _End) -> _Slice:
    query = msgspec.structs.replace(_path_query(end, limit=request.limit), decode=True)
    path = await read_path(context, request.thread_id, query)
    records = path.records
    branch = int(path.head["branch"]) if end.branch is None else end.branch
    position = records[0].seq if records else 0
    return _Slice(records, path.parent_id is not None, position, 0, branch, path.head, records)


async def _external_slice(context: Context, request: PageRequest, end: _End) -> _Slice:
    # One more than the page tells whether there is an older one.
    tail = Tail(views.external, request.limit + 1, folded=False, as_of_now=True)
    view = await newest_shown(context, request.thread_id, _path_query(end), tail)
    records = view.records[-request.limit :]
    older = view.records[: -request.limit]
    position, previous = records[0].seq if records else 0, older[-1].seq if older else 0
    return _Slice(records, bool(older), position, previous, view.branch, view.head, view.path)


async def _history_slice(context: Context, request: PageRequest, end: _End) -> _Slice:
    """Read from the end of the path, because any record up to there may be a summary of older ones."""
    count = request.limit
    while True:
        history = _HistoryBefore(end)
        tail = Tail(history, count + 1, folded=True)
        view = await newest_shown(context, request.thread_id, PathQuery(branch=end.branch), tail)
        records, whole = view.records, len(view.records) <= count
        standing = [history.positions[record.seq] for record in records]
        start = views.page_start(records, standing, request.limit)
        if start is None and whole:
            start = 0
        if start is not None and _reaches_end(view.path, end):
            position, previous = standing[start] if records else 0, standing[start - 1] if start else 0
            return _Slice(records[start:], start > 0, position, previous, view.branch, view.head, view.path)
        count *= 4
        end = msgspec.structs.replace(end, branch=view.branch)


def _reaches_end(path: Records, end: _End) -> bool:
    """Does the end of a path tell where the page ends? A summary stands where the first record that it covers stood."""
    marks = [record.message.compaction for record in path if record.seq == end.message_seq]
    if not marks or marks[0] is None:
        return True
    return path[0].seq <= marks[0].from_seq or path[0].parent_id is None


class _HistoryBefore:
    """The history of a path, as far as it stands before the end of a page."""

    def __init__(self, end: _End) -> None:
        self._end = end
        self.positions: dict[int, int] = {}

    def __call__(self, path: Sequence[MessageRecord]) -> Records:
        history = views.history(path)
        positions = views.positions(history, path)
        self.positions = {record.seq: position for record, position in zip(history, positions, strict=True)}
        end = self._end.before
        if end is None:
            return history
        if self._end.message_seq is not None:
            end = min(end, self.positions.get(self._end.message_seq, end))
        return [record for record in history if self.positions[record.seq] < end]


def _path_query(end: _End, limit: int | None = None) -> PathQuery:
    return PathQuery(branch=end.branch, upto=None if end.before is None else end.before - 1, limit=limit)


_SLICES: dict[View, Callable[[Context, PageRequest, _End], Awaitable[_Slice]]] = {
    "raw": _raw_slice,
    "external": _external_slice,
    "history": _history_slice,
}
