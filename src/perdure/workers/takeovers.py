"""Counts how often a run was taken over from a worker that was lost: a run that kills its workers must end.

A worker that dies says nothing. Its run is still `running` when the next worker picks it up, and that one counts, in
the run itself. A worker that leaves a run in good order, because it is stopped or the store is in trouble, says so in
the run. If it cannot, it remembers the run's rev: what this process moved last, no other worker has lost.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from perdure.errors import PerdureError
from perdure.model.run import DONE, RUNNING, Run, RunChange, Takeovers
from perdure.stores.store import Store
from perdure.workers.logs import was_driven
from perdure.workers.trouble import until_stored

LOST = "worker_lost"
"""The code of a run that ends because too many workers were lost with it."""
_RELEASE_SECONDS = 5.0
_REMEMBERED = 10_000


class OwnRuns:
    """The runs that this process works on, or has left: each with the rev that it gave it last."""

    def __init__(self) -> None:
        self._revs: dict[str, int] = {}

    def note(self, run: Run) -> None:
        """This is the run as this process left it."""
        self._revs.pop(run.id, None)
        if run.status == DONE:
            return
        if len(self._revs) >= _REMEMBERED:
            self._revs.clear()
        self._revs[run.id] = run.rev

    def includes(self, run: Run) -> bool:
        """Has nobody moved the run since?"""
        return self._revs.get(run.id) == run.rev


def counted(run: Run, *, own: bool) -> Takeovers | None:
    """What a run says of lost workers once it is picked up; None: the same as before."""
    record = run.body.takeovers or Takeovers()
    if record.released:
        return replace(record, released=False)
    if own or run.status != RUNNING or not was_driven(run):
        return None
    return replace(record, count=1 if run.steps > record.steps else record.count + 1, steps=run.steps)


def in_a_row(run: Run) -> int:
    """How many workers were lost with a run since its last step."""
    record = run.body.takeovers
    return record.count if record is not None and record.steps == run.steps else 0


def given_up(run: Run, count: int) -> RunChange:
    """The end of a run with which so many workers were lost."""
    return run.fail(f"{count} workers in a row were lost while they worked on it, with no step in between", code=LOST)


async def release(store: Store, run: Run) -> None:
    """Say that this worker leaves a run to the next one, if that is possible soon and no other one has it yet."""
    if run.status != RUNNING:
        return
    record = replace(run.body.takeovers or Takeovers(), released=True)
    change = RunChange(run=run, takeovers=record, only_from=(RUNNING,))

    async def write() -> None:
        await store.commit(run.thread_id, run=change)

    with suppress(PerdureError, TimeoutError):
        async with asyncio.timeout(_RELEASE_SECONDS):
            await until_stored(write)
