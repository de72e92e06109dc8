"""Repeats a call that failed for a reason that may pass: `perdure.open(url, retry_ms=…)`.

What is repeated is safe to repeat. After `UnavailableError` nothing was written. After `OutcomeUnknown`, or when other
writers kept overtaking a call, only a commit with a key is made again: its key lets it take effect once. Stores call
this below their own logic, so nobody else sleeps or counts attempts.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

from perdure.errors import ConflictError, InvalidError, NotFoundError, OutcomeUnknown, PerdureError, UnavailableError
from perdure.kernel.signals import running_loop

T = TypeVar("T")
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_logger = logging.getLogger("perdure.retry")
_deadline: ContextVar[float | None] = ContextVar("perdure_retry_deadline", default=None)
"""Until when the call that is running may be repeated: the reads inside a commit share its deadline."""


class Patience:
    """Repeats calls for so many milliseconds, counted from their beginning."""

    def __init__(self, ms: int) -> None:
        self.ms: int = ms

    async def repeat(self, attempt: Callable[[], Awaitable[T]], *, keyed: bool = False) -> T:
        """The result of `attempt`, called again while it fails for a reason that may pass; `keyed`: under a key."""
        if not self.ms:
            return await attempt()
        outer = _deadline.get()
        token = _deadline.set(time.monotonic() + self.ms / 1000 if outer is None else outer)
        try:
            return await _repeat(attempt, keyed=keyed)
        finally:
            _deadline.reset(token)


async def _repeat(attempt: Callable[[], Awaitable[T]], *, keyed: bool) -> T:
    unknown: OutcomeUnknown | None = None
    delay, number = _FIRST_PAUSE, 1
    while True:
        try:
            return await attempt()
        except PerdureError as error:
            unknown = error if isinstance(error, OutcomeUnknown) else unknown
            remaining = (_deadline.get() or 0) - time.monotonic()
            if not _may_pass(error, keyed=keyed) or remaining <= 0:
                raise _last(error, unknown) from None
            number += 1
            _note(error, number)
        await pause(min(remaining, delay * random.uniform(0.5, 1)))
        delay = min(2 * delay, _LONGEST_PAUSE)


def _may_pass(error: PerdureError, *, keyed: bool) -> bool:
    return error.retryable and (keyed or isinstance(error, UnavailableError))


def _last(error: PerdureError, unknown: OutcomeUnknown | None) -> PerdureError:
    """The error to raise. That an earlier attempt may have been made outweighs that the last one was not."""
    if unknown is None or (isinstance(error, (ConflictError, NotFoundError, InvalidError)) and not error.retryable):
        return error
    return unknown


def _note(error: PerdureError, number: int) -> None:
    with suppress(Exception):  # a handler that raises must not replace the error
        _logger.debug("a call is repeated after %s: attempt %d", type(error).__name__, number)


async def pause(seconds: float) -> None:
    """Wait. Blocking callers of an embedded engine have no loop to suspend in: they sleep on their own thread."""
    if running_loop() is None:
        time.sleep(seconds)  # noqa: ASYNC251 - no loop runs on this thread
    else:
        await asyncio.sleep(seconds)
