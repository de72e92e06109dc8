"""Ends runs from outside: one that `runs.cancel` names, or the open runs of a thread that a rerun replaces."""

from __future__ import annotations

import msgspec

from perdure import limits
from perdure.errors import ConflictError, IllegalTransition, NotFoundError, VersionConflict
from perdure.kernel.ops import NOW, Get, Op, Patch, Ref, Scan
from perdure.model.message import Message
from perdure.model.run import DONE, RUNNING, WAITING, Run, RunChange
from perdure.rules import views
from perdure.stores.branch_paths import PathQuery, read_path
from perdure.stores.commit.execute import perform
from perdure.stores.commit.receipt import with_run
from perdure.stores.commit.request import Request, prepare
from perdure.stores.commit.run_change import changed_columns, effect_of
from perdure.stores.context import Context, require
from perdure.stores.drafts import read_draft
from perdure.stores.records import run_from
from perdure.stores.retry import Stale, retry

POLITE_ATTEMPTS = 8
"""How often a worker that is faster may finish its step before it is overtaken."""
_PIECE = limits.COMMIT_MESSAGES
"""How many results one commit stores; more take several."""
_MOST_OPEN = 100
"""Open runs of one thread that one transaction ends."""


async def find_run(context: Context, run_id: str, thread_id: str | None = None) -> Run | None:
    """The run, or None; with a thread, only a run of this thread."""
    runs, heads = await context.view(Get("runs", [(run_id,)]), Get("thread_heads", Ref(0, ("thread",))))
    # A run whose thread is being erased is already gone for every reader.
    if runs[0] is None or not heads or thread_id not in (None, runs[0]["thread"]):
        return None
    return run_from(runs[0])


async def get_run(context: Context, run_id: str, thread_id: str | None = None) -> Run:
    """The run; raises `NotFoundError`, which does not tell a missing run from one of another thread."""
    run = await find_run(context, run_id, thread_id)
    if run is None:
        where = "does not exist" if thread_id is None else f"is not in thread {thread_id!r}"
        raise NotFoundError(f"run {run_id!r} {where}")
    return run


async def cancel_run(
    context: Context,
    run_id: str,
    detail: str | None,
    thread_id: str | None = None,
    *,
    keep_draft: bool = False,
    answer_calls: str | None = None,
) -> Run:
    """End a run however often its worker moves it meanwhile; one that is done is returned as it is."""
    attempts = 0

    async def attempt() -> Run:
        nonlocal attempts
        attempts += 1
        run = await get_run(context, run_id, thread_id)
        if run.status == DONE:
            return run
        # The draft is of this very rev, so it is not part of an answer that was committed meanwhile.
        words = await read_draft(context, run) if keep_draft else ""
        if attempts > POLITE_ATTEMPTS:
            before, run = run, await _overtake(context, run)
            if before != msgspec.structs.replace(run, rev=before.rev, updated_at=before.updated_at):
                words = ""  # its worker has finished that step
        try:
            messages = [Message.assistant(words, stop_reason="cancelled")] if words else []
            results = [] if answer_calls is None else await _results(context, run, answer_calls)
            while len(results) > _PIECE:
                # While it waits: if this process dies, the run can be stopped again, and nobody makes these calls.
                run, results = await _move(context, RunChange(run=run), results[:_PIECE]), results[_PIECE:]
            return await _move(context, run.cancel(detail), messages + results)
        except (IllegalTransition, VersionConflict):
            raise Stale from None

    return await retry("run", run_id, attempt)


async def _move(context: Context, change: RunChange, messages: list[Message]) -> Run:
    """Commit a change of a run with its messages; returns the run as it is then."""
    request = Request(thread_id=change.run.thread_id, messages=messages, run=change)
    return with_run(await perform(context, prepare(request))).run


async def _results(context: Context, run: Run, text: str) -> list[Message]:
    """A result for each call that a waiting run asks people about: while it waits, none of them has been made.

    Only what follows the run's input is read: its calls are there.
    """
    ticket_calls = {ticket.tool_call_id for ticket in run.tickets}
    if run.status != WAITING or not ticket_calls:
        return []
    path = await read_path(context, run.thread_id, PathQuery(branch=run.branch, after=_start(run), decode=True))
    calls = [item.call.id for item in views.unfinished(path.records) if item.run_id == run.id]
    return [Message.tool(call_id, text, is_error=True) for call_id in calls if call_id in ticket_calls]


def _start(run: Run) -> int:
    """The seq after which a run's own messages begin; 0 if nobody knows, because it was given none."""
    span = None if run.input is None else run.input.range
    if span is None or (run.output is not None and run.output.first <= span.to_seq):  # the caller's own numbers
        return 0
    return span.to_seq


async def _overtake(context: Context, run: Run) -> Run:
    """Give the run a new rev, whatever its rev is now, and read it again.

    A worker that always has a commit in flight is always ahead of what others read. Its next commit is rejected
    because of the new rev, and the worker is no longer faster than this call.
    """
    await context.transact([Patch("runs", (run.id,), {"updated_at": NOW}, {"status": run.status})])
    return await get_run(context, run.id)


async def open_runs(context: Context, thread_id: str, run_id: str | None) -> list[Run]:
    """The runs of a thread that are running or waiting, and the run with this id unless it is done."""
    named, *scans = await context.view(
        Get("runs", [(run_id,)] if run_id is not None else []),
        *[Scan("runs", "thread_status", (thread_id, status), limit=_MOST_OPEN + 1) for status in (RUNNING, WAITING)],
    )
    runs = {run.id: run for rows in scans for run in map(run_from, rows)}
    if len(runs) > _MOST_OPEN:
        raise ConflictError(
            f"thread {thread_id!r} has more than {_MOST_OPEN} open runs",
            hint="cancel some of them first, or pass replace=False to leave them open",
        )
    if named:
        run = run_from(require(named[0], f"run {run_id!r}"))
        if run.status != DONE:
            runs.setdefault(run.id, run)
    return list(runs.values())


def cancellation(run: Run, detail: str) -> Op:
    """The operation that ends a run as it was read. The hot row is not its concern: the run that replaces it takes the
    thread's pointers."""
    effect = effect_of(run.cancel(detail), (), inputs=False)
    return Patch("runs", (run.id,), changed_columns(effect, run), run.rev, effect.encoded)
