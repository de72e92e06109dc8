"""What `runs.follow` reads: one run, again and again, until it is done.

It compares revs, so it yields every state that it sees once. The thread, on whose topic commits send hints, is known
only after the first look; the second look, after the subscription, misses nothing in between.
"""

from __future__ import annotations

from perdure.errors import NotFoundError
from perdure.kernel.ops import Get, Ref
from perdure.model.run import DONE, Run
from perdure.stores.context import Context, thread_topic
from perdure.stores.records import run_from
from perdure.stores.waiting import Waiter


class RunSource:
    """The states of one run."""

    def __init__(self, context: Context, run_id: str, waiter: Waiter) -> None:
        self.ended: bool = False
        self._context = context
        self._run_id = run_id
        self._waiter = waiter
        self._born: int | None = None
        self._rev: int | None = None

    async def read(self) -> list[Run]:
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
        return run_from(runs[0]), heads[0]["born"]
