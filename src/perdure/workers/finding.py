"""Looks for work: runs that are created, running, or waiting with a decision on every ticket, the oldest first.

A look reads one page per status; more, up to a bound, while there is no work on them. The next look continues where
this one ended, for each status on its own. If a page has more work than there are free hands, it begins again: older
runs come first.
"""

from __future__ import annotations

import asyncio

from perdure import limits
from perdure.model.run import CREATED, RUNNING, WAITING, Run
from perdure.stores.store import Store
from perdure.workers.lease import LEASES

Runs = list[Run]
_STATUSES = (CREATED, RUNNING, WAITING)
MOST_PAGES = 10
"""How many pages of a status without any work one look reads at most."""
LONGEST_LOOK = 0.1
"""After how many seconds a look reads no further page of a status."""


class Finder:
    """Where the last look ended, for each status."""

    def __init__(self, store: Store, agent_id: str | None) -> None:
        self._store = store
        self._agent = agent_id
        self._cursors: dict[str, str | None] = {}

    async def look(self, count: int, skip: set[str]) -> Runs:
        """At most so many runs that no worker has, the oldest first; none of those to skip."""
        look = _Look(self._store, self._agent, skip)
        pages: dict[str, Runs] = {}
        for status in _STATUSES:
            pages[status], self._cursors[status] = await look.read(status, self._cursors.get(status))
        runs = sorted((run for page in pages.values() for run in page), key=lambda run: (run.created_at, run.id))
        for run in runs[count:]:
            self._cursors[run.status] = None
        return runs[:count]


class _Look:
    """One look, which reads the leases once at most."""

    def __init__(self, store: Store, agent_id: str | None, skip: set[str]) -> None:
        self._store = store
        self._agent = agent_id
        self._skip = skip
        self._leased: set[str] | None = None
        self._until = asyncio.get_running_loop().time() + LONGEST_LOOK

    async def read(self, status: str, cursor: str | None) -> tuple[Runs, str | None]:
        """The work on the next page that has any, and where to continue."""
        runs: Runs = []
        for _ in range(MOST_PAGES):
            # The filter for the agent is applied here: together with a status it would read all runs of the agent.
            page = await self._store.runs.list(status=status, order="asc", limit=limits.PAGE_MAX, cursor=cursor)
            runs, cursor = await self._free(page.items), page.next_cursor
            if runs or cursor is None or asyncio.get_running_loop().time() >= self._until:
                break
        return runs, cursor

    async def _free(self, runs: Runs) -> Runs:
        runs = [run for run in runs if self._is_workable(run)]
        if runs and self._leased is None:
            self._leased = {profile.key async for profile in self._store.profiles.iter(LEASES)}
        return [run for run in runs if run.id not in (self._leased or ())]

    def _is_workable(self, run: Run) -> bool:
        if run.id in self._skip or self._agent not in (None, run.agent_id):
            return False
        return run.status != WAITING or run.ready
