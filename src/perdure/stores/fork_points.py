"""Where a fork hangs: the message that a new branch continues, found from a message or from the turn of a run.

A turn is what a run produced: its first message is the first record on the run's branch that carries the run's id and
is not its input. Internal records count, so that nothing of an old turn stays on the path of a new one.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from perdure.errors import NotFoundError
from perdure.kernel.ops import Get, Read, Row, Segment
from perdure.model.run import Run
from perdure.rules import checks
from perdure.stores.commit.request import Fork
from perdure.stores.commit.run_change import LOG
from perdure.stores.context import Context, require
from perdure.stores.path_lengths import Point
from perdure.stores.previews import preview
from perdure.stores.records import MessageEntry, run_from


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


class Turn(NamedTuple):
    """The first message that a run produced, None while there is none, and what it hangs under or would."""

    first: MessageEntry | None
    origin: Origin


async def find_origin(context: Context, thread_id: str, fork: Fork, *, edits: bool) -> tuple[Row, Origin]:
    """Where a fork hangs, and the thread's hot row from before that look: its `born` guards what was seen.

    `edits`: the fork of a rerun replaces the run's input, too.
    """
    if fork.rerun is not None:
        return await _rerun_origin(context, thread_id, fork.rerun, edits=edits)
    named = fork.at if fork.before is None else fork.before
    if named is None:
        heads = (await context.view(Get("thread_heads", [(thread_id,)])))[0]
        return require(heads[0], f"thread {thread_id!r}"), ROOT
    head, entry = await find_entry(context, thread_id, checks.check_id(named, "message id"))
    if fork.before is None:
        return head, _after(thread_id, entry)
    return head, await _before(context, thread_id, entry)


async def _rerun_origin(context: Context, thread_id: str, run_id: str, *, edits: bool) -> tuple[Row, Origin]:
    """Before the run's input if that is edited, else before what it produced."""
    heads, runs = await context.view(Get("thread_heads", [(thread_id,)]), Get("runs", [(run_id,)]))
    head = require(heads[0], f"thread {thread_id!r}")
    run = run_from(require(runs[0], f"run {run_id!r}"))
    if edits and run.input is not None and run.input.range is not None:
        return head, await _before(context, thread_id, await _input_entry(context, run, run.input.range.from_seq))
    return head, (await find_turn(context, run)).origin


async def find_turn(context: Context, run: Run) -> Turn:
    """Where the turn of a run begins: at its first message, else where it would be.

    That is where its branch begins, if it was forked after the input (a rerun), else after the input; without an input,
    at the end of its branch.
    """
    thread_id, span = run.thread_id, None if run.input is None else run.input.range
    after = 0 if span is None else span.to_seq
    if run.output is not None:
        after = min(after, run.output.first - 1)
    segment = Segment(run.branch, after)
    produced, (row,) = await context.view(
        Read(LOG, thread_id, segments=(segment,), where={"run": run.id}, limit=1),
        Get("branches", [(thread_id, run.branch)]),
    )
    if produced:
        first = MessageEntry._make(produced[0])
        return Turn(first, await _before(context, thread_id, first))
    branch = require(row, f"branch {run.branch} of thread {thread_id!r}")
    if span is not None and branch["fork_seq"] <= span.to_seq:
        return Turn(None, _after(thread_id, await _input_entry(context, run, span.to_seq)))
    newest = branch["head"] if span is None else branch["fork"]
    if newest is None:
        return Turn(None, ROOT)
    return Turn(None, _after(thread_id, (await find_entry(context, thread_id, newest))[1]))


async def _input_entry(context: Context, run: Run, seq: int) -> MessageEntry:
    entries = (await context.view(Read(LOG, run.thread_id, seq - 1, seq)))[0]
    if not entries:
        raise NotFoundError(f"message {seq} of thread {run.thread_id!r}, an input of run {run.id!r}, does not exist")
    return MessageEntry._make(entries[0])


async def _before(context: Context, thread_id: str, entry: MessageEntry) -> Origin:
    """What a message hangs under."""
    earlier, (row,) = await context.view(
        before_on_branch(thread_id, entry), Get("branches", [(thread_id, entry.branch)])
    )
    if earlier:
        return _after(thread_id, MessageEntry._make(earlier[0]))
    owner = require(row, f"branch {entry.branch} of thread {thread_id!r}")
    if owner["fork"] is None:
        return ROOT
    return _after(thread_id, (await find_entry(context, thread_id, owner["fork"]))[1])


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
