"""Housekeeping: a background worker that cleans the scopes in use while a store is open.

Opening a store and asking it for another scope cost nothing here: the first use of a scope puts it on a list, and a
worker takes it off. The worker exists only while the list holds something, works in short pieces, and rests after each
piece for as long as the piece took, so that it never takes more than half of a writer's capacity. Which scopes are
clean is remembered for an engine, not for a `Store` object: `store.scoped(x)` in every request costs nothing.

Where an engine has a blocking view (one file, or memory), the worker is a thread, which serves both faces. A server's
connections belong to an event loop, so there it is a task of that loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from perdure import limits
from perdure.kernel.engine import Engine
from perdure.kernel.threads import run_in_thread
from perdure.stores.cleanup import Progress, sweep
from perdure.stores.context import Context

_logger = logging.getLogger("perdure.housekeeping")
_SCOPES_MOST = 20_000
"""How many scopes are remembered as clean; beyond that all are forgotten, and cleaned again when used."""
_SHORTEST_REST, _LONGEST_REST = 0.001, 0.25
Rest = Callable[[float], Awaitable[None]]


class ForkGate:
    """Keeps a fork from falling into the middle of a piece of work.

    SQLite guards its memory with a mutex of the process. A child that is forked while a thread holds it can never take
    it, and hangs when it opens a file. So worker threads hold this gate while they work, and a fork waits
    until they rest, or at most `PATIENCE` seconds.
    """

    PATIENCE = 1.0

    def __init__(self) -> None:
        self._working = threading.Lock()
        # Two threads may fork at once: each lets go of what it took itself.
        self._fork = threading.local()

    def enter(self) -> None:
        """Begin to work; one thread at a time."""
        self._working.acquire()

    def leave(self) -> None:
        """Rest, or end."""
        self._working.release()

    def before_fork(self) -> None:
        """Wait for the piece in progress."""
        self._fork.holds = self._working.acquire(timeout=self.PATIENCE)

    def after_fork_in_parent(self) -> None:
        """Let the workers go on."""
        if self._fork.holds:
            self._working.release()

    def after_fork_in_child(self) -> None:
        """The thread that held it does not exist here."""
        self._working = threading.Lock()


_gate = ForkGate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.before_fork,
        after_in_parent=_gate.after_fork_in_parent,
        after_in_child=_gate.after_fork_in_child,
    )


class Stopped(Exception):
    """The store is being closed: stop between two pieces."""


class Housekeeper:
    """Cleans the scopes of one engine that are in use. Made for a `Store` that may write; shared by its scopes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clean_until: dict[str, float] = {}
        self._progress: dict[str, Progress] = {}
        self._waiting: dict[str, None] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._worker: ThreadWorker | TaskWorker | None = None
        self._closed = False
        self.problem: str | None = None

    def visit(self, scope: str) -> None:
        """The scope is in use: have it cleaned, unless that was done lately."""
        if self._clean_until.get(scope, 0.0) <= time.monotonic():
            self._enlist(scope)

    def revisit(self, scope: str) -> None:
        """Have the scope cleaned now and as a whole, however recently it was."""
        self._progress.pop(scope, None)
        self._enlist(scope)

    def _forked(self) -> bool:
        """In a forked child there is no worker, and a lock that was held is never released."""
        return os.getpid() != self._pid

    def _enlist(self, scope: str) -> None:
        if self._forked():
            return
        with self._lock:
            if self._closed:
                return
            if len(self._clean_until) >= _SCOPES_MOST:
                for known in (self._clean_until, self._progress, self._waiting):
                    known.clear()
            self._clean_until[scope] = time.monotonic() + limits.CLEANUP_INTERVAL_MS / 1000
            self._waiting[scope] = None
            if self._worker is None or not self._worker.alive:
                self._worker = self._try_to_start()
            if self._worker is None:
                self._clean_until[scope] = time.monotonic() + limits.CLEANUP_RETRY_MS / 1000

    def _try_to_start(self) -> ThreadWorker | TaskWorker | None:
        """A worker, if one can be had: the call that brought us here has done its work and must not fail for this."""
        try:
            return self._start()
        except (RuntimeError, MemoryError) as error:
            self.problem = f"housekeeping cannot start: {error}"
            return None

    def _start(self) -> ThreadWorker | TaskWorker | None:
        blocking = self._engine.blocking()
        if blocking is not None:
            return ThreadWorker(self, blocking)
        try:
            return TaskWorker(self, self._engine, asyncio.get_running_loop())
        except RuntimeError:
            return None  # no loop runs here: the next call that comes from one starts the work

    @property
    def busy(self) -> bool:
        """Whether anything is being cleaned, or waits for it."""
        return self._worker is not None and self._worker.alive

    def next_scope(self) -> str | None:
        """The scope to clean next; None ends the worker."""
        with self._lock:
            if self._closed:
                return None
            if not self._waiting:
                self._worker = None
                return None
            scope = next(iter(self._waiting))
            del self._waiting[scope]
            return scope

    async def clean(self, engine: Engine, scope: str, rest: Rest) -> None:
        """Clean one scope. A failure is shown by `health`, and tried again when the scope is used a little later."""
        context = Context(engine, scope)
        began = time.monotonic()

        async def pause() -> None:
            nonlocal began
            worked = time.monotonic() - began
            await rest(min(max(worked, _SHORTEST_REST), _LONGEST_REST))
            began = time.monotonic()

        try:
            await sweep(context, self._progress.setdefault(scope, Progress()), pause)
            self.problem = None
            _logger.debug("scope %r is clean", scope)
            await pause()
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, `health` shows it and the other scopes get their turn
            self.problem = f"housekeeping of scope {scope!r} failed: {error}"
            self._clean_until[scope] = time.monotonic() + limits.CLEANUP_RETRY_MS / 1000
            # The text of an error may echo stored data, so it is left to `health`.
            _logger.warning("cleaning scope %r failed (%s); it is tried again later", scope, type(error).__name__)

    async def close(self) -> None:
        """Stop between two pieces; what is left waits for the next store. Nothing at all in a forked child."""
        if self._forked():
            return
        with self._lock:
            self._closed = True
            worker = self._worker
        if worker is not None:
            await worker.stop()


class ThreadWorker:
    """Cleans on a separate thread, over an engine whose coroutines never suspend."""

    def __init__(self, keeper: Housekeeper, engine: Engine) -> None:
        self._keeper = keeper
        self._engine = engine
        self._stopping = threading.Event()
        # A daemon: a store that was never closed must not keep a program from ending.
        self._thread = threading.Thread(target=self._serve, name="perdure-housekeeping", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still takes scopes."""
        return self._thread.is_alive()

    def _serve(self) -> None:
        while (scope := self._keeper.next_scope()) is not None:
            _gate.enter()
            try:
                with suppress(StopIteration):
                    self._keeper.clean(self._engine, scope, self._rest).send(None)
            finally:
                _gate.leave()

    async def _rest(self, seconds: float) -> None:
        _gate.leave()
        try:
            stopping = self._stopping.wait(seconds)
        finally:
            _gate.enter()
        if stopping:
            raise Stopped

    async def stop(self) -> None:
        """End after the piece in progress. Over a loop another thread waits for that."""
        self._stopping.set()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._thread.join()
        else:
            if self._thread.is_alive():
                await run_in_thread(self._thread.join)


class TaskWorker:
    """Cleans in a task of the event loop that the engine's connections belong to."""

    def __init__(self, keeper: Housekeeper, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._keeper = keeper
        self._engine = engine
        self._task = loop.create_task(self._serve(), name="perdure-housekeeping")

    @property
    def alive(self) -> bool:
        """Whether it still takes scopes; a task of a loop that has ended does not."""
        return not self._task.done() and not self._task.get_loop().is_closed()

    async def _serve(self) -> None:
        while (scope := self._keeper.next_scope()) is not None:
            await self._keeper.clean(self._engine, scope, asyncio.sleep)

    async def stop(self) -> None:
        """End at once: a piece that is cut off is done again by the next store. May be cancelled and repeated."""
        if self._task.get_loop() is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.wait([self._task])
