"""Executes a prepared commit: messages, run, state and key in one transaction.

An attempt is one round trip. If it conflicts, `refuse` looks at everything the commit named: either the caller gets a
receipt or an error, or the guess was stale, and the next attempt has a better one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from perdure import failpoints
from perdure.errors import AlreadyExists, ConflictError, OutcomeUnknown
from perdure.kernel.engine import Conflict
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import NOW, Applied, Get, Op
from perdure.model.receipt import Receipt
from perdure.model.run import RunChange
from perdure.rules import message_shape, run_machine
from perdure.stores.branch_paths import commit_target
from perdure.stores.commit.events import note_duration, note_refused
from perdure.stores.commit.fill import fill
from perdure.stores.commit.plan import EMPTY_QUEUE, Guess, first_guess, operations
from perdure.stores.commit.receipt import is_remembered, new_receipt
from perdure.stores.commit.refuse import explain
from perdure.stores.commit.request import Prepared
from perdure.stores.context import Context, thread_topic
from perdure.stores.retry import Stale, contention, retry

UNMOVED_ATTEMPTS = 8
"""How often a commit is sent that conflicts although nothing it depends on has changed since the last time."""


async def perform(context: Context, commit: Prepared, extra: Sequence[Op] = ()) -> Receipt:
    """Make a prepared commit. `extra` operations join its transaction; a conflict that is theirs alone is raised as the
    kernel's `Conflict`, for the store that added them to judge."""
    begun = time.monotonic()
    try:
        receipt = await _perform(context, commit, extra)
    except ConflictError as error:
        note_refused(context, commit, error)
        raise
    note_duration(context, commit, begun)
    return receipt


async def _perform(context: Context, commit: Prepared, extra: Sequence[Op]) -> Receipt:
    if commit.branch_name is not None:
        number = await commit_target(context, commit.thread_id, commit.branch_name)
        commit = msgspec.structs.replace(commit, branch=number)
    guess = with_known_queue(context, commit, first_guess(context, commit))
    if any(message.compaction is not None for message in commit.messages):
        await check_summaries(context, commit)

    answer = await attempt_once(context, commit, guess, extra)
    return answer if isinstance(answer, Receipt) else await _repeat(context, commit, guess, answer, extra)


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
    if _is_illegal(commit) or _must_look(commit, guess):
        return await explain(context, commit, guess)
    filled = fill(commit, guess) if context.kernel.takes_kinds and not extra else None
    ops = operations(commit, guess) if filled is None else []
    try:
        applied = await _send(context, commit, filled, ops, extra)
    except Conflict as conflict:
        answer = await explain(context, commit, guess)
        if isinstance(answer, Guess) and filled is None and conflict.op >= len(ops):
            raise
        return answer
    if guess.current:
        context.remember_current(commit.thread_id, guess.branch)
    if commit.brought_ids and guess.birth is None:
        context.remember_queue(commit.thread_id)
    return new_receipt(context, commit, guess.branch, applied)


async def _send(
    context: Context, commit: Prepared, filled: Filled | None, ops: list[Op], extra: Sequence[Op]
) -> Applied:
    scope, topics, kernel = context.scope, (thread_topic(commit.thread_id),), context.kernel
    failpoints.hit("commit.before_transact")
    try:
        if filled is not None:
            applied = await kernel.transact_filled(scope, filled, topics)
        elif extra:
            applied = await kernel.transact(scope, [*ops, *extra], topics)
        else:
            applied = await kernel.transact_unchecked(scope, ops, topics)
    except OutcomeUnknown as unknown:
        hint = "retry with the same key" if commit.key else "read the thread before trying again; use key= next time"
        raise OutcomeUnknown(unknown.message, rev=unknown.rev, key=commit.key, hint=hint) from None
    failpoints.hit("commit.after_transact")
    context.clean_up()
    return applied


async def check_summaries(context: Context, commit: Prepared) -> None:
    """A summary must come after what it covers. Versions only rise, so one look is enough."""
    now, heads, keys = await context.view(
        NOW,
        Get("thread_heads", [(commit.thread_id,)]),
        Get("keys", [(commit.thread_id, commit.key)] if commit.key is not None else []),
    )
    if keys and is_remembered(keys[0], heads[0], now):
        return
    version = heads[0]["version"] if heads[0] is not None else 0
    for i, message in enumerate(commit.messages, 1):
        if message.compaction is not None:
            message_shape.check_summary_place(message.compaction, version + i, f"messages[{i - 1}]")


def _must_look(commit: Prepared, guess: Guess) -> bool:
    """Whether the thread is idle is in no column: it is looked up, and the rev that guards it joins the guess."""
    return commit.if_idle and guess.head_rev is None and guess.birth is None


def _is_illegal(commit: Prepared) -> bool:
    change = commit.run
    return isinstance(change, RunChange) and not run_machine.allows(change.run.status, change)


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
