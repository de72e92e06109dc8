"""`store.runs`: starts, reads and lists runs. Creating a run is a commit; moving one is part of a commit.

`start` makes a running run and its input messages in one transaction; `create` makes one that has not begun. After that
a run moves only through `store.commit(run=run.step(…))` and its siblings, so that no crash falls between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from perdure import limits
from perdure.errors import IllegalTransition, InvalidError, VersionConflict, short_repr
from perdure.kernel import codec
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.ops import Get, Ref, Row, Scan
from perdure.model.draft import Draft
from perdure.model.message import Message
from perdure.model.page import Page
from perdure.model.run import CREATED, RUNNING, STATUSES, WAITING, NewRun, Run, RunBody, RunInput
from perdure.model.run_snapshots import RunActivation, RunRequest
from perdure.model.thread import NewThread
from perdure.model.tickets import check_decision, find_ticket, is_decided
from perdure.rules import checks
from perdure.stores.commit.execute import perform
from perdure.stores.commit.receipt import with_run
from perdure.stores.commit.request import Request, prepare
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.draft_following import DraftSource
from perdure.stores.drafts import draft_owner
from perdure.stores.follower import Follower, check_timeout
from perdure.stores.paging import every
from perdure.stores.profiles import profile_topic
from perdure.stores.records import run_from
from perdure.stores.rerunning import Rerun, rerun_run
from perdure.stores.retry import Stale, retry
from perdure.stores.run_cancelling import cancel_run, find_run, get_run
from perdure.stores.run_following import RunSource, ThreadRunsSource
from perdure.stores.runs_of_messages import find_run_of_message
from perdure.stores.waiting import Waiter

RunRecords = list[Run]


class StartOptions(TypedDict, total=False):
    """What `create` and `start` take besides the thread and the agent, all by keyword."""

    messages: Sequence[Message]
    branch: int | str | None
    run_id: str | None
    parent_run_id: str | None
    activation: RunActivation | None
    request: RunRequest | None
    input: RunInput | None
    resolution_id: str | None
    dispatch_id: str | None
    session_id: str | None
    transport_request_id: str | None
    metadata: dict[str, Any] | None
    expect: int | None
    fence: int | None
    thread: NewThread | None
    resource_id: str | None
    if_idle: bool
    key: str | None


class RunFilters(TypedDict, total=False):
    """Which runs `list` and `iter` return, and in which order, all by keyword."""

    thread_id: str | None
    status: str | None
    agent_id: str | None
    resource_id: str | None
    ready: bool
    order: Literal["desc", "asc"]


class Runs:
    """`store.runs`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A run that has not begun; takes the options of `start`. It becomes the thread's latest run."""
        return await self._begin(thread_id, agent_id, CREATED, options)

    async def start(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit.

        The options are those of `StartOptions`: `messages` is its input, `key` makes a retry safe, and so on. A missing
        thread is created, with what `thread` says about it (see `NewThread`); parent and resource come from the
        activation's trace where it says nothing. `if_idle=True` raises `ThreadBusy`, which names the run, if a run
        of the thread is running or waiting; of several such calls at the same time, one succeeds. `resource_id` is the
        resource that the thread must belong to: a missing thread is created with it, and a thread of another resource
        raises `NotFoundError`. The check is part of the transaction.
        """
        return await self._begin(thread_id, agent_id, RUNNING, options)

    async def _begin(self, thread_id: str, agent_id: str, status: str, options: StartOptions) -> Run:
        checks.check_id(thread_id, "thread id")
        new = NewRun(
            agent_id=agent_id,
            id=options.get("run_id"),
            status=status,
            parent_run_id=options.get("parent_run_id"),
            body=_body(options),
        )
        request = Request(
            thread_id=thread_id,
            messages=options.get("messages", ()),
            run=new,
            branch=options.get("branch"),
            expect=options.get("expect"),
            fence=options.get("fence"),
            thread=options.get("thread"),
            resource_id=options.get("resource_id"),
            if_idle=options.get("if_idle", False),
            key=options.get("key"),
            inputs=True,
        )
        return with_run(await perform(self._context, prepare(request))).run

    async def cancel(
        self,
        run_id: str,
        detail: str | None = None,
        *,
        keep_draft: bool = False,
        answer_calls: str | None = None,
        thread_id: str | None = None,
    ) -> Run:
        """End a run from outside, however often its worker changes it at the same time.

        A run that is already done is returned as it is. The next commit of its worker with the run is rejected, and
        nothing from that step is stored.

        - `detail`: says why.
        - `keep_draft`: store the words that the run shows now (`job.draft`) as a message of the assistant, in the same
          transaction, with the stop reason `"cancelled"`. Without such words, nothing is stored.
        - `answer_calls`: if the run is waiting, each call that has a ticket gets this text (up to 4 KiB) as its result,
          in the same transaction; beyond 1,000 calls, the first ones shortly before. For runs that ask before they make
          a call: it has not been made, and the model should know.
        - `thread_id`: the thread that the run must belong to; a run of another one raises `NotFoundError`.
        """
        _check_ids(run_id, thread_id)
        checks.check_flag(keep_draft, "keep_draft")
        if answer_calls is not None:
            if type(answer_calls) is not str:
                raise InvalidError(f"answer_calls must be text, not {short_repr(answer_calls)}")
            codec.encode_checked(answer_calls, "answer_calls", limits.CALL_ANSWER_BYTES)
        if detail is not None:
            if type(detail) is not str:
                raise InvalidError(f"detail must be text, not {short_repr(detail)}")
            codec.encode_checked(detail, "detail", limits.RUN_BYTES)
        return await cancel_run(
            self._context, run_id, detail, thread_id, keep_draft=keep_draft, answer_calls=answer_calls
        )

    async def rerun(
        self,
        run_id: str | None = None,
        *,
        message_id: str | None = None,
        messages: Sequence[Message] | None = None,
        agent_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        replace: bool = True,
        thread_id: str | None = None,
        new_run_id: str | None = None,
        fence: int | None = None,
        key: str | None = None,
    ) -> Run:
        """Answer again on a new branch: regenerate what a run produced, or edit what it was asked.

        The branch begins right before the first message that the run produced, internal ones included. If it has
        produced nothing, the branch continues after its input. A run with neither input nor output is run again at the
        end of its branch. The thread switches to the new branch, and a running run on it is returned. Nothing is
        overwritten or copied, and all of this is one transaction.

        - `run_id`, or `message_id` with a `thread_id`: the run, or any message that it produced or was started with. Of
          several runs that were started with a message, the first one counts.
        - `messages`: replace the question. The branch begins before the run's first input message, and these are its
          first messages and the input of the new run. By default the new run has the input of the old one.
        - `agent_id`: the agent that runs; by default the agent of the old run.
        - `metadata`: your own data on the new run. Of the old run, only the agent, the parent run and the input are
          passed on.
        - `name`: of the branch, unique within the thread; by default `branch-<number>`.
        - `replace`: cancel every run of the thread that is running or waiting, in the same transaction, and the old run
          if it has not begun. False leaves them as they are: they can still be decided, and finish on their branches.
        - `thread_id`: the thread that the run must belong to; a run of another one raises `NotFoundError`.
        - `new_run_id`: the id of the new run; generated if None.
        - `fence`: the number of the caller's claim, as in `commit`.
        - `key`: makes a retry safe, as in `commit`. A repeated call returns the run that the first one started, and
          neither makes a branch nor cancels anything.

        Raises `NotFoundError` for a run that does not exist, and for a message that belongs to no run. The branch of
        the old run may have been deleted: its messages are still there.
        """
        return await rerun_run(
            self._context,
            Rerun(run_id, message_id, messages, agent_id, metadata, name, replace, thread_id, new_run_id, fence, key),
        )

    async def decide(self, run_id: str, ticket_id: str, value: Any, *, thread_id: str | None = None) -> Run:
        """Record the decision on a ticket of a waiting run, even while others change the run.

        `value` is any JSON value but null. The run keeps waiting; once it is `ready`, a worker resumes it. A decision
        is final: the same one again returns the run unchanged, and another one raises `VersionConflict`. Both also hold
        for the decided tickets of the wait that the last `resume` ended, even if the run is done. For any other ticket,
        raises `IllegalTransition` if the run is done, and `NotFoundError` if it is not. `thread_id` is the thread that
        the run must belong to; a run of another one raises `NotFoundError`.
        """
        _check_ids(run_id, thread_id)
        checks.check_id(ticket_id, "ticket_id")
        check_decision(value)
        codec.encode_checked(value, "value", limits.RUN_BYTES)

        async def attempt() -> Run:
            run = await get_run(self._context, run_id, thread_id)
            ticket = find_ticket(run.waiting, ticket_id) or find_ticket(run.body.resumed_from, ticket_id)
            if ticket is not None and is_decided(run_id, ticket, value):
                return run
            request = prepare(Request(thread_id=run.thread_id, run=run.decide(ticket_id, value)))
            try:
                return with_run(await perform(self._context, request)).run
            except (IllegalTransition, VersionConflict):
                raise Stale from None

        return await retry("run", run_id, attempt, on=(Stale,))

    def follow(
        self,
        run_id: str | None = None,
        *,
        thread_id: str | None = None,
        branch: int | None = None,
        timeout: float | None = None,
        resource_id: str | None = None,
    ) -> Follower[Run]:
        """A run, or the runs of a thread: as they are now, then after each change.

        Give one of the two:

        - `run_id`: this run. It ends after the run is done.
        - `thread_id`: the runs of this thread that are open, oldest first, and its latest run even if it is done; then
          every run that starts or changes, without knowing its id. It does not end by itself.

        With a thread, `branch` is the number of a branch: then the latest run is that of this branch.

        Read it with `async for`. States that follow each other quickly may be merged: you see the latest, and each run
        that ends as done. It also ends when it is closed, from any task or thread, or after `timeout` seconds without a
        change. It raises `NotFoundError` when the thread is deleted, and `UnavailableError` when the store is closed.
        `resource_id` is the resource that the thread must belong to, for as long as it is followed.
        """
        if (run_id is None) == (thread_id is None):
            raise InvalidError(
                "runs.follow takes a run_id or a thread_id, one of them",
                hint='runs.follow("r-1") or runs.follow(thread_id="t-1")',
            )
        check_timeout(timeout)
        resource = checks.check_owner(resource_id)
        if branch is not None:
            checks.check_count(branch, "branch", least=0)
            if thread_id is None:
                raise InvalidError("runs.follow takes a branch only with a thread_id")
        if thread_id is not None:
            checks.check_id(thread_id, "thread id")
            return Follower(
                Waiter(self._context, thread_topic(thread_id)),
                ThreadRunsSource(self._context, thread_id, branch, resource),
                timeout,
            )
        waiter = Waiter(self._context)
        run_id = checks.check_id(run_id, "run id")
        return Follower(waiter, RunSource(self._context, run_id, waiter, resource), timeout)

    def follow_drafts(
        self,
        thread_id: str,
        *,
        branch: int | None = None,
        timeout: float | None = None,
        resource_id: str | None = None,
    ) -> Follower[Draft]:
        """The words of the running runs of a thread as they come: each draft as it is now, then after each change.

        A worker shows them with `job.draft`. Drafts that follow each other quickly may be merged. It does not end by
        itself: close it, from any task or thread. It raises `NotFoundError` when the thread is deleted.

        - `thread_id`: the thread, which must exist.
        - `branch`: the number of a branch: only the drafts of runs on it.
        - `timeout`: end after so many seconds without a change.
        - `resource_id`: the resource that the thread must belong to, for as long as it is followed.
        """
        checks.check_id(thread_id, "thread id")
        if branch is not None:
            checks.check_count(branch, "branch", least=0)
        check_timeout(timeout)
        source = DraftSource(self._context, thread_id, branch, checks.check_owner(resource_id))
        return Follower(Waiter(self._context, profile_topic(draft_owner(thread_id))), source, timeout)

    async def find(self, run_id: str, *, thread_id: str | None = None) -> Run | None:
        """The run, or None. With `thread_id`, only a run of this thread."""
        _check_ids(run_id, thread_id)
        return await find_run(self._context, run_id, thread_id)

    async def get(self, run_id: str, *, thread_id: str | None = None) -> Run:
        """The run; raises `NotFoundError`. With `thread_id`, also for a run of another thread."""
        _check_ids(run_id, thread_id)
        return await get_run(self._context, run_id, thread_id)

    async def of_message(self, thread_id: str, message_id: str) -> Run | None:
        """The run that produced a message or, if there is none, the first run that was started with it, or None.

        A message that a run took up later, with `pending.freeze`, belongs to none. Raises `NotFoundError` if the thread
        does not have the message.
        """
        checks.check_id(thread_id, "thread id")
        checks.check_id(message_id, "message id")
        return await find_run_of_message(self._context, thread_id, message_id)

    async def latest(self, thread_id: str) -> Run | None:
        """The thread's latest run: the one created, or changed while running, most recently; None if it has none."""
        checks.check_id(thread_id, "thread id")
        heads, runs = await self._context.view(
            Get("thread_heads", [(thread_id,)]), Get("runs", Ref(0, ("latest_run",)))
        )
        require(heads[0], f"thread {thread_id!r}")
        return run_from(runs[0]) if runs else None

    async def list(
        self, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, **filters: Unpack[RunFilters]
    ) -> Page[Run]:
        """Runs by creation, newest first: all, or those that every filter admits.

        - `thread_id`: runs of this thread.
        - `status`: `created`, `running`, `waiting` or `done`.
        - `agent_id`: runs of this agent.
        - `resource_id`: runs of threads that belong to this resource now. A run does not record it: the list reads the
          runs that the other filters admit and skips those of other resources, so pass another filter where you can.
        - `ready`: True for the waiting runs that a worker may resume: each of their tickets has a decision. The list
          reads all waiting runs that the other filters admit and skips the others.
        - `order`: `desc`, or `asc` for oldest first.
        - `limit`, `cursor`: the size of a page, and where it begins.

        There is an index for a thread, for a thread with a status, for an agent and for a status. Other combinations
        read one of these and skip what the rest does not admit.
        """
        checks.check_limit(limit)
        runs = _run_list(filters)
        after = None if cursor is None else decode_cursor(cursor, runs.query, (int, str))
        # What no index selects is skipped, so more is read at once: a page costs few trips even then.
        size = limits.PAGE_MAX + 1 if runs.resource is not None or runs.ready else limit + 1
        admitted: list[Row] = []
        while True:
            rows, heads = await self._context.view(runs.scan(size, after), Get("thread_heads", Ref(0, ("thread",))))
            owners = {row.key[0]: row["resource"] for row in heads}
            admitted += [row for row in rows if runs.admits(row, owners)]
            items = [run_from(row) for row in admitted[:limit]]
            if len(admitted) > limit:
                last = admitted[limit - 1]
                return Page(items, encode_cursor(runs.query, (last["created_at"], last.key[0])))
            if len(rows) < size:
                return Page(items, None)
            after = (rows[-1]["created_at"], rows[-1].key[0])

    async def iter(self, **filters: Unpack[RunFilters]) -> AsyncIterator[Run]:
        """Every run of the list, page by page; takes the filters and the order of `list`."""
        async for run in every(partial(self.list, limit=limits.PAGE_MAX, **filters)):
            yield run

    async def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> RunRecords:
        """The runs whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A run whose id equals the prefix comes first. Use it to look up an id that was abbreviated.
        """
        checks.check_id(prefix, "prefix")
        checks.check_limit(limit)
        exact = await self.find(prefix)
        runs: RunRecords = [] if exact is None else [exact]
        after = prefix
        while len(runs) < limit:
            rows, heads = await self._context.view(
                Scan("runs", after=(after,), limit=limit), Get("thread_heads", Ref(0, ("thread",)))
            )
            alive = {row.key[0] for row in heads}
            matching = [row for row in rows if str(row.key[0]).startswith(prefix)]
            runs += [run_from(row) for row in matching if row["thread"] in alive]
            # Runs of threads that are being erased are left out, so a page may hold too few although more follow.
            if len(matching) < limit:
                break
            after = str(matching[-1].key[0])
        return runs[:limit]


def _check_ids(run_id: str, thread_id: str | None) -> None:
    checks.check_id(run_id, "run id")
    if thread_id is not None:
        checks.check_id(thread_id, "thread id")


def _run_list(filters: RunFilters) -> RunList:
    """The filters, checked."""
    _refuse_unknown(filters, RunFilters)
    thread_id, status, agent_id = filters.get("thread_id"), filters.get("status"), filters.get("agent_id")
    order = filters.get("order", "desc")
    for value, what in ((thread_id, "thread id"), (agent_id, "agent_id")):
        if value is not None:
            checks.check_id(value, what)
    if status is not None and (type(status) is not str or status not in STATUSES):
        raise InvalidError(f"status must be one of {', '.join(STATUSES)}, not {short_repr(status)}")
    checks.check_choice(order, "order", "desc", "asc")
    resource = checks.lineage(filters.get("resource_id"), "resource_id")
    ready = checks.check_flag(filters.get("ready", False), "ready")
    if ready and status not in (None, WAITING):
        raise InvalidError(f"a run that is {status} is never ready", hint="leave out status: a ready run waits")
    return RunList(thread_id, WAITING if ready else status, agent_id, resource, order, ready)


def _refuse_unknown(options: Mapping[str, Any], known: type) -> None:
    unknown = set(options) - set(known.__annotations__)
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")


class RunList(NamedTuple):
    """Runs in order of creation, as far as the filters admit them."""

    thread_id: str | None
    status: str | None
    agent_id: str | None
    resource: str | None
    order: str
    ready: bool

    @property
    def query(self) -> tuple[Any, ...]:
        """What a cursor of the list belongs to."""
        return ("runs", *self[:5], *(["ready"] if self.ready else []))

    def scan(self, limit: int, after: tuple[Any, ...] | None) -> Scan:
        """The first rows after a place that all filters on columns of a run admit."""
        values = {"thread": self.thread_id, "status": self.status, "agent_id": self.agent_id}
        conditions = {name: value for name, value in values.items() if value is not None}
        index, by = next((index, by) for index, by in _INDEXES.items() if set(by) <= set(conditions))
        where = {name: value for name, value in conditions.items() if name not in by}
        eq = tuple(conditions[name] for name in by)
        return Scan("runs", index, eq, after, limit, desc=self.order == "desc", where=where)

    def admits(self, run: Row, owners: Mapping[Any, str | None]) -> bool:
        """Is this a run of a living thread, of the resource that was asked for? `owners` are the threads' resources."""
        thread = run["thread"]
        return thread in owners and self.resource in (None, owners[thread]) and (not self.ready or run_from(run).ready)


_INDEXES: dict[str, tuple[str, ...]] = {
    "thread_status": ("thread", "status"),
    "thread": ("thread",),
    "agent": ("agent_id",),
    "status": ("status",),
    "created": (),
}
"""The columns that each index selects by; the first that fits the filters is read."""


def _body(options: StartOptions) -> RunBody:
    _refuse_unknown(options, StartOptions)
    return RunBody(
        resolution_id=options.get("resolution_id"),
        activation=options.get("activation"),
        request=options.get("request"),
        input=options.get("input"),
        dispatch_id=options.get("dispatch_id"),
        session_id=options.get("session_id"),
        transport_request_id=options.get("transport_request_id"),
        metadata=options.get("metadata"),
    )
