"""`Runs`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.runs`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from perdure import limits
from perdure.model.page import Page
from perdure.model.run import Run
from perdure.stores import runs as async_runs
from perdure.stores.runs import RunFilters, RunRecords, StartOptions
from perdure.sync.driver import Driver
from perdure.sync.follower import Follower

# fmt: off


class Runs:
    """`store.runs`, blocking."""

    def __init__(self, inner: async_runs.Runs, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def create(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A run that has not begun; takes the options of `start`. It becomes the thread's latest run."""
        return self._driver.run(self._inner.create(thread_id, agent_id, **options))

    def start(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit.

        The options are those of `StartOptions`: `messages` is its input, `key` makes a retry safe, and so on.
        A missing thread is created, with what `thread` says of it (see `NewThread`); parent and resource come from the
        activation's trace where it says nothing. `if_idle=True` raises `ConflictError`, which names the run, if a run
        of the thread is running or waiting; of several such calls at the same time, one succeeds.
        """
        return self._driver.run(self._inner.start(thread_id, agent_id, **options))

    def cancel(self, run_id: str, detail: str | None = None) -> Run:
        """End a run from outside, however often its worker moves it meanwhile; `detail` says why.

        A run that is already done is returned as it is. The next commit of its worker with the run is rejected, and
        nothing of that step is stored.
        """
        return self._driver.run(self._inner.cancel(run_id, detail))

    def decide(self, run_id: str, ticket_id: str, value: Any) -> Run:
        """Record the decision on a ticket of a waiting run, even while others change the run.

        `value` is any JSON value but null. The run goes on waiting; once it is `ready`, a worker resumes it. The same
        decision again returns the run as it is, also after it was resumed; another one raises `VersionConflict`.
        Raises `NotFoundError` unless the run waits for the ticket, and `IllegalTransition` if the run is done.
        """
        return self._driver.run(self._inner.decide(run_id, ticket_id, value))

    def follow(self, run_id: str, *, timeout: float | None = None) -> Follower[Run]:
        """The run as it is now, then after each change, until it is done.

        Read it with `async for`. States that follow each other quickly may be merged: you see the latest. It ends after
        a run that is done, when it is closed, from any task or thread, or after `timeout` seconds without a change. It
        raises `NotFoundError` when the run's thread is deleted, and `UnavailableError` when the store is closed.
        """
        return Follower(self._inner.follow(run_id, timeout=timeout), self._driver)

    def find(self, run_id: str) -> Run | None:
        """The run, or None."""
        return self._driver.read(self._inner.find(run_id))

    def get(self, run_id: str) -> Run:
        """The run; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(run_id))

    def latest(self, thread_id: str) -> Run | None:
        """The thread's latest run: the one created, or changed while running, most recently; None if it has none."""
        return self._driver.read(self._inner.latest(thread_id))

    def list(
        self, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, **filters: Unpack[RunFilters]
    ) -> Page[Run]:
        """Runs by creation, newest first: all, or those that every filter admits.

        - `thread_id`: runs of this thread.
        - `status`: `created`, `running`, `waiting` or `done`.
        - `agent_id`: runs of this agent.
        - `resource_id`: runs of threads that belong to this resource now. A run does not record it: the list reads the
          runs that the other filters admit and skips those of other resources, so give another filter where you can.
        - `order`: `desc`, or `asc` for oldest first.
        - `limit`, `cursor`: the size of a page, and where it begins.

        There is an index for a thread, for a thread with a status, for an agent and for a status. Other combinations
        read one of these and skip what the rest does not admit.
        """
        return self._driver.read(self._inner.list(limit=limit, cursor=cursor, **filters))

    def iter(self, **filters: Unpack[RunFilters]) -> Iterator[Run]:
        """Every run of the list, page by page; takes the filters and the order of `list`."""
        return self._driver.iterate(self._inner.iter(**filters))

    def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> RunRecords:
        """The runs whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A run whose id equals the prefix comes first. Use it to look up an id that somebody abbreviated.
        """
        return self._driver.read(self._inner.with_prefix(prefix, limit=limit))
