"""Which errors pass by themselves, and what a worker does meanwhile; what an error says of its cause in a word."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from perdure.errors import ConflictError, OutcomeUnknown, PerdureError, UnavailableError
from perdure.workers.logs import LOGGER, brief

T = TypeVar("T")
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


def may_pass(error: BaseException) -> bool:
    """Is this trouble of the store that ends by itself? Of a group, one such error decides."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(may_pass, error.exceptions))
    return isinstance(error, (UnavailableError, OutcomeUnknown, ConflictError)) and error.retryable


RetryOn = tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors of a handler may pass: those of some classes, or those of which a function says so."""


def is_retryable(error: BaseException, retry_on: RetryOn) -> bool:
    """May the error pass: does the caller say so, or the error itself? Of a group, all of them must."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_retryable(each, retry_on) for each in error.exceptions)
    if attribute(error, "retryable") is True:
        return True
    if isinstance(retry_on, tuple):
        return isinstance(error, retry_on)
    return isinstance(error, Exception) and _says_so(retry_on, error)


def _says_so(passes: Callable[[Exception], bool], error: Exception) -> bool:
    """What the caller's function says; if it fails, the error is the one that counts, not that of the function."""
    try:
        return passes(error) is True
    except Exception as failure:  # noqa: BLE001 - a caller's function may raise anything
        LOGGER.error("retry_on failed for %s, which is not retried: %s", type(error).__name__, brief(failure))
        return False


def is_async(function: object) -> bool:
    """Does a call of it return something to await?"""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def attribute(value: object, name: str) -> Any:
    """An attribute of another library's object, or None: a property may raise anything."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - it says nothing then
        return None


_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""A word as APIs have it. With dots and colons, it might be the name of a server."""


def code_of(error: object) -> str | None:
    """The stable word for the cause that an error has as its `code`. Browsers are shown it, so it is no sentence."""
    code = attribute(error, "code")
    word = str.__str__(code) if isinstance(code, str) and isinstance(error, Exception) else ""
    return word if _CODE.fullmatch(word) else None


async def until_stored(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of a call that is safe to repeat, however long the store is in trouble; the caller sets a deadline."""
    pause = FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except PerdureError as error:
            if not may_pass(error):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do what has a deadline of its own. Whoever cancels this waits for its end."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
