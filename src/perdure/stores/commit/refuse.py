"""Why a commit was refused: one view of everything it names, judged in one order.

The order is owner → key → fence → expect → run machine → state → ids, so that a superseded worker learns that first,
and a commit that was already made learns nothing else. If nothing speaks against the commit, its guess was stale, and
the view yields a better one.
"""

from __future__ import annotations

import msgspec

from perdure.errors import (
    AlreadyExists,
    CorruptError,
    IllegalTransition,
    NotFoundError,
    StaleClaim,
    ThreadBusy,
    VersionConflict,
)
from perdure.kernel.ops import NOW, Get, Read, Ref, Row, Scan
from perdure.model.branch import MAIN
from perdure.model.receipt import Receipt
from perdure.model.run import CREATED, DONE, NATURAL_END, RUNNING, WAITING, NewRun, Run, RunChange
from perdure.rules import run_machine
from perdure.rules.checks import lineage
from perdure.stores.commit.plan import Guess, first_guess
from perdure.stores.commit.receipt import is_remembered, replay
from perdure.stores.commit.request import Prepared
from perdure.stores.commit.run_change import LOG
from perdure.stores.context import Context, check_resource
from perdure.stores.records import MessageEntry
from perdure.stores.thread_creation import Birth, ancestor_checks, is_expired


class Observed(msgspec.Struct, frozen=True):
    """Everything a commit names, as one snapshot saw it."""

    head: Row | None
    cold: Row | None
    branch: Row | None
    now: int
    key: Row | None
    key_run: Row | None
    run: Row | None
    state: dict[str, Row | None]
    known_ids: list[str]
    branch_number: int
    busy: list[Row]
    """A run of the thread in each status that makes it not idle; only looked up where the commit asks for it."""


async def observe(context: Context, commit: Prepared, guess: Guess) -> Observed:
    """One view of everything the commit names, on the branch of the guess."""
    thread = commit.thread_id
    guarded = list(commit.expect_state)
    statuses = (RUNNING, WAITING) if commit.if_idle else ()
    now, heads, colds, branches, keys, key_runs, runs, states, known_ids, *busy = await context.view(
        NOW,
        Get("thread_heads", [(thread,)]),
        Get("threads", [(thread,)]),
        Get("branches", [(thread, guess.branch)]),
        Get("keys", [(thread, commit.key)] if commit.key is not None else []),
        Get("runs", Ref(4, ("run",))),
        Get("runs", [(commit.run_id,)] if commit.run_id is not None else []),
        Get("state", [(thread, "", name) for name in guarded]),
        Read(LOG, thread, where={"id": tuple(commit.message_ids)}, limit=10 if commit.message_ids else 0),
        *[Scan("runs", "thread_status", (thread, status), limit=1) for status in statuses],
    )
    return Observed(
        head=heads[0],
        cold=colds[0],
        branch=branches[0],
        now=now,
        key=keys[0] if keys else None,
        key_run=key_runs[0] if key_runs else None,
        run=runs[0] if runs else None,
        state=dict(zip(guarded, states, strict=True)),
        known_ids=[entry.id for entry in map(MessageEntry._make, known_ids)],
        branch_number=guess.branch,
        busy=[row for rows in busy for row in rows],
    )


async def find_receipt(context: Context, commit: Prepared) -> Receipt | None:
    """The stored receipt if this keyed commit was made before; None while its key is free."""
    observed = await observe(context, commit, first_guess(context, commit))
    if not is_remembered(observed.key, observed.head, observed.now):
        return None
    return replay(context, commit, observed.key, observed.key_run)


async def explain(context: Context, commit: Prepared, guess: Guess) -> Receipt | Guess:
    """Why a try failed: a stored receipt, an error for the caller, or a better guess."""
    observed = await observe(context, commit, guess)
    # Before the key: what another's commit has stored is not for this caller.
    check_resource(observed.head, commit.resource)
    if is_remembered(observed.key, observed.head, observed.now):
        return replay(context, commit, observed.key, observed.key_run)
    # An expired key is replaced if it is still there; housekeeping may have removed it since the last try.
    key_rev = None if observed.key is None else observed.key.rev
    if observed.head is not None and guess.key_rev != key_rev:
        return msgspec.structs.replace(guess, key_rev=key_rev)
    guess = msgspec.structs.replace(guess, key_rev=key_rev)
    if observed.head is None:
        return await _absent(context, commit, guess, observed)
    if guess.current and guess.branch != observed.head["branch"]:
        # Conditions on the wrong branch prove nothing: try the right one first.
        context.remember_current(commit.thread_id, observed.head["branch"])
        return Guess(observed.head["branch"], current=True, key_rev=guess.key_rev)
    _refuse_fence(commit, observed.head)
    _refuse_expect(commit, observed)
    _refuse_run(commit, observed)
    _refuse_busy(commit, observed)
    _refuse_state(commit, observed)
    if observed.known_ids:
        raise AlreadyExists(
            f"message {observed.known_ids[0]!r} already exists in thread {commit.thread_id!r}",
            actual=observed.known_ids,
            hint="committed messages never change; leave the id out to mint a new one",
        )
    if guess.current and (observed.branch is None or observed.branch["deleted_at"] is not None):
        raise CorruptError(f"its current branch {guess.branch} does not exist", where=f"thread {commit.thread_id!r}")
    return Guess(guess.branch, guess.current, key_rev=guess.key_rev, head_rev=observed.head.rev)


async def _absent(context: Context, commit: Prepared, guess: Guess, observed: Observed) -> Guess:
    thread = commit.thread_id
    tombstone = observed.cold
    if tombstone is not None and not is_expired(tombstone, observed.now):
        raise NotFoundError(f"thread {thread!r} was deleted", hint="threads.create makes a new one under this id")
    existing = isinstance(commit.run, (Run, RunChange)) or commit.fence is not None
    if not existing and commit.expect not in (None, 0):
        raise VersionConflict(
            f"thread {thread!r} does not exist, the commit expects version {commit.expect}",
            expected=commit.expect,
            actual=0,
        )
    if not commit.may_create or commit.expect_head is not None:
        raise NotFoundError(f"thread {thread!r} does not exist", hint="create it first")
    _refuse_run(commit, observed)
    birth = _birth(commit)
    checks = await ancestor_checks(context, thread, birth.parent)
    birth = msgspec.structs.replace(birth, tombstone=None if tombstone is None else tombstone.rev)
    # The parent itself is guarded by the patch of its hot row; naming its cold row as well guards its own lineage.
    return Guess(MAIN, current=True, birth=birth, parent_checks=tuple(checks), key_rev=guess.key_rev)


def _birth(commit: Prepared) -> Birth:
    """What the thread is created with: what the caller said of it, else what the run's activation knows."""
    parent, resource = _lineage(commit)
    birth = commit.birth or Birth(thread_id=commit.thread_id)
    return msgspec.structs.replace(
        birth,
        parent=parent if birth.parent is None else birth.parent,
        resource=commit.resource or birth.resource or resource,
    )


def _lineage(commit: Prepared) -> tuple[str | None, str | None]:
    if not isinstance(commit.run, NewRun):
        return None, None
    body = commit.run.body
    trace = body.activation.trace if body.activation is not None else None
    parent = trace.parent_thread_id if trace is not None else None
    if parent is None and body.request is not None:
        parent = body.request.parent_thread_id
    resource = trace.resource_id if trace is not None else None
    return lineage(parent, "parent_thread_id"), lineage(resource, "resource_id")


def _refuse_fence(commit: Prepared, head: Row) -> None:
    if commit.fence is not None and head["fence"] is not None and head["fence"] > commit.fence:
        raise StaleClaim(
            f"fence {commit.fence} is lower than {head['fence']}, which the thread has already seen",
            expected=commit.fence,
            actual=head["fence"],
            hint="another worker took over: stop, and do not retry",
        )


def _refuse_expect(commit: Prepared, observed: Observed) -> None:
    if observed.head is None:
        return
    if commit.expect is not None and observed.head["version"] != commit.expect:
        raise VersionConflict(
            f"thread {commit.thread_id!r} is at version {observed.head['version']}, the commit expects {commit.expect}",
            expected=commit.expect,
            actual=observed.head["version"],
            hint="read the new messages and decide again",
        )
    _refuse_branch(commit, observed)


def _refuse_branch(commit: Prepared, observed: Observed) -> None:
    named, number = commit.branch is not None or isinstance(commit.run, (Run, RunChange)), observed.branch_number
    if not commit.messages and commit.branch is None and commit.expect_head is None:
        return
    gone = observed.branch is None or observed.branch["deleted_at"] is not None
    if gone and named:
        raise NotFoundError(f"branch {commit.branch_name or number!r} of thread {commit.thread_id!r} does not exist")
    if commit.expect_head is not None and observed.branch is not None and observed.branch["head"] != commit.expect_head:
        raise VersionConflict(
            f"branch {observed.branch_number} ends at message {observed.branch['head']!r}, not {commit.expect_head!r}",
            expected=commit.expect_head,
            actual=observed.branch["head"],
        )


def _refuse_run(commit: Prepared, observed: Observed) -> None:
    run = commit.run
    if run is None:
        return
    if isinstance(run, NewRun):
        if observed.run is not None:
            raise AlreadyExists(f"run {commit.run_id!r} already exists", actual=commit.run_id)
        return
    if observed.run is None:
        raise NotFoundError(f"run {commit.run_id!r} does not exist")
    record = run.run if isinstance(run, RunChange) else run
    stored = observed.run["status"]
    if isinstance(run, RunChange) and not run_machine.allows(stored, run):
        move = f"move to {run.status}" if run.status is not None else "take another step"
        raise IllegalTransition(
            f"run {record.id!r} is {stored} and cannot {move}",
            expected=run.status or record.status,
            actual=stored,
            hint=_MOVES_FROM.get(stored),
        )
    if observed.run.rev != record.rev:
        raise VersionConflict(
            f"run {record.id!r} changed since it was read",
            expected=record.rev,
            actual=observed.run.rev,
            hint=_READ_AGAIN + (_RESUME_FIRST if stored == WAITING and _goes_on(run) else ""),
        )


def _goes_on(run: Run | RunChange) -> bool:
    """Would this commit take another step of the run, or finish it?"""
    ending = run.outcome.termination.type if isinstance(run, RunChange) and run.outcome is not None else NATURAL_END
    return ending == NATURAL_END and (isinstance(run, Run) or run.status in (None, DONE))


_READ_AGAIN = "read the run again and repeat the change on the new record"
_RESUME_FIRST = "; it waits: once it is ready, commit run.resume() first"
_MOVES_FROM = {
    CREATED: "commit run.begin() first",
    RUNNING: "it does not wait: commit run.step(), run.wait() or run.finish()",
    WAITING: "commit run.resume() first: a waiting run is resumed, not begun",
    DONE: "it stays as it ended: start another run, or answer again with runs.rerun",
}
"""What to do with a run instead, by its status."""


def _refuse_busy(commit: Prepared, observed: Observed) -> None:
    if commit.if_idle and observed.busy:
        run = observed.busy[0]
        raise ThreadBusy(
            f"thread {commit.thread_id!r} is not idle: run {run.key[0]!r} is {run['status']}",
            actual=run.key[0],
            hint="finish or cancel that run first, or put the messages into the queue with pending.append",
        )


def _refuse_state(commit: Prepared, observed: Observed) -> None:
    for name, rev in commit.expect_state.items():
        row = observed.state[name]
        actual = None if row is None else row.rev
        if actual != rev:
            raise VersionConflict(f"state {name!r} changed since it was read", expected=rev, actual=actual)
