"""Deleting a thread with 5,000 children, by every strategy, on the embedded engines; also when killed half way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import HasChildren, Store
from perdure.audit import verify_engine
from perdure.stores.cleanup import sweep
from perdure.stores.threads import Strategy
from perdure.testkit.cases.large_families import expect_done, put_children

CHILDREN = 5_000
DELETE = """
import asyncio, sys, perdure
async def main():
    async with perdure.open(sys.argv[1], housekeeping=False, durability="process") as store:
        await store.threads.delete("p", strategy=sys.argv[2])
asyncio.run(main())
"""


def _url(engine: str, tmp_path: Path) -> str:
    return "memory://" if engine == "memory" else f"sqlite:///{tmp_path / 'x.db'}"


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("strategy", ["detach", "cascade"])
def test_five_thousand_children(engine: str, strategy: Strategy, tmp_path: Path) -> None:
    async def main() -> None:
        options = {} if engine == "memory" else {"durability": "process"}
        async with perdure.open(_url(engine, tmp_path), housekeeping=False, **options) as store:
            await put_children(store, "p", CHILDREN)
            with pytest.raises(HasChildren, match="5000 child threads") as caught:
                await store.threads.delete("p", strategy="reject")
            assert len(caught.value.actual) == 10
            await store.threads.delete("p", strategy=strategy)
            await expect_done(store, strategy, "p", CHILDREN)

    asyncio.run(main())


@pytest.mark.parametrize("strategy", ["detach", "cascade"])
def test_killed_half_way(strategy: Strategy, tmp_path: Path) -> None:
    url = _url("sqlite", tmp_path)

    async def prepare() -> None:
        async with perdure.open(url, housekeeping=False, durability="process") as store:
            await put_children(store, "p", CHILDREN)

    asyncio.run(prepare())
    # The first time some chunks are done; the second time the deletion is resumed, and killed again.
    for chunk in (3, 7):
        environment = {**os.environ, "PERDURE_FAILPOINTS": f"delete.between_chunks=crash@{chunk}"}
        process = subprocess.run([sys.executable, "-c", DELETE, url, strategy], env=environment, check=False)
        assert process.returncode == -signal.SIGKILL
    asyncio.run(_finish(url, strategy))


async def _finish(url: str, strategy: Strategy) -> None:
    async with perdure.open(url, housekeeping=False, durability="process") as store:
        left = await _count(store)
        assert left == CHILDREN - 1_000
        assert await verify_engine(store.engine) == []
        await sweep(store._context)
        await expect_done(store, strategy, "p", CHILDREN)


async def _count(store: Store) -> int:
    return len([thread async for thread in store.threads.iter(parent_thread_id="p")])
