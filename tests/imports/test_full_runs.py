"""A run that was at its size limit when it ended: an audit accepts it, and an import takes it; not so an open one."""

from __future__ import annotations

import asyncio
import json

import pytest

import perdure
from perdure import InvalidError, limits
from perdure.stores.transfer.export import export_lines, import_lines


def test_only_a_run_that_is_done_may_use_the_reserve() -> None:
    async def main() -> None:
        async with perdure.open("memory://") as store, perdure.open("memory://") as copy:
            run = await store.runs.start("t", "agent", metadata={"x": "y" * (limits.RUN_BYTES - 50)})
            ended = await store.runs.cancel(run.id, "z" * 1_000)
            lines = [line async for line in export_lines(store)]
            parsed = [json.loads(line) for line in lines]
            (row,) = [line for line in parsed if line.get("table") == "runs"]
            row["body"].pop("outcome")
            row["body"]["metadata"]["x"] += "y" * 1_000
            row["columns"].update(status="running", finished_at=None)
            with pytest.raises(InvalidError, match="the limit of an open run is 1,048,576"):
                await import_lines(copy, lambda: [json.dumps(line).encode() for line in parsed])
            await import_lines(copy, lambda: lines)
            assert (await copy.runs.get(run.id)).body == ended.body

    asyncio.run(main())
