"""Deleting a thread: first it becomes invisible, then everything of it goes.

One transaction removes the hot rows of the whole affected set and marks the cold rows as deleted; from then on nothing
can be read of or written to those threads. Erasing follows before the call returns; if the process dies in between, the
next `open` finishes it. What remains for a while is a bare tombstone, so that a late commit does not revive the id.
"""

from __future__ import annotations

from typing import Literal

from perdure import failpoints, limits
from perdure.errors import HasChildren, InvalidError, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Check, Delete, Drop, Get, Op, Patch, Row, Scan
from perdure.stores.births import leaving
from perdure.stores.core import Core, gave_up, require, thread_topic

ARRIVING = b'{"arriving":true}'
"""The body of a tombstone that hides a thread while it is being imported; every chunk renews its `deleted_at`."""

_AGAIN = "delete it again, or open the store again, to finish"
_HIDDEN = {"parent": None, "resource": None, "title": None, "deleted_at": NOW}


async def delete_thread(core: Core, thread_id: str, strategy: Literal["reject", "detach", "cascade"]) -> None:
    """Delete a thread, and its subtree when cascading."""
    if await _finish_erasing(core, thread_id):
        return
    for _ in range(limits.QUEUE_ATTEMPTS):
        doomed, ops = await _plan(core, thread_id, strategy)
        try:
            applied = await core.transact(ops, *[thread_topic(thread) for thread in doomed])
        except Conflict:
            continue
        failpoints.hit("delete.after_tombstone")
        for thread in doomed:
            core.forget(thread)
        try:
            for thread in doomed:
                await erase(core, thread, applied.rev)
        except UnavailableError as error:
            told = f"the thread is deleted, but not all of it is erased yet: {error.message}"
            raise UnavailableError(told, hint=_AGAIN) from error
        return
    raise gave_up(f"thread {thread_id!r}")


async def _finish_erasing(core: Core, thread_id: str) -> bool:
    """Go on with a deletion that was interrupted after the thread had become invisible; False if there is none."""
    heads, colds = await core.view(Get("thread_heads", [(thread_id,)]), Get("threads", [(thread_id,)]))
    tombstone = colds[0]
    if heads[0] is not None or tombstone is None or tombstone["erased_at"] is not None or is_arriving(tombstone):
        return False
    await erase(core, thread_id, tombstone.rev)
    return True


async def _plan(core: Core, thread_id: str, strategy: str) -> tuple[list[str], list[Op]]:
    (head,) = (await core.view(Get("thread_heads", [(thread_id,)])))[0]
    target = require(head, f"thread {thread_id!r}")
    doomed = [target]
    ops: list[Op] = []
    if strategy == "cascade":
        doomed = await _subtree(core, target)
    else:
        children = await _children(core, thread_id)
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
        # The number of children guards the set: a child born meanwhile changes it, and the plan is made again.
        ops.append(Delete("thread_heads", row.key, {"children": row["children"], "parent": row["parent"]}))
        ops.append(Patch("threads", row.key, _HIDDEN, {"deleted_at": None}, b"{}"))
    ops.extend(await leaving(core, target["parent"]))
    return [str(row.key[0]) for row in doomed], ops


async def _children(core: Core, thread_id: str) -> list[Row]:
    scan = Scan("thread_heads", "parent_created", (thread_id,), limit=limits.CASCADE_THREADS + 1)
    rows: list[Row] = (await core.view(scan))[0]
    if len(rows) > limits.CASCADE_THREADS:
        raise InvalidError(
            f"thread {thread_id!r} has more than {limits.CASCADE_THREADS} children", hint="delete some of them first"
        )
    return rows


async def _subtree(core: Core, target: Row) -> list[Row]:
    found = [target]
    for row in found:
        if row["children"]:
            found.extend(await _children(core, str(row.key[0])))
        if len(found) > limits.CASCADE_THREADS:
            raise InvalidError(
                f"the subtree holds more than {limits.CASCADE_THREADS} threads", hint="delete parts of it first"
            )
    return found


async def erase(core: Core, thread_id: str, rev: int) -> None:
    """Remove everything of a thread that was made invisible, and say so on its tombstone, whose rev is `rev`.

    Safe to repeat. If somebody else finished the work, this stops: the id may already belong to a new thread.
    """
    try:
        await erase_contents(core, thread_id, rev)
        await core.transact([Patch("threads", (thread_id,), {"erased_at": NOW}, rev)])
    except Conflict:
        return


async def erase_contents(core: Core, thread_id: str, rev: int) -> None:
    """Remove what belongs to a thread, all but its own two rows, as long as its cold row has this rev."""
    schema = core.kernel.schema
    guard = Check("threads", (thread_id,), rev)
    for log in schema.logs:
        if log.partition == "thread":
            await core.transact([guard, Drop(log.name, thread_id)])
            failpoints.hit("delete.between_erasures")
    for table in schema.tables:
        if table.name in ("threads", "thread_heads"):
            continue
        if table.key_names[0] == "thread":
            await _erase_rows(core, guard, Scan(table.name, eq=(thread_id,), limit=limits.ERASE_CHUNK))
        elif "thread" in table.column_names:
            await _erase_rows(core, guard, Scan(table.name, "thread", (thread_id,), limit=limits.ERASE_CHUNK))
        failpoints.hit("delete.between_erasures")


async def _erase_rows(core: Core, guard: Check, scan: Scan) -> None:
    while True:
        rows = (await core.view(scan))[0]
        if rows:
            await core.transact([guard, *[Delete(scan.table, row.key) for row in rows]])
        if len(rows) < limits.ERASE_CHUNK:
            return


async def sweep(core: Core) -> None:
    """Finish interrupted erasures and drop tombstones and idempotency keys past their retention."""
    now = core.clock()
    old = now - limits.KEY_RETENTION_MS
    while await _finish_some(core, now) == limits.ERASE_CHUNK:
        continue
    for stale in (
        Scan("threads", "deleted", upto={"deleted_at": old, "erased_at": old}, limit=limits.ERASE_CHUNK),
        Scan("keys", "age", upto={"at": old}, limit=limits.ERASE_CHUNK),
    ):
        while await _drop_some(core, stale) == limits.ERASE_CHUNK:
            continue


async def _finish_some(core: Core, now: int) -> int:
    """Erase what a chunk of tombstones hides; how many of them are done with."""
    scan = Scan("threads", "deleted", where={"erased_at": None}, limit=limits.ERASE_CHUNK)
    done = 0
    for row in (await core.view(scan))[0]:
        rev = await _take_over(core, row, now) if is_arriving(row) else row.rev
        if rev is not None:
            await erase(core, str(row.key[0]), rev)
            done += 1
    return done


async def _drop_some(core: Core, stale: Scan) -> int:
    """Delete a chunk of rows past their time, unless somebody changed them; how many went."""
    gone = 0
    for row in (await core.view(stale))[0]:
        try:
            await core.transact([Delete(stale.table, row.key, row.rev)])
        except Conflict:
            continue
        gone += 1
    return gone


def is_arriving(tombstone: Row) -> bool:
    """Is this the placeholder of an import that is under way, or was interrupted?"""
    body = tombstone.body.encode() if isinstance(tombstone.body, str) else tombstone.body
    return body == ARRIVING


async def _take_over(core: Core, tombstone: Row, now: int) -> int | None:
    """Claim what an import left behind, unless it is still at work; the new rev stops it if it ever comes back."""
    if tombstone["deleted_at"] > now - limits.IMPORT_LEASE_MS:
        return None
    try:
        return (await core.transact([Patch("threads", tombstone.key, {"deleted_at": now}, tombstone.rev)])).rev
    except Conflict:
        return None
