"""A tool ends after its run was stopped: the model of every branch that has the call learns what it did."""

from __future__ import annotations

import pytest
from tests.workers.scenes import ended, finish, serving
from tests.workers.test_serving import on_memory

from perdure import Message, Store, ToolUse
from perdure.clock import ManualClock
from perdure.workers import Job


@pytest.mark.parametrize("again", ["before", "after", "deleted"])
def test_a_late_result_is_known_on_other_branches(again: str) -> None:
    results: list[list[str]] = []

    async def handler(job: Job) -> None:
        results.append([record.result_text for record in await job.history() if record.role == "tool"])
        await finish(job)

    async def scene(store: Store, _: ManualClock) -> None:
        paying = await store.runs.start("t", "payer", messages=[Message.user("Pay.")])
        call = Message.assistant([ToolUse("c", "pay", {})])
        paying = (await store.commit("t", messages=[call], run=paying.step())).run
        await store.runs.cancel(paying.id)
        async with serving(store, handler, agent_id="clerk"):
            asked = await store.runs.start("t", "clerk", messages=[Message.user("Did you pay?")])
            await ended(store, asked.id)
            if again == "after":
                await store.commit("t", messages=[Message.tool("c", "paid 80")], branch=0)
            repeated = await store.runs.rerun(asked.id)
            await ended(store, repeated.id)
            if again == "before":
                await store.commit("t", messages=[Message.tool("c", "paid 80")], branch=0)
            if again == "deleted":
                await store.branches.delete("t", 0)
            last = await store.runs.start("t", "clerk", messages=[Message.user("And now?")])
            await ended(store, last.id)

    on_memory(scene)
    unknown = ["The call was interrupted: it may or may not have taken effect."]
    known = ["paid 80"]
    expected = {"before": [unknown, unknown, known], "after": [unknown, known, known], "deleted": [unknown] * 3}
    assert results == expected[again]
