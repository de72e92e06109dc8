"""Makes a fork: one commit that puts a branch's row and appends its first messages, and starts the run of a rerun.

An attempt finds the message that the branch continues, plans the commit on it and sends it. The thread's hot row guards
both: it counts the branches, so that two forks never get one number, and its `born` tells a thread from one that was
made under the same id since. A rerun also ends the thread's open runs: it reads them after the hot row, whose rev
guards them, because every commit that moves a run moves that row.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError
from perdure.ids import new_id
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Row, Scan
from perdure.model.branch import MAIN, Branch
from perdure.model.receipt import Receipt
from perdure.model.run import Run
from perdure.stores.commit.execute import UNMOVED_ATTEMPTS, attempt_once, check_summaries, guard_queue, with_known_queue
from perdure.stores.commit.plan import ForkPlan, Guess
from perdure.stores.commit.refuse import explain, find_receipt
from perdure.stores.commit.request import Fork, Prepared
from perdure.stores.context import Context
from perdure.stores.fork_points import Origin, find_origin
from perdure.stores.path_lengths import inherited_length
from perdure.stores.previews import preview
from perdure.stores.records import MessageEntry, message_entry
from perdure.stores.retry import Stale, contention, retry
from perdure.stores.run_cancelling import POLITE_ATTEMPTS, cancel_run, cancellation, open_runs


class Made(NamedTuple):
    """The receipt of a fork, and the branch that it made; None if a keyed fork was made before, or for a rerun."""

    receipt: Receipt
    branch: Branch | None


class _Attempt(msgspec.Struct, frozen=True):
    """What a try builds on: the hot row, the origin, the length of the path to it, and the guess to send. `ends` are
    the open runs that it cancels."""

    head: Row
    origin: Origin
    inherited: int
    guess: Guess
    ends: list[Run]


async def make_fork(context: Context, commit: Prepared, fork: Fork) -> Made:
    """Make a branch, unless this keyed fork was made before."""
    attempt = partial(_make_fork, context, commit, fork)
    return await context.patience.repeat(attempt, keyed=commit.key is not None)


async def _make_fork(context: Context, commit: Prepared, fork: Fork) -> Made:
    previous: Guess | None = None
    better: Guess | None = None
    unmoved = attempts = 0

    async def attempt() -> Made:
        nonlocal previous, better, unmoved, attempts
        attempts += 1
        tried = await _plan(context, commit, fork, better, polite=attempts <= POLITE_ATTEMPTS)
        if isinstance(tried, Receipt):
            return Made(tried, None)
        unmoved = unmoved + 1 if tried.guess == previous else 0
        if unmoved == UNMOVED_ATTEMPTS:
            raise contention("thread", commit.thread_id)
        previous = tried.guess
        answer = await _send(context, commit, tried)
        if isinstance(answer, Guess):
            better = answer
            raise Stale
        if answer.replayed:
            return Made(answer, None)
        number = tried.guess.branch
        context.remember_current(commit.thread_id, number if fork.switch else tried.head["branch"])
        return Made(answer, None if fork.rerun is not None else _branch_after(commit, fork, tried, answer))

    return await retry("thread", commit.thread_id, attempt, on=(Stale,))


async def _send(context: Context, commit: Prepared, tried: _Attempt) -> Receipt | Guess:
    detail = _why_ended(commit)
    try:
        return await attempt_once(context, commit, tried.guess, [cancellation(run, detail) for run in tried.ends])
    except Conflict:
        # One of the runs to be cancelled has moved.
        raise Stale from None


async def _cancel_first(context: Context, commit: Prepared, fork: Fork) -> None:
    """End the runs of workers that are always faster than this call. It goes on then; a keyed retry would, too."""
    ends = await open_runs(context, commit.thread_id, fork.rerun)
    for run in ends:
        await cancel_run(context, run.id, _why_ended(commit))
    if ends:
        raise Stale


def _why_ended(commit: Prepared) -> str:
    return f"replaced by run {commit.run_id}"


async def _plan(
    context: Context, commit: Prepared, fork: Fork, better: Guess | None, *, polite: bool
) -> _Attempt | Receipt:
    """What to send next; `better` is what a refused attempt has taught."""
    if fork.replaces:
        answer = await _settle(context, commit, better)
        if isinstance(answer, Receipt):
            return answer
        better = answer
        if not polite:
            await _cancel_first(context, commit, fork)
    head, origin = await find_origin(context, commit.thread_id, fork, edits=bool(commit.messages))
    if fork.replaces and better is not None and head.rev != better.head_rev:
        raise Stale
    if better is None and commit.has_summaries:
        await check_summaries(context, commit)
    number = head["branches"]
    if number >= limits.BRANCHES_PER_THREAD:
        receipt = await find_receipt(context, commit) if commit.key is not None else None
        if receipt is not None:
            return receipt
        raise InvalidError(f"thread {commit.thread_id!r} has {number} branches, which is the limit")
    plan = ForkPlan(
        name=await _name(context, commit.thread_id, fork, number, look=better is not None),
        parent=origin.parent,
        seq=origin.seq,
        message_id=origin.message_id,
        born=head["born"],
        switch=fork.switch,
        unmoved=fork.replaces,
    )
    guess = Guess(number, current=False, fork=plan, head_rev=head.rev)
    if better is None:
        guess = with_known_queue(context, commit, guess)
    else:
        guess = await guard_queue(context, commit, msgspec.structs.replace(guess, key_rev=better.key_rev))
    inherited = 0
    if fork.rerun is None:
        inherited, _ = await inherited_length(context, head, origin.point)
    ends = await open_runs(context, commit.thread_id, fork.rerun) if fork.replaces else []
    return _Attempt(head, origin, inherited, guess, ends)


async def _settle(context: Context, commit: Prepared, better: Guess | None) -> Receipt | Guess:
    """Judge the commit before anything is cancelled for it. The answer's `head_rev` guards what is read after it."""
    if better is None and commit.has_summaries:
        await check_summaries(context, commit)
    answer = await explain(context, commit, Guess(MAIN, current=False) if better is None else better)
    if isinstance(answer, Guess) and answer.head_rev is None:
        answer = await explain(context, commit, answer)  # an expired key was in the way
    return answer


async def _name(context: Context, thread_id: str, fork: Fork, number: int, *, look: bool) -> str:
    """What the branch is called; `look` whether that is free."""
    name = fork.name or f"branch-{number}"
    if look and await _is_taken(context, thread_id, name):
        if fork.name is not None:
            raise AlreadyExists(f"thread {thread_id!r} already has a branch called {name!r}", actual=name)
        name = f"{name}-{new_id()[-6:].lower()}"
    return name


async def _is_taken(context: Context, thread_id: str, name: str) -> bool:
    return bool((await context.view(Scan("branches", eq=(thread_id,), where={"name": name}, limit=1)))[0])


def _branch_after(commit: Prepared, fork: Fork, tried: _Attempt, receipt: Receipt) -> Branch:
    """The branch that a fork made, from what was sent: nothing is read back."""
    origin, number, count = tried.origin, tried.guess.branch, len(commit.messages)
    newest = origin.preview
    if count:
        entry = MessageEntry(
            receipt.seqs[-1], 0, *message_entry(commit.messages[-1], number, receipt.at, commit.bodies[-1])
        )
        newest = preview(commit.thread_id, entry)
    return Branch(
        thread_id=commit.thread_id,
        id=number,
        name="" if tried.guess.fork is None else tried.guess.fork.name,
        parent=origin.parent,
        fork_seq=origin.seq,
        head=commit.message_ids[-1] if count else origin.message_id,
        head_seq=receipt.seqs[-1] if count else origin.seq,
        length=count,
        path_length=tried.inherited + count,
        created_at=receipt.at,
        current=fork.switch,
        preview=newest,
    )
