"""`run`: a worker process in one blocking call, which shuts down cleanly on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import TypedDict, Unpack

from perdure.errors import InvalidError, UnavailableError
from perdure.opening import DurabilityChoice, Opening
from perdure.opening import open as open_store
from perdure.rules import checks
from perdure.stores.store import Store
from perdure.workers.driving import FIRST_PAUSE, LONGEST_PAUSE, Handler
from perdure.workers.logs import LOGGER, brief, logging_to_stderr
from perdure.workers.serving import serve
from perdure.workers.trouble import RetryOn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ServeOptions(TypedDict, total=False):
    """What `serve` takes besides the store, the handler and `stop`; its docstring explains each."""

    agent_id: str | None
    concurrency: int
    poll_ms: int
    lease_ms: int
    drain_ms: int
    retries: int
    retry_on: RetryOn
    in_order: bool
    max_takeovers: int
    worker: str | None


def run(
    url: str | os.PathLike[str],
    handler: Handler,
    *,
    scope: str = "default",
    durability: DurabilityChoice = "power",
    housekeeping: bool = True,
    retry_ms: int = 0,
    log: bool = True,
    **options: Unpack[ServeOptions],
) -> None:
    """Open a store and serve it until the process gets SIGTERM or SIGINT: the whole main program of a worker.

    After the first signal, it takes no more work, and the handlers have `drain_ms` to end. A second signal cancels
    them. Either way it releases the leases, closes the store and returns. Call it in the main thread, where no event
    loop runs; elsewhere, await `serve`.

    While the store is unavailable at the start, it tries again, with a pause that doubles each time up to a minute.

    - `url`, `scope`, `durability`, `housekeeping`, `retry_ms`: as for `perdure.open`.
    - `handler` and the options: as for `serve`.
    - `log`: write what Perdure logs, from INFO up, to stderr while it runs, unless the program has a logging handler
      for it.
    """
    _check_thread()
    checks.check_flag(log, "log")
    opening = open_store(url, scope=scope, durability=durability, housekeeping=housekeeping, retry_ms=retry_ms)
    with logging_to_stderr() if log else nullcontext(), suppress(asyncio.CancelledError):
        asyncio.run(_serve(opening, handler, options))


async def _serve(opening: Opening, handler: Handler, options: ServeOptions) -> None:
    stop = asyncio.Event()
    with _signals(stop):
        store = await _opened(opening, stop)
        if store is None:
            return
        async with store:
            await serve(store, handler, stop=stop, **options)


async def _opened(opening: Opening, stop: asyncio.Event) -> Store | None:
    """The open store, as soon as it is available; None if the worker is to stop before."""
    trying, stopping = asyncio.create_task(_open(opening)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({trying, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return trying.result() if trying.done() else None
    finally:
        for task in (trying, stopping):
            task.cancel()
        await asyncio.gather(trying, stopping, return_exceptions=True)


async def _open(opening: Opening) -> Store:
    """The open store, as soon as it is available."""
    pause = FIRST_PAUSE
    while True:
        try:
            return await opening
        except UnavailableError as error:
            LOGGER.warning("the store cannot be opened; the next try is in %g s: %s", pause, brief(error))
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """While the block runs, the first signal sets `stop`, and the second cancels this task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signals: list[int] = []

    def react(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:
            LOGGER.info("signal %s: the worker stops", number)
            stop.set()
        elif len(signals) == 2 and task is not None:
            LOGGER.info("signal %s: the handlers are cancelled", number)
            task.cancel()

    def catch(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(react, number)

    # Not loop.add_signal_handler, which Windows does not have.
    before = {number: signal.signal(number, catch) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            if previous is not None:  # None: a handler that is not Python's, which cannot be put back
                signal.signal(number, previous)


def _check_thread() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if threading.current_thread() is threading.main_thread():
            return
    raise InvalidError(
        "workers.run is a whole program: call it in the main thread, where no event loop runs",
        hint="await perdure.workers.serve(store, handler)",
    )
