"""`store.buffered(…)`: appends that are acknowledged before they are durable, committed a few at a time.

A commit per message is the safe default. Where messages come faster than that pays, such as a trace or an import, a
buffered writer commits them in batches: when enough wait, or some time after the first. What it holds is lost if the
process dies; what a flush reports is not.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from perdure.model.message import Message
from perdure.model.receipt import Receipt
from perdure.stores.buffer import Buffer


class BufferedWriter:
    """Made by `store.buffered`; use it with `async with`. Several tasks may append."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer: Buffer = buffer
        self._writing = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> list[Message]:
        """The messages, with their ids, that are not known to be durable, in order."""
        return self.buffer.messages

    async def append(self, *messages: Message) -> list[str]:
        """Take messages and return their ids. They are **not durable yet**: `flush` makes them so.

        It raises if a flush in the background has failed since the last call, or if the messages could not be
        committed. It then has taken none of its messages; those of earlier calls are in `waiting`. It waits for a flush
        if twice as many messages as `most` are waiting, or if the messages would exceed the size of a commit (8 MiB).
        """
        items = self.buffer.prepared(messages)
        failure = self.buffer.heal()
        if failure is not None:
            raise failure
        while not self.buffer.has_room(items):
            await self._write_all()
        ids = self.buffer.add(items)
        self._schedule()
        return ids

    async def flush(self) -> Receipt | None:
        """Commit everything that is waiting; what its receipt names is durable. None if nothing waited.

        More than one commit may be needed; the receipt names the messages of all, and the version after the last. If it
        raises, the messages that were not committed are in `waiting`, and the next flush tries them again under the
        same key, so that none is written twice.
        """
        receipts = self.buffer.collect()
        try:
            self.buffer.heal()
            await self._write_all()
        finally:
            receipt = self.buffer.collected(receipts)
        return receipt

    async def _write_all(self) -> None:
        """Commit batch after batch until nothing waits; one at a time, so that order is kept."""
        async with self._writing:
            self._cancel_timer()
            while (batch := self.buffer.next_batch()) is not None:
                self.buffer.settle(batch, await self.buffer.commit(batch))

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Whatever waits in an earlier loop may never run: that loop may have ended.
            self._loop, self._timer, self._task = loop, None, None
        if self.buffer.is_due:
            self._begin()
        elif self._timer is None and self._task is None and self.buffer.messages:
            self._timer = loop.call_later(self.buffer.target.every_ms / 1000, self._begin)

    def _begin(self) -> None:
        self._cancel_timer()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_in_background())

    async def _write_in_background(self) -> None:
        try:
            await self._write_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller has to hear of it
            self.buffer.fail(error)
        finally:
            self._task = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> BufferedWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, even if the block raised an exception: what was appended was meant to be kept.

        If that fails after the block raised, the block's own error is the one that is raised, with a note.
        """
        self.buffer.close()
        self._cancel_timer()
        try:
            await self.flush()
        except Exception:
            if error is None:
                raise
            self.buffer.report(error)
        finally:
            self._cancel_timer()
