"""Deletes a thread: first it becomes invisible, then everything that belongs to it is erased.

One transaction removes the hot rows of the whole affected set and marks the cold rows as deleted; from then on nothing
can be read of or written to those threads. If the set is larger than one transaction may change, only the thread itself
goes; its tombstone says what becomes of the children, and they are reached chunk by chunk, from the top down. Until
then they are threads like any other. Erasing follows before the call returns, in pieces so small that no other writer
waits long; if the process dies, or the call is cancelled, housekeeping finishes it. What remains for a week is a bare
tombstone, so that a late commit does not revive the id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from perdure import failpoints, limits
from perdure.errors import HasChildren, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Check, Delete, Drop, Get, Heads, Op, Patch, Row, Scan
from perdure.kernel.schema import Schema
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.drafts import draft_owner
from perdure.stores.ownership import erase_op, owned_logs, owned_tables, scan_of
from perdure.stores.retry import retry
from perdure.stores.thread_creation import child_flag, detach_parent_ops
from perdure.stores.tombstones import DISPERSING, ERASING, Dispersal, dispersal_of, is_arriving, is_unfinished

_AGAIN = "housekeeping finishes it; deleting it again does so at once"
_OWN = ("threads", "thread_heads")
"""The rows that make up a thread itself: they go first, or stay as its tombstone."""
_HIDDEN = {"parent": None, "resource": None, "title": None, "deleted_at": NOW}


class Hidden(NamedTuple):
    """A thread that was made invisible: the rev of its tombstone, and what becomes of children it still has."""

    thread: str
    rev: int
    children: Dispersal | None = None


class _Plan(NamedTuple):
    """The transaction that hides threads: its operations, and each thread with what becomes of its children."""

    ops: list[Op]
    doomed: list[tuple[str, Dispersal | None]]

    async def carry_out(self, context: Context) -> list[Hidden]:
        """Send it; raises the kernel's `Conflict` if something changed."""
        rev = (await context.transact(self.ops, *[thread_topic(thread) for thread, _ in self.doomed])).rev
        for thread, _ in self.doomed:
            context.forget(thread)
        return [Hidden(thread, rev, children) for thread, children in self.doomed]


async def delete_thread(context: Context, thread_id: str, strategy: Literal["reject", "detach", "cascade"]) -> None:
    """Delete a thread, and its subtree when cascading."""
    if await _finish_erasing(context, thread_id):
        return

    async def hide() -> list[Hidden]:
        return await (await _plan(context, thread_id, strategy)).carry_out(context)

    await _erase_now(context, await retry("thread", thread_id, hide))


async def _erase_now(context: Context, threads: list[Hidden]) -> None:
    """Erase what has just become invisible; whatever stops this leaves the rest to housekeeping."""
    try:
        failpoints.hit("delete.after_tombstone")
        for hidden in threads:
            await finish(context, hidden)
    except UnavailableError as error:
        context.clean_up_soon()
        message = f"the thread is deleted, but not all of it is erased yet: {error.message}"
        raise UnavailableError(message, hint=_AGAIN) from error
    except BaseException:
        context.clean_up_soon()
        raise


async def _finish_erasing(context: Context, thread_id: str) -> bool:
    """Go on with a deletion that was interrupted after the thread had become invisible; False if there is none."""
    heads, colds = await context.view(Get("thread_heads", [(thread_id,)]), Get("threads", [(thread_id,)]))
    tombstone = colds[0]
    if heads[0] is not None or tombstone is None or not is_unfinished(tombstone) or is_arriving(tombstone):
        return False
    await finish(context, Hidden(thread_id, tombstone.rev, dispersal_of(tombstone)))
    context.clean_up_soon()  # children that were hidden before the interruption have tombstones of their own
    return True


async def _plan(context: Context, thread_id: str, strategy: str) -> _Plan:
    (head,) = (await context.view(Get("thread_heads", [(thread_id,)])))[0]
    target = require(head, f"thread {thread_id!r}")
    plan = _Plan(await detach_parent_ops(context, target["parent"]), [])
    if strategy == "cascade":
        subtree = await _subtree(context, target)
        for row in subtree or [target]:
            _hide(plan, row, None if subtree else "cascade")
        return plan
    if strategy == "reject":
        await _refuse_children(context, target)
    children = await _children(context, thread_id, limits.CASCADE_THREADS + 1)
    at_once = len(children) <= limits.CASCADE_THREADS
    if at_once:
        plan.ops.extend(op for row in children for op in _detach(row, thread_id))
    _hide(plan, target, None if at_once else "detach")
    return plan


def _hide(plan: _Plan, row: Row, children: Dispersal | None) -> None:
    """Make a thread invisible; `children` stays on its tombstone until none is left."""
    # The number of children guards the set: a child created since changes it, and the plan is made again.
    plan.ops.append(Delete("thread_heads", row.key, {"children": row["children"], "parent": row["parent"]}))
    body = ERASING if children is None else DISPERSING[children]
    plan.ops.append(Patch("threads", row.key, _HIDDEN, {"deleted_at": None}, body))
    plan.doomed.append((str(row.key[0]), children))


def _detach(row: Row, parent: str) -> list[Op]:
    """Make a child a root."""
    hot = {"parent": None, "child": child_flag(None), "updated_at": NOW}
    return [
        Patch("threads", row.key, {"parent": None}, {"parent": parent, "deleted_at": None}),
        Patch("thread_heads", row.key, hot, {"parent": parent}),
    ]


async def _refuse_children(context: Context, target: Row) -> None:
    thread_id = str(target.key[0])
    children = await _children(context, thread_id, limits.CHILDREN_NAMED)
    if children:
        raise HasChildren(
            f"thread {thread_id!r} has {max(target['children'], len(children))} child threads",
            actual=[str(row.key[0]) for row in children],
            hint="choose the strategy 'detach' or 'cascade'",
        )


async def _children(context: Context, thread_id: str, limit: int) -> list[Row]:
    rows: list[Row] = (await context.view(Scan("thread_heads", "parent_created", (thread_id,), limit=limit)))[0]
    return rows


async def _subtree(context: Context, target: Row) -> list[Row] | None:
    """The thread and everything below it; None if that is more than one transaction may change."""
    rows = [target]
    for row in rows:
        if row["children"]:
            rows.extend(await _children(context, str(row.key[0]), limits.CASCADE_THREADS + 1))
        if len(rows) > limits.CASCADE_THREADS:
            return None
    return rows


Pause = Callable[[], Awaitable[None]]
"""Called between two pieces of work, so that others are not held up; may raise to stop."""


async def no_pause() -> None:
    """For work that a caller waits for."""


async def finish(context: Context, hidden: Hidden, pause: Pause = no_pause) -> None:
    """Complete a deletion: the children that a thread still has, then everything of it. Safe to repeat."""
    work = [hidden]
    while work:
        current = work[-1]
        below = None if current.children is None else await _disperse(context, current, current.children)
        if below is not None:
            # A subtree goes before its siblings: the list stays as short as the hierarchy is deep, times a chunk.
            work += below
            await pause()
            continue
        await erase(context, current, pause)
        work.pop()


async def _disperse(context: Context, hidden: Hidden, strategy: Dispersal) -> list[Hidden] | None:
    """Detach or hide some children of a thread that was made invisible; None if it has none, or another did it all.

    No child can come after them: whoever makes one patches the parent's hot row, which is gone.
    """
    thread, rev, _ = hidden

    async def attempt() -> list[Hidden] | None:
        scan = Scan("thread_heads", "parent_created", (thread,), limit=limits.DISPERSED_THREADS)
        colds, rows = await context.view(Get("threads", [(thread,)]), scan)
        if not rows or colds[0] is None or colds[0].rev != rev:
            return None
        plan = _Plan([Check("threads", (thread,), rev)], [])
        for row in rows:
            if strategy == "detach":
                plan.ops.extend(_detach(row, thread))
            else:
                _hide(plan, row, "cascade" if row["children"] else None)
        hidden = await plan.carry_out(context)
        failpoints.hit("delete.between_chunks")
        return hidden

    return await retry("thread", thread, attempt)


async def erase(context: Context, hidden: Hidden, pause: Pause = no_pause) -> None:
    """Remove everything of a thread that was made invisible and has no children, and say so on its tombstone.

    Safe to repeat. If another process finished the work, this stops: the id may already belong to a new thread.
    """
    thread, rev, children = hidden
    last = Patch("threads", (thread,), {"erased_at": NOW}, rev, None if children is None else ERASING)
    try:
        await erase_contents(context, thread, rev, last, pause)
    except Conflict:
        return


async def erase_contents(
    context: Context, thread_id: str, rev: int, last: Patch | None = None, pause: Pause = no_pause
) -> None:
    """Remove what belongs to a thread, all but its own two rows, as long as its cold row has this rev.

    Each piece is one view and one transaction, whatever the thread holds; `last` joins the piece that ends it: that of
    a deletion, which also takes the drafts of the thread's runs.
    """
    guard: Op = Check("threads", (thread_id,), rev)
    schema = context.kernel.schema
    reads = _belongings(schema, thread_id)
    if last is not None:  # not an import, which may bring drafts
        reads.append(Scan("profiles", eq=(draft_owner(thread_id),), limit=limits.ERASE_ROWS))
    finished = False
    while not finished:
        answers = await context.view_keys(*reads)
        failpoints.hit("delete.between_erasures")
        ops, finished = _piece(schema, thread_id, reads, answers)
        if finished and last is not None:
            ops.append(last)
        elif ops:
            ops.append(guard)
        if ops:
            finished = await _apply(context, ops) and finished
        if not finished:
            await pause()


async def _apply(context: Context, ops: list[Op]) -> bool:
    """Send a piece; False if a row that was to be blanked is no longer what was read, so that it is read again."""
    try:
        await context.transact(ops)
    except Conflict as conflict:
        if conflict.op == len(ops) - 1:
            raise
        return False
    return True


def _belongings(schema: Schema, thread_id: str) -> list[Scan | Heads]:
    """The reads that find what belongs to a thread: the lengths of its logs, and a piece of each table."""
    tables = [table for table in owned_tables(schema) if table.name not in _OWN]
    return [
        *[Heads(log.name, [thread_id]) for log in owned_logs(schema)],
        *[scan_of(table, thread_id, limits.ERASE_ROWS) for table in tables],
    ]


def _piece(
    schema: Schema, thread_id: str, reads: Sequence[Scan | Heads], answers: Sequence[Any]
) -> tuple[list[Op], bool]:
    """What one transaction erases of what was read, and whether nothing is left then."""
    ops: list[Op] = []
    room, finished = limits.ERASE_ROWS, True
    for read, answer in zip(reads, answers, strict=True):
        if isinstance(read, Heads):
            keep = max(0, answer[0] - limits.ERASE_ENTRIES)
            finished = finished and keep == 0
            if answer[0]:
                ops.append(Drop(read.log, read.partitions[0], keep))
        else:
            rows = answer[:room]
            finished = finished and len(rows) == len(answer) < limits.ERASE_ROWS
            room -= len(rows)
            ops += [erase_op(schema.table[read.table], row.key, thread_id) for row in rows]
    return ops, finished
