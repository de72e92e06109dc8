"""`Store`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.store`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack, overload

from perdure.kernel.engine import Capabilities, Engine, Health
from perdure.model.message import Message
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import NewRun, Run, RunChange
from perdure.model.thread import NewThread
from perdure.stores import store as async_store
from perdure.stores.options import CommitOptions
from perdure.sync.buffered import BufferedWriter
from perdure.sync.driver import Driver
from perdure.sync.face import Face
from perdure.sync.stores.branches import Branches
from perdure.sync.stores.messages import Messages
from perdure.sync.stores.pending import Pending
from perdure.sync.stores.profiles import Profiles
from perdure.sync.stores.runs import Runs
from perdure.sync.stores.state import State
from perdure.sync.stores.thread_handle import ThreadHandle
from perdure.sync.stores.threads import Threads

# fmt: off


class Store(Face[async_store.Store], of=async_store.Store):
    """`perdure.Store`, blocking. Made by `perdure.sync.open`."""

    def __init__(self, inner: async_store.Store, driver: Driver, *, owner: bool = True) -> None:
        super().__init__(inner, driver)
        self._owner = owner
        self.threads: Threads = Threads(inner.threads, driver)
        self.messages: Messages = Messages(inner.messages, driver)
        self.branches: Branches = Branches(inner.branches, driver)
        self.pending: Pending = Pending(inner.pending, driver)
        self.runs: Runs = Runs(inner.runs, driver)
        self.state: State = State(inner.state, driver)
        self.profiles: Profiles = Profiles(inner.profiles, driver)

    @property
    def engine(self) -> Engine:
        """The engine below; for tools and tests."""
        return self._inner.engine

    @property
    def scope(self) -> str:
        """The tenant this store sees."""
        return self._inner.scope

    def thread(self, thread_id: str, *, resource_id: str | None = None) -> ThreadHandle:
        """A handle on one thread: the calls that take its id, without repeating it. Nothing is read or created."""
        return ThreadHandle(self._inner.thread(thread_id, resource_id=resource_id), self._driver)

    @overload
    def commit(
        self, thread_id: str, *, run: Run | RunChange | NewRun, **options: Unpack[CommitOptions]
    ) -> RunReceipt: ...

    @overload
    def commit(self, thread_id: str, *, run: None = None, **options: Unpack[CommitOptions]) -> Receipt: ...

    def commit(
        self, thread_id: str, *, messages: Sequence[Message] = (), run: Run | RunChange | NewRun | None = None,
        branch: int | str | None = None, expect: int | None = None, expect_head: str | None = None,
        fence: int | None = None, state: Mapping[str, Any] | None = None, run_state: Mapping[str, Any] | None = None,
        expect_state: Mapping[str, int | None] | None = None, thread: NewThread | None = None, key: str | None = None
    ) -> Receipt:
        """Make everything from one step durable, in one transaction, or none of it."""
        return self._driver.run(self._inner.commit(
            thread_id, messages=messages, run=run, branch=branch, expect=expect, expect_head=expect_head, fence=fence,
            state=state, run_state=run_state, expect_state=expect_state, thread=thread, key=key
        ))

    def buffered(
        self, thread_id: str, *, most: int = 10, every_ms: int = 1000, run: Run | None = None,
        branch: int | str | None = None, fence: int | None = None
    ) -> BufferedWriter:
        """A writer that commits messages a few at a time: `async with store.buffered("t-1") as writer: …`."""
        return BufferedWriter(self._inner.buffered(
            thread_id, most=most, every_ms=every_ms, run=run, branch=branch, fence=fence
        ).buffer, self._driver)

    def load(self, thread_id: str, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot."""
        return self._driver.read(self._inner.load(thread_id, branch=branch))

    def health(self) -> Health:
        """The engine's actual settings, read now, and what weakens its guarantees."""
        return self._driver.read(self._inner.health())

    def sweep(self) -> None:
        """Do this scope's housekeeping now, and return when it is done."""
        return self._driver.run(self._inner.sweep())

    def capabilities(self) -> Capabilities:
        """What the engine below can do."""
        return self._inner.capabilities()

    def scoped(self, scope: str) -> Store:
        """The same connections, seen as another tenant. Closing it closes nothing."""
        return Store(self._inner.scoped(scope), self._driver, owner=False)

    def close(self) -> None:
        """Finish what was submitted and release everything; may be called twice, and does nothing in a forked child."""
        if self._owner and self._driver.alive:
            try:
                self._driver.run(self._inner.close())
            finally:
                self._driver.close()

    def __repr__(self) -> str:
        return repr(self._inner).replace("perdure.Store", "perdure.sync.Store", 1)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
