"""Runs async stores for blocking callers: on their own thread where that is possible, else on a background loop.

The stores are coroutines over an engine. Over an engine's *blocking view* those coroutines never suspend: each `await`
below them returns at once with the finished result, because the engine did the work on the caller's own thread. So one
`send(None)` runs a whole call (`Driver`), and the blocking face costs a function call instead of a thread hop.

An engine that talks to a server has no such view: its connections belong to an event loop. `LoopDriver` keeps one loop
in one thread per store; callers hand their coroutines over and wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from perdure.errors import OutcomeUnknown, PerdureError, UnsupportedError
from perdure.kernel.lifecycle import closed

T = TypeVar("T")
_END: Any = object()


class Driver:
    """Runs coroutines that never suspend, in the process that made it, outside event loops."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call."""
        try:
            self._refuse_wrong_caller()
            call.send(None)
        except StopIteration as finished:
            result: T = finished.value
            return result
        except BaseException:
            call.close()
            raise
        call.close()
        raise UnsupportedError("this engine cannot serve blocking callers", hint="use perdure.open with async code")

    def read(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call that writes nothing, so that its failure leaves nothing in doubt."""
        return self.run(call)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an async iterator, one blocking step at a time."""
        try:
            while (item := self.read(_next(items))) is not _END:
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and self.alive:
                self.read(close())

    @property
    def alive(self) -> bool:
        """Whether calls can still be run; not in a forked child."""
        return os.getpid() == self._pid

    def close(self) -> None:
        """Let go of what running calls needed; idempotent."""

    def _refuse_wrong_caller(self) -> None:
        if os.getpid() != self._pid:
            raise UnsupportedError(
                "the store was opened before the fork, so it belongs to the parent process",
                hint="start the process with spawn or forkserver, or open stores only after the fork",
            )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise UnsupportedError(
            "a blocking call inside a running event loop would stop the loop", hint="use perdure.open and await"
        )


class LoopDriver(Driver):
    """Runs coroutines on an event loop in a background thread; any number of threads may call."""

    def __init__(self) -> None:
        super().__init__()
        self._refuse_wrong_caller()
        self._lock = threading.Lock()
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: a store that was never closed must not keep a program from ending.
        self._thread = threading.Thread(target=self._serve, name="perdure-sync", daemon=True)
        self._thread.start()
        self._loop, self._stop = self._started.result()
        self._closed = False

    def _serve(self) -> None:
        async def until_stopped() -> None:
            stop = asyncio.Event()
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

        # The runner cancels what is left and closes abandoned iterators before the thread ends.
        with asyncio.Runner() as runner:
            runner.run(until_stopped())

    @property
    def alive(self) -> bool:
        """Whether the loop still takes calls."""
        return super().alive and not self._closed

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call; an interrupted wait (Ctrl-C) cancels the call and sees it end first."""
        return self._wait_for(_Job(call, writes=True))

    def read(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call that writes nothing."""
        return self._wait_for(_Job(call, writes=False))

    def _wait_for(self, job: _Job[T]) -> T:
        try:
            self._refuse_wrong_caller()
            self._submit(job)
            return job.answer.result()
        except PerdureError:
            job.call.close()
            raise
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # the loop is closed, and with it every job has ended
                self._loop.call_soon_threadsafe(job.cancel)
                job.ended.wait()
            raise

    def _submit(self, job: _Job[Any]) -> None:
        # Under the lock, so that no job can come after the one that stops the loop, and never end.
        with self._lock:
            if self._closed:
                raise closed()
            self._loop.call_soon_threadsafe(job.start)

    def close(self) -> None:
        """Stop the loop and wait until its thread has ended; calls that still wait are cancelled and raise."""
        self._refuse_wrong_caller()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class _Job(Generic[T]):
    """A call on its way through the loop: `start` and `cancel` happen there, the caller waits for `answer`."""

    def __init__(self, call: Coroutine[Any, Any, T], *, writes: bool) -> None:
        self.call = call
        self.answer: Future[T] = Future()
        self.ended = threading.Event()
        self._writes = writes
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.call)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.ended.is_set():
            # Interrupted before it was handed over: whatever was, has started by now.
            self.call.close()
            self.ended.set()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.answer.set_exception(_closed_during_call(writes=self._writes))
        elif (error := task.exception()) is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(task.result())
        self._task = None
        self.ended.set()


def _closed_during_call(*, writes: bool) -> PerdureError:
    if not writes:
        return closed()
    # Cancelled wherever it was: the server may already have all of it.
    hint = "open it again and retry with the same key, or look first"
    return OutcomeUnknown("the store was closed during this call; the write may have landed", rev=0, hint=hint)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items, _END)
