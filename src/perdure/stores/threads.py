"""`store.threads`: conversations, their metadata, their hierarchy, and lists of them.

A thread is two rows: the cold one holds what people edit, the hot one what commits move. It exists as long as its
hot row does. Deletion is in `deletion`; how a thread is created, and which parents are valid, in `thread_creation`;
the order of lists in `thread_lists`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, Unpack

from perdure import limits
from perdure.errors import AlreadyExists, CorruptError, InvalidError, NotFoundError, VersionConflict
from perdure.ids import new_id
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.engine import Conflict
from perdure.kernel.joined import Joined, Values
from perdure.kernel.ops import NOW, PRESENT, Get, Inc, Op, Patch, Put, Ref, Row, Scan
from perdure.model import thread as thread_model
from perdure.model.page import Page
from perdure.model.thread import NewThread, Thread, ThreadOptions
from perdure.model.unset import UNSET, Unset
from perdure.rules import checks
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.deletion import delete_thread
from perdure.stores.paging import every
from perdure.stores.records import listed_threads, read_body, thread_from
from perdure.stores.results import row_after_patch, row_after_put
from perdure.stores.retry import Stale, retry
from perdure.stores.thread_creation import (
    Birth,
    after_refusal,
    ancestor_checks,
    birth_of,
    birth_ops,
    check_custom,
    child_flag,
    detach_parent_ops,
    with_custom,
)
from perdure.stores.thread_lists import COLUMNS, Order, ThreadList

Strategy = Literal["reject", "detach", "cascade"]
ThreadRecords = list[Thread]
Scans = list[Scan]


class Threads:
    """`store.threads`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(self, thread_id: str | None = None, **options: Unpack[ThreadOptions]) -> Thread:
        """Create a thread; raises `AlreadyExists` if the id is taken, `NotFoundError` if the parent is missing.

        - `thread_id`: its id; generated if None.
        - `title`: what people call it.
        - `resource_id`: the user, account or object it belongs to.
        - `parent_thread_id`: the thread above it in the hierarchy; it must exist.
        - `custom`: your own metadata, a JSON object.
        """
        name = new_id() if thread_id is None else checks.check_id(thread_id, "thread id")
        thread = await self._create(birth_of(name, NewThread(**options)))
        if thread is None:
            raise AlreadyExists(f"thread {name!r} already exists", actual=name)
        return thread

    async def _create(self, birth: Birth) -> Thread | None:
        """The new thread; None if there is a living one of this id."""
        name = birth.thread_id

        async def attempt() -> Thread | None:
            nonlocal birth
            ops = [*birth_ops(birth, {}, {}), *await ancestor_checks(self._context, name, birth.parent)]
            try:
                applied = await self._context.transact(ops, thread_topic(name))
            except Conflict:
                cold, hot = await self._context.view(Get("threads", [(name,)]), Get("thread_heads", [(name,)]))
                if hot[0] is not None:
                    return None
                birth = after_refusal(birth, cold[0])
                raise
            self._context.forget(name)
            rows = {op.table: row_after_put(op, applied) for op in ops if isinstance(op, Put)}
            return thread_from(rows["threads"], rows["thread_heads"])

        return await retry("thread", name, attempt)

    async def ensure(self, thread_id: str, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of concurrent callers, one creates it.

        The options are those of `create`, and apply only if this call creates the thread: one that exists is returned
        as it is. Raises `AlreadyExists` while a deleted thread of this id is being erased.
        """
        birth = birth_of(checks.check_id(thread_id, "thread id"), NewThread(**options))

        async def attempt() -> Thread:
            thread = await self.find(thread_id) or await self._create(birth)
            if thread is None:
                raise Stale  # created by another since this call looked; read it, unless it is gone again
            return thread

        return await retry("thread", thread_id, attempt)

    async def find(self, thread_id: str, *, resource_id: str | None = None) -> Thread | None:
        """The thread, or None. With `resource_id`, only a thread that belongs to this resource."""
        checks.check_id(thread_id, "thread id")
        resource = checks.check_owner(resource_id)
        cold, hot = await self._context.view(Get("threads", [(thread_id,)]), Get("thread_heads", [(thread_id,)]))
        if hot[0] is None or resource not in (None, hot[0]["resource"]):
            return None
        return thread_from(_cold_of(hot[0], cold[0]), hot[0])

    async def get(self, thread_id: str, *, resource_id: str | None = None) -> Thread:
        """The thread; raises `NotFoundError`. With `resource_id`, also for a thread of another resource."""
        thread = await self.find(thread_id, resource_id=resource_id)
        if thread is None:
            raise NotFoundError(f"thread {thread_id!r} does not exist")
        return thread

    async def update(
        self,
        thread_id: str,
        *,
        title: str | Unset | None = UNSET,
        custom: dict[str, Any] | Unset | None = UNSET,
        resource_id: str | Unset | None = UNSET,
        parent_thread_id: str | Unset | None = UNSET,
        if_rev: int | None = None,
    ) -> Thread:
        """Change the fields that are passed and leave the rest; `custom` replaces the whole object, None clears.

        With `if_rev`, raises `VersionConflict` unless the thread still has that `rev`. What commits change (version,
        branch, runs, children) is returned as this call found it, just before the change.
        """
        checks.check_id(thread_id, "thread id")
        cold: dict[str, Any] = {}
        if not isinstance(title, Unset):
            cold["title"] = checks.check_title(title)
        if not isinstance(resource_id, Unset):
            cold["resource"] = checks.lineage(resource_id, "resource_id")
        if not isinstance(parent_thread_id, Unset):
            cold["parent"] = checks.lineage(parent_thread_id, "parent_thread_id")
        if not isinstance(custom, Unset):
            check_custom(custom)
        if if_rev is not None:
            checks.check_rev(if_rev, "if_rev")

        async def attempt() -> Thread:
            row, head = await self._rows(thread_id)
            _check_rev(row, if_rev)
            body = None if isinstance(custom, Unset) else self._new_body(row, custom)
            edit, touch = _changes(row, cold, body)
            moves = await self._moves(row, cold)
            applied = await self._context.transact([edit, touch, *moves], thread_topic(thread_id))
            return thread_from(row_after_patch(row, edit, applied), row_after_patch(head, touch, applied))

        return await retry("thread", thread_id, attempt)

    async def _rows(self, thread_id: str) -> tuple[Row, Row]:
        cold, hot = await self._context.view(Get("threads", [(thread_id,)]), Get("thread_heads", [(thread_id,)]))
        head = require(hot[0], f"thread {thread_id!r}")
        return require(cold[0], f"thread {thread_id!r}"), head

    def _new_body(self, row: Row, custom: dict[str, Any] | None) -> bytes:
        body = read_body(thread_model.BODY_READER, row.body, f"thread {row.key[0]!r}")
        return thread_model.write_body(with_custom(body, custom))

    async def _moves(self, row: Row, cold: dict[str, Any]) -> list[Op]:
        """What a change of parent asks of other threads."""
        old, new = row["parent"], cold.get("parent", row["parent"])
        if new == old:
            return []
        ops = await ancestor_checks(self._context, str(row.key[0]), new)
        if new is not None:
            ops.append(Patch("thread_heads", (new,), {"children": Inc(1)}, PRESENT))
        return [*ops, *await detach_parent_ops(self._context, old)]

    async def delete(self, thread_id: str, *, strategy: Strategy = "detach") -> None:
        """Delete a thread and all that belongs to it.

        Children: `reject` refuses with `HasChildren`, `detach` makes them roots, `cascade` deletes the whole subtree.
        Up to 1,000 threads change in one transaction. In a larger set, the thread is deleted first, and the others
        follow in chunks, before the call returns; until its turn comes, a child can be read and written. If the process
        dies halfway, housekeeping finishes the deletion, and so does deleting the thread again.
        """
        checks.check_id(thread_id, "thread id")
        checks.check_choice(strategy, "strategy", "reject", "detach", "cascade")
        await delete_thread(self._context, thread_id, strategy)

    async def list(
        self,
        *,
        resource_id: str | None = None,
        parent_thread_id: str | None = None,
        root: bool = False,
        order: Order = "active",
        limit: int = limits.PAGE_DEFAULT,
        cursor: str | None = None,
    ) -> Page[Thread]:
        """Threads, newest first by activity (or creation), all or those of a resource, a parent, or the roots."""
        resource = checks.lineage(resource_id, "resource_id")
        parent = checks.lineage(parent_thread_id, "parent_thread_id")
        checks.check_choice(order, "order", "active", "created")
        checks.check_limit(limit)
        checks.check_flag(root, "root")
        if root and parent is not None:
            raise InvalidError("root=True cannot be combined with parent_thread_id")
        return await self._page(ThreadList(resource=resource, parent=parent, root=root, order=order), limit, cursor)

    async def _page(self, threads: ThreadList, limit: int, cursor: str | None) -> Page[Thread]:
        after = None if cursor is None else decode_cursor(cursor, threads.query, (int, str))
        scans = threads.scans(limit + 1, after)
        page = await self._context.view_joined(Joined(scans, COLUMNS), partial(_joined_page, threads, limit))
        return await self._page_of_rows(threads, scans, limit) if page is None else page

    async def _page_of_rows(self, threads: ThreadList, scans: Scans, limit: int) -> Page[Thread]:
        """The same on an engine that cannot join."""
        colds = [Get("threads", Ref(number, ("thread",))) for number in range(len(scans))]
        answers = await self._context.view(*scans, *colds)
        hot, cold = answers[: len(scans)], answers[len(scans) :]
        rows = threads.merged([list(zip_longest(*group)) for group in zip(hot, cold, strict=True)])
        page = rows[:limit]
        items = [thread_from(_cold_of(head, row), head) for head, row in page]
        more = len(rows) > limit
        return Page(items, encode_cursor(threads.query, threads.keyset(page[-1][0])) if more else None)

    async def iter(
        self,
        *,
        resource_id: str | None = None,
        parent_thread_id: str | None = None,
        root: bool = False,
        order: Order = "active",
    ) -> AsyncIterator[Thread]:
        """Every thread of the list, page by page."""
        fetch = partial(self.list, resource_id=resource_id, parent_thread_id=parent_thread_id, root=root, order=order)
        async for thread in every(partial(fetch, limit=limits.PAGE_MAX)):
            yield thread

    async def children(
        self, thread_id: str, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Thread]:
        """The direct children of a thread, newest activity first; raises `NotFoundError` if it does not exist."""
        checks.check_id(thread_id, "thread id")
        checks.check_limit(limit)
        if cursor is not None:
            decode_cursor(cursor, ThreadList(parent=thread_id).query, (int, str))
        await self.get(thread_id)
        # Not by `list`, which trims: here the id names a thread that exists.
        return await self._page(ThreadList(parent=thread_id), limit, cursor)

    async def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> ThreadRecords:
        """The threads whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A thread whose id equals the prefix comes first. Use it to look up an id that was abbreviated.
        """
        checks.check_id(prefix, "prefix")
        checks.check_limit(limit)
        exact, rest, exact_cold, rest_cold = await self._context.view(
            Get("thread_heads", [(prefix,)]),
            Scan("thread_heads", after=(prefix,), limit=limit),
            Get("threads", Ref(0, ("thread",))),
            Get("threads", Ref(1, ("thread",))),
        )
        hot, cold = [*filter(None, exact), *rest], [*exact_cold, *rest_cold]
        threads = [thread_from(_cold_of(head, row), head) for head, row in zip_longest(hot, cold)]
        return [thread for thread in threads if thread.id.startswith(prefix)][:limit]

    async def validate_parent(self, thread_id: str, parent_thread_id: str | None) -> None:
        """Check a parent and write nothing: raises `InvalidError` (a cycle) or `NotFoundError` (missing, damaged)."""
        checks.check_id(thread_id, "thread id")
        await ancestor_checks(self._context, thread_id, checks.lineage(parent_thread_id, "parent_thread_id"))


def _changes(row: Row, cold: dict[str, Any], body: bytes | None) -> tuple[Patch, Patch]:
    """The new cold and hot row of a thread that is updated."""
    hot: dict[str, Any] = {"updated_at": NOW}
    hot.update({name: cold[name] for name in ("resource", "parent") if name in cold})
    if "parent" in cold:
        hot["child"] = child_flag(cold["parent"])
    return Patch("threads", row.key, cold, row.rev, body), Patch("thread_heads", row.key, hot, PRESENT)


def _joined_page(threads: ThreadList, limit: int, groups: list[list[Values]]) -> Page[Thread]:
    rows = threads.merged_values(groups)
    page = rows[:limit]
    more = encode_cursor(threads.query, threads.keyset_of(page[-1])) if len(rows) > limit else None
    return Page(listed_threads(page), more)


def _cold_of(hot: Row, cold: Row | None) -> Row:
    """The cold row of a hot one; both lists have the same order, so a missing row is noticed."""
    if cold is None or cold.key != hot.key:
        raise CorruptError("its row in threads is missing", where=f"thread {hot.key[0]!r}")
    return cold


def _check_rev(row: Row, if_rev: int | None) -> None:
    if if_rev is not None and row.rev != if_rev:
        raise VersionConflict(
            f"thread {row.key[0]!r} changed since it was read",
            expected=if_rev,
            actual=row.rev,
            hint="read it again and repeat the change",
        )
