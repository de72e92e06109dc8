"""One thread on its way into a store: invisible until its last line, then there as a whole.

A small thread is one transaction. A larger one hides behind a placeholder (a tombstone in `threads`) while its rows and
log arrive in chunks; the last transaction writes its two own rows. Every chunk renews the placeholder and insists on
its rev, so of two imports of one thread only the later goes on. What an interrupted import leaves is invisible: running
it again replaces it, and otherwise a sweep removes it.
"""

from __future__ import annotations

from perdure import failpoints, limits
from perdure.errors import AlreadyExists, ConflictError, InvalidError, NotFoundError
from perdure.ids import new_rev
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ABSENT, NOW, PRESENT, Append, Condition, Delete, Get, Inc, Op, Patch, Put, Row
from perdure.stores.context import Context, thread_topic
from perdure.stores.deletion import erase_contents
from perdure.stores.thread_creation import ancestor_checks, child_flag
from perdure.stores.tombstones import ARRIVING, is_arriving, is_unfinished
from perdure.stores.transfer.lines import COLD, HOT, EntryLine, RowLine


def already_there(thread: str) -> AlreadyExists:
    """The refusal of a thread whose id is taken."""
    return AlreadyExists(
        f"thread {thread!r} already exists", actual=thread, hint="delete it first, or import with --skip-existing"
    )


def being_erased(thread: str) -> AlreadyExists:
    """The refusal of a thread whose id is still taken by a deleted one."""
    return AlreadyExists(f"thread {thread!r} is being erased", hint="try again when that is done")


def put_new(line: RowLine) -> Put:
    """A row that must not be there yet."""
    return Put(line.table.name, line.key, line.columns, line.body, ABSENT)


class Arrival:
    """One thread on its way in: rows and entries are gathered into chunks, the hot row lands it."""

    def __init__(self, context: Context, thread: str, *, detach: bool) -> None:
        self._context = context
        self._thread = thread
        self._detach = detach
        self._before: Row | None = None
        self._rev: int | None = None
        self._cold: RowLine | None = None
        self._rows: list[RowLine] = []
        self._entries: dict[str, list[EntryLine]] = {}
        self._count = self._bytes = 0

    async def take(self, line: RowLine | EntryLine) -> None:
        """Take in the next line; a full chunk is written, the hot row makes everything visible."""
        if isinstance(line, RowLine) and line.table.name == HOT:
            await self._land(line)
            return
        size = len(line.body or b"")
        if self._count and (self._count >= limits.BATCH_ROWS or self._bytes + size > limits.COMMIT_BYTES):
            await self._flush()
        self._count, self._bytes = self._count + 1, self._bytes + size
        if isinstance(line, EntryLine):
            self._entries.setdefault(line.log.name, []).append(line)
        elif line.table.name == COLD:
            self._cold = line
        else:
            self._rows.append(line)

    async def _flush(self) -> None:
        if self._rev is None:
            await self._claim()
        await self._send([Patch(COLD, (self._thread,), {"deleted_at": NOW}, self._rev or 0), *self._chunk()])
        failpoints.hit("import.between_chunks")

    async def _claim(self) -> None:
        """Put the placeholder that keeps the id and hides what arrives."""
        condition = await self._room()
        body = {"created_at": NOW, "deleted_at": NOW}
        await self._send([Put(COLD, (self._thread,), body, ARRIVING, condition)])

    async def _room(self) -> Condition:
        """What the cold row must be for this thread to come in; leftovers of an earlier try are removed."""
        cold, hot = await self._context.view(Get(COLD, [(self._thread,)]), Get(HOT, [(self._thread,)]))
        self._before = row = cold[0]
        if hot[0] is not None:
            raise already_there(self._thread)
        if row is None:
            return ABSENT
        if is_arriving(row) and row["erased_at"] is None:
            await self._send([Patch(COLD, row.key, {"deleted_at": NOW}, row.rev)])
            await erase_contents(self._context, self._thread, self._rev or 0)
            return self._rev or 0
        if is_unfinished(row):
            raise being_erased(self._thread)
        return int(row.rev)

    def _chunk(self) -> list[Op]:
        ops: list[Op] = [put_new(line) for line in self._rows]
        for log, lines in self._entries.items():
            entries, first = [(*line.values, line.body) for line in lines], lines[0].seq
            if lines[0].log.trim:
                ops.append(Append(log, self._thread, entries, start=first))
            else:
                ops.append(Append(log, self._thread, entries, first - 1))
        self._rows, self._entries = [], {}
        self._count = self._bytes = 0
        return ops

    async def _land(self, hot: RowLine) -> None:
        condition = await self._room() if self._rev is None else self._rev
        if self._cold is None:
            raise InvalidError(f"thread {self._thread!r} has no row in {COLD}")
        parent, lineage = await self._lineage(hot.columns.get("parent"))
        cold = {**self._cold.columns, "parent": parent}
        derived = {"parent": parent, "child": child_flag(parent), "children": 0, "born": new_rev() >> 1}
        head = {**hot.columns, **derived}
        await self._send(
            [
                Put(COLD, self._cold.key, cold, self._cold.body, condition),
                Put(HOT, hot.key, head, hot.body, ABSENT),
                *lineage,
                *self._chunk(),
            ],
            thread_topic(self._thread),
        )
        self._context.forget(self._thread)

    async def _lineage(self, parent: str | None) -> tuple[str | None, list[Op]]:
        try:
            checks = await ancestor_checks(self._context, self._thread, parent)
        except NotFoundError:
            if not self._detach:
                raise
            return None, []
        if parent is None:
            return None, []
        return parent, [Patch(HOT, (parent,), {"children": Inc(1)}, PRESENT), *checks]

    async def _send(self, ops: list[Op], *topics: str) -> None:
        try:
            self._rev = (await self._context.transact(ops, *topics)).rev
        except Conflict as conflict:
            raise await self._explain(ops[conflict.op]) from None

    async def _explain(self, op: Op) -> ConflictError:
        if isinstance(op, Put) and op.table not in (COLD, HOT):
            return AlreadyExists(f"{op.table} {op.key} already exists and belongs to another thread")
        hot = (await self._context.view(Get(HOT, [(self._thread,)])))[0][0]
        if hot is not None:
            return already_there(self._thread)
        return ConflictError(
            f"another writer is working on thread {self._thread!r}", hint="import again when it is done"
        )

    async def abandon(self) -> None:
        """Remove what has arrived of an import that failed, and put back what stood in its place."""
        if self._rev is None:
            return
        before = self._before
        try:
            await erase_contents(self._context, self._thread, self._rev)
            if before is None or is_arriving(before):
                await self._context.transact([Delete(COLD, (self._thread,), self._rev)])
            else:
                await self._context.transact([Put(COLD, before.key, before.columns, b"{}", self._rev)])
        except Conflict:
            return
