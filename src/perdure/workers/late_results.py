"""Results of interrupted calls that came late, on the branch of their call.

A tool that ends after its run was stopped has its result stored at the end of that branch. A branch that begins before
it, because the user regenerated the next answer, has the call without the result, but its model must know what the
tool did. That also holds if the branch of the call was deleted since.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure import limits
from perdure.model.message import MessageRecord
from perdure.stores.store import Store


async def with_late_results(store: Store, history: Sequence[MessageRecord]) -> list[MessageRecord]:
    """The history, with the real result of each interrupted call that has one elsewhere; mostly it reads nothing."""
    placeholders = [record for record in history if record.role == "tool" and record.message.id is None]
    if not placeholders:
        return list(history)
    first = min(record.seq for record in placeholders)
    log = await store.messages.range(placeholders[0].thread_id, first, limits.INTEGER_MAX)
    late = {id(record): _late(record, log) for record in placeholders}
    return [late.get(id(record), record) for record in history]


def _late(result: MessageRecord, log: Sequence[MessageRecord]) -> MessageRecord:
    """The result as it is on the branch of its call, else the one that was made up for it, which has the call's seq."""
    call_id = result.message.tool_call_id
    for record in log:
        if record.seq <= result.seq or record.branch != result.branch:
            continue
        if any(call.id == call_id for call in record.message.tool_calls):
            break  # a newer call with the same id: what follows is about that one
        if record.role == "tool" and record.message.tool_call_id == call_id:
            return replace(result, message=replace(result.message, content=record.message.content))
    return result
