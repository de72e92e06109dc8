"""`runs.cancel` against a worker that commits a step right after every read: it is always ahead of what was read."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure import ConflictError, Run
from perdure.stores import run_cancelling
from perdure.stores.context import Context


def test_a_worker_that_is_always_ahead_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with perdure.open("memory://") as store:
            current: Run | None = await store.runs.start("t", "agent")
            assert current is not None
            run_id, steps, read = current.id, 0, run_cancelling.get_run

            async def get(context: Context, name: str, thread_id: str | None = None) -> Run:
                nonlocal current, steps
                run = await read(context, name, thread_id)
                if current is not None:
                    try:
                        current = (await store.commit("t", run=current.step())).run
                        steps += 1
                    except ConflictError:
                        current = None
                return run

            monkeypatch.setattr(run_cancelling, "get_run", get)
            ended = await store.runs.cancel(run_id, "enough")
            assert (ended.status, ended.steps, current) == ("done", steps, None)
            assert steps < 20

    asyncio.run(main())
