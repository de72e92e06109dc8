"""`store.runs`: starts, reads and lists runs. Creating a run is a commit; moving one is part of a commit.

`start` makes a running run and its input messages in one transaction; `create` makes one that has not begun. After that
a run moves only through `store.commit(run=run.step(…))` and its siblings, so that no crash falls between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, short_repr
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.ops import Get, Ref, Scan
from perdure.model.message import Message
from perdure.model.page import Page
from perdure.model.run import CREATED, RUNNING, STATUSES, NewRun, Run, RunBody, RunInput
from perdure.model.run_snapshots import RunActivation, RunRequest
from perdure.rules import checks
from perdure.stores.commit.execute import perform
from perdure.stores.commit.receipt import with_run
from perdure.stores.commit.request import Request, prepare
from perdure.stores.context import Context, require
from perdure.stores.paging import every
from perdure.stores.records import run_from

RunList = list[Run]


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
    key: str | None


class Runs:
    """`store.runs`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A run that has not begun; takes the options of `start`. It becomes the thread's latest run."""
        return await self._begin(thread_id, agent_id, CREATED, options)

    async def start(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit.

        The options are those of `StartOptions`: `messages` is its input, `key` makes a retry safe, and so on.
        A missing thread is created, taking parent and resource from the activation's trace.
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
            key=options.get("key"),
            inputs=True,
        )
        return with_run(await perform(self._context, prepare(request))).run

    async def find(self, run_id: str) -> Run | None:
        """The run, or None."""
        checks.check_id(run_id, "run id")
        runs, heads = await self._context.view(Get("runs", [(run_id,)]), Get("thread_heads", Ref(0, ("thread",))))
        # A run whose thread is being erased is already gone for every reader.
        return run_from(runs[0]) if runs[0] is not None and heads else None

    async def get(self, run_id: str) -> Run:
        """The run; raises `NotFoundError`."""
        run = await self.find(run_id)
        if run is None:
            raise NotFoundError(f"run {run_id!r} does not exist")
        return run

    async def latest(self, thread_id: str) -> Run | None:
        """The thread's latest run: the one created, or changed while running, most recently; None if it has none."""
        checks.check_id(thread_id, "thread id")
        heads, runs = await self._context.view(
            Get("thread_heads", [(thread_id,)]), Get("runs", Ref(0, ("latest_run",)))
        )
        require(heads[0], f"thread {thread_id!r}")
        return run_from(runs[0]) if runs else None

    async def list(
        self,
        *,
        thread_id: str | None = None,
        status: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        cursor: str | None = None,
    ) -> Page[Run]:
        """Runs in order of creation: all, of a thread, in a status, or both."""
        checks.check_limit(limit)
        if thread_id is not None:
            checks.check_id(thread_id, "thread id")
        if status is not None and (type(status) is not str or status not in STATUSES):
            raise InvalidError(f"status must be one of {', '.join(STATUSES)}, not {short_repr(status)}")
        query = ("runs", thread_id, status)
        after = None if cursor is None else decode_cursor(cursor, query, (int, str))
        rows, heads = await self._context.view(
            _listing(thread_id, status, limit + 1, after), Get("thread_heads", Ref(0, ("thread",)))
        )
        alive = {row.key[0] for row in heads}
        page = rows[:limit]
        keyset = (page[-1]["created_at"], page[-1].key[0]) if len(rows) > limit else None
        items = [run_from(row) for row in page if row["thread"] in alive]
        return Page(items, None if keyset is None else encode_cursor(query, keyset))

    async def iter(self, *, thread_id: str | None = None, status: str | None = None) -> AsyncIterator[Run]:
        """Every run of the list, page by page."""
        async for run in every(partial(self.list, thread_id=thread_id, status=status, limit=limits.PAGE_MAX)):
            yield run

    async def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> RunList:
        """The runs whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A run whose id equals the prefix comes first. Use it to look up an id that somebody abbreviated.
        """
        checks.check_id(prefix, "prefix")
        checks.check_limit(limit)
        exact = await self.find(prefix)
        runs: RunList = [] if exact is None else [exact]
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


def _body(options: StartOptions) -> RunBody:
    unknown = set(options) - set(StartOptions.__annotations__)
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
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


def _listing(thread_id: str | None, status: str | None, limit: int, after: tuple[Any, ...] | None) -> Scan:
    if thread_id is not None and status is not None:
        return Scan("runs", "thread_status", (thread_id, status), after, limit)
    if thread_id is not None:
        return Scan("runs", "thread", (thread_id,), after, limit)
    if status is not None:
        return Scan("runs", "status", (status,), after, limit)
    return Scan("runs", "created", (), after, limit)
