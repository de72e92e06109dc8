"""A draft whose row is damaged on disk: nothing depends on it, so a stop and a tab go on without it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import perdure
from perdure import Message, Run, Store
from perdure.stores.drafts import draft_key, draft_owner, draft_value
from perdure.testkit.kit import collect


async def write(store: Store, run: Run) -> None:
    """As `job.draft` does."""
    await store.profiles.put(draft_owner("t"), draft_key(run.rev), draft_value(run.id, f"of {run.id}"), ttl_ms=60_000)


def test_a_damaged_draft_is_none(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"

    async def story() -> None:
        async with perdure.open(f"sqlite:///{path}") as store:
            runs = [await store.runs.start("t", "a", run_id=f"r{n}", messages=[Message.user("Go.")]) for n in range(3)]
            for run in runs:
                await write(store, run)
            with sqlite3.connect(path) as file:
                file.execute("update profiles set updated_at = 'x' where key = ?", (draft_key(runs[1].rev),))
            file.close()
            drafts = await collect(store.runs.follow_drafts("t", timeout=0))
            assert sorted(draft.text or "" for draft in drafts) == ["of r0", "of r2"], "the sound ones are shown"
            ended = await store.runs.cancel("r1", keep_draft=True)
            assert ended.status == "done"
            assert [record.text for record in await store.messages.path("t")] == ["Go."] * 3
            await store.threads.delete("t")
        with sqlite3.connect(path) as file:
            assert file.execute("select count(*) from profiles").fetchone() == (0,)
        file.close()

    asyncio.run(story())
