"""`store.buffered(…)` for blocking callers: the same writer, with a thread that flushes in the background.

The thread exists while messages wait, and ends when the writer is left. It is a daemon: a writer that was never left
must not keep a program from ending.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from perdure.model.message import Message
from perdure.model.receipt import Receipt
from perdure.stores.buffer import Buffer
from perdure.sync.driver import Driver


class BufferedWriter:
    """Made by `store.buffered`; use it with `with`. Several threads may append."""

    def __init__(self, buffer: Buffer, driver: Driver) -> None:
        self._buffer = buffer
        self._driver = driver
        self._writing = threading.Lock()
        # Guards the buffer; told when there is something to do for the thread.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._left = False

    @property
    def waiting(self) -> list[Message]:
        """The messages, with their ids, that are not known to be durable, in order."""
        with self._changed:
            return self._buffer.messages

    def append(self, *messages: Message) -> list[str]:
        """Take messages and return their ids. They are **not durable yet**: `flush` makes them so.

        It raises if a flush in the background has failed since the last call, or if the messages could not be
        committed. It then has taken none of its messages; those of earlier calls are in `waiting`. It waits for a flush
        if twice as many messages as `most` are waiting.
        """
        items = self._buffer.prepared(messages)
        while True:
            with self._changed:
                failure = self._buffer.heal()
                if failure is not None:
                    raise failure
                if self._buffer.has_room(items):
                    ids = self._buffer.add(items)
                    self._wake()
                    return ids
            self._write_all()

    def flush(self) -> Receipt | None:
        """Commit everything that waits; what its receipt names is durable. None if nothing waited.

        More than one commit may be needed; the receipt names the messages of all, and the version after the last. If it
        raises, the messages that were not committed are in `waiting`, and the next flush tries them again under the
        same key, so that none is written twice.
        """
        with self._changed:
            receipts = self._buffer.collect()
            self._buffer.heal()
        try:
            self._write_all()
        finally:
            with self._changed:
                receipt = self._buffer.collected(receipts)
        return receipt

    def _write_all(self) -> None:
        """Commit batch after batch until nothing waits; one at a time, so that order is kept."""
        with self._writing:
            while True:
                with self._changed:
                    batch = self._buffer.next_batch()
                if batch is None:
                    return
                receipt = self._driver.run(self._buffer.commit(batch))
                with self._changed:
                    self._buffer.settle(batch, receipt)

    def _wake(self) -> None:
        if self._thread is None and self._buffer.messages:
            self._thread = threading.Thread(target=self._serve, name="perdure-buffered", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        while self._until_due():
            try:
                self._write_all()
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller has to hear of it
                with self._changed:
                    self._buffer.fail(error)
                    self._thread = None
                return

    def _until_due(self) -> bool:
        """Wait until a flush is due; False if there is nothing left to do, and the thread ends."""
        with self._changed:
            end = time.monotonic() + self._buffer.target.every_ms / 1000
            while self._buffer.messages and not self._left and not self._buffer.is_due:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._left or not self._buffer.messages:
                self._thread = None
                return False
            return True

    def __enter__(self) -> BufferedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, even if the block raised an exception: what was appended was meant to be kept.

        If that fails after the block raised, the block's own error is the one that is raised, with a note.
        """
        with self._changed:
            self._left = True
            self._buffer.close()
            thread = self._thread
            self._changed.notify_all()
        try:
            self.flush()
        except Exception:
            if error is None:
                raise
            self._buffer.report(error)
        finally:
            if thread is not None:
                thread.join()
