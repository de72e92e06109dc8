"""Where the draft of a run is stored: the words of an answer that is still being written.

A draft is a profile with a time to live, which the run's worker writes (`job.draft`). Its owner is made from the id of
the thread. Its key is the run's rev: whatever moves the run, an answer, a stop or another worker, makes the draft that
was there before it void. So no two workers ever write the same draft, and one that nobody removed is never shown again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from perdure import limits
from perdure.errors import CorruptError
from perdure.kernel.ops import NOW, Get, Row
from perdure.model.run import RUNNING, Run
from perdure.rules.expiry import has_expired
from perdure.stores.context import Context
from perdure.stores.records import profile_from


def draft_owner(thread_id: str) -> str:
    """The owner of the profiles that are the drafts of a thread."""
    owner = f"draft:{thread_id}"
    if len(owner.encode()) <= limits.ID_BYTES:
        return owner
    # Another prefix: no thread can be named so that it has the drafts of this one.
    return f"draft-sha256:{hashlib.sha256(thread_id.encode()).hexdigest()}"


def draft_key(run_rev: int) -> str:
    """The key of the draft that is written while a run has this rev."""
    return str(run_rev)


def draft_value(run_id: str, text: str) -> dict[str, str]:
    """What is stored of a draft."""
    return {"run_id": run_id, "text": text}


async def read_drafts(context: Context, thread_id: str, runs: Sequence[tuple[str, int]]) -> dict[str, str]:
    """The words that are shown of some runs of a thread, each named by its id and rev; only those that show any."""
    owner, revs = draft_owner(thread_id), list(dict.fromkeys(rev for _, rev in runs))  # imported runs may share one
    drafts: dict[int, Row | None] = {}
    now = 0
    for start in range(0, len(revs), limits.BATCH_ROWS):
        some = revs[start : start + limits.BATCH_ROWS]
        now, rows = await _rows(context, owner, some)
        drafts |= dict(zip(some, rows, strict=True))
    texts = {run_id: _text(drafts[rev], run_id, now) for run_id, rev in runs}
    return {run_id: text for run_id, text in texts.items() if text}


async def _rows(context: Context, owner: str, revs: Sequence[int]) -> tuple[int, Sequence[Row | None]]:
    """The engine's time and the rows of some drafts; a row that the engine cannot read counts as none."""
    try:
        now, rows = await context.view(NOW, Get("profiles", [(owner, draft_key(rev)) for rev in revs]))
    except CorruptError:  # nothing depends on a draft
        if len(revs) == 1:
            return 0, [None]
        halves = [await _rows(context, owner, half) for half in (revs[: len(revs) // 2], revs[len(revs) // 2 :])]
        return max(now for now, _ in halves), [row for _, rows in halves for row in rows]
    return now, rows


def _text(row: Row | None, run_id: str, now: int) -> str:
    """The words of a draft; none if it has expired, is damaged, or is no draft of this run."""
    if row is None or has_expired(row, now):
        return ""
    try:
        value = profile_from(row).value
    except CorruptError:  # nothing depends on a draft
        return ""
    text = value.get("text") if isinstance(value, dict) and value.get("run_id") == run_id else None
    return text if isinstance(text, str) else ""


async def read_draft(context: Context, run: Run) -> str:
    """The words that a run shows now, `""` if there are none."""
    if run.status != RUNNING:
        return ""
    return (await read_drafts(context, run.thread_id, [(run.id, run.rev)])).get(run.id, "")
