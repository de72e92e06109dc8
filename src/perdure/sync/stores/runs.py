"""`Runs`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.runs`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from perdure import limits
from perdure.model.draft import Draft
from perdure.model.message import Message
from perdure.model.page import Page
from perdure.model.run import Run
from perdure.stores import runs as async_runs
from perdure.stores.runs import RunFilters, RunRecords, StartOptions
from perdure.sync.face import Face
from perdure.sync.follower import Follower

# fmt: off


class Runs(Face[async_runs.Runs], of=async_runs.Runs):
    """`store.runs`, blocking."""

    def create(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A run that has not begun; takes the options of `start`. It becomes the thread's latest run."""
        return self._driver.run(self._inner.create(thread_id, agent_id, **options))

    def start(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit."""
        return self._driver.run(self._inner.start(thread_id, agent_id, **options))

    def cancel(
        self, run_id: str, detail: str | None = None, *, keep_draft: bool = False, answer_calls: str | None = None,
        thread_id: str | None = None
    ) -> Run:
        """End a run from outside, however often its worker changes it at the same time."""
        return self._driver.run(self._inner.cancel(
            run_id, detail, keep_draft=keep_draft, answer_calls=answer_calls, thread_id=thread_id
        ))

    def rerun(
        self, run_id: str | None = None, *, message_id: str | None = None, messages: Sequence[Message] | None = None,
        agent_id: str | None = None, metadata: dict[str, Any] | None = None, name: str | None = None,
        replace: bool = True, thread_id: str | None = None, new_run_id: str | None = None, fence: int | None = None,
        key: str | None = None
    ) -> Run:
        """Answer again on a new branch: regenerate what a run produced, or edit what it was asked."""
        return self._driver.run(self._inner.rerun(
            run_id, message_id=message_id, messages=messages, agent_id=agent_id, metadata=metadata, name=name,
            replace=replace, thread_id=thread_id, new_run_id=new_run_id, fence=fence, key=key
        ))

    def decide(self, run_id: str, ticket_id: str, value: Any, *, thread_id: str | None = None) -> Run:
        """Record the decision on a ticket of a waiting run, even while others change the run."""
        return self._driver.run(self._inner.decide(run_id, ticket_id, value, thread_id=thread_id))

    def follow(
        self, run_id: str | None = None, *, thread_id: str | None = None, branch: int | None = None,
        timeout: float | None = None, resource_id: str | None = None
    ) -> Follower[Run]:
        """A run, or the runs of a thread: as they are now, then after each change."""
        return Follower(self._inner.follow(
            run_id, thread_id=thread_id, branch=branch, timeout=timeout, resource_id=resource_id
        ), self._driver)

    def follow_drafts(
        self, thread_id: str, *, branch: int | None = None, timeout: float | None = None,
        resource_id: str | None = None
    ) -> Follower[Draft]:
        """The words of the running runs of a thread as they come: each draft as it is now, then after each change."""
        return Follower(self._inner.follow_drafts(
            thread_id, branch=branch, timeout=timeout, resource_id=resource_id
        ), self._driver)

    def find(self, run_id: str, *, thread_id: str | None = None) -> Run | None:
        """The run, or None. With `thread_id`, only a run of this thread."""
        return self._driver.read(self._inner.find(run_id, thread_id=thread_id))

    def get(self, run_id: str, *, thread_id: str | None = None) -> Run:
        """The run; raises `NotFoundError`. With `thread_id`, also for a run of another thread."""
        return self._driver.read(self._inner.get(run_id, thread_id=thread_id))

    def of_message(self, thread_id: str, message_id: str) -> Run | None:
        """The run that produced a message or, if there is none, the first run that was started with it, or None."""
        return self._driver.run(self._inner.of_message(thread_id, message_id))

    def latest(self, thread_id: str) -> Run | None:
        """The thread's latest run: the one created, or changed while running, most recently; None if it has none."""
        return self._driver.read(self._inner.latest(thread_id))

    def list(
        self, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, **filters: Unpack[RunFilters]
    ) -> Page[Run]:
        """Runs by creation, newest first: all, or those that every filter admits."""
        return self._driver.read(self._inner.list(limit=limit, cursor=cursor, **filters))

    def iter(self, **filters: Unpack[RunFilters]) -> Iterator[Run]:
        """Every run of the list, page by page; takes the filters and the order of `list`."""
        return self._driver.iterate(self._inner.iter(**filters))

    def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> RunRecords:
        """The runs whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200)."""
        return self._driver.read(self._inner.with_prefix(prefix, limit=limit))
