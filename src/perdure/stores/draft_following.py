"""What `runs.follow_drafts` reads: the drafts of a thread, compared with what was seen of them before.

Only the running runs of the thread are asked for, each as it is now: what dead workers left is never read.
"""

from __future__ import annotations

import msgspec

from perdure import limits
from perdure.kernel.ops import Get, Row, Scan
from perdure.model.draft import Draft
from perdure.model.run import RUNNING
from perdure.stores.context import Context, check_resource, require
from perdure.stores.drafts import read_drafts
from perdure.stores.following import reborn


class DraftSource:
    """The drafts of a thread that have changed or gone since the last look. It never ends by itself."""

    ended = behind = at_end = False

    def __init__(self, context: Context, thread_id: str, branch: int | None, resource: str | None) -> None:
        self._context = context
        self._thread_id = thread_id
        self._branch = branch
        self._resource = resource
        self._born: int | None = None
        self._drafts: dict[str, Draft] = {}

    async def read(self, *, fresh: bool = True) -> list[Draft]:
        """Every change since the last look; raises `NotFoundError` when the thread is deleted."""
        drafts = await self._look()
        changed = [draft for run_id, draft in drafts.items() if self._drafts.get(run_id) != draft]
        gone = [draft for run_id, draft in sorted(self._drafts.items()) if run_id not in drafts]
        self._drafts = drafts
        return changed + [Draft(run_id=draft.run_id, branch=draft.branch, text=None) for draft in gone]

    async def _look(self) -> dict[str, Draft]:
        """Each draft by its run: one trip while no run is running."""
        scan = Scan("runs", "thread_status", (self._thread_id, RUNNING), limit=limits.PAGE_MAX)
        heads, rows = await self._context.view(Get("thread_heads", [(self._thread_id,)]), scan)
        self._check(require(heads[0], f"thread {self._thread_id!r}"))
        page = rows
        while len(page) == limits.PAGE_MAX:
            after = (page[-1]["created_at"], str(page[-1].key[0]))
            page = (await self._context.view(msgspec.structs.replace(scan, after=after)))[0]
            rows = [*rows, *page]
        runs = {str(row.key[0]): row for row in rows if self._branch in (None, row["branch"])}
        if not runs:
            return {}
        texts = await read_drafts(self._context, self._thread_id, [(run_id, row.rev) for run_id, row in runs.items()])
        return {
            run_id: Draft(run_id=run_id, branch=runs[run_id]["branch"], text=text) for run_id, text in texts.items()
        }

    def _check(self, head: Row) -> None:
        """Raise `NotFoundError` if the thread is another one than before, or belongs to another resource."""
        check_resource(head, self._resource)
        if self._born not in (None, head["born"]):
            raise reborn(self._thread_id)
        self._born = head["born"]
