"""The `Store`: all capabilities of one scope on one object, and the two calls of an agent's step, `commit` and `load`.

`commit` makes everything of a step durable at once; `load` reads everything back from one snapshot. The rest is in the
stores that hang off it: `store.threads`, `store.messages`, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack, overload

import msgspec

from perdure.kernel.engine import Capabilities, Engine, Health
from perdure.kernel.ops import Get, Ref, Scan
from perdure.model.message import Message
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import NewRun, Run, RunChange
from perdure.model.thread import NewThread
from perdure.rules import checks, views
from perdure.stores.branch_paths import PathQuery, read_path, resolve_branch
from perdure.stores.branches import Branches
from perdure.stores.buffer import Buffer, BufferTarget
from perdure.stores.buffered import BufferedWriter
from perdure.stores.cleanup import sweep
from perdure.stores.commit.execute import perform
from perdure.stores.commit.request import Request, prepare
from perdure.stores.context import Context, require
from perdure.stores.handle_help import fill_help
from perdure.stores.housekeeping import Housekeeper
from perdure.stores.messages import Messages
from perdure.stores.options import CommitOptions
from perdure.stores.patience import Patience
from perdure.stores.pending import Pending
from perdure.stores.profiles import Profiles
from perdure.stores.records import branch_from, run_from, state_from, thread_from
from perdure.stores.runs import Runs
from perdure.stores.state import State
from perdure.stores.thread_handle import ThreadHandle
from perdure.stores.threads import Threads
from perdure.stores.waker import Wakers


class Origin:
    """Where a store was opened, without its password, whether for reading only, and whether it was closed: shared by
    all its scopes."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.url = url
        self.read_only = read_only
        self.closed = False


class Store:
    """Durable state of agents, seen through one scope. Made by `perdure.open`."""

    def __init__(
        self,
        engine: Engine,
        scope: str = "default",
        *,
        owner: bool = True,
        housekeeper: Housekeeper | None = None,
        origin: Origin | None = None,
        retry_ms: int = 0,
        wakers: Wakers | None = None,
    ) -> None:
        self._context = Context(engine, scope, housekeeper, Patience(retry_ms))
        self._owner = owner
        self._origin = origin or Origin(f"{engine.capabilities.engine} engine")
        self._housekeeper = housekeeper
        self._wakers = wakers or Wakers(engine)
        self.threads: Threads = Threads(self._context)
        self.messages: Messages = Messages(self._context, self._wakers)
        self.branches: Branches = Branches(self._context)
        self.pending: Pending = Pending(self._context)
        self.runs: Runs = Runs(self._context)
        self.state: State = State(self._context)
        self.profiles: Profiles = Profiles(self._context)

    def __repr__(self) -> str:
        state = "closed" if self._origin.closed else "open"
        return f"<perdure.Store {self._origin.url} scope={self.scope!r} {state}>"

    @property
    def engine(self) -> Engine:
        """The engine below; for tools and tests."""
        return self._context.engine

    @property
    def scope(self) -> str:
        """The tenant this store sees."""
        return self._context.scope

    def thread(self, thread_id: str, *, resource_id: str | None = None) -> ThreadHandle:
        """A handle on one thread: the calls that take its id, without repeating it. Nothing is read or created.

        - `resource_id`: the resource that the thread must belong to, such as the user of a request. Every call on the
          handle checks it first, and raises `NotFoundError` for a thread of another resource, as for a missing one.
          `start` and `ensure` create a missing thread with it.
        """
        return ThreadHandle(self, thread_id, resource_id)

    @overload
    async def commit(
        self, thread_id: str, *, run: Run | RunChange | NewRun, **options: Unpack[CommitOptions]
    ) -> RunReceipt: ...

    @overload
    async def commit(self, thread_id: str, *, run: None = None, **options: Unpack[CommitOptions]) -> Receipt: ...

    async def commit(
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
        thread: NewThread | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Make everything from one step durable, in one transaction, or none of it.

        A missing thread is created, unless the commit presumes that it exists: by an existing run, a fence, an
        `expect` above 0, an `expect_head`, a rev in `expect_state`, or a branch by name or other than 0.

        - `messages`: appended to the branch, in order. A message without an id gets one.
        - `run`: `NewRun(agent_id=…)` creates a run; a change such as `run.step()` or `run.finish()` changes one; a
          `Run` as it was read only guards that it has not changed. Messages that name no other run are linked to this
          one.
        - `branch`: the branch to append to, by number or name. By default the run's branch; without a run, the current
          one.
        - `expect`: the thread's version; another one raises `VersionConflict`.
        - `expect_head`: the id of the branch's last message; another one raises `VersionConflict`.
        - `fence`: a number that only rises. A lower one than the thread has seen raises `StaleClaim`: another worker
          has taken over.
        - `state`: documents of the thread to write, by name: a JSON value, `Doc(value, schema)`, or `REMOVE`.
        - `run_state`: the same for documents of the run.
        - `expect_state`: the rev of each of these documents of the thread. None: the document must not exist yet, and
          this commit must write it. Another rev raises `VersionConflict`.
        - `thread`: what the thread is created with, if this commit creates it: title, resource, parent, metadata. One
          that exists is left as it is. `thread` takes precedence over the trace of a new run's activation.
        - `key`: makes a retry safe. The same key with the same content has one effect, and returns the first receipt
          for a week; with other content it raises `KeyReused`. After a timeout, a cancellation or `OutcomeUnknown`,
          repeat the call with the same key.

        Returns a `Receipt`; with `run`, a `RunReceipt`, whose `run` is never None.

        Nothing is written if it raises, except after `OutcomeUnknown`: then the commit may have been made.
        """
        request = Request(
            thread_id=thread_id,
            messages=messages,
            run=run,
            branch=branch,
            expect=expect,
            expect_head=expect_head,
            fence=fence,
            state=state,
            run_state=run_state,
            expect_state=expect_state,
            thread=thread,
            key=key,
        )
        return await perform(self._context, prepare(request))

    def buffered(
        self,
        thread_id: str,
        *,
        most: int = 10,
        every_ms: int = 1_000,
        run: Run | None = None,
        branch: int | str | None = None,
        fence: int | None = None,
    ) -> BufferedWriter:
        """A writer that commits messages a few at a time: `async with store.buffered("t-1") as writer: …`.

        Its `append` returns **before the messages are durable**; `flush`, and leaving the block, make them so. It
        flushes in the background, each time as one keyed commit, and keeps the order.

        - `most`: flush when this many messages are waiting.
        - `every_ms`: flush this many milliseconds after the first of them was appended.
        - `run`: the run that produces the messages. It must not change before the last flush; otherwise a flush is
          refused with `VersionConflict`.
        - `branch`: the branch to append to, by number or name; by default the run's, else the one that is current at
          the time of each flush.
        - `fence`: as in `commit`.

        If a flush in the background fails, the next `append` raises its error; `flush` and the end of the block try
        again first.
        """
        target = BufferTarget(thread_id=thread_id, most=most, every_ms=every_ms, run=run, branch=branch, fence=fence)
        return BufferedWriter(Buffer(self._context, target))

    async def load(self, thread_id: str, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot."""
        checks.check_id(thread_id, "thread id")
        number = await resolve_branch(self._context, thread_id, branch)
        also = (
            Get("threads", [(thread_id,)]),
            Get("runs", Ref(0, ("latest_run",))),
            Scan("state", eq=(thread_id, "")),
            Scan("state", eq=(thread_id, Ref(0, ("latest_run",)))),
        )
        path = await read_path(
            self._context, thread_id, PathQuery(branch=number, with_branch=True, decode=True, also=also)
        )
        colds, runs, docs, run_docs = path.also
        head = path.head
        branch_row = require(path.branch_row, f"the branch of thread {thread_id!r}")
        return Snapshot(
            thread=thread_from(require(colds[0], f"thread {thread_id!r}"), head),
            branch=branch_from(branch_row, head["branch"], len(path.entries) - branch_row["length"]),
            messages=views.history(path.records),
            version=head["version"],
            run=run_from(runs[0]) if runs else None,
            state={doc.name: doc for doc in map(state_from, docs)},
            run_state={doc.name: doc for doc in map(state_from, run_docs)},
        )

    async def health(self) -> Health:
        """The engine's actual settings, read now, and what weakens its guarantees."""
        health = await self._context.engine.health()
        problem = None if self._housekeeper is None else self._housekeeper.problem
        if problem is None:
            return health
        return msgspec.structs.replace(health, ok=False, problems=(*health.problems, problem))

    async def sweep(self) -> None:
        """Do this scope's housekeeping now, and return when it is done.

        Finishes interrupted deletions, removes what abandoned imports left behind, and drops expired keys, profiles and
        tombstones. An open store does the same in the background.
        """
        await sweep(self._context)

    def capabilities(self) -> Capabilities:
        """What the engine below can do."""
        return self._context.engine.capabilities

    def scoped(self, scope: str) -> Store:
        """The same connections, seen as another tenant. Closing it closes nothing.

        Names that begin with `~` are reserved: only a store that was opened with `read_only` opens them.
        """
        return self._in_scope(checks.check_own_scope(scope, read_only=self._origin.read_only))

    def _in_scope(self, scope: str) -> Store:
        """The same connections in any scope, also a reserved one."""
        return Store(
            self._context.engine,
            scope,
            owner=False,
            housekeeper=self._housekeeper,
            origin=self._origin,
            retry_ms=self._context.patience.ms,
            wakers=self._wakers,
        )

    async def close(self) -> None:
        """Finish what was submitted and release everything; may be called twice, and does nothing in a forked child."""
        if self._owner:
            self._origin.closed = True
            if self._housekeeper is not None:
                await self._housekeeper.close()
            await self._context.engine.close()
            self._wakers.close()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_BY_NAME = {"Store": Store, "threads": Threads, "messages": Messages, "branches": Branches, "runs": Runs}
fill_help(ThreadHandle, _BY_NAME)
