"""Looks for work: runs that are created, running, or waiting with a decision on every ticket, the oldest first.

A look costs one page per status, however many runs are open. If there are more, the next look continues after that
page, but only once everything on it is in work.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure import limits
from perdure.model.run import CREATED, RUNNING, WAITING, Run
from perdure.stores.store import Store
from perdure.workers.lease import LEASES

Runs = list[Run]
_STATUSES = (CREATED, RUNNING, WAITING)


class Finder:
    """Where the last look ended, for each status."""

    def __init__(self, store: Store, agent_id: str | None) -> None:
        self._store = store
        self._agent = agent_id
        self._cursors: dict[str, str | None] = {}

    async def look(self, count: int, skip: set[str]) -> Runs:
        """At most so many runs that no worker has, the oldest first; none of those to skip."""
        runs: Runs = []
        cursors: dict[str, str | None] = {}
        for status in _STATUSES:
            # The filter for the agent is applied here: together with a status it would read all runs of the agent.
            page = await self._store.runs.list(
                status=status, order="asc", limit=limits.PAGE_MAX, cursor=self._cursors.get(status)
            )
            cursors[status] = page.next_cursor
            runs += self._workable(page.items)
        runs = [run for run in runs if run.id not in skip]
        if runs:
            leased = {profile.key async for profile in self._store.profiles.iter(LEASES)}
            runs = [run for run in runs if run.id not in leased]
        self._cursors = cursors if len(runs) <= count else {}
        return sorted(runs, key=lambda run: (run.created_at, run.id))[:count]

    def _workable(self, runs: Runs) -> Iterator[Run]:
        for run in runs:
            if self._agent in (None, run.agent_id) and (run.status != WAITING or run.ready):
                yield run
