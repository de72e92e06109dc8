"""Looks for work: runs that are created, running, or waiting with a decision on every ticket, the oldest first.

A look reads one page per status; more, up to a bound, while there is no work on them. The next look continues where
this one ended, for each status on its own. If a page has more work than there are free hands, it begins again: older
runs come first.

Most waiting runs wait for a person, for days. Once a worker has been through all of them, it reads one page of them per
look, and the waiting runs of threads that were active since the last look: a decision is a commit, which moves its
thread to the top of `threads.list`. If there were more such threads than it reads, it goes through all runs again; so
it does while the threads at the top are from the future, because the store's clock was set back.
"""

from __future__ import annotations

import asyncio

from perdure.errors import CorruptError
from perdure.model.run import CREATED, RUNNING, WAITING, Run
from perdure.model.thread import Thread
from perdure.stores.sound_runs import RunPages, engine_time
from perdure.stores.store import Store
from perdure.workers.damage import DamageLog
from perdure.workers.lease import LEASES

Runs = list[Run]
_STATUSES = (CREATED, RUNNING, WAITING)
MOST_PAGES = 10
"""How many pages of a status without any work one look reads at most."""
ACTIVE_THREADS = 20
"""How many threads a look reads, the last active first."""
LONGEST_LOOK = 0.1
"""After how many seconds a look reads no further page of a status."""


class Finder:
    """Where the last look ended, for each status."""

    def __init__(self, store: Store, agent_id: str | None) -> None:
        self._store = store
        self._agent = agent_id
        self._damage = DamageLog()
        self._cursors: dict[str, str | None] = {}
        self._active: dict[str, Thread] = {}
        self._looked_at = 0
        self._rounds = 1
        """How often it has yet to go through all waiting runs."""

    async def look(self, count: int, skip: set[str]) -> Runs:
        """At most so many runs that no worker has, the oldest first; none of those to skip."""
        look = _Look(self._store, self._agent, skip, self._damage)
        now = await engine_time(self._store)
        active = await self._last_active(now)
        ready = await look.ready([thread for thread in active if self._has_changed(thread)])
        paged: dict[str, Run] = {}
        for status in _STATUSES:
            pages = MOST_PAGES if status != WAITING or self._rounds else 1
            page, self._cursors[status] = await look.read(status, self._cursors.get(status), pages)
            paged |= {run.id: run for run in page}
        if self._rounds and self._cursors[WAITING] is None:
            self._rounds -= 1
        oldest = self._oldest({run.id: run for run in await look.free(ready)}, paged, count)
        # The next look reads these threads again: the worker that let the run wait may not have released it yet.
        left = {run.thread_id for run in ready} - {run.thread_id for run in oldest}
        self._active = {thread.id: thread for thread in active if thread.id not in left}
        self._looked_at = now
        return oldest

    async def _last_active(self, now: int) -> list[Thread]:
        """The threads that were active last."""
        try:
            active = (await self._store.threads.list(limit=ACTIVE_THREADS)).items
        except CorruptError as error:  # one damaged thread must not keep the others from being worked on
            self._damage.note(error)
            self._rounds = 2
            return []
        if len(active) == ACTIVE_THREADS and not self._has_all_changes(active, now):
            self._rounds = 2  # perhaps more have moved: finish this round, which may be past them, and add a whole one
        return active

    def _has_all_changes(self, active: list[Thread], now: int) -> bool:
        """Is one of these threads as it was, and older than every change since the last look? Then no change is below.

        If the clock was set back, threads that have not changed stay above those that do.
        """
        oldest = min(now, self._looked_at)
        return any(thread.updated_at < oldest and not self._has_changed(thread) for thread in active)

    def _has_changed(self, thread: Thread) -> bool:
        """Was the thread active since the last look? It may have several runs, so its open run says too little."""
        return self._active.get(thread.id) != thread

    def _oldest(self, active: dict[str, Run], paged: dict[str, Run], count: int) -> Runs:
        """The oldest of the ready runs of active threads and of the work on pages."""
        runs = sorted((active | paged).values(), key=lambda run: (run.created_at, run.id))
        # Runs that no page has led to say nothing of where the oldest are: a walk through the pages must not end there.
        for run in [run for run in runs[count:] if run.id in paged]:
            self._cursors[run.status] = None
            if run.status == WAITING:
                self._rounds = max(self._rounds, 1)
        return runs[:count]


class _Look:
    """One look, which reads the leases once at most."""

    def __init__(self, store: Store, agent_id: str | None, skip: set[str], damage: DamageLog) -> None:
        self._store = store
        self._agent = agent_id
        self._skip = skip
        self._damage = damage
        self._pages = RunPages(store, damage.note)
        self._leased: set[str] | None = None
        self._until = asyncio.get_running_loop().time() + LONGEST_LOOK

    async def ready(self, threads: list[Thread]) -> Runs:
        """The runs of these threads that wait and are ready, even if a worker still has them."""
        pages = [await self._pages.read(WAITING, thread_id=thread.id) for thread in threads]
        return [run for page in pages for run in page if run.ready and self._agent in (None, run.agent_id)]

    async def read(self, status: str, cursor: str | None, pages: int) -> tuple[Runs, str | None]:
        """The work on the next page that has any, and where to continue."""
        runs: Runs = []
        for _ in range(pages):
            # The filter for the agent is applied here: together with a status it would read all runs of the agent.
            page = await self._pages.read(status, cursor=cursor)
            runs, cursor = await self.free(page.items), page.next_cursor
            if runs or cursor is None or asyncio.get_running_loop().time() >= self._until:
                break
        return runs, cursor

    async def free(self, runs: Runs) -> Runs:
        """Those that may be worked on, and that no worker has."""
        runs = [run for run in runs if self._is_workable(run)]
        if runs and self._leased is None:
            self._leased = await self._leases()
        return [run for run in runs if run.id not in (self._leased or ())]

    async def _leases(self) -> set[str]:
        leased: set[str] = set()
        try:
            async for profile in self._store.profiles.iter(LEASES):
                leased.add(profile.key)
        except CorruptError as error:  # those that were not read are found when the run is claimed
            self._damage.note(error)
        return leased

    def _is_workable(self, run: Run) -> bool:
        if run.id in self._skip or self._agent not in (None, run.agent_id):
            return False
        return run.status != WAITING or run.ready
