"""`store.threads`: conversations, their metadata, their hierarchy, and lists of them.

A thread is two rows: the cold one holds what people edit, the hot one what commits move. It exists as long as its
hot row does. Deletion is in `deletion`; how a thread is created, and which parents are valid, in `thread_creation`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, CorruptError, InvalidError, NotFoundError, VersionConflict, short_repr
from perdure.ids import new_id
from perdure.kernel import codec
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, PRESENT, Get, Inc, Op, Patch, Put, Ref, Row, Scan
from perdure.model import thread as thread_model
from perdure.model.page import Page
from perdure.model.thread import Thread, ThreadBody
from perdure.model.unset import UNSET, Unset
from perdure.rules import checks
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.deletion import delete_thread
from perdure.stores.paging import every
from perdure.stores.records import read_body, thread_from
from perdure.stores.results import row_after_patch, row_after_put
from perdure.stores.retry import retry
from perdure.stores.thread_creation import Birth, ancestor_checks, birth_ops, detach_parent_ops

Strategy = Literal["reject", "detach", "cascade"]
Order = Literal["active", "created"]
ThreadList = list[Thread]


class Threads:
    """`store.threads`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(
        self,
        thread_id: str | None = None,
        *,
        title: str | None = None,
        resource_id: str | None = None,
        parent_thread_id: str | None = None,
        custom: dict[str, Any] | None = None,
    ) -> Thread:
        """Make a new thread; raises `AlreadyExists` if the id is taken, `NotFoundError` if the parent is missing."""
        name = new_id() if thread_id is None else checks.check_id(thread_id, "thread id")
        parent = checks.lineage(parent_thread_id, "parent_thread_id")
        birth = Birth(
            thread_id=name,
            parent=parent,
            resource=checks.lineage(resource_id, "resource_id"),
            title=checks.check_title(title),
            body=_body(ThreadBody(), custom),
        )

        async def attempt() -> Thread:
            nonlocal birth
            ops = [*birth_ops(birth, {}, {}), *await ancestor_checks(self._context, name, parent)]
            try:
                applied = await self._context.transact(ops, thread_topic(name))
            except Conflict:
                birth = await self._after_conflict(birth)
                raise
            self._context.forget(name)
            rows = {op.table: row_after_put(op, applied) for op in ops if isinstance(op, Put)}
            return thread_from(rows["threads"], rows["thread_heads"])

        return await retry("thread", name, attempt)

    async def _after_conflict(self, birth: Birth) -> Birth:
        """The id has an owner: a living thread, one still being erased, or only a tombstone to replace."""
        name = birth.thread_id
        cold, hot = await self._context.view(Get("threads", [(name,)]), Get("thread_heads", [(name,)]))
        if hot[0] is not None:
            raise AlreadyExists(f"thread {name!r} already exists", actual=name)
        if cold[0] is None:
            return msgspec.structs.replace(birth, tombstone=None)
        if cold[0]["erased_at"] is None:
            raise AlreadyExists(f"thread {name!r} is being erased", actual=name, hint="try again when that is done")
        return msgspec.structs.replace(birth, tombstone=cold[0].rev)

    async def find(self, thread_id: str) -> Thread | None:
        """The thread, or None."""
        checks.check_id(thread_id, "thread id")
        cold, hot = await self._context.view(Get("threads", [(thread_id,)]), Get("thread_heads", [(thread_id,)]))
        if hot[0] is None:
            return None
        return thread_from(_cold_of(hot[0], cold[0]), hot[0])

    async def get(self, thread_id: str) -> Thread:
        """The thread; raises `NotFoundError`."""
        thread = await self.find(thread_id)
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
        """Change what is given and leave the rest; `custom` replaces the whole object, None clears.

        With `if_rev`, raises `VersionConflict` unless the thread still has that `rev`. What commits move (version,
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
            _check_custom(custom)
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
        return thread_model.write_body(_body(body, custom))

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
        """Delete a thread and everything of it.

        Children: `reject` refuses with `HasChildren`, `detach` makes them roots, `cascade` deletes the whole subtree.
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
        return await self._page(resource, parent, root=root, order=order, limit=limit, cursor=cursor)

    async def _page(
        self, resource: str | None, parent: str | None, *, root: bool, order: Order, limit: int, cursor: str | None
    ) -> Page[Thread]:
        query = _query(resource, parent, root=root, order=order)
        after = None if cursor is None else decode_cursor(cursor, query, (int, str))
        scan = _listing(resource, parent, root=root, order=order, limit=limit + 1, after=after)
        hot, cold = await self._context.view(scan, Get("threads", Ref(0, ("thread",))))
        items = [thread_from(_cold_of(head, row), head) for head, row in zip_longest(hot[:limit], cold[:limit])]
        more = len(hot) > limit
        last = hot[min(limit, len(hot)) - 1] if more else None
        keyset = None if last is None else (last[_ORDER_COLUMN[order]], last.key[0])
        return Page(items, None if keyset is None else encode_cursor(query, keyset))

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
            decode_cursor(cursor, _query(None, thread_id, root=False, order="active"), (int, str))
        await self.get(thread_id)
        # Not by `list`, which trims: here the id names a thread that exists.
        return await self._page(None, thread_id, root=False, order="active", limit=limit, cursor=cursor)

    async def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> ThreadList:
        """The threads whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A thread whose id equals the prefix comes first. Use it to look up an id that somebody abbreviated.
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


_ORDER_COLUMN = {"active": "updated_at", "created": "created_at"}


def _query(resource: str | None, parent: str | None, *, root: bool, order: Order) -> tuple[Any, ...]:
    """What a cursor of a list belongs to."""
    return ("threads", resource, parent, root, order)


def _listing(
    resource: str | None, parent: str | None, *, root: bool, order: Order, limit: int, after: tuple[Any, ...] | None
) -> Scan:
    where: dict[str, Any] = {"parent": None} if root else {}
    if parent is not None:
        if resource is not None:
            where["resource"] = resource
        return Scan("thread_heads", f"parent_{order}", (parent,), after, limit, desc=True, where=where)
    if resource is not None:
        return Scan("thread_heads", f"resource_{order}", (resource,), after, limit, desc=True, where=where)
    return Scan("thread_heads", order, (), after, limit, desc=True, where=where)


def _changes(row: Row, cold: dict[str, Any], body: bytes | None) -> tuple[Patch, Patch]:
    """The new cold and hot row of a thread that is updated."""
    hot: dict[str, Any] = {"updated_at": NOW}
    hot.update({name: cold[name] for name in ("resource", "parent") if name in cold})
    return Patch("threads", row.key, cold, row.rev, body), Patch("thread_heads", row.key, hot, PRESENT)


def _cold_of(hot: Row, cold: Row | None) -> Row:
    """The cold row of a hot one; both lists have the same order, so a missing row is noticed."""
    if cold is None or cold.key != hot.key:
        raise CorruptError("its cold row is missing", where=f"thread {hot.key[0]!r}")
    return cold


def _body(body: ThreadBody, custom: Any) -> ThreadBody:
    _check_custom(custom)
    return msgspec.structs.replace(body, custom={} if custom is None else custom)


def _check_custom(custom: Any) -> None:
    if custom is None:
        return
    if type(custom) is not dict:
        raise InvalidError(f"custom must be an object, not {short_repr(custom)}")
    codec.encode_checked(custom, "custom", limits.CUSTOM_BYTES)


def _check_rev(row: Row, if_rev: int | None) -> None:
    if if_rev is not None and row.rev != if_rev:
        raise VersionConflict(
            f"thread {row.key[0]!r} changed since it was read",
            expected=if_rev,
            actual=row.rev,
            hint="read it again and repeat the change",
        )
