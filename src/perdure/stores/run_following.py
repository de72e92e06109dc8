"""What `runs.follow` reads: one run until it is done, or the runs of a thread.

Both compare revs, so they yield every state that they see once. The thread of a single run, on whose topic commits send
hints, is known only after the first look; the second look, after the subscription, misses nothing in between. A look at
a whole thread reads the runs that are open or new, however many have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure import limits
from perdure.errors import NotFoundError
from perdure.kernel.ops import NOW, Get, ReadOp, Ref, Row, Scan
from perdure.model.run import CREATED, DONE, RUNNING, WAITING, Run
from perdure.stores.context import Context, check_resource, require, thread_topic
from perdure.stores.following import reborn
from perdure.stores.records import run_from
from perdure.stores.waiting import Waiter

_OPEN = (CREATED, RUNNING, WAITING)
_OVERLAP_MS = 10_000
"""How far a look reads back past the time of the last one. Runs do not appear in the order of `created_at` and id: two
may share a millisecond, and a commit takes its time before others can see it."""


class RunSource:
    """The states of one run."""

    behind = at_end = False

    def __init__(self, context: Context, run_id: str, waiter: Waiter, resource: str | None = None) -> None:
        self.ended: bool = False
        self._resource = resource
        self._context = context
        self._run_id = run_id
        self._waiter = waiter
        self._born: int | None = None
        self._rev: int | None = None

    async def read(self, *, fresh: bool = True) -> list[Run]:
        """The run, if it has changed; raises `NotFoundError` if it does not exist, or no longer does."""
        run, born = await self._look()
        if self._born is None:
            self._waiter.topic = thread_topic(run.thread_id)
            self._waiter.subscribe()
            self._born = born
            run, born = await self._look()
        if born != self._born:
            raise NotFoundError(f"run {self._run_id!r} was deleted", hint="another one has its id now")
        if run.rev == self._rev:
            return []
        self._rev = run.rev
        self.ended = run.status == DONE
        return [run]

    async def _look(self) -> tuple[Run, int]:
        """The run, and the incarnation of its thread."""
        runs, heads = await self._context.view(Get("runs", [(self._run_id,)]), Get("thread_heads", Ref(0, ("thread",))))
        if runs[0] is None or not heads:
            raise NotFoundError(f"run {self._run_id!r} does not exist")
        check_resource(heads[0], self._resource)
        return run_from(runs[0]), heads[0]["born"]


class ThreadLook(NamedTuple):
    """What one look at a thread read: the engine's time, the runs by id, the latest run's id, and which were current.

    `current` holds the runs that were open at some moment of the look, and the latest one.
    """

    now: int
    rows: dict[str, Row]
    latest: str | None
    current: set[str]


class ThreadRunsSource:
    """The states of all runs of a thread, from those that are open and the latest one on; it never ends by itself."""

    ended = behind = at_end = False

    def __init__(
        self, context: Context, thread_id: str, branch: int | None = None, resource: str | None = None
    ) -> None:
        self._context = context
        self._thread_id = thread_id
        self._branch = branch
        self._resource = resource
        self._born: int | None = None
        self._since: int | None = None
        self._revs: dict[str, int] = {}
        self._open: set[str] = set()
        self._latest_id: str | None = None
        """The latest run of the branch. The first look scans for it; a later one is among the runs that are new."""

    async def read(self, *, fresh: bool = True) -> list[Run]:
        """The runs that are new or have changed, oldest first; raises `NotFoundError` when the thread is deleted."""
        since = self._since
        if since is None:
            since = (await self._view())[0] - _OVERLAP_MS
        look = await self._look(since)
        runs = [
            run_from(row)
            for run_id, row in look.rows.items()
            if row.rev != self._revs.get(run_id) and (self._since is not None or run_id in look.current)
        ]
        self._remember(look, max(since, look.now - _OVERLAP_MS))
        return sorted(runs, key=lambda run: (run.created_at, run.id))

    def _remember(self, look: ThreadLook, since: int) -> None:
        """Note what the next look needs: nothing of a run that ended, once no look reads it again."""
        self._since = since
        self._open = {run_id for run_id, row in look.rows.items() if row["status"] != DONE}
        self._revs = {
            run_id: row.rev
            for run_id, row in look.rows.items()
            if run_id in self._open or run_id == look.latest or row["created_at"] >= since
        }

    async def _look(self, since: int) -> ThreadLook:
        """The open runs, those created since a time, the latest, and those that were open before: mostly one trip."""
        rows: dict[str, Row] = {}
        current: set[str] = set()
        scans = [Scan("runs", "thread_status", (self._thread_id, status), limit=limits.PAGE_MAX) for status in _OPEN]
        scans.append(Scan("runs", "thread", (self._thread_id,), (since, ""), limits.PAGE_MAX))
        times: list[int] = []
        latest: list[Row] = []
        while scans:
            now, latest, pages = await self._view(*scans)
            times.append(now)
            for index, page in ((None, latest), *zip([scan.index for scan in scans], pages, strict=True)):
                rows |= {str(row.key[0]): row for row in page}
                current |= {str(row.key[0]) for row in page if index != "thread"}
            scans = _rest(scans, pages)
        rows |= await self._get([run_id for run_id in self._open if run_id not in rows])
        if self._branch is not None:  # of a whole thread, its row names the latest
            latest = sorted(self._of_branch([*latest, *rows.values()]), key=_place)[-1:]
        self._latest_id = str(latest[0].key[0]) if latest else None
        current |= {str(row.key[0]) for row in latest}
        return ThreadLook(min(times), rows, self._latest_id, current)

    async def _get(self, run_ids: list[str]) -> dict[str, Row]:
        """Runs by id: those that were open and have ended, unless they are new or the latest."""
        rows: dict[str, Row] = {}
        for start in range(0, len(run_ids), limits.PAGE_MAX):
            keys = [(run_id,) for run_id in run_ids[start : start + limits.PAGE_MAX]]
            _, _, pages = await self._view(Get("runs", keys))
            rows |= {str(row.key[0]): row for row in pages[0] if row is not None}
        return rows

    def _latest(self) -> ReadOp:
        """The latest run, of the branch if there is one."""
        if self._branch is not None and self._since is None:
            return Scan("runs", "thread", (self._thread_id,), limit=1, desc=True, where={"branch": self._branch})
        if self._branch is None or self._latest_id is None:
            return Get("runs", Ref(1, ("latest_run",)))
        return Get("runs", [(self._latest_id,)])

    async def _view(self, *reads: ReadOp) -> tuple[int, list[Row], list[list[Any]]]:
        """The engine's time, the latest run if there is one, and the answers, all of the thread that is followed."""
        now, heads, latest, *pages = await self._context.view(
            NOW, Get("thread_heads", [(self._thread_id,)]), self._latest(), *reads
        )
        born = require(heads[0], f"thread {self._thread_id!r}")["born"]
        check_resource(heads[0], self._resource)
        if self._born not in (None, born):
            raise reborn(self._thread_id)
        self._born = born
        return now, self._of_branch(latest), pages

    def _of_branch(self, rows: Sequence[Row | None]) -> list[Row]:
        """Those that exist and are on the branch, if there is one."""
        return [row for row in rows if row is not None and self._branch in (None, row["branch"])]


def _place(row: Row) -> tuple[int, str]:
    """Where a run stands among those of its thread."""
    return row["created_at"], str(row.key[0])


def _rest(scans: Sequence[Scan], pages: Sequence[Sequence[Row]]) -> list[Scan]:
    """The scans that read on after full pages; none if there are none.

    Scans of one index go on together, from the same place in their common order: a run that moves to another status
    between two pages is read there.
    """
    ends: dict[str | None, tuple[int, str]] = {}
    for scan, page in zip(scans, pages, strict=True):
        if len(page) == limits.PAGE_MAX:
            end = _place(page[-1])
            ends[scan.index] = min(end, ends.get(scan.index, end))
    return [msgspec.structs.replace(scan, after=ends[scan.index]) for scan in scans if scan.index in ends]
