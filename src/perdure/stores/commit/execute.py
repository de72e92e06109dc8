"""Executes a prepared commit: messages, run, state and key in one transaction.

An attempt is one round trip. If it conflicts, `refuse` looks at everything the commit named: either the caller gets a
receipt or an error, or the guess was stale, and the next attempt has a better one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from functools import partial

import msgspec

from perdure import failpoints, limits
from perdure.errors import AlreadyExists, ConflictError, OutcomeUnknown
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Applied, Get, Op
from perdure.kernel.validate import note_unknown
from perdure.model.receipt import Receipt
from perdure.model.run import RunChange
from perdure.rules import message_shape, run_machine
from perdure.stores.branch_paths import commit_target
from perdure.stores.commit.events import note_refused, note_slow
from perdure.stores.commit.fill import fill
from perdure.stores.commit.plan import EMPTY_QUEUE, Guess, first_guess, operations
from perdure.stores.commit.receipt import is_remembered, new_receipt
from perdure.stores.commit.refuse import explain
from perdure.stores.commit.request import Prepared
from perdure.stores.context import Context, check_resource, thread_topic
from perdure.stores.retry import Stale, contention, retry

UNMOVED_ATTEMPTS = 8
"""How often a commit is sent that conflicts although nothing it depends on has changed since the last time."""


async def perform(context: Context, commit: Prepared, extra: Sequence[Op] = ()) -> Receipt:
    """Make a prepared commit. `extra` operations join its transaction; a conflict that is theirs alone is raised as the
    kernel's `Conflict`, for the store that added them to judge."""
    begun = time.monotonic()
    try:
        if context.patience.ms:
            attempt = partial(_perform, context, commit, extra)
            receipt = await context.patience.repeat(attempt, keyed=commit.key is not None)
        else:
            receipt = await _perform(context, commit, extra)
    except ConflictError as error:
        note_refused(context, commit, error)
        raise
    seconds = time.monotonic() - begun
    if seconds >= limits.SLOW_COMMIT_MS / 1000:
        note_slow(context, commit, seconds)
    return receipt


async def _perform(context: Context, commit: Prepared, extra: Sequence[Op]) -> Receipt:
    if commit.branch_name is not None or commit.has_summaries:
        commit = await _look_up(context, commit)
    guess = first_guess(context, commit)
    if commit.brought_ids:
        guess = with_known_queue(context, commit, guess)
    answer = await attempt_once(context, commit, guess, extra)
    return answer if isinstance(answer, Receipt) else await _repeat(context, commit, guess, answer, extra)


async def _look_up(context: Context, commit: Prepared) -> Prepared:
    """The commit with the number of its branch; what its summaries cover is checked."""
    if commit.branch_name is not None:
        number = await commit_target(context, commit.thread_id, commit.branch_name)
        commit = msgspec.structs.replace(commit, branch=number)
    if commit.has_summaries:
        await check_summaries(context, commit)
    return commit


def with_known_queue(context: Context, commit: Prepared, guess: Guess) -> Guess:
    """The first guess about the queue, where brought ids must not be pending: that it is empty, if there is one."""
    if commit.brought_ids and commit.thread_id in context.queues:
        return msgspec.structs.replace(guess, queue=EMPTY_QUEUE)
    return guess


async def _repeat(context: Context, commit: Prepared, guess: Guess, better: Guess, extra: Sequence[Op]) -> Receipt:
    """Make a commit whose first guess was wrong: each attempt improves on the one before."""
    unmoved = 0

    async def attempt() -> Receipt:
        nonlocal guess, better, unmoved
        previous, guess = guess, await guard_queue(context, commit, better)
        unmoved = unmoved + 1 if guess == previous else 0
        if unmoved == UNMOVED_ATTEMPTS:
            raise contention("thread", commit.thread_id)
        answer = await attempt_once(context, commit, guess, extra)
        if isinstance(answer, Receipt):
            return answer
        better = answer
        raise Stale

    return await retry("thread", commit.thread_id, attempt, on=(Stale,))


async def attempt_once(context: Context, commit: Prepared, guess: Guess, extra: Sequence[Op] = ()) -> Receipt | Guess:
    """One try under a guess: the receipt, or a better guess."""
    change = commit.run
    illegal = isinstance(change, RunChange) and not run_machine.allows(change.run.status, change)
    # Whether the thread is idle is in no column: it is looked up, and the rev that guards it joins the guess.
    if illegal or (commit.if_idle and guess.head_rev is None and guess.birth is None):
        return await explain(context, commit, guess)
    try:
        applied = await _send(context, commit, guess, extra)
    except Conflict as conflict:
        answer = await explain(context, commit, guess)
        if extra and isinstance(answer, Guess) and conflict.op >= len(operations(commit, guess)):
            raise
        return answer
    except OutcomeUnknown as unknown:
        if not extra:
            note_unknown(context.scope, (thread_topic(commit.thread_id),), unknown)
        hint = "retry with the same key" if commit.key else "read the thread before trying again; use key= next time"
        raise OutcomeUnknown(unknown.message, rev=unknown.rev, key=commit.key, hint=hint) from None
    if failpoints.ARMED:
        failpoints.hit("commit.after_transact")
    if context.cleaner is not None:
        context.cleaner.visit(context.scope)
    if guess.current and (guess.branch or context.current):
        context.remember_current(commit.thread_id, guess.branch)
    if commit.brought_ids and guess.birth is None:
        context.remember_queue(commit.thread_id)
    return new_receipt(context, commit, guess.branch, applied)


def _send(context: Context, commit: Prepared, guess: Guess, extra: Sequence[Op]) -> Awaitable[Applied]:
    """Hand the transaction to the engine: as values if its kind is known, else as operations."""
    topics, kernel = (thread_topic(commit.thread_id),), context.kernel
    filled = fill(commit, guess) if kernel.fill is not None and not extra else None
    ops = [] if filled is not None else operations(commit, guess)
    if failpoints.ARMED:
        failpoints.hit("commit.before_transact")
    if filled is not None and kernel.fill is not None:
        return kernel.fill(context.scope, filled, topics)
    if extra:
        return kernel.transact(context.scope, [*ops, *extra], topics)
    return kernel.transact_unchecked(context.scope, ops, topics)


async def check_summaries(context: Context, commit: Prepared) -> None:
    """A summary must come after what it covers. Versions only rise, so one look is enough."""
    now, heads, keys = await context.view(
        NOW,
        Get("thread_heads", [(commit.thread_id,)]),
        Get("keys", [(commit.thread_id, commit.key)] if commit.key is not None else []),
    )
    # First of all: how long another's thread is, is not for this caller, not even by way of an error.
    check_resource(heads[0], commit.resource)
    if keys and is_remembered(keys[0], heads[0], now):
        return
    version = heads[0]["version"] if heads[0] is not None else 0
    for i, message in enumerate(commit.messages, 1):
        if message.compaction is not None:
            message_shape.check_summary_place(message.compaction, version + i, f"messages[{i - 1}]")


async def guard_queue(context: Context, commit: Prepared, guess: Guess) -> Guess:
    """The guess with a condition on the queue under which the brought ids are free; raises if one is pending."""
    if not commit.brought_ids or guess.birth is not None:
        return guess
    queues, rows = await context.view(
        Get("queues", [(commit.thread_id,)]), Get("pending", [(commit.thread_id, name) for name in commit.brought_ids])
    )
    known_ids = [str(row.key[1]) for row in rows if row is not None]
    if known_ids:
        raise AlreadyExists(
            f"message {known_ids[0]!r} is pending in thread {commit.thread_id!r}",
            actual=known_ids,
            hint="pending.freeze commits it, pending.retract takes it back; leave the id out to mint a new one",
        )
    row = queues[0]
    if row is None:
        return msgspec.structs.replace(guess, queue=None)
    return msgspec.structs.replace(guess, queue={"revision": row["revision"]} if row["count"] else EMPTY_QUEUE)
