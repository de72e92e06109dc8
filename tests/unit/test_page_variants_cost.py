"""What the variants of a page cost: what the rows of its thread's branches say is worked out once for all places."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Message, Store
from perdure.stores import page_variants, variants


class Counts:
    """How often the branches are looked at for where they hang, and walked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.forks = self.walks = 0
        fork_point, reach = variants.fork_point, variants.reach

        def counted_fork(row: Any) -> Any:
            self.forks += 1
            return fork_point(row)

        def counted_reach(*given: Any, **options: Any) -> Any:
            self.walks += 1
            return reach(*given, **options)

        patch.setattr(variants, "fork_point", counted_fork)
        for module in (variants, page_variants):
            patch.setattr(module, "reach", counted_reach)


async def page_of(store: Store, places: int, forks: int) -> int:
    """The number of variants on a page of that many places where lines part."""
    await store.commit("t", messages=[Message.user(f"m{n}", id=f"m{n}") for n in range(places + 1)])
    for n in range(1, places + 1):
        for _ in range(forks):
            await store.branches.fork("t", before=f"m{n}", messages=[Message.user("x")])
    page = await store.messages.page("t", branch=0, limit=200, variants=True)
    return sum(map(len, page.variants.values()))


@pytest.mark.parametrize("places", [3, 30])
def test_each_branch_is_looked_at_once_for_all_places(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(monkeypatch)

    async def story() -> None:
        async with perdure.open("memory://") as store:
            assert await page_of(store, places, forks=4) == places * 5

    asyncio.run(story())
    assert counts.forks == places * 4 + 1, "once per branch"
    assert counts.walks == 3, "the page's path, the living branches, the current one"
