"""Makes a fork: one commit that puts a branch's row and appends its first messages.

An attempt finds the message that the branch continues, plans the commit on it and sends it. The thread's hot row guards
both: it counts the branches, so that two forks never get one number, and its `born` tells a thread from one that was
made under the same id since.
"""

from __future__ import annotations

from functools import partial

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, NotFoundError
from perdure.ids import new_id
from perdure.kernel.ops import Get, Read, Row, Scan, Segment
from perdure.model.branch import Branch
from perdure.model.receipt import Receipt
from perdure.rules import checks
from perdure.stores.commit.execute import UNMOVED_ATTEMPTS, attempt_once, check_summaries, guard_queue, with_known_queue
from perdure.stores.commit.plan import ForkPlan, Guess
from perdure.stores.commit.refuse import find_receipt
from perdure.stores.commit.request import Fork, Prepared
from perdure.stores.commit.run_change import LOG
from perdure.stores.context import Context, require
from perdure.stores.path_lengths import Point, inherited_length
from perdure.stores.previews import preview
from perdure.stores.records import MessageEntry, message_entry
from perdure.stores.retry import Stale, contention, retry


class Origin(msgspec.Struct, frozen=True):
    """Where a fork hangs: branch, seq and id of the message it continues, and that message's preview."""

    parent: int | None
    seq: int
    message_id: str | None
    preview: str | None

    @property
    def point(self) -> Point | None:
        """The message by branch and seq; None for a root."""
        return None if self.parent is None else (self.parent, self.seq)


ROOT = Origin(None, 0, None, None)


class _Attempt(msgspec.Struct, frozen=True):
    """What a try builds on: the hot row, the origin, the length of the path to it, and the guess to send."""

    head: Row
    origin: Origin
    inherited: int
    guess: Guess


async def make_fork(context: Context, commit: Prepared, fork: Fork) -> Branch | Receipt:
    """The new branch; the first receipt if this keyed fork was made before."""
    attempt = partial(_make_fork, context, commit, fork)
    return await context.patience.repeat(attempt, keyed=commit.key is not None)


async def _make_fork(context: Context, commit: Prepared, fork: Fork) -> Branch | Receipt:
    previous: Guess | None = None
    better: Guess | None = None
    unmoved = 0

    async def attempt() -> Branch | Receipt:
        nonlocal previous, better, unmoved
        tried = await _plan(context, commit, fork, better)
        if isinstance(tried, Receipt):
            return tried
        unmoved = unmoved + 1 if tried.guess == previous else 0
        if unmoved == UNMOVED_ATTEMPTS:
            raise contention("thread", commit.thread_id)
        answer = await attempt_once(context, commit, tried.guess)
        if isinstance(answer, Guess):
            previous, better = tried.guess, answer
            raise Stale
        if answer.replayed:
            return answer
        number = tried.guess.branch
        context.remember_current(commit.thread_id, number if fork.switch else tried.head["branch"])
        return _branch_after(commit, fork, tried, answer)

    return await retry("thread", commit.thread_id, attempt, on=(Stale,))


async def _plan(context: Context, commit: Prepared, fork: Fork, better: Guess | None) -> _Attempt | Receipt:
    """What to send next; `better` is what a refused attempt has taught."""
    head, origin = await _find_origin(context, commit.thread_id, fork)
    if better is None and any(message.compaction is not None for message in commit.messages):
        await check_summaries(context, commit)
    number = head["branches"]
    if number >= limits.BRANCHES_PER_THREAD:
        receipt = await find_receipt(context, commit) if commit.key is not None else None
        if receipt is not None:
            return receipt
        raise InvalidError(f"thread {commit.thread_id!r} has {number} branches, which is the limit")
    name = fork.name or f"branch-{number}"
    if better is not None and await _is_taken(context, commit.thread_id, name):
        if fork.name is not None:
            raise AlreadyExists(f"thread {commit.thread_id!r} already has a branch called {name!r}", actual=name)
        name = f"{name}-{new_id()[-6:].lower()}"
    plan = ForkPlan(
        name=name,
        parent=origin.parent,
        seq=origin.seq,
        message_id=origin.message_id,
        born=head["born"],
        switch=fork.switch,
    )
    guess = Guess(number, current=False, fork=plan, head_rev=head.rev)
    if better is None:
        guess = with_known_queue(context, commit, guess)
    else:
        guess = await guard_queue(context, commit, msgspec.structs.replace(guess, key_rev=better.key_rev))
    inherited, _ = await inherited_length(context, head, origin.point)
    return _Attempt(head, origin, inherited, guess)


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


async def _find_origin(context: Context, thread_id: str, fork: Fork) -> tuple[Row, Origin]:
    """Where a fork hangs, and the thread's hot row from before that look: its `born` guards what was seen."""
    named = fork.at if fork.before is None else fork.before
    if named is None:
        heads = (await context.view(Get("thread_heads", [(thread_id,)])))[0]
        return require(heads[0], f"thread {thread_id!r}"), ROOT
    head, entry = await find_entry(context, thread_id, checks.check_id(named, "message id"))
    if fork.before is None:
        return head, _after(thread_id, entry)
    earlier, (row,) = await context.view(
        before_on_branch(thread_id, entry), Get("branches", [(thread_id, entry.branch)])
    )
    if earlier:
        return head, _after(thread_id, MessageEntry._make(earlier[0]))
    owner = require(row, f"branch {entry.branch} of thread {thread_id!r}")
    if owner["fork"] is None:
        return head, ROOT
    return head, _after(thread_id, (await find_entry(context, thread_id, owner["fork"]))[1])


def before_on_branch(thread_id: str, entry: MessageEntry) -> Read:
    """The message before another one that was written on the same branch, if there is one."""
    return Read(LOG, thread_id, segments=(Segment(entry.branch, 0, entry.seq - 1),), desc=True, limit=1)


async def find_entry(context: Context, thread_id: str, message_id: str) -> tuple[Row, MessageEntry]:
    """A message, and the hot row of the thread that has it."""
    heads, entries = await context.view(
        Get("thread_heads", [(thread_id,)]), Read(LOG, thread_id, where={"id": message_id})
    )
    head = require(heads[0], f"thread {thread_id!r}")
    if not entries:
        raise NotFoundError(f"message {message_id!r} is not in thread {thread_id!r}")
    return head, MessageEntry._make(entries[0])


def _after(thread_id: str, entry: MessageEntry) -> Origin:
    return Origin(entry.branch, entry.seq, entry.id, preview(thread_id, entry))
