"""Finishes what was left, and removes what has expired.

These are interrupted deletions, abandoned imports, hot rows of an older version that lack the column `child`, old
tombstones, old idempotency keys and expired profiles.

Everything happens in pieces of one view and one short transaction, with a pause between them that the caller chooses.
Times are compared with the engine's own clock only. Several processes may clean the same scope: they repeat each
other's work at worst. `stores.housekeeping` decides when this runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from perdure import limits
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Delete, Op, Patch, Row, Scan
from perdure.rules.expiry import has_expired
from perdure.stores.context import Context
from perdure.stores.deletion import Hidden, Pause, finish, no_pause
from perdure.stores.thread_creation import child_flag, is_expired
from perdure.stores.tombstones import dispersal_of, is_arriving, is_unfinished

_OUT_OF_ORDER_MS = 3_600_000
"""Tombstones may appear behind newer ones by so much: transactions that overlap, a server's clock that was set back."""


class Progress(msgspec.Struct):
    """How far one process has come in a scope: every tombstone deleted until `upto` was seen to be erased."""

    upto: int | None = None


async def sweep(context: Context, progress: Progress | None = None, pause: Pause = no_pause) -> None:
    """Finish interrupted deletions, remove what abandoned imports left, drop expired tombstones, keys and profiles."""
    await _finish_deletions(context, progress or Progress(), pause)
    await _fill_child(context, pause)
    await _drop_tombstones(context, pause)
    await _drop_keys(context, pause)
    await _drop_profiles(context, pause)


async def _finish_deletions(context: Context, progress: Progress, pause: Pause) -> None:
    """Walk the tombstones that were not yet seen to be erased, oldest first, and erase what they hide."""
    after = None if progress.upto is None else (progress.upto - _OUT_OF_ORDER_MS, "")
    settled = True
    while True:
        now, rows = await context.view(NOW, Scan("threads", "deleted", after=after, limit=limits.CLEANUP_ROWS))
        if progress.upto is not None and progress.upto > now:
            # The engine's clock went back: what was deleted since lies before the mark.
            progress.upto = after = None
            continue
        for row in rows:
            # An import in progress may be abandoned later: the next walk begins before it.
            settled = await _finish(context, row, now, pause) and settled
            if settled:
                progress.upto = min(row["deleted_at"], now)
        if len(rows) < limits.CLEANUP_ROWS:
            return
        after = (rows[-1]["deleted_at"], str(rows[-1].key[0]))
        await pause()


async def _finish(context: Context, tombstone: Row, now: int, pause: Pause) -> bool:
    """Erase what a tombstone hides; False if it belongs to an import in progress."""
    if not is_unfinished(tombstone):
        return True
    rev: int | None = tombstone.rev
    if is_arriving(tombstone):
        rev = await _take_over(context, tombstone, now)
    if rev is None:
        return False
    await finish(context, Hidden(str(tombstone.key[0]), rev, dispersal_of(tombstone)), pause)
    await pause()
    return True


async def _take_over(context: Context, tombstone: Row, now: int) -> int | None:
    """Claim what an import left behind, unless it is still at work; the new rev stops it if it ever comes back."""
    if tombstone["deleted_at"] > now - limits.IMPORT_LEASE_MS:
        return None
    try:
        return (await context.transact([Patch("threads", tombstone.key, {"deleted_at": NOW}, tombstone.rev)])).rev
    except Conflict:
        return None


async def _fill_child(context: Context, pause: Pause) -> None:
    """Fill the column `child` of rows that a version without it wrote. Once all have it, this is one empty read."""
    scan = Scan("thread_heads", "created", (None,), limit=limits.CLEANUP_ROWS)
    while True:
        rows: list[Row] = (await context.view(scan))[0]
        # A commit in between changes neither column, so it is no conflict.
        await _each(
            context,
            [
                Patch("thread_heads", r.key, {"child": child_flag(r["parent"])}, {"parent": r["parent"], "child": None})
                for r in rows
            ],
        )
        if len(rows) < limits.CLEANUP_ROWS:
            return
        scan = msgspec.structs.replace(scan, after=(rows[-1]["created_at"], *rows[-1].key))
        await pause()


async def _drop_tombstones(context: Context, pause: Pause) -> None:
    """Delete tombstones past their retention. They are ordered by when they were deleted, so old ones come first."""
    await _drop_expired(context, Scan("threads", "deleted", limit=limits.CLEANUP_ROWS), "deleted_at", is_expired, pause)


async def _drop_keys(context: Context, pause: Pause) -> None:
    """Delete idempotency keys past their retention, oldest first."""

    def is_old(key: Row, now: int) -> bool:
        return bool(key["at"] + limits.KEY_RETENTION_MS < now)

    await _drop_expired(context, Scan("keys", "age", limit=limits.CLEANUP_ROWS), "at", is_old, pause)


async def _drop_profiles(context: Context, pause: Pause) -> None:
    """Delete profile documents whose time to live is over, in the order in which they expired."""
    scan = Scan("profiles", "expiry", limit=limits.CLEANUP_ROWS)
    await _drop_expired(context, scan, "expires_at", has_expired, pause)


async def _drop_expired(
    context: Context, scan: Scan, order: str, expired: Callable[[Row, int], bool], pause: Pause
) -> None:
    """Delete the expired rows of an index, piece by piece, until a piece holds none."""
    while True:
        now, rows = await context.view(NOW, scan)
        doomed = [row for row in rows if expired(row, now)]
        await _each(context, [Delete(scan.table, row.key, row.rev) for row in doomed])
        if not doomed or len(rows) < limits.CLEANUP_ROWS:
            return
        # Past what was seen, not from the start: a row that cannot be deleted must not keep this loop going.
        scan = msgspec.structs.replace(scan, after=(rows[-1][order], *rows[-1].key))
        await pause()


async def _each(context: Context, ops: list[Op]) -> None:
    """Apply these operations in one transaction, or each by itself if a row changed since it was read."""
    if not ops:
        return
    try:
        await context.transact(ops)
    except Conflict:
        for op in ops:
            with suppress(Conflict):
                await context.transact([op])
