"""The blocking face: `perdure.sync.open(url)` gives the same stores with the same methods, without `await`.

It is usable from several threads. On an embedded engine a commit runs on the caller's own thread, or joins the group
commit of whoever is writing at that moment; a store on a server has one background thread with an event loop, where
its connections live. Inside a running event loop it refuses, with a hint: there, use `perdure.open`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any

from perdure.clock import Clock, system_clock
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Capabilities, Engine, Health
from perdure.model.message import Message
from perdure.model.receipt import Receipt, Snapshot
from perdure.model.run import NewRun, Run, RunChange
from perdure.opening import DurabilityChoice, as_text, check_options, is_server, make_store, open_engine
from perdure.rules.checks import check_scope
from perdure.stores.store import Store as AsyncStore
from perdure.sync.driver import Driver, LoopDriver
from perdure.sync.stores import Branches, Messages, Pending, Runs, State, Threads

__all__ = ["Branches", "Messages", "Pending", "Runs", "State", "Store", "Threads", "open"]


class Store:
    """`perdure.Store`, blocking. Made by `perdure.sync.open`."""

    def __init__(self, inner: AsyncStore, driver: Driver, *, owner: bool = True) -> None:
        self._inner = inner
        self._driver = driver
        self._owner = owner
        self.threads: Threads = Threads(inner.threads, driver)
        self.messages: Messages = Messages(inner.messages, driver)
        self.branches: Branches = Branches(inner.branches, driver)
        self.pending: Pending = Pending(inner.pending, driver)
        self.runs: Runs = Runs(inner.runs, driver)
        self.state: State = State(inner.state, driver)

    @property
    def engine(self) -> Engine:
        """The engine below; for tools and tests."""
        return self._inner.engine

    @property
    def scope(self) -> str:
        """The tenant this store sees."""
        return self._inner.scope

    def commit(
        self,
        thread_id: str,
        *,
        messages: Sequence[Message] = (),
        run: Run | RunChange | NewRun | None = None,
        branch: int | str | None = None,
        expect: int | None = None,
        expect_head: str | None = None,
        fence: int | None = None,
        state: Mapping[str, Any] | None = None,
        run_state: Mapping[str, Any] | None = None,
        expect_state: Mapping[str, int | None] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Make everything of one step durable, in one transaction, or nothing of it (see `perdure.Store.commit`)."""
        return self._driver.run(
            self._inner.commit(
                thread_id,
                messages=messages,
                run=run,
                branch=branch,
                expect=expect,
                expect_head=expect_head,
                fence=fence,
                state=state,
                run_state=run_state,
                expect_state=expect_state,
                key=key,
            )
        )

    def load(self, thread_id: str, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot."""
        return self._driver.read(self._inner.load(thread_id, branch=branch))

    def health(self) -> Health:
        """The engine's real settings, read now, and what weakens its promises."""
        return self._driver.read(self._inner.health())

    def capabilities(self) -> Capabilities:
        """What the engine below can do."""
        return self._inner.capabilities()

    def scoped(self, scope: str) -> Store:
        """The same connections, seen as another tenant. Closing it closes nothing."""
        return Store(self._inner.scoped(scope), self._driver, owner=False)

    def close(self) -> None:
        """Finish what was submitted and let everything go; idempotent, and nothing at all in a forked child."""
        if self._owner and self._driver.alive:
            try:
                self._driver.run(self._inner.close())
            finally:
                self._driver.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(
    url: str | PathLike[str],
    *,
    scope: str = "default",
    durability: DurabilityChoice = "power",
    read_only: bool = False,
    clock: Clock = system_clock,
    pool: None = None,
    housekeeping: bool = True,
) -> Store:
    """Open a store for blocking callers; use it with `with`, or close it. The options are those of `perdure.open`.

    It takes no `pool`: the connections of an async pool belong to the event loop that made it, and here is none.
    """
    given: object = pool
    if given is not None:
        raise UnsupportedError(
            "a pool belongs to the event loop that made it, so a blocking store cannot use it",
            hint="leave pool out, or use perdure.open with async code",
        )
    check_scope(scope)
    check_options(read_only=read_only, clock=clock, housekeeping=housekeeping)
    url = as_text(url)
    driver = LoopDriver() if is_server(url) else Driver()
    try:
        engine = driver.run(open_engine(url, durability=durability, read_only=read_only, clock=clock))
        inner = make_store(engine.blocking() or engine, scope, housekeeping=housekeeping and not read_only)
    except BaseException:
        driver.close()
        raise
    return Store(inner, driver)
