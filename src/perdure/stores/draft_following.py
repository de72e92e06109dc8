"""What `runs.follow_drafts` reads: the drafts of a thread, compared with what was seen of them before.

A draft is a profile with a time to live. Its owner is made from the id of the thread, and its key is the id of the run;
`job.draft` of a worker writes it. Profiles outlive threads and runs, so a draft counts only while its run is running in
this very thread.
"""

from __future__ import annotations

import hashlib

from perdure import limits
from perdure.kernel.ops import NOW, Get, Row, Scan
from perdure.model.draft import Draft
from perdure.model.run import RUNNING
from perdure.rules.expiry import has_expired
from perdure.stores.context import Context, check_resource, require
from perdure.stores.following import reborn
from perdure.stores.records import profile_from


def draft_owner(thread_id: str) -> str:
    """The owner of the profiles that are the drafts of a thread."""
    owner = f"draft:{thread_id}"
    if len(owner.encode()) <= limits.ID_BYTES:
        return owner
    # Another prefix: no thread can be named so that it has the drafts of this one.
    return f"draft-sha256:{hashlib.sha256(thread_id.encode()).hexdigest()}"


class DraftSource:
    """The drafts of a thread that have changed or gone since the last look. It never ends by itself."""

    ended: bool = False

    def __init__(self, context: Context, thread_id: str, resource: str | None) -> None:
        self._context = context
        self._thread_id = thread_id
        self._resource = resource
        self._born: int | None = None
        self._texts: dict[str, str] = {}

    async def read(self, *, fresh: bool = True) -> list[Draft]:
        """Every change since the last look; raises `NotFoundError` when the thread is deleted."""
        texts = await self._look()
        changed = [run_id for run_id, text in texts.items() if self._texts.get(run_id) != text]
        gone = sorted(self._texts.keys() - texts.keys())
        self._texts = texts
        return [Draft(run_id=run_id, text=texts.get(run_id)) for run_id in (*changed, *gone)]

    async def _look(self) -> dict[str, str]:
        """The text of each draft, by run: one trip while there are none."""
        now, heads, rows = await self._context.view(
            NOW,
            Get("thread_heads", [(self._thread_id,)]),
            Scan("profiles", eq=(draft_owner(self._thread_id),), limit=limits.PAGE_MAX),
        )
        self._check(require(heads[0], f"thread {self._thread_id!r}"))
        drafts = [profile_from(row) for row in rows if not has_expired(row, now)]
        if not drafts:
            return {}
        runs = (await self._context.view(Get("runs", [(draft.key,) for draft in drafts])))[0]
        active = {row.key[0] for row in runs if row and (row["thread"], row["status"]) == (self._thread_id, RUNNING)}
        return {draft.key: draft.value for draft in drafts if draft.key in active and isinstance(draft.value, str)}

    def _check(self, head: Row) -> None:
        """Raise `NotFoundError` if the thread is another one than before, or belongs to another resource."""
        check_resource(head, self._resource)
        if self._born not in (None, head["born"]):
            raise reborn(self._thread_id)
        self._born = head["born"]
