"""`store.branches`: fork at any message, switch, rename, delete, label; nothing is ever copied.

A branch is one row that names its parent branch and its fork point. Deleting a branch removes that pointer only: its
records stay in the log, and branches forked from it continue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, ConflictError, InvalidError, NotFoundError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, PRESENT, Check, Condition, Delete, Get, Op, Patch, Put, Read, Row, Scan
from perdure.model.branch import Branch, Label, Variant
from perdure.model.message import Message
from perdure.model.run import DONE, STATUSES
from perdure.model.tree import Tree
from perdure.model.unset import UNSET, Unset
from perdure.rules import checks
from perdure.stores.branch_paths import resolve_branch
from perdure.stores.commit.request import Fork, Request, prepare
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.fork_points import find_entry
from perdure.stores.forking import make_fork
from perdure.stores.path_lengths import fork_point, inherited_length, inherited_lengths
from perdure.stores.previews import preview
from perdure.stores.records import MessageEntry, branch_from, label_from
from perdure.stores.retry import Stale, retry
from perdure.stores.tree_reading import read_tree
from perdure.stores.variants import read_turns, read_variants

LOG = "messages"
BranchList = list[Branch]
LabelList = list[Label]
VariantList = list[Variant]
VariantView = Literal["raw", "external"]


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
        lengths = await inherited_lengths(self._context, head, rows, map(fork_point, alive))
        return [branch_from(row, head["branch"], lengths[fork_point(row)], previews.get(row["head"])) for row in alive]

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
            return branch_from(row, head["branch"], 0)
        thread = str(row.key[0])
        newest = Read(LOG, thread, where={"id": row["head"]})
        inherited, (entries,) = await inherited_length(self._context, head, fork_point(row), newest)
        text = preview(thread, MessageEntry._make(entries[0])) if entries else None
        return branch_from(row, head["branch"], inherited, text)

    async def fork(
        self,
        thread_id: str,
        *,
        at: str | Unset | None = UNSET,
        before: str | None = None,
        name: str | None = None,
        switch: bool = False,
        messages: Sequence[Message] = (),
        fence: int | None = None,
        key: str | None = None,
    ) -> Branch:
        """Make a new branch that continues after one message, or replaces another, and write its first messages.

        - `at`: the id of the message to continue after; None starts another root.
        - `before`: the id of the message to replace: the branch continues after the one before it. Pass either `at` or
          `before`.
        - `name`: unique within the thread; by default `branch-<number>`. A name that exists raises `AlreadyExists`.
        - `switch`: make the branch the current one. By default the current branch stays.
        - `messages`: the first messages of the branch, checked as `commit` checks them. The branch and its messages are
          made in one transaction, or neither is.
        - `fence`: the number of the caller's claim, as in `commit`.
        - `key`: makes a retry of a fork with messages safe, as in `commit`. A repeated call returns the branch that the
          first one made, as it is now.

        Raises `NotFoundError` for a thread or a message that does not exist. No message is copied.
        """
        checks.check_id(thread_id, "thread id")
        if (before is None) == isinstance(at, Unset):
            raise InvalidError("fork takes at=<message id>, at=None for a new root, or before=<message id>")
        origin_id = before if isinstance(at, Unset) else at
        if origin_id is not None:
            checks.check_id(origin_id, "message id")
        if name is not None:
            checks.check_branch_name(name)
        checks.check_flag(switch, "switch")
        fork = Fork(None if isinstance(at, Unset) else at, before, name, switch)
        commit = prepare(Request(thread_id=thread_id, messages=messages, fence=fence, key=key, fork=fork))
        if key is not None and not commit.messages:
            raise InvalidError("key needs messages: they are what a repeated fork is known by", hint="pass messages=")
        made = await make_fork(self._context, commit, fork)
        if made.branch is not None:
            return made.branch
        _, entry = await find_entry(self._context, thread_id, made.receipt.message_ids[0])
        return await self._one(thread_id, entry.branch)

    async def checkout(self, thread_id: str, message_id: str, *, name: str | None = None) -> Branch:
        """Make the branch that ends at a message the current one; if there is none, fork at the message and switch.

        - `message_id`: the message that the next commit continues.
        - `name`: what the fork is called if one is made; by default `branch-<number>`.

        Of several branches that end there, the current one stays; otherwise the lowest number is chosen. The branch is
        returned as it was at that moment: a commit that another writer makes on it before the switch is noticed, and
        the search begins again. Two callers who find none may each make a fork.
        """
        checks.check_id(thread_id, "thread id")
        checks.check_id(message_id, "message id")
        if name is not None:
            checks.check_branch_name(name)

        async def attempt() -> Branch | None:
            head, rows = await self._rows(thread_id)
            ending = [row for row in rows if row["deleted_at"] is None and row["head"] == message_id]
            if not ending:
                return None
            row = min(ending, key=lambda row: (row.key[1] != head["branch"], row.key[1]))
            branch = await self._with_preview(row, head)
            if not branch.current:
                ops: list[Op] = [
                    Patch("thread_heads", (thread_id,), {"branch": branch.id, "updated_at": NOW}, _born(head)),
                    Check("branches", (thread_id, branch.id), {"deleted_at": None, "head": message_id}),
                ]
                await self._context.transact(ops, thread_topic(thread_id))
            self._context.remember_current(thread_id, branch.id)
            return msgspec.structs.replace(branch, current=True)

        branch = await retry("thread", thread_id, attempt)
        return branch or await self.fork(thread_id, at=message_id, name=name, switch=True)

    async def variants(
        self, thread_id: str, message_id: str | None = None, *, run_id: str | None = None, view: VariantView = "raw"
    ) -> VariantList:
        """The messages written in the same place as this one, itself included, in the order of their commits.

        Two messages are variants of each other if they follow the same message, each on a branch of its own; the first
        messages of all roots are variants too. Those that only deleted branches lead to are left out, except the
        message that was asked about. The cost follows the number of branches and variants, not the history. Give one of
        the two:

        - `message_id`: the message.
        - `run_id`: the run whose turn is asked about. Lists the first message that this run produced and those in its
          place, so each variant stands for a whole turn, whether that begins with a tool call or with text. While the
          run has produced nothing, the turns in the place where its own will be are listed, none of them as `asked`.

        - `view`: `raw` lists all of them; `external` leaves out those whose visibility is not `all`, except the message
          that was asked about. With `run_id`, a turn that begins with such messages is listed by its first visible one.
        """
        checks.check_id(thread_id, "thread id")
        checks.check_choice(view, "view", "raw", "external")
        if (message_id is None) == (run_id is None):
            raise InvalidError(
                "variants takes a message_id or a run_id, one of them",
                hint='variants("t-1", "m-1") or variants("t-1", run_id="r-1")',
            )
        external = view == "external"
        if run_id is not None:
            return await read_turns(self._context, thread_id, checks.check_id(run_id, "run id"), external=external)
        named = checks.check_id(message_id, "message id")
        return await read_variants(self._context, thread_id, named, external=external)

    async def tree(self, thread_id: str, *, deleted: bool = False, most: int | None = limits.TREE_MESSAGES) -> Tree:
        """The whole thread as a tree of messages, which `draw()` turns into text.

        It reads every message once, in pages, and keeps one line of each.

        - `deleted`: also show messages that only deleted branches lead to.
        - `most`: a thread with more messages is refused with `InvalidError`; None reads a thread of any size.
        """
        checks.check_id(thread_id, "thread id")
        checks.check_flag(deleted, "deleted")
        if most is not None:
            checks.check_count(most, "most", least=1)
        return await read_tree(self._context, thread_id, everything=deleted, most=most)

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
        """Rename a branch; raises `AlreadyExists` if a branch of the thread has it.

        Its head is returned as this call found it, just before the change.
        """
        checks.check_branch_name(name)
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

        The current branch is refused, and so is a branch with a run that is not done.
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
        head, entry = await find_entry(self._context, thread_id, message_id)
        key = (thread_id, message_id)
        change: Op = Delete("labels", key)
        if label is not None:
            change = Put("labels", key, {"seq": entry.seq, "at": NOW, "label": label})
        try:
            same_thread = Check("thread_heads", (thread_id,), _born(head))
            await self._context.transact([same_thread, change], thread_topic(thread_id))
        except Conflict:
            raise NotFoundError(f"thread {thread_id!r} does not exist") from None

    async def labels(self, thread_id: str) -> LabelList:
        """Every label of a thread, in the order of the messages."""
        checks.check_id(thread_id, "thread id")
        heads, rows = await self._context.view(Get("thread_heads", [(thread_id,)]), Scan("labels", eq=(thread_id,)))
        require(heads[0], f"thread {thread_id!r}")
        return sorted((label_from(row) for row in rows), key=lambda label: label.seq)


def _born(head: Row) -> Condition:
    """The same thread, and not another one under its id."""
    return {"born": head["born"]}


def _refuse_name(conflict: Conflict, thread_id: str, name: str | None) -> None:
    if conflict.kind == "unique":
        raise AlreadyExists(
            f"thread {thread_id!r} already has a branch called {(conflict.actual or {}).get('name', name)!r}",
            actual=name,
        ) from None
