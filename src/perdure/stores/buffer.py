"""What a buffered writer holds: messages that were appended and are not yet known to be durable, and the next batch.

Nothing here waits for anything, so the blocking writer and the async one share it. A batch has a key from the moment it
is formed and stays the same until it is known to be committed: whatever happens to an attempt, the next one is the same
keyed commit, and no message is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure import limits
from perdure.errors import InvalidError, OutcomeUnknown, short_repr
from perdure.ids import new_id
from perdure.model.message import Message
from perdure.model.receipt import Receipt
from perdure.model.run import Run
from perdure.rules import checks, message_shape
from perdure.stores.commit.execute import perform
from perdure.stores.commit.request import Request, encode_messages, prepare
from perdure.stores.context import Context
from perdure.stores.records import message_entry, message_record

_ATTEMPTS = 3
"""How often a batch is sent while its outcome is unknown, before the caller hears of it."""


class Batch(msgspec.Struct, frozen=True):
    """Messages that are committed together, under a key of their own."""

    messages: list[Message]
    key: str
    minted: bool


class _Waiting(msgspec.Struct, frozen=True):
    message: Message
    size: int
    minted: bool


class BufferTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a buffered writer writes, and how long it may hold messages back."""

    thread_id: str
    most: int
    every_ms: int
    run: Run | None = None
    branch: int | str | None = None
    fence: int | None = None


class Buffer:
    """The messages of one writer, in the order in which they were appended."""

    def __init__(self, context: Context, target: BufferTarget) -> None:
        self._context = context
        self.target: BufferTarget = _checked(target)
        self._waiting: list[_Waiting] = []
        self._ids: set[str] = set()
        self._size = 0
        self._batch: Batch | None = None
        self._collecting: list[list[Receipt]] = []
        self._failure: Exception | None = None
        self._closed = False

    @property
    def messages(self) -> list[Message]:
        """The messages that are not known to be durable."""
        return [item.message for item in self._waiting]

    @property
    def is_due(self) -> bool:
        """Whether so many messages wait that a flush should begin at once."""
        return len(self._waiting) >= self.target.most

    def prepared(self, messages: Sequence[Message]) -> list[_Waiting]:
        """Messages checked as a commit would, with ids, and copied: the caller may change his own afterwards."""
        if self._closed:
            raise InvalidError("this buffered writer is closed", hint="append inside its with block")
        message_shape.check_messages(list(messages))
        minted = [message if message.id else msgspec.structs.replace(message, id=new_id()) for message in messages]
        encode_messages(minted)
        return [
            _copied(self.target.thread_id, message, minted=original.id is None)
            for message, original in zip(minted, messages, strict=True)
        ]

    def has_room(self, items: Sequence[_Waiting]) -> bool:
        """May these be added now? Not while as many wait as two flushes should take, or 8 MiB."""
        size = self._size + sum(item.size for item in items)
        fits = len(self._waiting) + len(items) <= 2 * self.target.most and size <= limits.COMMIT_BYTES
        return fits or not self._waiting

    def add(self, items: Sequence[_Waiting]) -> list[str]:
        """Take prepared messages; their ids."""
        ids = [item.message.id or "" for item in items]
        repeated = next((name for name in ids if name in self._ids), None)
        if repeated is not None:
            raise InvalidError(f"the message id {repeated!r} is in the buffer already")
        self._waiting.extend(items)
        self._ids.update(ids)
        self._size += sum(item.size for item in items)
        return ids

    def next_batch(self) -> Batch | None:
        """The oldest messages that one commit may carry, or the batch whose outcome is still open."""
        if self._batch is None and self._waiting:
            count, size = 0, 0
            for item in self._waiting[: limits.COMMIT_MESSAGES]:
                size += item.size
                if count and size > limits.COMMIT_BYTES:
                    break
                count += 1
            some = self._waiting[:count]
            minted = all(item.minted for item in some)
            self._batch = Batch([item.message for item in some], f"buffered-{new_id()}", minted)
        return self._batch

    async def commit(self, batch: Batch) -> Receipt:
        """Commit a batch; an answer that was lost is asked for again, under the same key."""
        target = self.target
        request = Request(
            thread_id=target.thread_id,
            messages=batch.messages,
            run=target.run,
            branch=target.branch,
            fence=target.fence,
            key=batch.key,
            stored=batch.minted,
        )
        for _ in range(_ATTEMPTS - 1):
            try:
                return await perform(self._context, prepare(request))
            except OutcomeUnknown:
                continue
        return await perform(self._context, prepare(request))

    def settle(self, batch: Batch, receipt: Receipt) -> None:
        """The batch is durable: let go of it, and tell whoever waits for a flush."""
        count = len(batch.messages)
        done, self._waiting = self._waiting[:count], self._waiting[count:]
        self._ids.difference_update(item.message.id or "" for item in done)
        self._size -= sum(item.size for item in done)
        self._batch = None
        for receipts in self._collecting:
            receipts.append(receipt)

    def collect(self) -> list[Receipt]:
        """A list that fills with the receipts of what becomes durable, until `collected`."""
        receipts: list[Receipt] = []
        self._collecting.append(receipts)
        return receipts

    def collected(self, receipts: list[Receipt]) -> Receipt | None:
        """All of it as one receipt; None if nothing became durable."""
        self._collecting = [other for other in self._collecting if other is not receipts]
        if not receipts:
            return None
        ids = [name for receipt in receipts for name in receipt.message_ids]
        seqs = [seq for receipt in receipts for seq in receipt.seqs]
        return msgspec.structs.replace(receipts[-1], message_ids=ids, seqs=seqs, replayed=False)

    def fail(self, error: Exception) -> None:
        """A flush in the background failed: the next call of the caller hears of it."""
        self._failure = error

    def heal(self) -> Exception | None:
        """The failure that nobody has heard of yet; it counts as heard now."""
        failure, self._failure = self._failure, None
        return failure

    def close(self) -> None:
        """Take no more messages."""
        self._closed = True

    def report(self, error: BaseException) -> None:
        """Leave a note on the error that ends a block while messages could not be written."""
        count = f"{len(self._waiting)} buffered message{'s' if len(self._waiting) != 1 else ''}"
        error.add_note(f"not committed: {count}, in writer.waiting")


def _checked(target: BufferTarget) -> BufferTarget:
    if type(target.most) is not int or not 1 <= target.most <= limits.COMMIT_MESSAGES:
        raise InvalidError(f"most must be between 1 and {limits.COMMIT_MESSAGES}, not {short_repr(target.most)}")
    if type(target.every_ms) is not int or not 1 <= target.every_ms <= limits.BUFFER_MS:
        raise InvalidError(f"every_ms must be between 1 and {limits.BUFFER_MS:,}, not {short_repr(target.every_ms)}")
    if target.run is not None and type(target.run) is not Run:
        hint = "flush, then move the run with store.commit"
        raise InvalidError(f"run must be a Run that stays as it is, not {short_repr(target.run)}", hint=hint)
    checks.check_id(target.thread_id, "thread id")
    prepare(Request(thread_id=target.thread_id, run=target.run, branch=target.branch, fence=target.fence))
    return target


def _copied(thread_id: str, message: Message, *, minted: bool) -> _Waiting:
    entry = message_entry(message, 0, 0)
    return _Waiting(message_record(thread_id, (0, 0, *entry), None).message, len(entry[-1]), minted)
