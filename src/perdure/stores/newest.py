"""The newest records that a view shows, read from the end of a path backwards, in chunks that grow.

A view hides some records, so how far back `limit` records reach is known only by looking. The first chunk is a little
more than the limit and usually enough; each further one is three times all before it, so a tail that is hidden costs
what it hides. The first chunk fixes the end of the path: records below it never change, and a marker that lands while
older chunks are read is not seen. So the answer is the view as it was at that first look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure import limits
from perdure.kernel.ops import Row
from perdure.model.message import MessageRecord
from perdure.rules.views import is_settled
from perdure.stores.branch_paths import PathQuery, read_path
from perdure.stores.context import Core, gave_up
from perdure.stores.records import path_records

Records = list[MessageRecord]
_MARGIN = 8
"""Read beyond the limit at once: enough for the call before a result, or for a few hidden records."""


class Tail(msgspec.Struct, frozen=True):
    """How much of which view is wanted; `folded` says that the view puts summaries in the place of what they cover."""

    view: Callable[[Sequence[MessageRecord]], Records]
    limit: int
    folded: bool


async def newest_shown(core: Core, thread_id: str, query: PathQuery, tail: Tail) -> Records:
    """The newest `tail.limit` records that the view shows of a path."""
    for _ in range(limits.COMMIT_ATTEMPTS):
        shown = await _read_backwards(core, thread_id, query, tail)
        if shown is not None:
            return shown[-tail.limit :]
    raise gave_up(f"thread {thread_id!r}")


async def _read_backwards(core: Core, thread_id: str, query: PathQuery, tail: Tail) -> Records | None:
    """What the view shows of as much of the path as it needs; None if the thread became another one meanwhile."""
    size = tail.limit + _MARGIN
    head: Row | None = None
    records: Records = []
    while True:
        path = await read_path(core, thread_id, msgspec.structs.replace(query, limit=size))
        if head is not None and path.head["born"] != head["born"]:
            return None
        head = path.head
        records = path_records(thread_id, path.entries, path.parent_id) + records
        shown = tail.view(records)
        if path.parent_id is None or is_settled(records, shown, tail.limit, folded=tail.folded):
            return shown
        # From here on the branch is named, so that a switch does not matter; nor does its deletion.
        branch = head["branch"] if query.branch is None else query.branch
        query = PathQuery(branch=branch, upto=records[0].seq - 1, even_deleted=True)
        size = 3 * len(records)
