"""`store.pending`: the queue of delivered, unread messages, editable until a boundary freezes them into the log.

Every change patches the thread's queue row under its revision, so that two writers never interleave: the loser reads
again and retries. Freezing is a commit; the entries it consumes leave the queue in the same transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack, overload

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, NotFoundError, SelectionConflict, VersionConflict, short_repr
from perdure.ids import new_id
from perdure.kernel.ops import PRESENT, Applied, Check, Condition, Default, Get, Op, Patch, Read, Ref, Row, Scan
from perdure.model.faithful import fields_of
from perdure.model.message import Message, refuse_foreign_calls
from perdure.model.pending import BOUNDARIES, DeliveryMode, PendingMessage, PendingQueue
from perdure.model.plain import check_json
from perdure.model.receipt import Receipt, RunReceipt
from perdure.model.run import NewRun, Run, RunChange
from perdure.rules import checks, message_shape, pending_selection
from perdure.stores.commit.execute import perform
from perdure.stores.commit.refuse import find_receipt
from perdure.stores.commit.request import Request, canonical, encode_messages, prepare
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.pending_ops import (
    Entry,
    edit_op,
    entry_from,
    insert_op,
    items_after,
    new_items,
    removal_ops,
    renumbered,
    reorder_ops,
)
from perdure.stores.records import MessageEntry, message_entry, pending_from
from perdure.stores.results import row_after_put
from perdure.stores.retry import Stale, retry

T = TypeVar("T")
PendingMessages = list[PendingMessage]
ThreadIds = list[str]


class FreezeOptions(TypedDict, total=False):
    """What `freeze` takes besides the thread and the run, all by keyword; its docstring explains each."""

    boundary: str
    messages: Sequence[Message]
    mode: DeliveryMode | None
    branch: int | str | None
    expect: int | None
    expect_ids: Sequence[str] | None
    fence: int | None
    key: str | None


class Queue(msgspec.Struct, frozen=True):
    """A thread's queue as one snapshot saw it."""

    head: Row
    row: Row | None
    entries: list[Entry]
    committed: list[str]

    @property
    def revision(self) -> int:
        """What guards the next change."""
        return 0 if self.row is None else self.row["revision"]

    def named(self, message_ids: Sequence[str], thread_id: str) -> list[Entry]:
        """The entries with these ids, in this order; raises for one that was consumed or never was."""
        by_id = {entry.item.id: entry for entry in self.entries}
        for message_id in message_ids:
            if message_id not in by_id:
                _refuse_consumed(self, [message_id])
                raise NotFoundError(f"pending message {message_id!r} is not in thread {thread_id!r}")
        return [by_id[message_id] for message_id in message_ids]


class Pending:
    """`store.pending`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list(self, thread_id: str) -> PendingQueue:
        """The pending messages in order, and the queue's revision."""
        queue = await self._queue(thread_id)
        return PendingQueue([entry.item for entry in queue.entries], queue.revision)

    async def iter(self, thread_id: str) -> AsyncIterator[PendingMessage]:
        """Every pending message of the list, one by one."""
        for item in (await self.list(thread_id)).items:
            yield item

    async def count(self, thread_id: str) -> int:
        """How many messages are pending; reads none of them."""
        checks.check_id(thread_id, "thread id")
        heads, queues = await self._context.view(Get("thread_heads", [(thread_id,)]), Get("queues", [(thread_id,)]))
        require(heads[0], f"thread {thread_id!r}")
        return 0 if queues[0] is None else int(queues[0]["count"])

    async def _queue(self, thread_id: str, ids: Sequence[str] = ()) -> Queue:
        checks.check_id(thread_id, "thread id")
        heads, queues, rows, committed = await self._context.view(
            Get("thread_heads", [(thread_id,)]),
            Get("queues", [(thread_id,)]),
            Scan("pending", "position", (thread_id,)),
            Read("messages", thread_id, where={"id": tuple(ids)}, limit=len(ids)),
        )
        head = require(heads[0], f"thread {thread_id!r}")
        row = queues[0]
        return Queue(
            head, row, [entry_from(row) for row in rows], [entry.id for entry in map(MessageEntry._make, committed)]
        )

    async def append(
        self, thread_id: str, messages: Sequence[Message], *, mode: DeliveryMode | None = None
    ) -> PendingMessages:
        """Add messages at the end of the queue; missing ids are generated."""
        fresh = _checked(messages)
        if not fresh:
            raise InvalidError("there is nothing to append")
        delivery = DeliveryMode() if mode is None else _check_mode(mode)
        ids = [message.id or "" for message in fresh]
        brought = any(message.id is not None for message in messages)

        async def attempt() -> PendingMessages:
            queue = await self._queue(thread_id, ids)
            _refuse_known(queue, ids, thread_id)
            puts = [insert_op(item) for item in new_items(thread_id, queue.entries, fresh, delivery)]
            # A brought id may be in the log: the version guards the look there, so that no commit slips in between.
            thread: Condition = {"version": queue.head["version"]} if brought else PRESENT
            applied = await self._change(thread_id, queue, puts, len(fresh), thread)
            return [pending_from(row_after_put(put, applied)) for put in puts]

        return await _retry(thread_id, attempt)

    async def edit(
        self,
        thread_id: str,
        message_id: str,
        message: Message,
        *,
        mode: DeliveryMode | None = None,
        if_revision: int | None = None,
    ) -> PendingMessage:
        """Replace a pending message (its id stays), and its mode if one is passed."""
        checks.check_id(message_id, "message id")
        message_shape.check_block_count(message, "message")
        message_shape.check_message(message, "message")
        refuse_foreign_calls(message.extra, "message")
        encode_messages([message])
        if message.id not in (None, message_id):
            raise InvalidError(f"pending message {message_id!r} cannot change its id to {message.id!r}")
        if mode is not None:
            _check_mode(mode)
        _check_guard(if_revision)

        async def attempt() -> PendingMessage:
            queue = await self._queue(thread_id, [message_id])
            (entry,) = queue.named([message_id], thread_id)
            _check_revision(entry.item, if_revision)
            patch = edit_op(entry, message, mode)
            applied = await self._change(thread_id, queue, [patch], 0)
            return items_after([entry], [patch], applied)[0]

        return await _retry(thread_id, attempt)

    async def retract(self, thread_id: str, message_id: str, *, if_revision: int | None = None) -> None:
        """Take a message back before it is read; the rest moves up."""
        checks.check_id(message_id, "message id")
        _check_guard(if_revision)

        async def attempt() -> None:
            queue = await self._queue(thread_id, [message_id])
            (entry,) = queue.named([message_id], thread_id)
            _check_revision(entry.item, if_revision)
            await self._change(thread_id, queue, removal_ops(queue.entries, {message_id}), -1)

        await _retry(thread_id, attempt)

    async def reorder(
        self, thread_id: str, message_ids: Sequence[str], *, if_revision: int | None = None
    ) -> PendingQueue:
        """Put the whole queue into this order: `message_ids` names every pending message once."""
        ids = _check_ids(message_ids, "message_ids")
        if len(set(ids)) != len(ids):
            raise InvalidError("a message id appears twice in the new order")
        _check_guard(if_revision)

        async def attempt() -> PendingQueue:
            queue = await self._queue(thread_id, ids)
            _refuse_consumed(queue, ids)
            if if_revision is not None and if_revision != queue.revision:
                raise VersionConflict(
                    "the queue changed since it was read", expected=if_revision, actual=queue.revision
                )
            if len(ids) != len(queue.entries):
                raise VersionConflict(
                    f"{len(ids)} ids for a queue of {len(queue.entries)}",
                    expected=len(ids),
                    actual=len(queue.entries),
                )
            order = queue.named(ids, thread_id)
            if not order:
                return PendingQueue([], queue.revision)
            patches = reorder_ops(order)
            applied = await self._change(thread_id, queue, patches, 0)
            return PendingQueue(items_after(order, patches, applied), queue.revision + 1)

        return await _retry(thread_id, attempt)

    async def _change(
        self, thread_id: str, queue: Queue, ops: Sequence[Op], delta: int, thread: Condition = PRESENT
    ) -> Applied:
        """Apply a change to the queue as it was read; raises `Conflict` if another writer was faster."""
        guards = [*_queue_ops(thread_id, queue, delta), Check("thread_heads", (thread_id,), thread)]
        return await self._context.transact([*ops, *guards], thread_topic(thread_id))

    @overload
    async def freeze(
        self, thread_id: str, *, run: Run | RunChange | NewRun, **options: Unpack[FreezeOptions]
    ) -> RunReceipt: ...

    @overload
    async def freeze(self, thread_id: str, *, run: None = None, **options: Unpack[FreezeOptions]) -> Receipt: ...

    async def freeze(
        self,
        thread_id: str,
        *,
        boundary: str = "new_run",
        run: Run | RunChange | NewRun | None = None,
        messages: Sequence[Message] = (),
        mode: DeliveryMode | None = None,
        branch: int | str | None = None,
        expect: int | None = None,
        expect_ids: Sequence[str] | None = None,
        fence: int | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Move what this boundary takes from the queue into the log, with the run that consumes it, in one commit.

        It goes to `branch`; by default to the run's branch, or without a run to the current one. `messages` are
        appended to the queue first, in the same transaction. `expect_ids` are the pending ids the caller saw selected;
        another selection raises `SelectionConflict` and changes nothing. So does a new run for which nothing is
        selected: of two workers that race for one queue, the second learns that there is nothing left. An existing run
        takes its step even then.
        """
        _check_boundary(boundary)
        if expect_ids is not None:
            _check_ids(expect_ids, "expect_ids")
        delivery = DeliveryMode() if mode is None else _check_mode(mode)
        fresh = _checked(messages)
        ids = [message.id or "" for message in fresh]
        asked = None if key is None else _asked(boundary, messages, delivery)
        request = Request(
            thread_id=thread_id, run=run, branch=branch, expect=expect, fence=fence, key=key, inputs=True, asked=asked
        )
        bare = prepare(request)

        async def attempt() -> Receipt:
            queue = await self._queue(thread_id, ids)
            if key is not None:
                # After the queue: a commit made under this key before that look is visible to this one.
                receipt = await find_receipt(self._context, bare)
                if receipt is not None:
                    return receipt
            _refuse_known(queue, ids, thread_id)
            behind = new_items(thread_id, queue.entries, fresh, delivery)
            waiting = [*(entry.item for entry in queue.entries), *behind]
            selection = _what_fits(pending_selection.select(waiting, boundary, _run_id(run)))
            _refuse_selection(expect_ids, [item.id for item in selection])
            if not selection and isinstance(run, NewRun):
                raise _nothing_due(thread_id, boundary, expect_ids)
            chosen = {item.id for item in selection}
            version = _guarding_version(queue, messages, chosen) if expect is None else expect
            commit = msgspec.structs.replace(
                request, messages=[item.message for item in selection], expect=version, stored=True
            )
            try:
                return await perform(self._context, prepare(commit), _freeze_ops(thread_id, queue, behind, chosen))
            except VersionConflict:
                if version == expect or (await self._queue(thread_id)).head["version"] == version:
                    raise
            except AlreadyExists:
                # Another worker froze the same messages: the queue shows it, and there is less to take.
                if (await self._queue(thread_id)).revision == queue.revision:
                    raise
            raise Stale

        return await self._context.patience.repeat(partial(_retry, thread_id, attempt), keyed=key is not None)

    async def threads(self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT) -> ThreadIds:
        """Ids of threads that have pending messages, ascending, after an id."""
        checks.check_limit(limit)
        if after is not None:
            checks.check_id(after, "after")
        ids: list[str] = []
        while True:
            keyset = None if after is None else (after, after)
            rows, heads = await self._context.view(
                Scan("queues", "waiting", after=keyset, limit=limit), Get("thread_heads", Ref(0, ("waiting",)))
            )
            # The queue of a thread that is being erased is already gone for every reader.
            ids.extend(str(row.key[0]) for row in heads)
            if len(rows) < limit or len(ids) >= limit:
                return sorted(ids, key=str.encode)[:limit]
            after = str(rows[-1].key[0])


async def _retry(thread_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    return await retry("the queue of thread", thread_id, attempt)


def _queue_ops(thread_id: str, queue: Queue, delta: int) -> list[Op]:
    count = len(queue.entries) + delta
    if count > limits.PENDING_PER_THREAD:
        raise InvalidError(f"{count} pending messages, the limit is {limits.PENDING_PER_THREAD}")
    columns: dict[str, Any] = {
        "count": count,
        "revision": queue.revision + 1,
        "waiting": thread_id if count else None,
    }
    if queue.row is None:
        return [Patch("queues", (thread_id,), columns, {"revision": 0}, default=Default(columns))]
    return [Patch("queues", (thread_id,), columns, {"revision": queue.revision})]


def _freeze_ops(thread_id: str, queue: Queue, behind: list[PendingMessage], chosen: set[str]) -> list[Op]:
    rest = [item for item in behind if item.id not in chosen]
    if not chosen and not rest:
        return []
    removals = len([entry for entry in queue.entries if entry.item.id in chosen])
    ops = removal_ops(queue.entries, chosen)
    ops.extend(insert_op(item) for item in renumbered(rest, len(queue.entries) - removals))
    return [*ops, *_queue_ops(thread_id, queue, len(rest) - removals)]


def _guarding_version(queue: Queue, messages: Sequence[Message], chosen: set[str]) -> int | None:
    """A brought id that stays in the queue must not be in the log: as in `append`, the version guards that look."""
    stays = any(message.id is not None and message.id not in chosen for message in messages)
    return queue.head["version"] if stays else None


def _asked(boundary: str, messages: Sequence[Message], mode: DeliveryMode) -> str:
    """What a keyed freeze asks for: the selection itself is its outcome, not its content."""
    return "\n".join([boundary, canonical(mode), *[canonical(message) for message in messages]])


def _what_fits(selection: Sequence[PendingMessage]) -> list[PendingMessage]:
    """As much of a selection as one commit may carry; the rest waits for the next boundary."""
    room = limits.COMMIT_BYTES
    for i, item in enumerate(selection):
        room -= len(message_entry(item.message, 0, 0)[-1])
        if room < 0 or i >= limits.COMMIT_MESSAGES:
            return list(selection[:i])
    return list(selection)


def _refuse_consumed(queue: Queue, ids: Sequence[str]) -> None:
    consumed = set(queue.committed).difference(entry.item.id for entry in queue.entries)
    for name in ids:
        if name in consumed:
            raise InvalidError(f"pending message {name!r} was already consumed", hint="committed messages never change")


def _refuse_selection(expected: Sequence[str] | None, chosen: list[str]) -> None:
    if expected is not None and list(expected) != chosen:
        raise SelectionConflict(
            f"the boundary takes {short_repr(chosen)}, the caller saw {short_repr(list(expected))}",
            expected=list(expected),
            actual=chosen,
            hint="select again and retry",
        )


def _nothing_due(thread_id: str, boundary: str, expected: Sequence[str] | None) -> SelectionConflict:
    return SelectionConflict(
        f"no pending message of thread {thread_id!r} is due at the boundary {boundary}, so no run was started",
        expected=None if expected is None else list(expected),
        actual=[],
        hint="another worker may have taken them; runs.start makes a run that needs no pending message",
    )


def _checked(messages: Sequence[Message]) -> list[Message]:
    """Messages whose shape and size are right, each with an id."""
    message_shape.check_messages(messages)
    fresh = [_with_id(message) for message in messages]
    encode_messages(fresh)
    return fresh


def _with_id(message: Message) -> Message:
    return message if message.id is not None else msgspec.structs.replace(message, id=new_id())


def _run_id(run: Run | RunChange | NewRun | None) -> str | None:
    return None if run is None else run.id


def _refuse_known(queue: Queue, ids: Sequence[str], thread_id: str) -> None:
    pending, committed = {entry.item.id for entry in queue.entries}, set(queue.committed)
    for name in ids:
        if name in pending:
            raise AlreadyExists(f"pending message {name!r} already exists in thread {thread_id!r}", actual=name)
        if name in committed:
            raise InvalidError(f"pending message {name!r} was already consumed", hint="use a new id")


def _check_boundary(boundary: Any, path: str | None = None) -> None:
    if type(boundary) is not str or boundary not in BOUNDARIES:
        raise InvalidError(f"boundary must be one of {', '.join(BOUNDARIES)}, not {short_repr(boundary)}", path=path)


def _check_mode(mode: DeliveryMode) -> DeliveryMode:
    if type(mode) is not DeliveryMode:
        raise InvalidError(f"mode must be a DeliveryMode, not {type(mode).__name__}")
    _check_boundary(mode.boundary, path="mode")
    if type(mode.granularity) is not str or mode.granularity not in ("one", "batch"):
        raise InvalidError(f"granularity must be one or batch, not {short_repr(mode.granularity)}", path="mode")
    flags: list[Any] = [mode.barrier, mode.fallback_to_new_run]
    if any(type(flag) is not bool for flag in flags):
        raise InvalidError("barrier and fallback_to_new_run are booleans", path="mode")
    check_json(fields_of(mode.extra, "mode"), "mode")
    if mode.target_run_id is not None:
        checks.check_id(mode.target_run_id, "target_run_id")
    return mode


def _check_ids(ids: Any, what: str) -> list[str]:
    if type(ids) not in (list, tuple):
        raise InvalidError(f"{what} is a list of message ids, not {short_repr(ids)}")
    if len(ids) > limits.PENDING_PER_THREAD:
        raise InvalidError(f"{what} has {len(ids):,} ids, a queue holds at most {limits.PENDING_PER_THREAD:,}")
    return [checks.check_id(name, f"{what}[{i}]") for i, name in enumerate(ids)]


def _check_guard(if_revision: Any) -> None:
    if if_revision is not None:
        checks.check_count(if_revision, "if_revision")


def _check_revision(item: PendingMessage, if_revision: int | None) -> None:
    if if_revision is not None and item.revision != if_revision:
        raise VersionConflict(
            f"pending message {item.id!r} changed since it was read", expected=if_revision, actual=item.revision
        )
