"""The newest records that a view shows, read from the end of a path backwards, in chunks that grow.

A view hides some records, so how far back `limit` records reach is known only by looking. The first chunk is a little
more than the limit and usually enough; each further one is three times all before it, so a tail that is hidden costs
what it hides. The first chunk fixes the end of the path: records below it never change, and a marker committed while
older chunks are read is not seen. So the answer is the view as of the first chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.kernel.ops import Row
from perdure.model.message import MessageRecord
from perdure.rules.views import is_settled
from perdure.stores.branch_paths import PathQuery, read_path
from perdure.stores.context import Context
from perdure.stores.records import path_records
from perdure.stores.retry import Stale, retry

Records = list[MessageRecord]
_MARGIN = 8
"""Read beyond the limit at once: enough for the call before a result, or for a few hidden records."""


class Tail(msgspec.Struct, frozen=True):
    """Which view, and how many of its records; a `folded` view replaces records by the summary that covers them."""

    view: Callable[[Sequence[MessageRecord]], Records]
    limit: int
    folded: bool


async def newest_shown(context: Context, thread_id: str, query: PathQuery, tail: Tail) -> Records:
    """The newest `tail.limit` records that the view shows of a path."""

    async def attempt() -> Records:
        return await _read_backwards(context, thread_id, query, tail)

    records = await retry("thread", thread_id, attempt)
    return records[-tail.limit :]


async def _read_backwards(context: Context, thread_id: str, query: PathQuery, tail: Tail) -> Records:
    """As much of the path as the view needs, as it shows it; raises `Stale` if another thread took the id."""
    size = tail.limit + _MARGIN
    head: Row | None = None
    records: Records = []
    while True:
        path = await read_path(context, thread_id, msgspec.structs.replace(query, limit=size))
        if head is not None and path.head["born"] != head["born"]:
            raise Stale
        head = path.head
        records = path_records(thread_id, path.entries, path.parent_id) + records
        visible = tail.view(records)
        if path.parent_id is None or is_settled(records, visible, tail.limit, folded=tail.folded):
            return visible
        # From here on the branch is named, so that a switch does not matter; nor does its deletion.
        branch = head["branch"] if query.branch is None else query.branch
        query = PathQuery(branch=branch, upto=records[0].seq - 1, even_deleted=True)
        size = 3 * len(records)
