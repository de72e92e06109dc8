"""Long threads and deep trees: what must work at 100,000 messages and at 10,000 forks of forks."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

import perdure
from perdure import Message

MESSAGES = 100_000
FORKS = 9_999


def test_a_thread_of_a_hundred_thousand_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with perdure.open(f"sqlite:///{tmp_path / 'long.db'}", durability="process") as store:
            for start in range(0, MESSAGES, 1_000):
                batch = [Message.user(f"message {i}") for i in range(start, start + 1_000)]
                await store.commit("long", messages=batch, expect=start)
            middle = (await store.messages.range("long", 50_000, 50_000))[0]
            fork = await store.branches.fork("long", at=middle.message_id, name="half")
            receipt = await store.commit("long", messages=[Message.user("other end")], branch=fork.id)
            assert receipt.version == MESSAGES + 1
            assert len(await store.messages.history("long")) == MESSAGES
            tail = await store.messages.history("long", branch="half", limit=3)
            assert [r.text for r in tail] == ["message 49998", "message 49999", "other end"]
            assert tail[0].parent_id == (await store.messages.range("long", 49_998, 49_998))[0].message_id
            assert len(await store.messages.history("long", branch="half")) == 50_001
            page = await store.messages.list("long", order="desc", limit=2)
            assert [r.seq for r in page.items] == [MESSAGES + 1, MESSAGES]

    asyncio.run(story())


def test_the_deepest_of_ten_thousand_forks_of_forks(tmp_path: Path) -> None:
    async def story() -> None:
        async with perdure.open(f"sqlite:///{tmp_path / 'deep.db'}", durability="process") as store:
            receipt = await store.commit("deep", messages=[Message.user("root")])
            for i in range(FORKS):
                fork = await store.branches.fork("deep", at=receipt.message_ids[0])
                receipt = await store.commit("deep", messages=[Message.user(f"fork {i}")], branch=fork.id)
            history = await store.messages.history("deep", branch=FORKS)
            assert [r.branch for r in history] == list(range(FORKS + 1))
            assert history[-1].text == f"fork {FORKS - 1}"
            assert all(later.parent_id == earlier.message_id for earlier, later in pairwise(history))
            assert len(await store.branches.list("deep")) == FORKS + 1
            with pytest.raises(perdure.InvalidError, match="limit"):
                await store.branches.fork("deep", at=None)

    asyncio.run(story())
