"""Deletes a thread: first it becomes invisible, then everything that belongs to it is erased.

One transaction removes the hot rows of the whole affected set and marks the cold rows as deleted; from then on nothing
can be read of or written to those threads. Erasing follows before the call returns, in pieces so small that no other
writer waits long; if the process dies, or the call is cancelled, housekeeping finishes it. What remains for a
week is a bare tombstone, so that a late commit does not revive the id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from perdure import failpoints, limits
from perdure.errors import HasChildren, InvalidError, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Check, Delete, Drop, Get, Heads, Op, Patch, Row, Scan
from perdure.kernel.schema import Schema
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.retry import retry
from perdure.stores.thread_creation import detach_parent_ops

ARRIVING = b'{"arriving":true}'
"""The body of a tombstone that hides a thread while it is being imported; every chunk renews its `deleted_at`."""

_AGAIN = "housekeeping finishes it; deleting it again does so at once"
_HIDDEN = {"parent": None, "resource": None, "title": None, "deleted_at": NOW}


async def delete_thread(context: Context, thread_id: str, strategy: Literal["reject", "detach", "cascade"]) -> None:
    """Delete a thread, and its subtree when cascading."""
    if await _finish_erasing(context, thread_id):
        return

    async def hide() -> tuple[list[str], int]:
        doomed, ops = await _plan(context, thread_id, strategy)
        applied = await context.transact(ops, *[thread_topic(thread) for thread in doomed])
        return doomed, applied.rev

    doomed, rev = await retry("thread", thread_id, hide)
    for thread in doomed:
        context.forget(thread)
    await _erase_now(context, doomed, rev)


async def _erase_now(context: Context, threads: list[str], rev: int) -> None:
    """Erase what has just become invisible; whatever stops this leaves the rest to housekeeping."""
    try:
        failpoints.hit("delete.after_tombstone")
        for thread in threads:
            await erase(context, thread, rev)
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
    if heads[0] is not None or tombstone is None or tombstone["erased_at"] is not None or is_arriving(tombstone):
        return False
    await erase(context, thread_id, tombstone.rev)
    return True


async def _plan(context: Context, thread_id: str, strategy: str) -> tuple[list[str], list[Op]]:
    (head,) = (await context.view(Get("thread_heads", [(thread_id,)])))[0]
    target = require(head, f"thread {thread_id!r}")
    doomed = [target]
    ops: list[Op] = []
    if strategy == "cascade":
        doomed = await _subtree(context, target)
    else:
        children = await _children(context, thread_id)
        if children and strategy == "reject":
            raise HasChildren(
                f"thread {thread_id!r} has {len(children)} child threads",
                actual=[str(row.key[0]) for row in children],
                hint="choose the strategy 'detach' or 'cascade'",
            )
        for row in children:
            ops.append(Patch("threads", row.key, {"parent": None}, {"parent": thread_id, "deleted_at": None}))
            ops.append(Patch("thread_heads", row.key, {"parent": None, "updated_at": NOW}, {"parent": thread_id}))
    for row in doomed:
        # The number of children guards the set: a child created since changes it, and the plan is made again.
        ops.append(Delete("thread_heads", row.key, {"children": row["children"], "parent": row["parent"]}))
        ops.append(Patch("threads", row.key, _HIDDEN, {"deleted_at": None}, b"{}"))
    ops.extend(await detach_parent_ops(context, target["parent"]))
    return [str(row.key[0]) for row in doomed], ops


async def _children(context: Context, thread_id: str) -> list[Row]:
    scan = Scan("thread_heads", "parent_created", (thread_id,), limit=limits.CASCADE_THREADS + 1)
    rows: list[Row] = (await context.view(scan))[0]
    if len(rows) > limits.CASCADE_THREADS:
        raise InvalidError(
            f"thread {thread_id!r} has more than {limits.CASCADE_THREADS} children", hint="delete some of them first"
        )
    return rows


async def _subtree(context: Context, target: Row) -> list[Row]:
    rows = [target]
    for row in rows:
        if row["children"]:
            rows.extend(await _children(context, str(row.key[0])))
        if len(rows) > limits.CASCADE_THREADS:
            raise InvalidError(
                f"the subtree holds more than {limits.CASCADE_THREADS} threads", hint="delete parts of it first"
            )
    return rows


Pause = Callable[[], Awaitable[None]]
"""Called between two pieces of work, so that others are not held up; may raise to stop."""


async def no_pause() -> None:
    """For work that a caller waits for."""


async def erase(context: Context, thread_id: str, rev: int, pause: Pause = no_pause) -> None:
    """Remove everything of a thread that was made invisible, and say so on its tombstone, whose rev is `rev`.

    Safe to repeat. If another process finished the work, this stops: the id may already belong to a new thread.
    """
    try:
        await erase_contents(context, thread_id, rev, Patch("threads", (thread_id,), {"erased_at": NOW}, rev), pause)
    except Conflict:
        return


async def erase_contents(
    context: Context, thread_id: str, rev: int, last: Patch | None = None, pause: Pause = no_pause
) -> None:
    """Remove what belongs to a thread, all but its own two rows, as long as its cold row has this rev.

    Each piece is one view and one transaction, whatever the thread holds; `last` joins the piece that ends it.
    """
    guard = Check("threads", (thread_id,), rev)
    reads = _belongings(context.kernel.schema, thread_id)
    finished = False
    while not finished:
        answers = await context.view_keys(*reads)
        failpoints.hit("delete.between_erasures")
        ops, finished = _piece(reads, answers)
        if finished and last is not None:
            ops.append(last)
        elif ops:
            ops.append(guard)
        if ops:
            await context.transact(ops)
        if not finished:
            await pause()


def _belongings(schema: Schema, thread_id: str) -> list[Scan | Heads]:
    """The reads that find what belongs to a thread: the lengths of its logs, and a piece of each table."""
    reads: list[Scan | Heads] = [Heads(log.name, [thread_id]) for log in schema.logs if log.partition == "thread"]
    for table in schema.tables:
        if table.name in ("threads", "thread_heads"):
            continue
        if table.key_names[0] == "thread":
            reads.append(Scan(table.name, eq=(thread_id,), limit=limits.ERASE_ROWS))
        elif "thread" in table.column_names:
            reads.append(Scan(table.name, "thread", (thread_id,), limit=limits.ERASE_ROWS))
    return reads


def _piece(reads: Sequence[Scan | Heads], answers: Sequence[Any]) -> tuple[list[Op], bool]:
    """What one transaction removes of what was found, and whether nothing is left then."""
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
            ops += [Delete(read.table, row.key) for row in rows]
    return ops, finished


def is_arriving(tombstone: Row) -> bool:
    """Is this the placeholder of an import that is in progress, or was interrupted?"""
    body = tombstone.body.encode() if isinstance(tombstone.body, str) else tombstone.body
    return body == ARRIVING
