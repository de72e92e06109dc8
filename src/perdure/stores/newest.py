"""The newest records that a view shows, read from the end of a path backwards, in chunks that grow.

A view hides some records, so how far back `limit` records reach is known only by looking. The first chunk is a little
more than the limit and usually enough; each further one is three times all before it, so a tail that is hidden costs
what it hides. The first chunk fixes the end of the path: records below it never change, and a marker committed while
older chunks are read is not seen. So the answer is the view as of the first chunk.

Where the records end before the path does, as on a page further up, what comes later may still decide about them: a
result answers a call, a marker retracts one. `_Later` reads as much of it as that takes, and nothing if there are no
tool messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.kernel.ops import Row
from perdure.model.message import INTERNAL, MessageRecord
from perdure.rules.views import has_open_calls, is_settled, uses_tools
from perdure.stores.branch_paths import PathQuery, read_path
from perdure.stores.context import Context
from perdure.stores.retry import Stale, retry

Records = list[MessageRecord]
_MARGIN = 8
"""Read beyond the limit at once: enough for the call before a result, or for a few hidden records."""
_MARKERS = {"role": "tool", "visibility": INTERNAL}


class Tail(msgspec.Struct, frozen=True):
    """Which view, and how many of its records; a `folded` view replaces records by the summary that covers them.

    With `as_of_now`, the path goes on after the records that are asked for, and the view is that of the whole path.
    """

    view: Callable[[Sequence[MessageRecord]], Records]
    limit: int
    folded: bool
    as_of_now: bool = False


class Shown(msgspec.Struct, frozen=True):
    """What a view shows, the branch whose path it is, the thread's hot row, and the end of the path that was read."""

    records: Records
    branch: int
    head: Row
    path: Records


async def newest_shown(context: Context, thread_id: str, query: PathQuery, tail: Tail) -> Shown:
    """The newest `tail.limit` records that the view shows of a path."""

    async def attempt() -> Shown:
        return await _read_backwards(context, thread_id, query, tail)

    view = await retry("thread", thread_id, attempt)
    return msgspec.structs.replace(view, records=view.records[-tail.limit :])


async def _read_backwards(context: Context, thread_id: str, query: PathQuery, tail: Tail) -> Shown:
    """As much of the path as the view needs, as it shows it; raises `Stale` if another thread took the id."""
    size = tail.limit + _MARGIN
    end = query.upto if tail.as_of_now else None
    first: Row | None = None
    later: _Later | None = None
    records: Records = []
    while True:
        path = await read_path(context, thread_id, msgspec.structs.replace(query, limit=size, decode=True))
        head = path.head
        first = head if first is None else first
        if head["born"] != first["born"]:
            raise Stale
        branch = int(head["branch"] if query.branch is None else query.branch)
        if later is None and end is not None:
            later = _Later(context, thread_id, branch, end)
        records = path.records + records
        visible = tail.view(records) if later is None else await later.view(tail.view, records, head)
        if path.parent_id is None or is_settled(records, visible, tail.limit, folded=tail.folded):
            return Shown(visible, branch, first, records)
        # From here on the branch is named, so that a switch does not matter; nor does its deletion.
        query = PathQuery(branch=branch, upto=records[0].seq - 1, even_deleted=True)
        size = 3 * len(records)


class _Later:
    """What follows a seq on a path, as far as it decides which calls before it are shown."""

    def __init__(self, context: Context, thread_id: str, branch: int, after: int) -> None:
        self._context = context
        self._thread_id = thread_id
        self._branch = branch
        self._after = after
        self._markers: Records | None = None
        self._next: Records = []
        self._size = _MARGIN
        self._at_end = False

    async def view(self, view: Callable[[Sequence[MessageRecord]], Records], records: Records, head: Row) -> Records:
        """The view of records that end at the seq, as it is with all that follows them."""
        if not uses_tools(records):
            return view(records)
        if self._markers is None:
            self._markers = await self._read(head, PathQuery(where=_MARKERS))
        while not self._at_end and has_open_calls(self._path(records), upto=self._after):
            reached = self._next[-1].seq if self._next else self._after
            chunk = await self._read(head, PathQuery(after=reached, limit=self._size, oldest=True))
            self._at_end = len(chunk) < self._size
            self._next += chunk
            self._size *= 3
        return [record for record in view(self._path(records)) if record.seq <= self._after]

    def _path(self, records: Records) -> Records:
        """The records, what follows them as far as it was read, and the markers beyond that."""
        reached = self._next[-1].seq if self._next else self._after
        return [*records, *self._next, *[mark for mark in self._markers or () if mark.seq > reached]]

    async def _read(self, head: Row, query: PathQuery) -> Records:
        after = max(query.after, self._after)
        query = msgspec.structs.replace(query, branch=self._branch, after=after, even_deleted=True, decode=True)
        path = await read_path(self._context, self._thread_id, query)
        if path.head["born"] != head["born"]:
            raise Stale
        return path.records
