"""Reader threads: a long read holds up nobody, and an idle thread is used before another is started."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.engines import long_views
from tests.engines.toys import SCHEMA, SCOPE

from perdure.engines.sqlite import open_sqlite
from perdure.kernel.ops import Heads


def test_a_long_read_does_not_hold_up_the_next(tmp_path: Path) -> None:
    assert asyncio.run(long_views.run(tmp_path)) == 2


def test_one_read_after_another_needs_one_thread(tmp_path: Path) -> None:
    async def main() -> int:
        engine = await open_sqlite(str(tmp_path / "calm.db"), SCHEMA)
        for _ in range(50):
            await engine.view(SCOPE, [Heads("notes", ["t"])])
        started = len(engine._core.threads._threads)
        await engine.close()
        return started

    assert asyncio.run(main()) == 1
