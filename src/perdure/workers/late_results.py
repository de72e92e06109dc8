"""Results of interrupted calls that came late, on the branch of their call.

A tool that ends after its run was stopped has its result stored at the end of that branch. A branch that begins before
it, because the user regenerated the next answer, has the call without the result, but its model must know what the
tool did.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.errors import NotFoundError
from perdure.model.message import MessageRecord
from perdure.stores.thread_handle import ThreadHandle


async def with_late_results(thread: ThreadHandle, history: Sequence[MessageRecord]) -> list[MessageRecord]:
    """The history, with the real result of each interrupted call that has one elsewhere; mostly it reads nothing."""
    placeholders = [record for record in history if record.role == "tool" and record.message.id is None]
    paths = {branch: await _path(thread, branch) for branch in {record.branch for record in placeholders}}
    late = {id(record): _late(record, paths[record.branch]) for record in placeholders}
    return [late.get(id(record), record) for record in history]


async def _path(thread: ThreadHandle, branch: int) -> list[MessageRecord]:
    """The messages of a branch; none if it was deleted."""
    try:
        return await thread.path(branch=branch)
    except NotFoundError:
        return []


def _late(result: MessageRecord, path: Sequence[MessageRecord]) -> MessageRecord:
    """The result as it is on the branch of its call, else the one that was made up for it, which has the call's seq."""
    call_id = result.message.tool_call_id
    for record in path:
        if record.seq <= result.seq:
            continue
        if any(call.id == call_id for call in record.message.tool_calls):
            break  # a newer call with the same id: what follows is about that one
        if record.role == "tool" and record.message.tool_call_id == call_id:
            return msgspec.structs.replace(
                result, message=msgspec.structs.replace(result.message, content=record.message.content)
            )
    return result
