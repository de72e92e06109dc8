"""`Pending`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.pending`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack, overload

from perdure import limits
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode, PendingMessage, PendingQueue
from perdure.model.receipt import Receipt, RunReceipt
from perdure.model.run import NewRun, Run, RunChange
from perdure.stores import pending as async_pending
from perdure.stores.pending import FreezeOptions, PendingMessages, ThreadIds
from perdure.sync.face import Face

# fmt: off


class Pending(Face[async_pending.Pending], of=async_pending.Pending):
    """`store.pending`, blocking."""

    def list(self, thread_id: str) -> PendingQueue:
        """The pending messages in order, and the queue's revision."""
        return self._driver.read(self._inner.list(thread_id))

    def iter(self, thread_id: str) -> Iterator[PendingMessage]:
        """Every pending message of the list, one by one."""
        return self._driver.iterate(self._inner.iter(thread_id))

    def count(self, thread_id: str) -> int:
        """How many messages are pending; reads none of them."""
        return self._driver.read(self._inner.count(thread_id))

    def append(
        self, thread_id: str, messages: Sequence[Message], *, mode: DeliveryMode | None = None
    ) -> PendingMessages:
        """Add messages at the end of the queue; missing ids are generated."""
        return self._driver.run(self._inner.append(thread_id, messages, mode=mode))

    def edit(
        self, thread_id: str, message_id: str, message: Message, *, mode: DeliveryMode | None = None,
        if_revision: int | None = None
    ) -> PendingMessage:
        """Replace a pending message (its id stays), and its mode if one is passed."""
        return self._driver.run(self._inner.edit(thread_id, message_id, message, mode=mode, if_revision=if_revision))

    def retract(self, thread_id: str, message_id: str, *, if_revision: int | None = None) -> None:
        """Take a message back before it is read; the rest moves up."""
        return self._driver.run(self._inner.retract(thread_id, message_id, if_revision=if_revision))

    def reorder(self, thread_id: str, message_ids: Sequence[str], *, if_revision: int | None = None) -> PendingQueue:
        """Put the whole queue into this order: `message_ids` names every pending message once."""
        return self._driver.run(self._inner.reorder(thread_id, message_ids, if_revision=if_revision))

    @overload
    def freeze(
        self, thread_id: str, *, run: Run | RunChange | NewRun, **options: Unpack[FreezeOptions]
    ) -> RunReceipt: ...

    @overload
    def freeze(self, thread_id: str, *, run: None = None, **options: Unpack[FreezeOptions]) -> Receipt: ...

    def freeze(
        self, thread_id: str, *, boundary: str = "new_run", run: Run | RunChange | NewRun | None = None,
        messages: Sequence[Message] = (), mode: DeliveryMode | None = None, branch: int | str | None = None,
        expect: int | None = None, expect_ids: Sequence[str] | None = None, fence: int | None = None,
        key: str | None = None
    ) -> Receipt:
        """Move what this boundary takes from the queue into the log, with the run that consumes it, in one commit."""
        return self._driver.run(self._inner.freeze(
            thread_id, boundary=boundary, run=run, messages=messages, mode=mode, branch=branch, expect=expect,
            expect_ids=expect_ids, fence=fence, key=key
        ))

    def threads(self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT) -> ThreadIds:
        """Ids of threads that have pending messages, ascending, after an id."""
        return self._driver.read(self._inner.threads(after=after, limit=limit))
