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
from perdure.sync.stores.branches import Branches
from perdure.sync.stores.messages import Messages
from perdure.sync.stores.pending import Pending
from perdure.sync.stores.profiles import Profiles
from perdure.sync.stores.runs import Runs
from perdure.sync.stores.state import State
from perdure.sync.stores.thread_handle import ThreadHandle
from perdure.sync.stores.threads import Threads

# fmt: off


class Store:
    """`perdure.Store`, blocking. Made by `perdure.sync.open`."""

    def __init__(self, inner: async_store.Store, driver: Driver, *, owner: bool = True) -> None:
        self._inner = inner
        self._driver = driver
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

    def thread(self, thread_id: str) -> ThreadHandle:
        """A handle of one thread: the calls that take its id, without repeating it. Nothing is read or created."""
        return ThreadHandle(self._inner.thread(thread_id), self._driver)

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
        """Make everything of one step durable, in one transaction, or nothing of it.

        A missing thread is created, unless the commit presumes that it exists: by an existing run, a fence, an
        `expect` above 0, an `expect_head`, a rev in `expect_state`, or a branch other than 0.

        - `messages`: appended to the branch, in order. Ids are minted where they are None.
        - `run`: `NewRun(agent_id=…)` creates a run; a change such as `run.step()` or `run.finish()` moves one; a `Run`
          as it was read only guards that it has not changed. Messages without a producer get this run.
        - `branch`: the branch to append to, by number or name. By default the run's, else the current one.
        - `expect`: the thread's version; another one raises `VersionConflict`.
        - `expect_head`: the id of the branch's last message; another one raises `VersionConflict`.
        - `fence`: the number of the caller's claim. A lower one than the thread has seen raises `StaleClaim`: another
          worker has taken over.
        - `state`: documents of the thread to write, by name: a JSON value, `Doc(value, schema)`, or `REMOVE`.
        - `run_state`: the same for documents of the run.
        - `expect_state`: the rev of each of these documents of the thread. None: the document must not exist yet, and
          this commit must write it. Another rev raises `VersionConflict`.
        - `thread`: what the thread is created with, if this commit creates it: title, resource, parent, metadata. One
          that exists is left as it is. What it says wins over the trace of a new run's activation.
        - `key`: makes a retry safe. The same key with the same content has one effect, and returns the first receipt
          for a week; with other content it raises `KeyReused`. After a timeout, a cancellation or `OutcomeUnknown`,
          repeat the call with the same key.

        Returns a `Receipt`; with `run`, a `RunReceipt`, whose `run` is never None.

        Nothing is written if it raises, except after `OutcomeUnknown`: then the commit may have been made.
        """
        return self._driver.run(self._inner.commit(
            thread_id, messages=messages, run=run, branch=branch, expect=expect, expect_head=expect_head, fence=fence,
            state=state, run_state=run_state, expect_state=expect_state, thread=thread, key=key
        ))

    def buffered(
        self, thread_id: str, *, most: int = 10, every_ms: int = 1000, run: Run | None = None,
        branch: int | str | None = None, fence: int | None = None
    ) -> BufferedWriter:
        """A writer that commits messages a few at a time: `async with store.buffered("t-1") as writer: …`.

        Its `append` returns **before the messages are durable**; `flush`, and leaving the block, make them so. It
        flushes in the background, each time as one keyed commit, and keeps the order.

        - `most`: flush when so many messages wait.
        - `every_ms`: flush so many milliseconds after the first of them was appended.
        - `run`: the run that produces the messages. It must not be moved before the last flush: a flush is then refused
          with `VersionConflict`.
        - `branch`: the branch to append to, by number or name; by default the run's, else the one that is current at
          the time of each flush.
        - `fence`: the number of the caller's claim, as in `commit`.

        A flush in the background that fails raises its error at the next `append`, `flush` or at the end of the block.
        """
        return BufferedWriter(self._inner.buffered(
            thread_id, most=most, every_ms=every_ms, run=run, branch=branch, fence=fence
        ).buffer, self._driver)

    def load(self, thread_id: str, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot."""
        return self._driver.read(self._inner.load(thread_id, branch=branch))

    def health(self) -> Health:
        """The engine's real settings, read now, and what weakens its promises."""
        return self._driver.read(self._inner.health())

    def sweep(self) -> None:
        """Do this scope's housekeeping now, and return when it is done.

        Finishes interrupted deletions, removes what abandoned imports left behind, and drops expired keys and
        tombstones. An open store does the same in the background.
        """
        return self._driver.run(self._inner.sweep())

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

    def __repr__(self) -> str:
        return repr(self._inner).replace("perdure.Store", "perdure.sync.Store", 1)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
