"""`store.branches`: fork at any message, switch, rename, delete, label; nothing is ever copied.

A branch is one row that names its parent branch and its fork point. Deleting a branch removes that pointer only: its
records stay in the log, and branches forked from it continue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, ConflictError, InvalidError, NotFoundError
from perdure.ids import new_id
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import (
    ABSENT,
    NOW,
    PRESENT,
    Check,
    Delete,
    Get,
    Inc,
    Op,
    Patch,
    Put,
    Read,
    Row,
    Scan,
    Segment,
)
from perdure.model.branch import Branch, Label
from perdure.model.run import DONE, STATUSES
from perdure.model.unset import UNSET, Unset
from perdure.rules import checks
from perdure.stores.branch_paths import resolve_branch
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.previews import preview
from perdure.stores.records import MessageEntry, branch_from, label_from
from perdure.stores.results import row_after_put
from perdure.stores.retry import Stale, retry

LOG = "messages"
BranchList = list[Branch]
LabelList = list[Label]


class Origin(msgspec.Struct, frozen=True):
    """Where a fork hangs: branch, seq and id of the message it continues, and that message's preview."""

    parent: int | None
    seq: int
    message_id: str | None
    preview: str | None


ROOT = Origin(None, 0, None, None)


class Branches:
    """`store.branches`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list(self, thread_id: str) -> BranchList:
        """Every branch in order of creation, with a preview of its newest message."""
        head, rows = await self._rows(thread_id)
        alive = [row for row in rows if row["deleted_at"] is None]
        ids = tuple(dict.fromkeys(row["head"] for row in alive if row["head"] is not None))
        previews: dict[str, str] = {}
        for start in range(0, len(ids), limits.BATCH_ROWS):
            some = ids[start : start + limits.BATCH_ROWS]
            entries = (await self._context.view(Read(LOG, thread_id, where={"id": some})))[0]
            previews.update({entry.id: preview(thread_id, entry) for entry in map(MessageEntry._make, entries)})
        return [branch_from(row, head["branch"], previews.get(row["head"])) for row in alive]

    async def iter(self, thread_id: str) -> AsyncIterator[Branch]:
        """Every branch of the list, one by one."""
        for branch in await self.list(thread_id):
            yield branch

    async def _rows(self, thread_id: str) -> tuple[Row, Sequence[Row]]:
        checks.check_id(thread_id, "thread id")
        heads, rows = await self._context.view(Get("thread_heads", [(thread_id,)]), Scan("branches", eq=(thread_id,)))
        return require(heads[0], f"thread {thread_id!r}"), rows

    async def get(self, thread_id: str, branch: int | str) -> Branch:
        """One branch, by number or name; raises `NotFoundError`."""
        checks.check_id(thread_id, "thread id")
        number = await resolve_branch(self._context, thread_id, branch)
        return await self._one(thread_id, number)

    async def current(self, thread_id: str) -> Branch:
        """The branch that commits go to when they name none."""
        checks.check_id(thread_id, "thread id")
        return await self._one(thread_id, None)

    async def _one(self, thread_id: str, number: int | None) -> Branch:
        async def attempt() -> Branch:
            guess = self._context.current.get(thread_id, 0) if number is None else number
            heads, rows = await self._context.view(
                Get("thread_heads", [(thread_id,)]), Get("branches", [(thread_id, guess)])
            )
            head = require(heads[0], f"thread {thread_id!r}")
            self._context.remember_current(thread_id, head["branch"])
            if number is None and head["branch"] != guess:
                raise Stale
            if rows[0] is None or rows[0]["deleted_at"] is not None:
                raise NotFoundError(f"branch {guess} of thread {thread_id!r} does not exist")
            return await self._with_preview(rows[0], head)

        return await retry("thread", thread_id, attempt)

    async def _with_preview(self, row: Row, head: Row) -> Branch:
        if row["head"] is None:
            return branch_from(row, head["branch"])
        thread = str(row.key[0])
        entries = (await self._context.view(Read(LOG, thread, where={"id": row["head"]})))[0]
        return branch_from(row, head["branch"], preview(thread, MessageEntry._make(entries[0])) if entries else None)

    async def fork(
        self,
        thread_id: str,
        *,
        at: str | Unset | None = UNSET,
        before: str | None = None,
        name: str | None = None,
        switch: bool = False,
    ) -> Branch:
        """Make a new branch that continues after one message, or replaces another.

        - `at`: the id of the message to continue after; None starts another root.
        - `before`: the id of the message to replace: the branch continues after the one before it. Pass either `at` or
          `before`.
        - `name`: unique within the thread; by default `branch-<number>`. A name that exists raises `AlreadyExists`.
        - `switch`: make the branch the current one. By default the current branch stays.

        Raises `NotFoundError` for a thread or a message that does not exist. No message is copied.
        """
        checks.check_id(thread_id, "thread id")
        if (before is None) == isinstance(at, Unset):
            raise InvalidError("fork takes at=<message id>, at=None for a new root, or before=<message id>")
        origin_id = before if isinstance(at, Unset) else at
        if origin_id is not None:
            checks.check_id(origin_id, "message id")
        if name is not None:
            _check_name(name)
        checks.check_flag(switch, "switch")
        new_name = name

        async def attempt() -> Branch:
            nonlocal new_name
            head, origin = await self._origin(thread_id, None if isinstance(at, Unset) else at, before)
            number = head["branches"]
            if number >= limits.BRANCHES_PER_THREAD:
                raise InvalidError(f"thread {thread_id!r} has {number} branches, which is the limit")
            touch, put = _fork_ops(head, number, new_name, origin, switch)
            try:
                applied = await self._context.transact([touch, put], thread_topic(thread_id))
            except Conflict as conflict:
                if name is not None:
                    _refuse_name(conflict, thread_id, name)
                elif conflict.kind == "unique":
                    # Another branch already has the name that this number suggests.
                    new_name = f"branch-{number}-{new_id()[-6:].lower()}"
                raise
            current = number if switch else head["branch"]
            self._context.remember_current(thread_id, current)
            return branch_from(row_after_put(put, applied), current, origin.preview)

        return await retry("thread", thread_id, attempt)

    async def _origin(self, thread_id: str, at: str | None, before: str | None) -> tuple[Row, Origin]:
        """Where a fork hangs, and the thread's hot row from before that look: its `born` guards what was seen."""
        if at is None and before is None:
            heads = (await self._context.view(Get("thread_heads", [(thread_id,)])))[0]
            return require(heads[0], f"thread {thread_id!r}"), ROOT
        head, entry = await self._entry(thread_id, checks.check_id(at if before is None else before, "message id"))
        if before is None:
            return head, _after(thread_id, entry)
        earlier, (row,) = await self._context.view(
            Read(LOG, thread_id, segments=(Segment(entry.branch, 0, entry.seq - 1),), desc=True, limit=1),
            Get("branches", [(thread_id, entry.branch)]),
        )
        if earlier:
            return head, _after(thread_id, MessageEntry._make(earlier[0]))
        owner = require(row, f"branch {entry.branch} of thread {thread_id!r}")
        if owner["fork"] is None:
            return head, ROOT
        return head, _after(thread_id, (await self._entry(thread_id, owner["fork"]))[1])

    async def _entry(self, thread_id: str, message_id: str) -> tuple[Row, MessageEntry]:
        """A message, and the hot row of the thread that has it."""
        heads, entries = await self._context.view(
            Get("thread_heads", [(thread_id,)]), Read(LOG, thread_id, where={"id": message_id})
        )
        head = require(heads[0], f"thread {thread_id!r}")
        if not entries:
            raise NotFoundError(f"message {message_id!r} is not in thread {thread_id!r}")
        return head, MessageEntry._make(entries[0])

    async def switch(self, thread_id: str, branch: int | str) -> Branch:
        """Make a branch the current one; switching to the current one changes nothing.

        Its head is returned as this call found it, just before the change.
        """
        target = await self.get(thread_id, branch)
        if target.current:
            return target
        ops: list[Op] = [
            Patch("thread_heads", (thread_id,), {"branch": target.id, "updated_at": NOW}, PRESENT),
            Check("branches", (thread_id, target.id), {"deleted_at": None}),
        ]
        try:
            await self._context.transact(ops, thread_topic(thread_id))
        except Conflict:
            raise NotFoundError(f"branch {target.id} of thread {thread_id!r} does not exist") from None
        self._context.remember_current(thread_id, target.id)
        return msgspec.structs.replace(target, current=True)

    async def rename(self, thread_id: str, branch: int | str, name: str) -> Branch:
        """Give a branch another name; raises `AlreadyExists` if a branch of the thread has it.

        Its head is returned as this call found it, just before the change.
        """
        _check_name(name)
        target = await self.get(thread_id, branch)
        ops: list[Op] = [
            Check("thread_heads", (thread_id,), PRESENT),
            Patch("branches", (thread_id, target.id), {"name": name}, {"deleted_at": None}),
        ]
        try:
            await self._context.transact(ops, thread_topic(thread_id))
        except Conflict as conflict:
            _refuse_name(conflict, thread_id, name)
            raise NotFoundError(f"branch {target.id} of thread {thread_id!r} does not exist") from None
        return msgspec.structs.replace(target, name=name)

    async def delete(self, thread_id: str, branch: int | str) -> None:
        """Remove a branch's pointer; its records and the branches forked from it stay.

        The current branch is refused, and so is one that a run which is not done is pinned to.
        """
        target = await self.get(thread_id, branch)

        async def attempt() -> None:
            head = await self._unused(thread_id, target)
            ops: list[Op] = [
                # Starting a run moves this row, so a run pinned since that look is noticed.
                Check("thread_heads", (thread_id,), head.rev),
                Patch("branches", (thread_id, target.id), {"deleted_at": NOW, "name": None}, {"deleted_at": None}),
            ]
            try:
                await self._context.transact(ops, thread_topic(thread_id))
            except Conflict:
                await self._one(thread_id, target.id)
                raise

        await retry("thread", thread_id, attempt)

    async def _unused(self, thread_id: str, target: Branch) -> Row:
        """The thread's hot row, unless the branch is in use."""
        heads, *open_runs = await self._context.view(
            Get("thread_heads", [(thread_id,)]),
            *[
                Scan("runs", "thread_status", (thread_id, status), where={"branch": target.id}, limit=1)
                for status in STATUSES
                if status != DONE
            ],
        )
        head = require(heads[0], f"thread {thread_id!r}")
        if head["branch"] == target.id:
            raise ConflictError(
                f"branch {target.name!r} is the current one", actual=target.id, hint="switch to another branch first"
            )
        open_run = next((row.key[0] for rows in open_runs for row in rows), None)
        if open_run is not None:
            raise ConflictError(
                f"run {open_run!r} is not done and lives on branch {target.name!r}",
                actual=open_run,
                hint="finish or cancel it first",
            )
        return head

    async def label(self, thread_id: str, message_id: str, label: str | None) -> None:
        """Mark a message; the last label wins, None removes it. Labels never reach the model."""
        checks.check_id(thread_id, "thread id")
        checks.check_id(message_id, "message id")
        if label is not None:
            checks.check_id(label, "label", most=limits.NAME_BYTES)
        head, entry = await self._entry(thread_id, message_id)
        key = (thread_id, message_id)
        change: Op = Delete("labels", key)
        if label is not None:
            change = Put("labels", key, {"seq": entry.seq, "at": NOW, "label": label})
        try:
            same_thread = Check("thread_heads", (thread_id,), {"born": head["born"]})
            await self._context.transact([same_thread, change], thread_topic(thread_id))
        except Conflict:
            raise NotFoundError(f"thread {thread_id!r} does not exist") from None

    async def labels(self, thread_id: str) -> LabelList:
        """Every label of a thread, in the order of the messages."""
        checks.check_id(thread_id, "thread id")
        heads, rows = await self._context.view(Get("thread_heads", [(thread_id,)]), Scan("labels", eq=(thread_id,)))
        require(heads[0], f"thread {thread_id!r}")
        return sorted((label_from(row) for row in rows), key=lambda label: label.seq)


def _check_name(name: str) -> None:
    checks.check_id(name, "branch name", most=limits.NAME_BYTES)
    if name.isdigit():
        raise InvalidError(f"a branch cannot be called {name!r}: a number means the branch of that number")


def _after(thread_id: str, entry: MessageEntry) -> Origin:
    return Origin(entry.branch, entry.seq, entry.id, preview(thread_id, entry))


def _fork_ops(head: Row, number: int, name: str | None, origin: Origin, switch: bool) -> tuple[Patch, Put]:
    thread_id = str(head.key[0])
    hot: dict[str, Any] = {"branches": Inc(1), "updated_at": NOW}
    if switch:
        hot["branch"] = number
    columns = {
        "parent": origin.parent,
        "fork_seq": origin.seq,
        "fork": origin.message_id,
        "head": origin.message_id,
        "head_seq": origin.seq,
        "length": 0,
        "created_at": NOW,
        "name": name or f"branch-{number}",
    }
    return (
        Patch("thread_heads", (thread_id,), hot, {"branches": number, "born": head["born"]}),
        Put("branches", (thread_id, number), columns, None, ABSENT),
    )


def _refuse_name(conflict: Conflict, thread_id: str, name: str | None) -> None:
    if conflict.kind == "unique":
        raise AlreadyExists(
            f"thread {thread_id!r} already has a branch called {(conflict.actual or {}).get('name', name)!r}",
            actual=name,
        ) from None
