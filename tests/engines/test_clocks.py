"""Clocks of clients that are days off: due times, leases and lives of profiles go by the engine's clock alone.

What that clock is: a server's is the server's. SQLite's is the machine's, as the SQLite library reads it in the process
that writes; all processes of a file must share it. Memory's is that of the process when the store was opened, carried
on by the monotonic clock, so that setting the machine's time does not move it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engines.skewed_client import DUES, HOUR, act, queue_of
from tests.engines.toys import DEADLINE, SERVERS
from tests.support.servers import fresh_database, server
from tests.workers.scenes import until

import perdure
from perdure import Message, Store
from perdure.audit import verify
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Get, Now, Patch
from perdure.testkit.cases.clock_skew import wall_clock_off_by
from perdure.testkit.cases.due_times import OWNER, TABLE, due_scan
from perdure.workers.lease import LEASES, claim

DAY = 24 * HOUR
SKEWS = [8 * DAY, -8 * DAY]


async def place_of(kind: str, directory: Path) -> str:
    """The URL of an empty store."""
    if kind in SERVERS:
        return await fresh_database(server(kind), "clocks")
    return f"sqlite:///{directory / 'clocks.db'}" if kind == "sqlite" else "memory://"


async def is_over(store: Store) -> bool:
    """Whether the short lives have ended."""
    return await store.profiles.find("app", "ended") is None and await store.profiles.find(LEASES, "over") is None


async def prepare(store: Store) -> None:
    """A lease that is held and one that is over, profiles of both kinds, and a queue."""
    await store.commit("t", messages=[Message.user("first")])
    assert await claim(store, "held", "healthy", HOUR)
    await store.profiles.put("app", "lives", 1, ttl_ms=HOUR)
    await claim(store, "over", "healthy", 1)
    await store.profiles.put("app", "ended", 1, ttl_ms=1)
    await until(lambda: is_over(store))
    await queue_of(store).fill(DUES)


async def stranger(url: str, skew: int, *how: str) -> dict[str, Any]:
    """What a process with a wrong clock did."""
    command = [sys.executable, "-m", "tests.engines.skewed_client", url, str(skew), *how]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    outcome: dict[str, Any] = json.loads(ended.stdout)
    return outcome


async def hours_left(store: Store, key: str, column: str = "expires_at") -> Any:
    """How many hours from now, by the engine's clock, a time of the queue is."""
    queue = queue_of(store)
    now, (row,) = await queue.engine.view(queue.scope, [NOW, Get(TABLE, [(OWNER, key)])])
    return None if row[column] is None else round((row[column] - now) / HOUR)


@pytest.mark.parametrize("skew", SKEWS, ids=["ahead", "behind"])
@pytest.mark.parametrize("kind", ["memory", "sqlite", *SERVERS])
def test_a_wrong_clock_moves_no_due_time_and_no_lease(kind: str, skew: int, tmp_path: Path) -> None:
    async def main() -> None:
        url = await place_of(kind, tmp_path)
        async with perdure.open(url, housekeeping=False) as store:
            await prepare(store)
            if kind == "memory":
                with wall_clock_off_by(skew):
                    outcome = await act(store)
            else:
                outcome = await stranger(url, skew)
            assert outcome == {
                "leases": {"held": False, "over": True, "new": True},
                "profiles": ["lives"],
                "conditions": [False, False, True],
                "taken": ["due"],
            }
            queue = queue_of(store)
            assert await claim(store, "new", "healthy", HOUR) is None
            assert [profile.key for profile in await store.profiles.list("app")] == ["lives", "strange"]
            hours = {key: await hours_left(store, key) for key in DUES}
            assert hours == {"due": 1, "late": 1, "later": 2, "never": None}
            assert await hours_left(store, "due", "created_at") == 0
            assert await hours_left(store, "late", "updated_at") == 0
            assert await queue.keys(due_scan(limit=9), schema=1) == []
            assert sorted(await queue.keys(due_scan(Now(HOUR * 3 // 2), limit=9), schema=1)) == ["due", "late"]
            assert await verify(store) == []

    asyncio.run(main())


@pytest.mark.parametrize("skew", SKEWS, ids=["ahead", "behind"])
def test_two_clocks_on_one_sqlite_file(skew: int, tmp_path: Path) -> None:
    """Each process judges by its own clock, which is why a file belongs to one machine. But no rev, seq or condition on
    a rev depends on a clock: nothing is lost, and a row that one process took is not taken from it unseen."""

    async def main() -> None:
        url = await place_of("sqlite", tmp_path)
        async with perdure.open(url, housekeeping=False) as store:
            await prepare(store)
            queue = queue_of(store)
            ((before,),) = await queue.engine.view(queue.scope, [Get(TABLE, [(OWNER, "late")])])
            outcome = await stranger(url, skew, "engine")
            ahead = skew > 0
            assert outcome["taken"] == (["due", "late", "later"] if ahead else [])
            assert outcome["leases"] == {"held": ahead, "over": ahead, "new": True}
            # What it took is stamped by its clock, so its leases look eight days long, or long over.
            assert await queue.keys(due_scan(limit=9), schema=1) == ([] if ahead else ["due"])
            late = Patch(TABLE, (OWNER, "late"), {"schema": 9}, before.rev)
            if ahead:
                with pytest.raises(Conflict):
                    await queue.do(late)
            await store.commit("t", messages=[Message.user("last")])
            records = await store.messages.history("t")
            assert [(record.seq, record.text) for record in records] == [
                (1, "first"),
                (2, "from the stranger"),
                (3, "last"),
            ]
            assert (records[1].at > records[2].at) is ahead, "times are those of different clocks"
            assert await hours_left(store, "never") is None
            assert await verify(store) == []

    asyncio.run(main())


@pytest.mark.parametrize("skew", SKEWS, ids=["ahead", "behind"])
def test_setting_the_wall_clock_does_not_move_the_clock_of_memory(skew: int) -> None:
    async def main() -> None:
        async with perdure.open("memory://") as store:
            queue = queue_of(store)
            (before,) = await queue.engine.view(queue.scope, [NOW])
            with wall_clock_off_by(skew):
                (during,) = await queue.engine.view(queue.scope, [NOW])
            assert abs(during - before) < HOUR

    asyncio.run(main())
